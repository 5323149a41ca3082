r"""Do neighbouring rows, in their order or in that of a column, depend on each other?

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

Rows in the order of their targets have neighbours with near targets, and so similar errors, also if
they are independent.  Rows in the order of classes, of censoring, or of errors themselves are not
tested.  In the order of numbers, cosines of the rank of the target are subtracted as well, which
leaves errors that the target does not explain, such as those of a rising series.

In NumPy: compiling it would take longer than it takes.
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.compile import quick_jit
from calibjax._base.text import p_in_words
from calibjax._data.data import Data, clean
from calibjax._data.distribution import Labels
from calibjax._data.interval_censored import IntervalCensored
from calibjax._data.row_columns import sampled
from calibjax._data.typed_column import different
from calibjax._numbers.arithmetic import in_blocks
from calibjax.frames import Model, as_floats, cluster_numbers, is_missing, read_times
from calibjax.nulls import on_host
from calibjax.nulls.ranks import host_pvalue
from calibjax.scores import pit, pit_interval

_N_RESAMPLES = 299
# More rows are not needed to detect dependence that matters.  Rows of one part, since products of
# neighbours are not sums over parts of the rows.
_MOST_ROWS = on_host.ROWS_ON_HOST
# Minimum number of rows: fewer cannot show dependence, least of all behind the cosines.
_LEAST_ROWS = 50
_COSINES, _CLASSES = 8, 7
# The sums of products of rows up to these distances.
_LAGS = (1, 2, 5)
# The level of the warning: one of a hundred files without dependence has one.
_LEVEL = 0.01
# The lengths of blocks of products, and how many a t test needs.
_HORIZONS_OF_BLOCK, _LEAST_BLOCKS = 3, 8
# Standardised sums that differ by less are equal.
_ROUNDING = 1e-4
# Numbers are sorted if at most this share of the steps goes against their order, as in sorted files
# of ten rows.  Classes stand together if they have few runs: fewer than four each, and at most a
# third of those in random order.  Autoregressions rise as often as they fall, and have more runs up
# to a memory of 0.87.
_LEAST_AGAINST, _FEW_RUNS, _SHARE_OF_RUNS = 0.1, 4, 1 / 3


class Column(NamedTuple):
    """Another column of the table of predictions, which may say which rows depend on each other.

    Args:
        name: its name.
        is_time: whether it holds times, and else names.
        values: numbers in the order of the times or names, ``[n]``.
        horizon: of the days that forecasts are about, in days: they may depend on each other if
            they are closer; None if it is not known when they were made.
        pvalue: that of the test of neighbours in the order of the column, once it is tested.
    """

    name: str
    is_time: bool
    values: np.ndarray
    horizon: float | None = None
    pvalue: float = math.nan

    def in_words(self, option: Callable[[str], str]) -> str:
        """What tells the test so, with options as users write them, and when it is right."""
        if not self.is_time:
            return (
                f"{self.name!r} as {option('clusters')}, if errors in one {self.name} are similar"
            )
        horizon = "of the forecasts" if self.horizon is None else f"{self.horizon:g}"
        times = f"{self.name!r} as {option('times')} with the {option('horizon')} {horizon}"
        return f"{times}, if errors at nearby times are similar"


def notes_on_order(
    of_rows: float | None, in_columns: Sequence[Column], option: Callable[[str], str] = str
) -> list[str]:
    """A warning that the p-value of an evaluation assumes too much, and what to pass.

    It is of columns, else of the order of the rows; none if nothing is seen.
    """
    found = sorted((x for x in in_columns if x.pvalue <= _LEVEL), key=lambda x: not x.is_time)
    if found:
        order = " and ".join(
            f"{'neighbouring rows in' if x.is_time else 'rows of one'} {x.name}" for x in found
        )
        pvalues = " and ".join(p_in_words(x.pvalue, _N_RESAMPLES) for x in found)
        advice = ", or ".join(x.in_words(option) for x in found)
        advice += ", and not both" if len(found) > 1 else ""
    elif of_rows is not None and of_rows <= _LEVEL:
        order, pvalues = "neighbouring rows", p_in_words(of_rows, _N_RESAMPLES)
        units = f"{option('times')} and a {option('horizon')}, or {option('clusters')}"
        advice = f"{units}, if they share a day, a location or a person"
    else:
        return []
    return [
        f"{order[0].upper()}{order[1:]} appear dependent ({pvalues}); the p-value assumes "
        f"independent rows: pass {advice}."
    ]


def notes_on_horizon(key: jax.Array, data: Data) -> list[str]:
    """A warning that errors last longer than the horizon."""
    pvalue = dependence_beyond_horizon(key, data)
    if pvalue is None or pvalue > _LEVEL:
        return []
    return [
        f"Errors appear dependent beyond the horizon {data.horizon or 1:g}: sums over times "
        f"further apart are correlated ({p_in_words(pvalue)}). The p-value may be too small; use a "
        "longer horizon."
    ]


def neighbours_in_columns(
    key: jax.Array, data: Data, columns: Sequence[Column]
) -> tuple[Column, ...]:
    """`neighbour_dependence_test` of the rows in the order of each column."""
    found = []
    for column in columns:
        order = np.arange(data.n)
        order[: column.values.size] = np.argsort(column.values, kind="stable")
        predictions, targets = jax.tree.map(operator.itemgetter(jnp.asarray(order)), data.samples)
        ordered = data.replace(predictions=predictions, targets=targets)
        pvalue = neighbour_dependence_test(key, ordered)
        if pvalue is not None:
            found.append(column._replace(pvalue=pvalue))
    return tuple(found)


def neighbour_dependence_test(key: jax.Array, data: Data) -> float | None:
    """The p-value of the hypothesis that rows of checked data are calibrated and independent.

    It sees neighbours in the order of the kept rows, which come first, up to row 2^14.

    Features of labels are e_y - p, of at most eight classes, divided by their deviations and added
    up.  Features of numbers are sqrt(2) cos(pi k u), k = 1, 2, 3, at a point u that is drawn in the
    interval of the PIT: draws are uniform whatever is predicted.

    Args:
        key: a key of `jax.random`.
        data: n predictions and targets; weights do not matter.

    Returns:
        A multiple of 1 / 300; None for targets that are vectors, fewer than 50 rows, or rows in the
        order of classes, censoring or errors.
    """
    if data.predictions.target_shape != "n" or data.n_kept() < _LEAST_ROWS:
        return None
    n = min(data.n_kept(), _MOST_ROWS)
    ties = np.asarray(_uniform(key, 1, data.n))[:n]
    is_label = isinstance(data.predictions, Labels)
    parts = (_of_labels if is_label else _of_pits)(key, data, ties)
    observed, draw, features, basis, are_in_order = parts
    if are_in_order:
        return None

    def statistic(targets: np.ndarray, _: slice) -> np.ndarray:
        products = _products(features(targets), basis)
        return (products.sum(axis=1) if is_label else products).reshape(-1, len(targets)).T

    values = on_host.under_model_on_host(statistic, draw, observed, _N_RESAMPLES)
    centred = values - values.mean(axis=0)
    deviations = centred.std(axis=0)
    return host_pvalue((centred / np.where(deviations > 0, deviations, 1)).max(axis=1), _ROUNDING)


def dependence_beyond_horizon(key: jax.Array, data: Data) -> float | None:
    """The p-value of the hypothesis that sums over times a horizon apart are uncorrelated.

    With the sums S_t of features over times, S_t times the sum of those from one to two horizons
    before it has the mean 0.  Sums of these products over blocks of three horizons hardly depend on
    each other, and are compared by a one-sided t test.

    Returns:
        None without times and a horizon, for vectors, or with fewer than eight blocks.
    """
    if data.times is None or data.predictions.target_shape != "n":
        return None
    from scipy.special import stdtr

    n = min(data.n_kept(), _MOST_ROWS)
    at, index = np.unique(np.asarray(data.times, np.float64)[:n], return_inverse=True)
    block = ((at - at[0]) // _HORIZONS_OF_BLOCK).astype(int)
    n_blocks = block[-1] + 1
    if n_blocks < _LEAST_BLOCKS:
        return None
    ties = np.asarray(_uniform(key, 1, data.n))[:n]
    parts = (_of_labels if isinstance(data.predictions, Labels) else _of_pits)(key, data, ties)
    of_rows = parts[2](parts[0][None])[..., 0]
    if of_rows.shape[1] != n:  # Rows without a cdf have no features.
        return None
    sums = np.stack([np.bincount(index, weights=x) for x in of_rows])
    below = np.concatenate([np.zeros((len(sums), 1)), np.cumsum(sums, axis=1)], axis=1)
    first, end = (np.searchsorted(at, at - x, side="right") for x in (2, 1))
    products = np.sum(sums * (below[:, end] - below[:, first]), axis=0)
    of_blocks = np.bincount(block, weights=products, minlength=n_blocks)
    deviation = of_blocks.std(ddof=1) / math.sqrt(n_blocks)
    return float(stdtr(n_blocks - 1, -of_blocks.mean() / deviation)) if deviation > 0 else None


#: Observed targets ``[n]``, what draws such ``[D, n]``, their features ``[M, n, D]``, and what is
#: taken out of these, ``[M, 1 + cosines, n]``, and whether rows are in an order without a test.
_Parts = tuple[
    np.ndarray,
    Callable[[np.int32, slice], np.ndarray],
    Callable[[np.ndarray], np.ndarray],
    np.ndarray,
    bool,
]


@functools.partial(quick_jit, light=True, static_argnums=2)
def _uniform(key: jax.Array, number: int, n: int) -> jax.Array:
    return jax.random.uniform(jax.random.fold_in(key, number), (n,))


def _of_pits(key: jax.Array, data: Data, ties: np.ndarray) -> _Parts:
    if data.is_censored:
        low, high = (np.asarray(x) for x in pit_interval(data))
        pits = low + np.asarray(_uniform(key, 2, data.n)) * (high - low)
    else:
        pits = np.asarray(pit(key, data))
    pits = pits[: ties.size].astype(np.float32)
    # A row without a cdf has no features.
    known = np.isfinite(pits)
    low, high, location = (np.asarray(x)[: ties.size][known] for x in _ends_and_locations(data))
    basis = _cosines(location, ties[known])
    if _are_sorted(low) or _are_sorted(low > np.median(low)):
        waves = np.concatenate([basis, _cosines(low, ties[known])[1:]])
        basis = np.linalg.qr(waves.T)[0].T
    are_in_order = any(map(_are_sorted, (pits[known], np.abs(pits[known] - 0.5))))
    are_in_order |= _stand_together(high > low) or (_are_sorted(low) and bool(np.any(high > low)))

    def features(pits: np.ndarray) -> np.ndarray:
        first = np.cos(np.float32(np.pi) * pits.T[known])
        # cos(2 x) and cos(3 x) from cos(x).
        cosines = [first, 2 * first**2 - 1, (4 * first**2 - 3) * first]
        return np.sqrt(np.float32(2)) * np.stack(cosines)

    draw_key = jax.random.fold_in(key, 3)
    draw = functools.partial(on_host.drawn_pits, draw_key, min(data.n, _MOST_ROWS))
    return pits, draw, features, basis[None], are_in_order


def _of_labels(key: jax.Array, data: Data, ties: np.ndarray) -> _Parts:
    n = ties.size
    every = np.asarray(sampled(*on_host.label_probabilities(data)))[:_MOST_ROWS]
    probabilities = every[:n]
    tested = _tested_labels(probabilities)
    expected = probabilities[np.arange(n), tested]
    deviations = np.sqrt((expected * (1 - expected)).sum(axis=1))[:, None, None]

    def features(labels: np.ndarray) -> np.ndarray:
        residuals = (labels.T[None] == tested[:, :, None]) - expected[:, :, None]
        return residuals / np.where(deviations > 0, deviations, 1)

    draw = functools.partial(on_host.drawn_labels, key, every)
    basis = np.stack([_cosines(row, ties) for row in expected])
    labels = np.asarray(data.targets)[:n]
    of_class = probabilities[np.arange(n), labels]
    are_in_order = any(map(_stand_together, (labels, of_class == probabilities.max(axis=1))))
    return labels, draw, features, basis, are_in_order or _are_sorted(of_class)


def _are_sorted(values: np.ndarray) -> bool:
    """Whether nearly all steps from row to row go the same way."""
    steps = np.sign(np.subtract(values[1:], values[:-1], dtype=float))
    against = min(np.sum(steps > 0), np.sum(steps < 0))
    return bool(np.any(steps) and against <= _LEAST_AGAINST * np.count_nonzero(steps))


def _stand_together(classes: np.ndarray) -> bool:
    """Whether rows of one class are next to each other."""
    counts, n = np.unique(classes, return_counts=True)[1], classes.size
    changes, in_random_order = np.count_nonzero(np.diff(classes)), n - np.sum(counts**2) / n
    most = min(_FEW_RUNS * counts.size - 1, _SHARE_OF_RUNS * in_random_order)
    return bool(0 < changes <= most)


@functools.partial(quick_jit, light=True)
def _ends_and_locations(data: Data) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The ends of each target, equal if it is exact, and the predicted location."""
    predictions, targets = clean(data).samples
    is_censored = isinstance(targets, IntervalCensored)
    ends = (targets.low, targets.high) if is_censored else (targets, targets)
    return *ends, predictions.location()


