r"""Do rows next to each other depend on each other?

If the model is calibrated and rows are independent given the predictions, features f_i of the
targets with mean 0 are uncorrelated, and so are those of targets drawn from the predictions.  Sums
of products of neighbours,

    sum_i (f_i f_{i+1} + … + f_i f_{i+l}),    l = 1, 2, 5,

are larger where neighbours depend on each other: forecasts whose horizons overlap, or rows of one
cluster in a row.  The maximum over l, and over features, ranks among those of drawn targets, which
is exact.

Errors of the model look like dependence, where neighbours have similar predictions and so similar
errors.  So smooth functions of the rank of the prediction, which are cosines, are first taken out
of the features, those of draws too.

In NumPy: compiling it would take longer than it takes.
"""

import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._between import Between
from calibjax._rows import Data, clean
from calibjax.evaluation._label_statistics import drawn_labels
from calibjax.resampling import DRAWS_PER_GROUP
from calibjax.scores import pit_interval_of_data, pit_of_data

_GROUPS = 3
_N_RESAMPLES = _GROUPS * DRAWS_PER_GROUP - 1
# More rows are not needed to see dependence that matters.
_MOST_ROWS = 2**14
# Fewer rows cannot show it, least of all behind so many cosines.
_LEAST_ROWS = 50
_COSINES, _FEATURES, _CLASSES = 8, 3, 7
# The sums of products of rows up to these distances.
_LAGS = (1, 2, 5)
# A warning at this level comes with one of a hundred files without dependence.
_LEVEL = 0.01
# Standardised sums that differ by less are equal.
_ROUNDING = 1e-4


def remark_on_neighbours(pvalue: float | None) -> str | None:
    """A warning that the p-value of an evaluation assumes too much; None if nothing is seen."""
    if pvalue is None or pvalue > _LEVEL:
        return None
    return (
        f"Rows next to each other depend on each other (p = {pvalue:.2g}); the p-value assumes "
        "independent rows: pass times= and horizon=, or clusters= (--time and --horizon, or "
        "--cluster)."
    )


class Column(NamedTuple):
    """Another column of the table of predictions, which may say which rows depend on each other.

    Args:
        name: its name.
        is_time: whether it holds times, and else names.
        values: numbers in the order of the times or names, ``[n]``.
        horizon: of the days that forecasts are about, in days: they may depend on each other if
            they are closer; None if it is not known when they were made.
    """

    name: str
    is_time: bool
    values: np.ndarray
    horizon: float | None = None


class Neighbours(NamedTuple):
    """The p-value of the test of neighbours in the order of a column; see `Column`."""

    name: str
    is_time: bool
    pvalue: float
    horizon: float | None = None

    @property
    def option(self) -> str:
        """What tells the test so, on a command line and in Python."""
        of_horizon = ["", ""]
        if self.horizon is not None:
            of_horizon = [f" --horizon {self.horizon:g}", f", horizon={self.horizon:g}"]
        option, python = ("--time", "times") if self.is_time else ("--cluster", "clusters")
        of_python = f"{python}={self.name!r}{of_horizon[1]}"
        return f"{option} {shlex.quote(self.name)}{of_horizon[0]} ({of_python})"


def remarks_on_order(of_rows: float | None, in_columns: Sequence[Neighbours]) -> list[str]:
    """The warning of columns, else that of the order of the rows, which names no option."""
    found = remark_on_columns(in_columns) or remark_on_neighbours(of_rows)
    return [] if found is None else [found]


def remark_on_columns(found: Sequence[Neighbours]) -> str | None:
    """A warning, with the option that mends it; None if nothing is seen."""
    seen = sorted((x for x in found if x.pvalue <= _LEVEL), key=lambda x: not x.is_time)
    if not seen:
        return None
    options = [x.option for x in seen]
    rows = [f"ows {'next to each other in' if x.is_time else 'of one'} {x.name}" for x in seen]
    if seen[0].is_time and seen[0].horizon is None:
        options[0] += ", and --horizon (horizon=) if forecasts look further ahead than one step"
    advice = options[0]
    if len(seen) > 1:
        advice = (
            f"{options[0]} if errors on near days are alike, as those of forecasts are, or "
            f"{options[1]} if those of one name always are, and not both"
        )
    pvalues = " and ".join(f"{x.pvalue:.2g}" for x in seen)
    return (
        f"R{' and r'.join(rows)} depend on each other (p = {pvalues}); the p-value assumes "
        f"independent rows: pass {advice}."
    )


def neighbours_in_columns(
    key: jax.Array, data: Data, columns: Sequence[Column]
) -> tuple[Neighbours, ...]:
    """`neighbour_dependence_test_of_data` of the rows in the order of each column."""
    found = []
    for name, is_time, values, horizon in columns:
        order = np.arange(data.n)
        order[: values.size] = np.argsort(values, kind="stable")
        rows = jnp.asarray(order)
        ordered = dataclasses.replace(
            data,
            predictions=data.predictions[rows],
            targets=jax.tree.map(lambda x, rows=rows: x[rows], data.targets),
        )
        pvalue = neighbour_dependence_test_of_data(key, ordered)
        if pvalue is not None:
            found.append(Neighbours(name, is_time, pvalue, horizon))
    return tuple(found)


