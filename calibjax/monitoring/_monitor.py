"""A monitor of calibration that is valid after every batch, and several of them at once."""

import dataclasses
import functools
import math
import os
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from calibjax._base.check import check_integer, check_key
from calibjax._base.compile import quick_jit
from calibjax._base.files import (
    check_header,
    npz_of,
    read_npz,
    structure_in_words,
    with_leaves,
    write_file,
)
from calibjax._base.parameters import family_name
from calibjax._base.sharding import Axis, all_of, all_sum, on_devices, optimised_on_devices
from calibjax._base.struct import as_pytree, is_traced, rows_of, static, struct, widest_dtype
from calibjax._data.capabilities import exchangeable_pool
from calibjax._data.data import Data, Rows, as_data, clean, fill_masked, in_dtype, kept_first
from calibjax._data.distribution import Distribution, Labels
from calibjax._data.interval_censored import Targets
from calibjax._data.padding import check_like, check_predictions, padded
from calibjax._numbers.arithmetic import dot
from calibjax.expectations.defaults import default_prediction_kernels
from calibjax.features.weighted_sums import choose_landmarks
from calibjax.kernels.base import KernelLike
from calibjax.kernels.check import check_kernel
from calibjax.monitoring._bets import Bets, after_rows, first_bets, order_of_rows
from calibjax.monitoring._outcomes import Basis, kernel_at, make_basis, outcomes_of
from calibjax.nulls.ranks import checked_level

# The number of predictions that define the functions of predictions.
_LANDMARKS = 64
# The number of the version changes with what a file holds.
_SCHEMA, _VERSION = "calibjax.CalibrationMonitor", 4


