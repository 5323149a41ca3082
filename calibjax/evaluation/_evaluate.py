"""From predictions, in whatever form people have them, to a verdict."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._between import Between
from calibjax._check import check_flag, check_integer
from calibjax._distribution import Distribution
from calibjax._rows import Dependence, check_data, padded, with_dependence
from calibjax._struct import is_traced
from calibjax.evaluation._dependence import (
    INDEPENDENT,
    read_dependence,
    read_weights,
    rows_in_words,
)
from calibjax.evaluation._direction import Direction
from calibjax.evaluation._directions import directions_of
from calibjax.evaluation._effect import effect_of
from calibjax.evaluation._evaluation import Evaluation
from calibjax.evaluation._hidden import n_hidden, on_numpy, shift_in_words
from calibjax.evaluation._inputs import read_inputs
from calibjax.evaluation._keys import keys_of
from calibjax.evaluation._measures import MEAN_PLACE, measures
from calibjax.evaluation._mending import Mending, mending_of
from calibjax.evaluation._neighbours import (
    Column,
    Neighbours,
    neighbour_dependence_test_of_data,
    neighbours_in_columns,
)
from calibjax.evaluation._pictures import map_of
from calibjax.evaluation._remarks import Impossible, impossible_rows
from calibjax.evaluation._segments import segments_in_words, segments_of_groups
from calibjax.evaluation._summary import verdict
from calibjax.evaluation._words import worst_level, worst_place
from calibjax.hypothesis_tests import CalibrationTestResult, calibration_test_of_data
from calibjax.segments import Groups

_N_RESAMPLES = 999
# The smallest p-value there can be; no model could be rejected at a smaller level.
_LEAST_LEVEL = 1 / (_N_RESAMPLES + 1)
# A larger level is meant as a confidence, and intervals so narrow need not contain the estimate.
_LARGEST_LEVEL = 0.5


def evaluate(
    predictions: Any,
    targets: Any,
    *,
    seed: int = 0,
    classes: Sequence[Any] | None = None,
    normalize: bool = False,
    level: float = 0.05,
    weights: Any = None,
    clusters: Any = None,
    times: Any = None,
    horizon: Any = None,
    groups: Groups | None = None,
) -> Evaluation:
    """Is this model calibrated, how far off is it, and where?

    It takes what people have, and calls the test `calibration_test`,
    `skce_confidence_interval`, `equivalent_temperature`, the classical measures, and the functions
    behind the pictures.  It is for people: for use inside jit, and with keys of your own, call
    these functions.  The same arguments give the same result.

    The p-value assumes that rows are independent of each other given the predictions, unless
    clusters or times say otherwise.  A test of neighbours in the order of the rows warns if they
    seem not to be.

    The first call compiles for some ten seconds, and longer for counts and for families without
    closed forms.  Later calls do not if they have as many columns and about as many rows: 897 to
    1024 rows share all programs.  For other processes
    ``jax.config.update("jax_compilation_cache_dir", folder)`` keeps those that took a second, and
    with ``jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)`` it keeps all.

    O(n^2) time up to 20 000 rows, and O(n) above; 10^5 rows of ten classes take half a minute on
    two cores.

    Args:
        predictions: probabilities ``[n, m]`` of m classes, or ``[n]`` of an event, as an array of
            NumPy, JAX or torch, nested lists, or a frame of pandas or polars; or a distribution of
            calibjax, such as ``Normal(mean, sd)`` or ``Empirical(draws)``, of numpyro, distrax, TFP
            or scipy.stats.
        targets: names of classes, where 1, 1.0 and "1" are the same name; or if no class has such a
            name, labels ``0 … m-1`` in the order of the columns, unless classes such as "yes" and
            "no" give these numbers another meaning, which is an error; of an event 0 and 1, truth
            values, or names such as "no" and "yes"; else numbers.  An array, list or column.  Where
            numbers are censored, rounded or binned, `Between`: then measures and pictures that need
            exact targets are left out.
        seed: an integer, from which all random numbers come.
        classes: the names of the classes in the order of the columns of predictions, of an event
            the name of its absence and its own; None for the names of the columns of a frame.
        normalize: whether to divide each row of probabilities by its sum, for rounded ones.
        level: the model is called not calibrated if the p-value is at most this, from 0.001 to 0.5;
            intervals hold with the confidence 1 - level.
        weights: how much each row counts, numbers ``[n]`` that are known before the targets.
        clusters: ``[n]``, names, numbers or dates: rows of one cluster, such as a hospital or a
            topic, may depend on each other in any way.
        times: ``[n]``, numbers, or dates, which count as days: rows of one time may depend on each
            other in any way.  Not together with clusters.
        horizon: a number in units of the times, or of days, or a timedelta: rows less than it apart
            may depend on each other, as forecasts for h steps ahead do that are issued at every
            step.
        groups: columns by their names, a dict or a frame, such as region and lead time: for whom is
            the model wrong?  `segment_test` tests all segments of one or two columns at once, in
            the time of some tests more.

    Returns:
        Evaluation: print it, or see its fields.

    Raises:
        TypeError, ValueError: predictions or targets are not what they should be; the message names
            a row, and says what to do.

    See also:
        `calibration_test` for the p-value alone; `skce` for the number alone.

    Example:
        >>> import calibjax as cj
        >>> probabilities = [[0.7, 0.3], [0.4, 0.6]] * 30
        >>> evaluation = cj.evaluate(probabilities, ["no", "yes"] * 30, classes=["no", "yes"])
        >>> print(evaluation.verdict[:26])
        Not calibrated (p = 0.001,
    """
    # Inside of jit a constant is traced, too.
    if is_traced((predictions, targets, jax.device_put(0.0))):
        raise TypeError(
            "evaluate must be called outside of jit, grad and vmap; calibration_test, "
            "skce_confidence_interval and others that it calls work inside."
        )
    normalize = check_flag("normalize", normalize)
    family, observed, names = read_inputs(predictions, targets, classes, normalize)
    return evaluate_read(
        family,
        observed,
        seed=seed,
        classes=names,
        level=level,
        weights=read_weights(weights),
        dependence=read_dependence(clusters, times, horizon),
        groups=groups,
    )


def evaluate_read(
    predictions: Distribution,
    observed: np.ndarray | Between,
    *,
    seed: int,
    classes: list[Any] | None,
    level: float,
    weights: np.ndarray | None = None,
    dependence: Dependence = INDEPENDENT,
    columns: Sequence[Column] = (),
    groups: Groups | None = None,
) -> Evaluation:
    """`evaluate` of a distribution, and of targets as it counts them, which need no more reading.

    Args:
        predictions: n predictions.
        observed: targets ``[n]`` or ``[n, d]``, or Between; labels are ``0 … m-1``.
        seed: as in `evaluate`.
        classes: the names of the m classes, or None.
        level: as in `evaluate`.
        weights: how much each row counts, ``[n]``, or None.
        dependence: clusters as integers ``[n]``, or times as numbers ``[n]`` and a horizon.
        columns: other columns of the table, which may say which rows depend on each other.
        groups: columns whose segments are tested, or None.
    """
    seed = check_integer("seed", seed, 0, 2**63 - 1)
    if not (isinstance(level, (float, np.floating)) and _LEAST_LEVEL <= level <= _LARGEST_LEVEL):
        raise ValueError(
            f"level must be a number from {_LEAST_LEVEL} to {_LARGEST_LEVEL}, such as 0.05 for a "
            f"confidence of 95 %, got {level!r}."
        )
    level = float(level)
    checked = check_data(predictions, observed, weights=weights, intervals=True)
    checked = with_dependence(checked, dependence)
    data, n, keys = padded(checked), checked.n, keys_of(seed)
    test = calibration_test_of_data(keys.test, data, n_resamples=_N_RESAMPLES)
    if np.isnan(test.pvalue):
        raise ValueError(f"predictions cannot be tested{_first_nan(predictions, observed)}.")
    pvalue = _pvalue(test)
    impossible = Impossible(impossible_rows(data))
    if pvalue <= level and 2 <= n - len(impossible.rows) < n:
        others = np.arange(data.n) < n
        others[impossible.rows] = False
        possible = dataclasses.replace(data, where=jax.device_put(others))
        without = calibration_test_of_data(keys.test, possible, n_resamples=_N_RESAMPLES)
        impossible = dataclasses.replace(impossible, pvalue_without=_pvalue(without))
    segments = segments_of_groups(keys.segments, checked, groups, _N_RESAMPLES)
    effect = effect_of(keys.effect, data, 1 - level, _N_RESAMPLES)
    found = measures(keys.measures, data, 1 - level, _N_RESAMPLES)
    rows, units = f"{n} rows", rows_in_words(dependence)
    worst = towards = neighbours = None
    directions: tuple[Direction, ...] = ()
    in_columns: tuple[Neighbours, ...] = ()
    mending: Mending | None = None
    if units is None:
        neighbours = neighbour_dependence_test_of_data(keys.neighbours, data)
        in_columns = neighbours_in_columns(keys.neighbours, data, columns)
    else:
        rows += f", {units}"
    if isinstance(observed, Between):
        rows += f", {n_hidden(observed)} of hidden targets"
        towards = shift_in_words(found[MEAN_PLACE])
    elif pvalue <= level and not impossible.is_all(level):
        directions = directions_of(
            keys.measures, data, effect.best_temperature, impossible.rows, level, classes
        )
        worst = worst_level(predictions, observed, 1 - level)
        if worst is None:
            maps = map_of(keys.curves, data, 1 - level, _N_RESAMPLES)
            worst = worst_place(maps, classes)
        if units is None and weights is None:
            labels = np.asarray(checked.targets)
            mending = mending_of(keys.test, checked.predictions, labels, _N_RESAMPLES)
    return Evaluation(
        verdict=verdict(
            pvalue,
            level,
            predictions,
            effect,
            directions,
            worst,
            impossible,
            towards,
            rows,
            segments_in_words(segments, level),
            None if mending is None else mending.in_words(level),
        ),
        pvalue=pvalue,
        level=level,
        test=test,
        effect=effect,
        directions=directions,
        measures=found,
        impossible=impossible,
        predictions=predictions,
        targets=on_numpy(checked.targets),
        classes=classes,
        seed=seed,
        weights=weights,
        dependence=dependence,
        pvalue_of_neighbours=neighbours,
        neighbours=in_columns,
        segments=segments,
        mending=mending,
    )


def _pvalue(test: CalibrationTestResult) -> float:
    """A multiple of 1 / 1000, without the rounding of float32: 0.05 is not above the level 0.05."""
    return round(float(test.pvalue) * (_N_RESAMPLES + 1)) / (_N_RESAMPLES + 1)


def _first_nan(predictions: Distribution, observed: Any) -> str:
    """In words, of which row something is NaN."""
    found = {"location": predictions.location, "spread": predictions.spread}
    if not isinstance(observed, Between):
        targets = jnp.asarray(observed)
        found["log_prob"] = lambda: predictions.log_prob(targets)
        found["cdf"] = lambda: predictions.cdf(targets)
    for name, compute in found.items():
        try:
            values = np.asarray(compute())
        except TypeError:
            continue
        is_nan = np.isnan(values).reshape(len(values), -1).any(axis=1)
        if is_nan.any():
            row = int(np.argmax(is_nan))
            return f": the {name} of row {row} is NaN, as where quantiles fall as levels rise"
    return ": the p-value is NaN"