def neighbour_dependence_test_of_data(key: jax.Array, data: Data) -> float | None:
    """The p-value of the hypothesis that rows of checked data are calibrated and independent.

    It sees neighbours in the order of the kept rows, which come first, up to row 2^14.

    Features of labels are e_y - p, of at most eight classes, divided by their deviations and added
    up.  Of numbers they are sqrt(2) cos(pi k u), k = 1, 2, 3, of a point u that is drawn in the
    interval of U = F(y): draws are uniform whatever is predicted.

    Args:
        key: a key of `jax.random`.
        data: n predictions and targets; weights do not matter.

    Returns:
        A multiple of 1 / 300; None for targets that are vectors, or fewer than 50 rows.
    """
    if data.predictions.target_shape != "n" or data.n_kept() < _LEAST_ROWS:
        return None
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    is_label = data.predictions.has_labels and not isinstance(data.targets, Between)
    features = _features_of_labels if is_label else _features_of_places
    found = np.concatenate([_products(x, basis) for x, basis in features(rng, key, data)], axis=2)
    # Every group begins with the observed targets.
    draws = [k for k in range(found.shape[2]) if k % (DRAWS_PER_GROUP + 1)][:_N_RESAMPLES]
    values = found[:, :, [0, *draws]]
    if is_label:
        values = values.sum(axis=1, keepdims=True)
    values = values.reshape(-1, values.shape[2])
    centred = values - values.mean(axis=1, keepdims=True)
    deviations = centred.std(axis=1, keepdims=True)
    largest = (centred / np.where(deviations > 0, deviations, 1)).max(axis=0)
    at_least = np.count_nonzero(largest[1:] >= largest[0] - _ROUNDING)
    return (1 + at_least) / (1 + _N_RESAMPLES)


#: Features of the observed targets and of a group of draws ``[M, n, 1 + D]``, and what is taken out
#: of them, ``[M, 1 + cosines, n]``.
_Features = Iterator[tuple[np.ndarray, np.ndarray]]


def _features_of_places(rng: np.random.Generator, key: jax.Array, data: Data) -> _Features:
    if isinstance(data.targets, Between):
        low, high = (np.asarray(x) for x in pit_interval_of_data(data))
        places = low + rng.random(low.size) * (high - low)
    else:
        places = np.asarray(pit_of_data(key, data))
    n = min(data.n_kept(), _MOST_ROWS)
    places, locations = places[:n], np.asarray(_locations(data))[:n]
    # A row without a cdf has no features.
    known = np.isfinite(places)
    places, locations = places[known], locations[known]
    basis = _cosines(rng, locations)[None]
    for _ in range(_GROUPS):
        drawn = rng.random((places.size, DRAWS_PER_GROUP), np.float32)
        first = np.cos(np.pi * np.column_stack([places.astype(np.float32), drawn]))
        # cos(2 x) and cos(3 x) from cos(x).
        features = [first, 2 * first**2 - 1, (4 * first**2 - 3) * first][:_FEATURES]
        yield np.sqrt(np.float32(2)) * np.stack(features), basis


@jax.jit
def _locations(data: Data) -> jax.Array:
    return clean(data).predictions.location()


def _features_of_labels(rng: np.random.Generator, key: jax.Array, data: Data) -> _Features:
    n = min(data.n_kept(), _MOST_ROWS)
    targets, basis = np.asarray(data.targets)[:n], np.empty(0)
    for group in range(_GROUPS):
        probabilities, drawn = (np.asarray(x) for x in drawn_labels(key, data, np.int32(group)))
        probabilities, labels = probabilities[:n], np.column_stack([targets, drawn[:, :n].T])
        judged = _judged_labels(probabilities)
        expected = probabilities[np.arange(n), judged]
        deviations = np.sqrt((expected * (1 - expected)).sum(axis=1, keepdims=True))
        if group == 0:
            basis = np.stack([_cosines(rng, row) for row in expected])
        residuals = (labels[None] == judged[:, :, None]) - expected[:, :, None]
        yield residuals / np.where(deviations > 0, deviations, 1)[:, :, None], basis


def _judged_labels(probabilities: np.ndarray) -> np.ndarray:
    """M labels of each row, ``[M, n]``.

    Of two labels it is the second; of more the most likely one, and those that vary most.
    """
    n, n_classes = probabilities.shape
    if n_classes == 2:
        return np.ones((1, n), int)
    varying = (probabilities * (1 - probabilities)).sum(axis=0)
    classes = np.argsort(-varying, kind="stable")[:_CLASSES]
    same = np.broadcast_to(classes[:, None], (classes.size, n))
    return np.concatenate([probabilities.argmax(axis=1)[None], same])


def _cosines(rng: np.random.Generator, values: np.ndarray) -> np.ndarray:
    """Orthonormal cosines of ranks, ``[1 + cosines, n]``; random numbers break ties."""
    n = values.size
    ranks = np.argsort(np.lexsort([rng.random(n), values]))
    waves = np.cos(np.pi * np.arange(_COSINES + 1)[:, None] * (ranks + 0.5) / n)
    waves[1:] *= 2**0.5
    return (waves / n**0.5).astype(np.float32)


def _products(features: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """The sums of products of neighbours ``[lags, M, D]`` of features ``[M, n, D]``."""
    rest = features - basis.swapaxes(1, 2) @ (basis @ features)
    at_lag = [
        np.einsum("mnd,mnd->md", rest[:, :-lag], rest[:, lag:]) for lag in range(1, _LAGS[-1] + 1)
    ]
    return np.cumsum(at_lag, axis=0)[[lag - 1 for lag in _LAGS]]