@struct
class CalibrationMonitor:
    """Evidence that a model is not calibrated, over a stream of batches, valid at every look.

    The monitor bets against the model: before each row it states what it has learnt about the
    errors of the model, and it wins where targets agree with it rather than with the predictions.
    If the model is calibrated, the money that it has, `e_value`, reaches 1 / a with a probability
    of at most a, over the whole stream and however often one looks (Ville's inequality):

    .. math::
        P(\\text{ever } e_t \\ge 1/a) \\le a.

    So ``alarm(0.05)`` rings falsely in at most 5 % of all streams of a calibrated model, of any
    length.  It holds without approximation for every family and number of rows, and for rare
    events.  Each target must be drawn from its prediction, given all earlier rows: rows of a batch
    are used in order, or cluster by cluster.  Targets must not be rounded to a grid that the
    predictions ignore: in float32, 10 000 ± 0.001 is one.

    Half of the money is at stake from the first row on, for models that are wrong from the
    beginning, and the other half starts later, for models that become wrong; `change_point` says
    since when, as it was estimated when the alarm at `level` rang.

    Several streams: `holm_pvalues` says which of them have an alarm.  A mean of e-values is an
    e-value if the predictions of each stream are calibrated given the past of all streams.

    Dependent rows, such as stations with shared weather or patients of a hospital: pass
    ``clusters=`` to `update`.  All bets on a cluster are placed before any of its targets is known,
    and their mean counts.  Each bet has expectation 1, and so has the mean, under any dependence:
    the guarantee stays exact.  The price is power.

    Late targets: if L batches of predictions are made before the first of their targets is known,
    such as forecasts for a week that are made daily, start with ``lag=L``.  Then every L-th update
    belongs to one process, which knew its past in time, and `e_value` is the largest of these L
    numbers, divided by L.  (Their mean could be stopped by someone who knows parts of the next
    target already.)

    Args:
        key: a key of `jax.random`, for draws that rank vectors.
        kernels: the kernels on predictions.
        landmarks: the predictions that define functions of predictions.
        bases: the functions of the bets.
        bets: the learnt weights and the wealth, for each of `lag` processes.
        n_updates: the number of updates so far, of at least one row.
        n_skipped: the number of updates skipped, because a row was invalid inside of jit.
        log_e_value: the logarithm of `e_value`, which may be too large for float32.
        largest_log_e_value: the largest logarithm of `e_value` so far, also within batches.
        level: the level of the alarm that `change_point` belongs to.
        change_point: after how many rows the model began to be wrong, an estimate: when the bet
            that is richest as the alarm at `level` rings was last within a factor e of its minimum.
            Later rows do not change it, and before an alarm it has no meaning.  In 40 streams of
            events, in batches of 80, whose logits are wrong by 0.6 from row 4000 on, it is within
            80 rows of that for 34 and within 240 for 37; for two it is some 3500 rows too early,
            where a bet gained by chance before.  For an error of 0.3 it is within 160 rows for 28,
            and within 580 for 37.
        lag: the number of updates until targets are known.

    See also:
        `calibration_test` for one test of complete data.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> def day(key, error):
        ...     logits = jax.random.normal(key, (500,))
        ...     truth = cj.Bernoulli(jax.nn.sigmoid(logits + error))
        ...     targets = truth.sample(jax.random.fold_in(key, 1))
        ...     return cj.Bernoulli(jax.nn.sigmoid(logits)), targets
        >>> keys = jax.random.split(jax.random.key(0), 20)
        >>> monitor = cj.CalibrationMonitor.start(jax.random.key(1), day(keys[0], 0.0)[0])
        >>> for key in keys[:10]:
        ...     monitor = monitor.update(*day(key, 0.0))
        >>> bool(monitor.alarm(0.05))
        False
        >>> for key in keys[10:]:
        ...     monitor = monitor.update(*day(key, 0.5))
        >>> bool(monitor.alarm(0.05)), round(int(monitor.change_point), -3)
        (True, 5000)

    Reference: Shafer, Testing by betting, JRSS A 2021; Shekhar and Ramdas, Nonparametric two-sample
    testing by betting, IEEE Transactions on Information Theory 2024; Arnold, Henzi and Ziegel,
    Sequentially valid tests for forecast calibration, Annals of Applied Statistics 2023; means of
    e-values: Vovk and Wang, E-values: calibration, combination and applications, Annals of
    Statistics 2021.
    """

    key: jax.Array
    kernels: list[KernelLike]
    landmarks: Distribution
    bases: list[Basis]
    bets: Bets
    n_updates: jax.Array
    n_skipped: jax.Array
    log_e_value: jax.Array
    largest_log_e_value: jax.Array
    level: jax.Array
    change_point: jax.Array
    lag: int = static(1)

    @classmethod
    def start(
        cls,
        key: jax.Array,
        predictions: Distribution,
        *,
        kernels: Sequence[KernelLike] | None = None,
        n_features: int = 16,
        lag: int = 1,
        level: ArrayLike = 0.05,
        where: ArrayLike | None = None,
    ) -> "CalibrationMonitor":
        """The monitor before the first row, with functions that suit an example batch.

        The example needs no targets.  It may be the first batch, or one of the past; predictions
        unlike it make the monitor slower, and not wrong.

        Args:
            key: a key of `jax.random`.
            predictions: a batch of n >= 2 predictions of one family.
            kernels: kernels on *predictions*, such as DistanceKernels, whose mean says which
                predictions have similar errors; None stands for those in `default_kernels`.
            n_features: the number of functions of a prediction.
            lag: L, the number of updates until targets are known, as above.
            level: a number in (0, 1), of the alarm whose date is `change_point`; for each of S
                streams, 1 / S of it.
            where: boolean mask ``[n]``; masked rows may hold anything.

        Raises:
            TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete,
                value.
        """
        check_key(key)
        n_features = check_integer("n_features", n_features, 1, _LANDMARKS)
        lag = check_integer("lag", lag, 1)
        checked_level(level, jnp.float32, "level")
        check_predictions(predictions, where)
        predictions, keys = _pooled(key, predictions)
        if kernels is None:
            kernels = default_prediction_kernels(Rows(predictions, where=where))
        if not isinstance(kernels, Sequence) or not kernels:
            actual = "none" if isinstance(kernels, Sequence) else type(kernels).__name__
            raise TypeError(f"kernels must be a list of kernels on predictions, got {actual}.")
        for kernel in kernels:
            check_kernel(kernel, "kernels", "predictions")
        shared = keys, as_pytree(list(kernels)), level
        return _start(shared, (predictions, where), n_features, lag)

    def update(
        self,
        predictions: Distribution | Data,
        targets: Targets | None = None,
        *,
        clusters: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> "CalibrationMonitor":
        """The monitor after one more batch of rows, in their order.

        Bets on a row use what earlier rows taught, some n / 8 rows of a batch at a time.
        O(n) time and memory, O(n log n) with clusters; the state does not grow.

        With clusters, each target must be drawn from its prediction given all rows of earlier
        clusters, in the order of their first rows, and may depend on rows of its own cluster in any
        way.  Numbers of clusters are local to a batch: the same number in a later batch is a new
        cluster.  This is right if predictions use what earlier rows have in common with theirs.  If
        a hospital is always worse than predicted, the model is wrong there, given the past; if that
        should not count, pass all rows of the hospital in one batch.

        Inside jit, where values cannot be checked, a batch with a bad row is skipped: the evidence
        so far stays, and `n_skipped` counts the batch.  The guarantee then requires that a bad row
        does not depend on its target.

        Args:
            predictions, targets: as in `Data`, or one `Data` without weights and times, of the
                family of the example batch.  Targets may be `IntervalCensored` if the censoring is
                independent of them given the prediction and the past.
            clusters: of `Data`, such as zeros for all rows of the batch; None if each row is drawn
                given those before it.
            where: of `Data`; all rows may be masked.

        Raises:
            TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete,
                value; outside of jit, a row whose cdf or log density is NaN.
        """
        rows: dict[str, Any] = {"clusters": clusters, "where": where}
        unused = "weights", "times"
        data = as_data(predictions, targets, at_least=0, intervals=True, without=unused, **rows)
        if data.is_censored and isinstance(data.predictions, Labels):
            raise TypeError("targets of classes must be labels, got IntervalCensored.")
        if data.n == 0:
            return self
        start = self.landmarks, "those at the start"
        jax.eval_shape(
            lambda *rows: check_like("predictions", exchangeable_pool(*rows)[0], *start),
            *data.samples,
        )
        after, has_cell = _update(self, padded(data))
        lost = after.n_skipped, self.n_skipped
        if not is_traced(lost) and np.any(np.not_equal(*map(np.asarray, lost))):
            raise _not_counted(data, np.asarray(has_cell)[: data.n])
        return after

    @property
    def n_rows(self) -> jax.Array:
        """The number of rows so far."""
        return jnp.sum(self.bets.n_rows, axis=-1, dtype=jnp.int32)

    @property
    def e_value(self) -> jax.Array:
        """The evidence against calibration so far; on average at most 1 for a calibrated model."""
        return jnp.exp(self.log_e_value)

    @property
    def pvalue(self) -> jax.Array:
        """1 / the largest e-value so far, at most 1: a p-value that is valid at every look."""
        return jnp.minimum(1.0, jnp.exp(-self.largest_log_e_value))

    def alarm(self, level: ArrayLike = 0.05) -> jax.Array:
        """Whether the e-value has ever reached 1 / level, after a batch or within one.

        A calibrated model has an alarm with a probability of at most `level`.

        Args:
            level: numbers in (0, 1).

        Raises:
            ValueError: level is not in (0, 1).
        """
        log_e = self.largest_log_e_value
        return log_e >= -jnp.log(checked_level(level, log_e.dtype, "level"))

    def save(self, path: str | os.PathLike[str] | IO[bytes]) -> None:
        """Writes all numbers into an .npz file of NumPy, which replaces an older one at once.

        The path may also be an open binary file, such as `io.BytesIO`, here and in `load`.

        Raises:
            ValueError: the monitor holds NaN; an older file remains.
        """
        write_file(path, npz_of(_header_of(self), self))

    def load(self, path: str | os.PathLike[str] | IO[bytes]) -> "CalibrationMonitor":
        """The monitor whose numbers are in a file, if it was started with the same arguments.

        The file holds no functions: start a monitor of the same family, `kernels`, `n_features` and
        `lag`, with any example batch, and then load.  Names of functions are compared, and not what
        they compute.

        Raises:
            ValueError: the file is of another family, of other kernels, shapes or dtypes, broken,
                or something else; the error names the file.
        """
        if isinstance(path, (str, os.PathLike)):
            name, content = os.fspath(path), Path(path).read_bytes()
        else:
            name, content = "the open file", path.read()
        header, arrays = read_npz(name, content, "a monitor")
        check_header(name, header, _header_of(self))
        return with_leaves(name, arrays, self)

    def __repr__(self) -> str:
        numbers = self.n_rows, self.e_value, self.pvalue
        if any(is_traced(x) or jnp.ndim(x) for x in numbers):
            return f"CalibrationMonitor({family_name(self.landmarks)} predictions)"
        rows, e_value, pvalue = map(float, numbers)
        lost = f", n_skipped = {int(self.n_skipped)}" if self.n_skipped else ""
        # Smaller ones are 0 in float32.
        of_pvalue = f"= {pvalue:.3g}" if pvalue else "< 1e-37"
        return (
            f"CalibrationMonitor({family_name(self.landmarks)} predictions, {rows:.0f} rows{lost}, "
            f"e_value = {e_value:.3g}, pvalue {of_pvalue})"
        )


def _header_of(monitor: CalibrationMonitor) -> dict[str, Any]:
    """What a file says of a monitor, next to its numbers."""
    return {
        "schema": _SCHEMA,
        "version": _VERSION,
        "family": structure_in_words(monitor.landmarks),
        "kernels": structure_in_words(monitor.kernels),
        "lag": monitor.lag,
    }


@functools.partial(quick_jit, light=True)
def _pooled(key: jax.Array, predictions: Distribution) -> tuple[Distribution, jax.Array]:
    """Predictions like those of updates, and the keys of `_start`."""
    keys = jax.random.split(key, 3)
    targets = predictions.sample(keys[0])
    return exchangeable_pool(predictions.with_common_structure(), targets)[0], keys[1:]


@functools.partial(on_devices, light=True)
def _start(
    axis: Axis,
    shared: tuple[jax.Array, list[KernelLike], jax.Array],
    rows: tuple[Distribution, jax.Array | None],
    n_features: int,
    lag: int,
) -> CalibrationMonitor:
    (keys, kernels, level), (predictions, where) = shared, rows
    dtype = widest_dtype(*jax.tree.leaves(predictions))
    predictions = jax.tree.map(lambda x: x.astype(dtype), predictions)
    if where is not None:
        predictions = fill_masked(predictions, where, axis)
    predictions, n_kept = kept_first(predictions, where)
    n_rows = all_sum(jnp.asarray(n_kept, jnp.int32), axis)
    landmarks = choose_landmarks(predictions, n_kept, n_rows, _LANDMARKS, axis)
    outcomes = outcomes_of(keys[0], landmarks, landmarks.sample(keys[0]))
    values = kernel_at(kernels, landmarks, landmarks)
    bases = [
        make_basis(values, features, outcomes.probabilities, n_features)
        for features in outcomes.features
    ]
    bets = first_bets(bases, outcomes.shares.shape[1], dtype)
    bets = jax.tree.map(lambda x: jnp.broadcast_to(x, (lag, *x.shape)), bets)
    zero, none, level = jnp.zeros((), dtype), jnp.zeros((), jnp.int32), jnp.asarray(level, dtype)
    return CalibrationMonitor(
        keys[1], kernels, landmarks, bases, bets, none, none, zero, zero, level, none, lag
    )


@functools.partial(optimised_on_devices, light=True)
def _update(
    axis: Axis, monitor: CalibrationMonitor, data: Rows
) -> tuple[CalibrationMonitor, jax.Array]:
    """The monitor after a batch, and which rows have a cell among the outcomes, ``[n]``."""
    data = in_dtype(clean(data, axis), monitor.largest_log_e_value.dtype)
    # A batch is small: each device computes all of it.
    here = *data.samples, data.weights, data.clusters
    rows = jax.tree.map(lambda x: all_of(x, axis).reshape(-1, *x.shape[1:]), here)
    order = order_of_rows(*rows[2:])
    predictions, targets, weights, clusters = jax.tree.map(lambda x: rows_of(x, order), rows)
    predictions, targets = exchangeable_pool(predictions, targets)
    outcomes = outcomes_of(jax.random.fold_in(monitor.key, monitor.n_updates), predictions, targets)
    values = kernel_at(monitor.kernels, predictions, monitor.landmarks)
    phi = [dot(values, basis.of_kernels) for basis in monitor.bases]
    turn = monitor.n_updates % monitor.lag
    of_turn = jax.tree.map(lambda x: rows_of(x, turn), monitor.bets)
    bets, evidence, changes = after_rows(monitor.bases, of_turn, phi, outcomes, weights, clusters)
    all_bets = jax.tree.map(lambda all, new: all.at[turn].set(new), monitor.bets, bets)
    evidence = evidence - math.log(monitor.lag)
    rings = evidence >= -jnp.log(monitor.level)
    first = jnp.where(jnp.any(rings), jnp.argmax(rings), rings.size - 1)
    after = dataclasses.replace(
        monitor,
        bets=all_bets,
        n_updates=monitor.n_updates + 1,
        log_e_value=jnp.max(jax.vmap(Bets.log_evidence)(all_bets)) - math.log(monitor.lag),
        largest_log_e_value=jnp.maximum(monitor.largest_log_e_value, jnp.max(evidence)),
        # A process of a lag sees one of `lag` updates.
        change_point=jnp.where(
            monitor.alarm(monitor.level), monitor.change_point, changes[first] * monitor.lag
        ),
    )
    is_lost = jnp.any(jnp.stack([jnp.any(jnp.isnan(x)) for x in jax.tree.leaves(bets)]))
    before = dataclasses.replace(monitor, n_skipped=monitor.n_skipped + is_lost.astype(jnp.int32))
    counts = jnp.any(weights != 0) & ~is_lost
    has_cell = ~jnp.any(jnp.isnan(outcomes.shares), axis=(1, 2, 3)) | (weights == 0)
    chosen = jax.tree.map(lambda a, b: a if a is b else lax.select(counts, a, b), after, before)
    return chosen, jnp.zeros_like(has_cell).at[order].set(has_cell)


def _not_counted(data: Data, has_cell: np.ndarray) -> ValueError:
    """The error for a batch whose evidence is NaN, though its values are valid."""
    if has_cell.all():
        return ValueError("predictions are too extreme for the kernels of the monitor: NaN.")
    row = int(np.argmin(has_cell))
    prediction, target = jax.tree.map(lambda x: np.asarray(x[row]).tolist(), data.samples)
    return ValueError(
        "predictions must have a cdf or a log density at their targets; in "
        f"{jnp.result_type(*jax.tree.leaves(data.predictions))} it is NaN for "
        f"{np.sum(~has_cell)} of {data.n} rows, such as row {row}, "
        f"{jax.tree.leaves(prediction)} with the target {jax.tree.leaves(target)}.  Mask "
        "such rows with where, or compute in float64."
    )


K = TypeVar("K", bound=Hashable)


def holm_pvalues(monitors: Mapping[K, CalibrationMonitor]) -> dict[K, jax.Array]:
    r"""The p-values of several monitors, adjusted by Holm for their number, valid at every look.

    Let p_(1) <= … <= p_(S) be ``pvalue`` of the S monitors, 1 / their largest e-values so far.  The
    adjusted p-value of the i-th is

    .. math::
        \max_{j \le i} \min(1, (S - j + 1) p_{(j)}).

    Each monitor whose adjusted p-value is at most a has an alarm.  The probability of any false
    alarm, ever, is at most a, under any dependence between the monitors, and also if others have
    true alarms: with a probability of at most u, p_s is ever at most u (Ville), as Holm's procedure
    requires, and p_s only falls, so that no alarm is withdrawn.  The targets of each monitor must
    be drawn from its predictions given *its own* past.  Means of e-values and e-BH, which controls
    the false discovery rate, do not guarantee this: at times that depend on all monitors they need
    e-values that are valid given the past of all, and for the largest e-values so far they fail
    (Wang et al., Tavyrikov et al.).

    Choose the monitors before the first row; all of them count, even without an update.

    Args:
        monitors: monitors by their names, such as those of regions, at least one.

    Returns:
        The adjusted p-values, scalars, by the same names.

    Raises:
        TypeError: monitors are not a mapping to monitors.
        ValueError: the mapping is empty.

    Complexity: O(S log S).

    See also:
        `CalibrationMonitor.pvalue`, of one monitor alone.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.full(200, 0.2))
        >>> start = cj.CalibrationMonitor.start(jax.random.key(0), predictions)
        >>> events = {"north": jnp.arange(200) % 5 == 0, "south": jnp.arange(200) % 2 == 0}
        >>> monitors = {name: start.update(predictions, y) for name, y in events.items()}
        >>> [name for name, p in cj.holm_pvalues(monitors).items() if p <= 0.05]
        ['south']

    Reference: Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal
    of Statistics 1979; Tavyrikov, Goeman and de Heide, Carefree multiple testing with e-processes,
    arXiv:2501.19360, 2025; Wang, Dandapanthula and Ramdas, Anytime-valid FDR control with the
    stopped e-BH procedure, 2025.
    """
    if not isinstance(monitors, Mapping):
        raise TypeError(
            f"monitors must be a mapping of names to monitors, got {type(monitors).__name__}."
        )
    if not monitors:
        raise ValueError("monitors must hold at least one monitor.")
    for name, monitor in monitors.items():
        if not hasattr(monitor, "largest_log_e_value"):
            raise TypeError(f"monitors must hold monitors, got {type(monitor).__name__} as {name}.")
    adjusted = _adjusted([monitor.largest_log_e_value for monitor in monitors.values()])
    return dict(zip(monitors, adjusted, strict=True))


@functools.partial(quick_jit, light=True)
def _adjusted(log_e_values: list[jax.Array]) -> list[jax.Array]:
    """Holm's p-values of 1 / e-values."""
    logs, n = -jnp.stack(log_e_values), len(log_e_values)
    order = jnp.argsort(logs)
    # In logarithms: the product of a tiny p-value with S may underflow in float32.
    scaled = logs[order] + jnp.log(jnp.arange(n, 0, -1, dtype=logs.dtype))
    adjusted = jnp.exp(jnp.minimum(jax.lax.cummax(scaled), 0.0))
    return list(jnp.zeros_like(adjusted).at[order].set(adjusted))
