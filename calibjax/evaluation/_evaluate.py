"""From predictions in many forms to a verdict."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.check import check_integer
from calibjax._base.struct import PyTree, is_traced
from calibjax._base.text import working
from calibjax._data.column_options import ColumnOptions
from calibjax._data.data import Data, as_data
from calibjax._data.distribution import Distribution, Labels
from calibjax._data.interval_censored import IntervalCensored
from calibjax._data.padding import padded
from calibjax._numbers.validity import are_whole
from calibjax.distributions import Bernoulli, Quantiles
from calibjax.evaluation._evaluation import Evaluation
from calibjax.evaluation._section import N_RESAMPLES, keys_of
from calibjax.evaluation._serial_dependence import Column, columns_of_rows
from calibjax.frames import Table, given_columns, read_arrays, read_model
from calibjax.hypothesis_tests import calibration_test
from calibjax.nulls.sampler import why_not_tested
from calibjax.scores import score_rows
from calibjax.segments import read_segments

# What holds values beside arrays, and names of columns beside a frame.
_BESIDE_ARRAYS = {"classes", "normalize", "weights", "clusters", "times", "horizon", "groups"}
# No p-value is smaller.  A larger level is probably a confidence, and such narrow intervals may
# miss the estimate.
_LEAST_LEVEL, _LARGEST_LEVEL = 1 / (N_RESAMPLES + 1), 0.5


def evaluate(
    predictions: object,
    targets: object = None,
    *,
    seed: int = 0,
    level: float = 0.05,
    above: float | None = None,
    **columns: Unpack[ColumnOptions],
) -> Evaluation:
    """Evaluates whether a model is calibrated, how far off it is, and where.

    It accepts arrays, frames, files and distributions, and calls `calibration_test`,
    `skce_confidence_interval`, `equivalent_temperature`, the classical measures, and the functions
    behind the plots.  The test runs at once, and all else when it is used or printed.  Inside jit,
    or with your own keys, call these functions instead.  The same arguments give the same result.

    For a frame, name its columns as on the command line: ``evaluate(frame, target="sold",
    quantiles="q*", groups=["region"], times="week")``.  A log of lm-evaluation-harness needs no
    names: ``evaluate("samples.jsonl")``.

    The p-value assumes that rows are independent given the predictions, unless you pass clusters or
    times.  A test of neighbouring rows warns if they appear dependent.

    The first call compiles for some ten seconds, and longer for counts and for families without
    closed forms.  Later calls with as many columns and about as many rows do not: 769 to 1024 rows
    share all programs.  For other processes ``jax.config.update("jax_compilation_cache_dir",
    folder)`` keeps what was traced, and what took a second to compile; to keep all, set
    ``jax_persistent_cache_min_compile_time_secs`` to 0.0.

    O(n^2) time up to 20 000 rows, and O(n) above; 10^5 rows of ten classes take 20 s on two cores.

    Args:
        predictions: probabilities ``[n, m]`` of m classes, or ``[n]`` of an event, as an array of
            NumPy, JAX or torch, nested lists, or a frame of pandas or polars; or a distribution of
            calibjax, such as ``Normal(mean, sd)`` or ``Empirical(draws)``, of numpyro, distrax, TFP
            or scipy.stats; or survival curves as scikit-survival, lifelines and pycox predict them,
            step functions or a frame with times as its index.
        targets: names of classes, where 1, 1.0 and "1" are the same name; or if no class has such a
            name, labels ``0 … m-1`` in the order of the columns, unless classes such as "yes" and
            "no" give these numbers another meaning, which is an error; of an event 0 and 1, truth
            values, or names such as "no" and "yes"; else numbers.  An array, list or column.  Where
            numbers are censored, rounded or binned, `IntervalCensored`: then measures and plots
            that need exact targets are omitted.  For survival curves, times and events: a
            structured array of scikit-survival, or two columns, one with 1 or True for an event.
        data: instead of both, `Data`, or a frame or a file, with the arguments of `read_data`.
        seed: the integer seed of all random numbers.
        level: the significance level, from 0.001 to 0.5; intervals have the confidence level 1 -
            level.
        above: a threshold a: forecasts of numbers are evaluated as forecasts of the event y > a,
            whose probability is P(Y > a).  For members it is the share above a; for quantiles the
            cdf of `Quantiles` is used.
        columns: of a frame or a file, what `read_data` documents.  Beside arrays they hold values:
            `classes`, the names of the classes in the order of the columns of predictions, of an
            event the name of its absence and its own, None for the names of the columns of a frame;
            `normalize`, whether to divide each row of probabilities by its sum; `weights` ``[n]``
            or ``[n, m]``, `clusters` ``[n]``, `times` ``[n]`` and `horizon`; and `groups`, a dict
            or a frame.
            `segment_test` tests the segments of one or two columns of groups, in the time of some
            tests more; for a table by group, call `Evaluation.by`.

    Returns:
        Evaluation: print it, or use its fields.

    Raises:
        TypeError, ValueError: predictions or targets are invalid; the message names a row and the
            fix.

    See also:
        `calibration_test` for the p-value alone; `skce` for the number alone.

    Example:
        >>> import calibjax as cj
        >>> probabilities = [[0.7, 0.3], [0.4, 0.6]] * 30
        >>> evaluation = cj.evaluate(probabilities, ["no", "yes"] * 30, classes=["no", "yes"])
        >>> print(evaluation.verdict[:26])
        Not calibrated (p ≤ 0.001,
        >>> frame = {"p_no": [0.7, 0.4] * 30, "p_yes": [0.3, 0.6] * 30, "y": ["no", "yes"] * 30}
        >>> cj.evaluate(frame, target="y", probs="p_*").verdict == evaluation.verdict
        True
    """
    # Inside of jit even a constant is traced.
    if is_traced((predictions, targets, jax.device_put(0.0))):
        words = "outside of jit, grad and vmap; calibration_test and others work inside"
        raise TypeError(f"evaluate must be called {words}.")
    given, others, table = given_columns(columns), [], None
    if isinstance(predictions, Data):
        if targets is not None or given:
            raise TypeError(f"targets and {[*given]} must not be given with Data, which has them.")
        data = predictions
    elif (targets is None and isinstance(predictions, str | Path)) or _name_columns(targets, given):
        model, data = read_model(predictions, columns)
        others, table = columns_of_rows(model, given.get("event")), model.table
    else:
        data = read_arrays(predictions, targets, **given)
    return evaluate_data(data, seed=seed, level=level, above=above, columns=others, table=table)


def evaluate_data(
    data: Data,
    *,
    seed: int,
    level: float,
    above: float | None = None,
    columns: Sequence[Column] = (),
    table: Table | None = None,
    order: int = 2,
) -> Evaluation:
    """`evaluate` of a data set, and of other columns that may say which rows depend on each other.

    Masked rows are left out, and up to `order` columns of groups make a segment.
    """
    seed = check_integer("seed", seed, 0, 2**63 - 1)
    if not (isinstance(level, (float, np.floating)) and _LEAST_LEVEL <= level <= _LARGEST_LEVEL):
        raise ValueError(
            f"level must be a number from {_LEAST_LEVEL} to {_LARGEST_LEVEL}, such as 0.05 for a "
            f"confidence of 95 %, got {level!r}."
        )
    data = as_data(data, intervals=True)
    # The data of an evaluation are the user's, who may change them by jax: they are only checked.
    known = {"is_checked": data.is_checked, "is_valid": False}
    if data.where is not None:
        data = data.take(np.flatnonzero(data.where)).replace(where=None)
    in_dtype_of_jax = data.map(lambda x: jax.device_put(x) if isinstance(x, np.ndarray) else x)
    data = in_dtype_of_jax.replace(**known)
    if above is not None:
        data = above_threshold(data, above)
    groups = None if data.groups is None else read_segments(data, data.groups, order)
    with working(f"Testing {data.n} rows"):
        test = calibration_test(keys_of(seed).test, padded(data), n_resamples=N_RESAMPLES)
        is_known = not np.isnan(test.pvalue)  # jax computes until someone asks.
    if not is_known and why_not_tested(data) is None:
        raise ValueError(f"predictions cannot be tested{_first_nan(data)}.")
    is_x64 = jax.config.read("jax_enable_x64")
    return Evaluation(data, test, float(level), seed, columns, groups, table, is_x64)


def _first_nan(data: Data) -> str:
    """In words, of which row something is NaN."""
    predictions, targets = data.samples
    arguments: dict[str, tuple] = {"location": (), "spread": ()}
    if not isinstance(targets, IntervalCensored):
        arguments |= {"log_prob": (targets,), "cdf": (targets,)}
    for name, given in arguments.items():
        try:
            values = np.asarray(getattr(predictions, name)(*given))
        except TypeError:
            continue
        is_nan = np.isnan(values).reshape(len(values), -1).any(axis=1)
        if is_nan.any():
            row = data.names_of_rows()[np.argmax(is_nan)]
            return f": the {name} of row {row} is NaN, as where quantiles fall as levels rise"
    return ": the p-value is NaN"


def _name_columns(targets: object, given: dict[str, Any]) -> bool:
    """Whether arguments name columns of a frame, and do not hold predictions and targets.

    Raises:
        TypeError: neither targets nor names of columns are given, or both are.
    """
    names = given.keys() - _BESIDE_ARRAYS
    example = "evaluate(frame, target='label', probs='p_*')"
    if not names:
        if targets is None or isinstance(targets, str):
            got = "nothing" if targets is None else f"the text {targets!r}"
            shown = example.replace("label", targets or "label")
            raise TypeError(f"targets must hold what was observed, got {got}; of a frame, {shown}.")
        return False
    if targets is not None and names == {"drop_missing"}:
        raise TypeError(
            "drop_missing must be False for arrays, whose rows you drop: known = "
            "~numpy.isnan(targets), evaluate(predictions[known], targets[known]); it is for names "
            f"of columns, as in {example.replace(')', ', drop_missing=True)')}."
        )
    if targets is not None:
        raise TypeError(f"targets must not be given where arguments name columns, as in {example}.")
    return True


def above_threshold(data: Data, above: float) -> Data:
    """Probabilities P(Y > a), and whether y > a, of checked data without masked rows.

    For members it is the share above a; for quantiles the cdf is linear between the levels, with
    exponential tails.  If all quantiles and targets are whole numbers, the cdf of the count a is
    that of the middle between a and the next one.

    Raises:
        TypeError: predictions are not ordered numbers, or targets are not known exactly.
        ValueError: the threshold is not finite.
    """
    p, kind = data.predictions, type(data.predictions).__name__
    if isinstance(p, Labels) or not p.is_ordered or data.is_censored:
        got = "censored targets" if data.is_censored else kind
        raise TypeError(f"above needs forecasts of numbers and exact targets, got {got}.")
    if isinstance(above, bool) or not math.isfinite(above):
        raise ValueError(f"above must be a finite number, such as 1.0, got {above!r}.")
    threshold = math.floor(above) if p.target_kind == "integer" else above
    if isinstance(p, Quantiles) and are_whole(*map(np.asarray, (p.values, data.targets))):
        threshold = math.floor(above) + 0.5
    rows = padded(data)
    at = jnp.full(rows.n, threshold, jnp.result_type(rows.targets, type(threshold)))
    probs = np.asarray(score_rows(None, (rows, at), _survival))[: data.n]
    events = (np.asarray(data.targets) > above).astype(np.int32)
    names = [f"≤ {above:g}", f"> {above:g}"]
    found = Bernoulli(jnp.clip(jnp.asarray(probs), 0, 1)), jnp.asarray(events)
    return data.replace(predictions=found[0], targets=found[1], classes=names)


def _survival(predictions: Distribution, targets: PyTree, at: jax.Array) -> jax.Array:
    return predictions.survival(at)