def _tested_labels(probabilities: np.ndarray) -> np.ndarray:
    """M labels of each row, ``[M, n]``.

    With two labels it is the second; with more, the most likely one and those that vary most.
    """
    n, n_classes = probabilities.shape
    if n_classes == 2:
        return np.ones((1, n), int)
    varying = (probabilities * (1 - probabilities)).sum(axis=0)
    classes = np.argsort(-varying, kind="stable")[:_CLASSES]
    same = np.broadcast_to(classes[:, None], (classes.size, n))
    return np.concatenate([probabilities.argmax(axis=1)[None], same])


def _cosines(values: np.ndarray, ties: np.ndarray) -> np.ndarray:
    """Orthonormal cosines of ranks, ``[1 + cosines, n]``; random numbers break ties."""
    n = values.size
    ranks = np.argsort(np.lexsort([ties, values]))
    waves = np.cos(np.pi * np.arange(_COSINES + 1)[:, None] * (ranks + 0.5) / n)
    waves[1:] *= 2**0.5
    return (waves / n**0.5).astype(np.float32)


def _products(features: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """The sums of products of neighbours ``[lags, M, D]`` of features ``[M, n, D]``."""
    pairs = zip(features, itertools.cycle(basis), strict=False)
    rest = features - np.stack([in_blocks(in_blocks(x.T, b.T), b).T for x, b in pairs])
    lags = range(1, _LAGS[-1] + 1)
    at_lag = [np.einsum("mnd,mnd->md", rest[:, :-lag], rest[:, lag:]) for lag in lags]
    return np.cumsum(at_lag, axis=0)[np.subtract(_LAGS, 1)]


def columns_of_rows(model: Model, event: str | None) -> list[Column]:
    """The first other column of dates, and one of names that recur.

    Names are texts, or integers of a column whose name ends with id.  Such a column comes before
    others: rows of one question are nearer to each other than rows of one topic.  Target dates have
    precedence over the dates when forecasts were made.  Names that determine the outcome or the
    prediction are excluded: rows of one outcome are similar whatever they depend on.  `event` is
    that of `read_data`.
    """
    # Rows of one group may depend on each other as rows of another column may.
    table, used = model.table, {model.target, *model.columns.names, event}
    found: dict[bool, Column] = {}
    for name in sorted(table.columns, key=lambda name: not name.lower().endswith("id")):
        cells = table.columns[name]
        if name in used or cells.ndim > 1 or len(cells) != len(table):
            continue
        is_id = cells.dtype.kind in "iu" and name.lower().endswith("id")
        are_names = (isinstance(x, str) or hasattr(x, "isoformat") for x in cells)
        is_text = cells.dtype == object and all(are_names)
        if not (is_text or is_id or cells.dtype.kind == "M") or is_missing(cells).any():
            continue
        column = table.typed(name)
        n_names = different(column.values).size
        if n_names < 2:
            continue
        times, are_dates = read_times(column)
        is_time = are_dates and bool(np.isfinite(times).all())
        if is_time:
            days = Column(name, is_time, times)
            found[is_time] = _of_leads(found[is_time], days) if is_time in found else days
        elif is_time not in found and n_names <= len(cells) / 2:
            codes = cluster_numbers(column)
            if not _say_outcome(model, codes):
                found[is_time] = Column(name, is_time, codes)
    return list(found.values())


def _say_outcome(model: Model, codes: np.ndarray) -> bool:
    """Whether names follow from the target and what was predicted, as a copy or a band does."""
    names = model.columns.names
    middle = as_floats(model.table.cells(names[(len(names) - 1) // 2]))
    keys = [getattr(model.targets, "low", model.targets), middle]
    if isinstance(model.predictions, Labels):
        probs = np.asarray(model.predictions.label_probabilities())
        keys.append(probs.shape[1] * probs.argmax(axis=1) + model.targets)
    return any(key.ndim == 1 and _follows(codes, key) for key in keys)


def _follows(codes: np.ndarray, numbers: np.ndarray) -> bool:
    """Whether codes are a function of numbers; of numbers that hardly repeat, one of few steps."""
    key = np.unique(numbers, return_inverse=True)[1]
    n_keys, n_pairs = key.max() + 1, np.unique(np.stack([key, codes]), axis=1).shape[1]
    n_steps = np.count_nonzero(np.diff(codes[np.lexsort([codes, key])]))
    return bool(n_pairs == n_keys and (2 * n_keys <= len(key) or n_steps == codes.max()))


def _of_leads(first: Column, other: Column) -> Column:
    """The column of the days that forecasts are about, if the other has those when they were made.

    Then there are few leads among many days.  If not, it is the first column.
    """
    made, about = sorted((first, other), key=lambda column: float(np.mean(column.values)))
    leads = np.unique(about.values - made.values)
    days = np.unique(made.values)
    if first.horizon is not None or len(leads) > len(days) / 2:
        return first
    horizon = max(float(leads[-1]), 0.0) + float(np.diff(days).min())
    return about._replace(horizon=horizon)
