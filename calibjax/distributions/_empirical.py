"""Predictions given by samples: ensemble forecasts, Monte Carlo dropout, any other draws."""

import dataclasses
import functools
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtri

from calibjax._base.check import check_array, check_flag
from calibjax._base.struct import (
    is_array,
    is_floating,
    is_traced,
    static,
    struct,
    widened,
    widest_dtype,
    with_fields,
)
from calibjax._data.capabilities import Exchangeable, KnownQuantiles, OwnPIT
from calibjax._loops.random_numbers import random_integers
from calibjax._numbers.arithmetic import (
    complex_average,
    complex_exponential,
    place_among,
    root_mean_square,
)
from calibjax._numbers.derivatives import safe_sqrt
from calibjax._numbers.unit_interval import UnitInterval, interval
from calibjax._numbers.validity import FINITE, probability_vectors
from calibjax.distributions import weighted_samples
from calibjax.expectations.dispatch import sums_over_atoms


@sums_over_atoms
@struct
class Empirical(Exchangeable, KnownQuantiles, OwnPIT):
    """The distribution of S equally likely, or weighted, samples.

    Args:
        samples: floating-point numbers ``[n, S]`` or vectors ``[n, S, d]``, in units of the
            targets.  Draws ``[S, n]`` must be transposed.
        weights: probabilities ``[n, S]``, nonnegative with rows that sum to one (within 1e-3);
            None means that all samples are equally likely.
        fair: whether to assess the distribution that the S >= 2 samples of a row were drawn from,
            independently and without weights, rather than the samples themselves.
        where: which members exist, booleans ``[n, S]``, at least one in each row, and two with
            ``fair=True``; None means all.  The value of a missing member does not matter;
            `samples` holds a copy of another one there.  Weights of a row are divided by the sum
            over the members that exist.

    Targets are real numbers ``[n]`` or vectors ``[n, d]``.  Every target kernel works, and is
    evaluated S^2 times for each pair of predictions.

    Integers are refused, because they may be counts, which have an order, or labels, which have
    none.  ``jax.nn.one_hot(labels, m)`` turns labels, both samples and targets, into vectors with
    equal distances; `calibration_test` is exact for these draws: it rejected 7 of 100 calibrated
    models with 5 draws from each prediction.  The frequencies of few draws are not a calibrated
    `Categorical` prediction, since they assign probability 0 to labels: all 100 were rejected.

    The samples *are* the prediction that estimates and tests assess.  S draws from the right
    distribution differ from the distribution itself, which adds an error of the order of 1 / S to
    the SKCE.  Tests detect this error if n is large against S: of 200 perfect models with 10 draws
    from each prediction and n = 1000, the bootstrap rejected 88 % at level 0.05.

    A `PITKernel`, as in `default_kernel`, assesses the distribution of the draws with and without
    `fair`, because it uses the rank of the target among them.

    Where members are missing, a row is one of an ensemble of those that exist: its target is one of
    S_i + 1 values.  Which members are missing must not depend on what they would have said.

    With ``fair=True`` other kernels also assess the *distribution* of the draws.  The kernel on
    predictions compares the first half of the draws, the mean over the last half is subtracted from
    the target, and h is the mean over both roles of the halves (`calibjax.discrepancy`).  Then the
    unbiased SKCE of a calibrated model is 0 on average for every S, if the kernel does not depend
    on the draws; that of `product_kernel` does only through medians over all rows.  The bootstrap
    rejected 5 % of the models above, and 5 % with 2 draws.  The time is halved.  1000 times the
    SKCE, mean and standard deviation over 400 data sets of 300 normal predictions with their
    product kernel:

    ===  ===========  ===========  ===================  ===========
    S    calibrated   fair         0.5 SDs off          fair
    ===  ===========  ===========  ===================  ===========
    2    6.5 ± 1.3    0.0 ± 0.6    18.2 ± 4.0           9.0 ± 3.0
    4    2.1 ± 0.8    0.0 ± 0.4    13.3 ± 3.4           8.9 ± 2.6
    10   0.4 ± 0.5    0.0 ± 0.3    12.1 ± 3.2           10.1 ± 2.8
    100  0.0 ± 0.4    0.0 ± 0.4    12.0 ± 3.3           11.7 ± 3.2
    ∞    0.0 ± 0.4                 12.0 ± 3.1
    ===  ===========  ===========  ===================  ===========

    The draws must be independent: where each row is sorted, the halves have two different
    distributions, and a perfect model looks worse than a wrong one.  `consistency_test` draws
    targets from the samples themselves, and with ``fair=True`` it rejects too rarely if S is below
    10.

    A target may be equal to samples.  Where targets and samples come in two precisions, both are
    rounded to the coarser one: 0.1 in float32 and in float64 are ties.

    See also:
        `Mixture` of distributions that are known, `Quantiles` for sorted values.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Empirical(jnp.array([[0.0, 2.0], [1.0, 5.0]]))
        >>> predictions.mean().tolist(), predictions.variance().tolist()
        ([1.0, 3.0], [1.0, 4.0])

    Draws that stand for a distribution, here the right one:

        >>> truth = cj.Normal(jnp.linspace(-1.0, 1.0, 200), jnp.ones(200))
        >>> targets = truth.sample(jax.random.key(1))
        >>> draws = truth.sample(jax.random.key(0), (4,)).T
        >>> for predictions in (cj.Empirical(draws), cj.Empirical(draws, fair=True)):
        ...     print(cj.skce(cj.product_kernel(predictions), predictions, targets))
        0.0065
        0.0003

    The second member of the first row is missing:

        >>> samples = jnp.array([[0.0, jnp.nan, 2.0], [1.0, 5.0, 6.0]])
        >>> cj.Empirical(samples, where=~jnp.isnan(samples)).mean().tolist()
        [1.0, 4.0]

    Reference: Ferro, Fair scores for ensemble forecasts, Quarterly Journal of the Royal
    Meteorological Society 2014, for scores that are fair to few draws in the same sense.
    """

    samples: jax.Array
    weights: jax.Array | None = None
    fair: bool = static(default=False)
    # As an array of booleans, or of numbers 0 and 1 after a cast of all parameters.
    where: jax.Array | None = None
    # The axes of the samples of one prediction, whose S vectors look like a batch of S predictions.
    _n_axes: int = dataclasses.field(init=False, metadata={"static": True})

    compared_with_targets = ("samples",)
    untempered = ", which has no density"

    def __init__(
        self,
        samples: jax.Array,
        weights: jax.Array | None = None,
        fair: bool = False,
        where: jax.Array | None = None,
    ) -> None:
        if is_array(samples) and jnp.ndim(samples) > 1 and not is_floating(samples):
            raise TypeError(
                f"samples must be floating-point numbers, got dtype {jnp.result_type(samples)}"
                "; draws of counts are samples.astype(float), draws of labels 0 … m-1 are vectors "
                "jax.nn.one_hot(samples, m), as the targets are then, and their frequencies are "
                "Categorical(jax.nn.one_hot(samples, m).mean(axis=1))."
            )
        if check_flag("fair", fair) and weights is not None:
            raise ValueError(
                "weights must be None with fair=True, because halves of weighted samples are "
                f"not draws from one distribution, got {type(weights).__name__}."
            )
        n_axes = max(jnp.ndim(samples) - 1, 1)
        if where is not None:
            check_array("where", where, "boolean")
            samples, weights = _of_members(samples, where), _shares_of_members(weights, where)
        fields = dict(samples=samples, weights=weights, fair=fair, where=where)
        vars(self).update(fields, _n_axes=n_axes)

    @property
    def shapes(self) -> dict[str, str]:
        if self.fair and jnp.ndim(self.samples) > 1 and jnp.shape(self.samples)[1] < 2:
            shape = list(jnp.shape(self.samples))
            raise ValueError(
                "samples must hold at least 2 draws from each prediction with fair=True, got "
                f"shape {shape}."
            )
        others = [name for name in ("weights", "where") if getattr(self, name) is not None]
        return {"samples": "n s d" if self._n_axes == 2 else "n s"} | dict.fromkeys(others, "n s")

    @property
    def target_shape(self) -> str:
        return "n d" if self._n_axes == 2 else "n"

    @property
    def n_batch_axes(self) -> int:
        return jnp.ndim(self.samples) - self._n_axes

    def with_batch_axes(self, n_axes: int) -> Self:
        return with_fields(self, _n_axes=jnp.ndim(self.samples) - n_axes)

    def with_common_structure(self) -> Self:
        """Members may be missing in other batches."""
        if self.where is not None:
            return self
        exists = jnp.ones(jnp.shape(self.samples)[: self.n_batch_axes + 1], bool)
        return with_fields(self, where=exists)

    def probabilities(self) -> jax.Array:
        """The probability of each sample of *one* prediction, ``[S]``."""
        if self.weights is not None:
            return self.weights
        n_samples, dtype = self.samples.shape[0], widest_dtype(self.samples)
        if self.where is None:
            return jnp.full(n_samples, 1 / n_samples, dtype)
        exists = self.where.astype(dtype)
        return exists / jnp.sum(exists)

    def atoms(self) -> tuple[jax.Array, jax.Array]:
        """The samples of *one* prediction and their probabilities, ``[S, …]`` and ``[S]``."""
        return self.samples, self.probabilities()

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        constraints = {}
        words, finite = FINITE.of_rows(self.samples)
        if self.where is None:
            words += ", or say which members are missing, where=~isnan(samples)"
        else:
            least, of_row = (2, "two members") if self.fair else (1, "one member")
            enough = self.where.astype(bool).sum(axis=-1) >= least
            constraints["where"] = f"true for at least {of_row} of each row", enough
        constraints["samples"] = words, finite
        if self.weights is not None:
            constraints["weights"] = probability_vectors(self.weights)
        return constraints

    def mean(self) -> jax.Array:
        """The means, ``[n]`` or ``[n, d]``."""
        return jax.vmap(lambda p: _weighted_mean(p, p.samples))(self)

    def standard_deviation(self) -> jax.Array:
        """The standard deviations, ``[n]`` or ``[n, d]``."""

        def of_one(p: Empirical) -> jax.Array:
            deviations = p.samples - _weighted_mean(p, p.samples)[None]
            return root_mean_square(p.probabilities(), deviations)

        return jax.vmap(of_one)(self)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws ``[*shape, n]`` or ``[*shape, n, d]``."""
        (n, n_samples), exists = self.samples.shape[:2], _existing(self)
        row = jnp.broadcast_to(jnp.arange(n), (*shape, n))
        if self.weights is not None:
            logits = jnp.broadcast_to(jnp.log(widened(self.weights)), (*row.shape, n_samples))
            drawn = jax.random.categorical(key, logits)
        elif exists is None:
            drawn = random_integers(key, row.size, n_samples).reshape(row.shape)
        else:
            most = jnp.broadcast_to(jnp.sum(exists, axis=1, dtype=jnp.int32), row.shape)
            number = random_integers(key, row.size, most.ravel()).reshape(row.shape)
            drawn = jnp.argsort(~exists, axis=1)[row, number]
        return jnp.asarray(self.samples)[row, drawn]

    def tails(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The probabilities of samples ``[n, S]`` up to targets[i] and above."""
        _, up_to, above = _shares(self, targets)
        return up_to, above

    def cdf_jump(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _shares(self, targets)[:2]

    def quantile(self, level: jax.Array) -> jax.Array:
        """The smallest samples up to which the probability is at least the level, ``[n]``."""
        _check_numbers(self, "quantile")
        return jax.vmap(weighted_samples.quantile)(_relative_weights(self), self.samples, level)

    def crps_closed_form(self, targets: jax.Array) -> jax.Array:
        """The score of the samples, ``[n]``; with ``fair=True`` the fair score of their source.

        The mean of the fair score over independent draws is the score of their distribution.
        """
        _check_numbers(self, "CRPS")
        weights = _relative_weights(self)
        scores = jax.vmap(weighted_samples.crps)(weights, self.samples, targets)
        if not self.fair:
            return scores
        between = jax.vmap(weighted_samples.half_mean_difference)(weights, self.samples)
        return scores - between / (jnp.sum(weights, axis=1) - 1)

    def known_quantiles(self) -> tuple[jax.Array, jax.Array]:
        """The samples in order, at the levels 1 / (S + 1), …, S / (S + 1), ``[S]``.

        Where members are missing, the levels are those of each row, ``[n, S]``: k / (S_i + 1) of
        the S_i members that exist, and behind them levels up to 1, at which the line through the
        two largest members goes on in normal scores.
        """
        samples, n = widened(self.samples), self.samples.shape[1]
        numbers, exists = jnp.arange(1, n + 1, dtype=samples.dtype), _existing(self)
        if exists is None:
            return numbers / (n + 1), jnp.sort(samples, axis=1)
        ordered = _sorted(samples, exists)
        size = jnp.sum(exists, axis=1, keepdims=True, dtype=samples.dtype)
        numbers = numbers[None]
        beyond = jnp.maximum(numbers - size, 0) / (n + 1 - size)
        levels = (jnp.minimum(numbers, size) + beyond) / (size + 1)
        z, ends = ndtri(levels), jnp.maximum(size - 2, 0).astype(int) + jnp.arange(2)[None]
        (z_0, z_1), (x_0, x_1) = (
            jnp.split(jnp.take_along_axis(x, ends, axis=1), 2, axis=1) for x in (z, ordered)
        )
        line = x_1 + (x_1 - x_0) / (z_1 - z_0) * (z - z_1)
        return levels, jnp.where(numbers <= size, ordered, line)

    def with_quantiles(self, values: jax.Array) -> Self:
        """Other samples, in the order of these; missing ones stay missing."""
        exists = _existing(self)
        # Missing ones are the last ones, as in `known_quantiles`.
        ours = self.samples if exists is None else jnp.where(exists, self.samples, jnp.inf)
        back = jnp.argsort(jnp.argsort(ours, axis=1), axis=1)
        samples = jnp.take_along_axis(values, back, axis=1)
        return with_fields(self, samples=_of_members(samples, exists))

    @property
    def pit_partition(self) -> int | None:
        if self.weights is not None or is_traced(self.where):
            return None
        if self.where is None:
            return self.samples.shape[1]
        # About as many as a row has.
        return round(float(np.mean(np.sum(np.asarray(self.where, bool), axis=1))))

    def exchangeable_pool(self, targets: jax.Array) -> tuple["Empirical", jax.Array]:
        """The samples with the target among them: any of the S + 1 values may be the target.

        The values are sorted, so that no rank tells which one is the target.
        Weighted samples are taken for the distribution itself, and remain as they are.
        """
        if self.weights is not None:
            return self, targets
        samples, targets = jnp.asarray(self.samples), jnp.asarray(targets)
        dtype = widest_dtype(samples, targets)
        pool = jnp.concatenate([targets[:, None].astype(dtype), samples.astype(dtype)], axis=1)
        exists = _existing(self)
        if exists is None:
            return _Pool(_sorted(pool)), targets
        exists = jnp.pad(exists, ((0, 0), (1, 0)), constant_values=True)
        in_order = jnp.arange(pool.shape[1])[None] < jnp.sum(exists, axis=1, keepdims=True)
        return _Pool(_sorted(pool, exists), where=in_order), targets

    def unit_box(self, targets: jax.Array) -> UnitInterval:
        """The ranks of the coordinates among those of the samples, which the target is among."""
        p, targets = self.exchangeable_pool(targets)
        boxes = jax.vmap(_ranks_among)(p.samples, targets[:, None], _existing(p))
        return jax.tree.map(lambda x: x[:, 0], boxes)

    def standard_scores(self, targets: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        return jax.vmap(_standard_scores)(*widened(self.exchangeable_pool(targets)))

    def cross_fit_pairs(self) -> tuple[tuple[Self, Self], ...]:
        """What h compares and subtracts of *one* prediction, as `CrossFit` has it."""
        if not self.fair:
            return ((self, self),)
        n, where = self.samples.shape[0], _existing(self)
        half = -(-n // 2)
        parts = jnp.arange(half), jnp.arange(half, n)
        masks: tuple[jax.Array | None, ...] = (None, None)
        if where is not None:
            # Members that exist come first, and so does the half of one more.
            order, size = jnp.argsort(~where), jnp.sum(where)
            cut = (size + 1) // 2
            masks = parts[0] < cut, parts[1] - half < size - cut
            parts = order[parts[0]], order[jnp.minimum(parts[1] - half + cut, n - 1)]
        halves = [_of_members(self.samples[x], mask) for x, mask in zip(parts, masks, strict=True)]
        first, second = (
            with_fields(self, samples=draws, fair=False, where=mask)
            for draws, mask in zip(halves, masks, strict=True)
        )
        return (first, second), (second, first)

    def characteristic(self, v: jax.Array) -> jax.Array:
        """E exp(i <v, Z>) for Z from *one* prediction, a complex number."""
        return complex_average(
            self.probabilities(), self.samples, lambda z: complex_exponential(jnp.sum(z * v))
        )


class _Pool(Empirical):
    """Samples that the target is among."""

    def exchangeable_pool(self, targets: jax.Array) -> tuple[Self, jax.Array]:
        return self, targets

    @property
    def pit_ends(self) -> np.ndarray | None:
        n = self.samples.shape[1]
        return np.arange(n + 1) / n if self.where is None and self.target_shape == "n" else None

    def cdf_jump(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        """By a search, as the values are in order; comparisons with all of many take long."""
        _check_numbers(self, "cdf")
        of_row = functools.partial(_ranks_in, is_pool=True)
        # A mask of ones is summed as well: ranks over a constant would differ in the last digit,
        # and ensembles with and without missing members with them.
        return jax.vmap(of_row)(self.samples, targets, _relative_weights(self) > 0)[:2]

    def unit_boxes_of_pool(self) -> tuple[UnitInterval, jax.Array | None]:
        samples, exists = widened(self.samples), _existing(self)
        boxes = jax.vmap(_ranks_among)(samples, samples, exists)
        return boxes, None if exists is None else exists[:, :, None]


def _existing(p: Empirical) -> jax.Array | None:
    """Which members exist, booleans ``[n, S]``; None if all do."""
    return None if p.where is None else jnp.asarray(p.where).astype(bool)


def _check_numbers(p: Empirical, name: str) -> None:
    """Raises a TypeError for samples that are vectors."""
    if p.target_shape != "n":
        raise TypeError(
            f"Empirical predictions have a {name} if samples are real numbers [n, S], got "
            f"shape {list(p.samples.shape)}."
        )


def _relative_weights(p: Empirical) -> jax.Array:
    """The weights ``[n, S]`` in units of their sums: ones, which have exact sums, if equal."""
    if p.weights is not None:
        return p.weights
    return jnp.ones_like(p.samples) if p.where is None else p.where.astype(p.samples.dtype)


def _shares(p: Empirical, targets: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """P(Y < targets[i]), P(Y <= targets[i]) and P(Y > targets[i])."""
    _check_numbers(p, "cdf")
    return jax.vmap(weighted_samples.shares)(_relative_weights(p), p.samples, targets)


def _of_members(samples: jax.Array, where: jax.Array | None) -> jax.Array:
    """Samples ``[…, S]`` or ``[…, S, d]`` with a copy of a member in place of missing ones.

    It passes no gradient on.  A row without a member is NaN.
    """
    if where is None or not is_array(samples) or samples.shape[: where.ndim] != where.shape:
        return samples  # `shapes` says what is wrong.
    axis, shape = where.ndim - 1, where.shape
    on_host = isinstance(samples, np.ndarray) and isinstance(where, np.ndarray)
    xp = np if on_host else jnp
    where = where.reshape(*shape, *(1,) * (samples.ndim - where.ndim))
    first = xp.take_along_axis(samples, xp.argmax(where, axis=axis, keepdims=True), axis=axis)
    first = xp.where(xp.any(where, axis=axis, keepdims=True), first, samples.dtype.type(np.nan))
    return xp.where(where, samples, first if on_host else lax.stop_gradient(first))


def _shares_of_members(weights: jax.Array | None, where: jax.Array) -> jax.Array | None:
    """Weights ``[…, S]`` over their sums over the members that exist; missing ones have none."""
    if weights is None or not is_floating(weights) or jnp.shape(weights) != jnp.shape(where):
        return weights
    xp = np if isinstance(weights, np.ndarray) and isinstance(where, np.ndarray) else jnp
    kept = xp.where(where, weights, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return kept / kept.sum(axis=-1, keepdims=True)


def _ranks_among(
    samples: jax.Array, points: jax.Array, exists: jax.Array | None = None
) -> UnitInterval:
    """The ranks of points ``[P, d]`` among samples ``[S, d]`` over S, in each coordinate.

    Only samples that exist count, ``[S]``.
    """
    return jax.vmap(lambda x, y: _ranks_in(x, y, exists), 1, 1)(samples, points)


def _ranks_in(
    samples: jax.Array, points: jax.Array, exists: jax.Array | None, is_pool: bool = False
) -> UnitInterval:
    """The same among samples ``[S]`` for points of any shape; those of a pool are in order."""
    samples = samples if exists is None else jnp.where(exists, samples, jnp.inf)
    ordered = samples if is_pool else jnp.sort(samples)
    size = ordered.size if exists is None else jnp.sum(exists, dtype=ordered.dtype)
    ends = (place_among(ordered, points, side) for side in ("left", "right"))
    return interval(*(x.astype(ordered.dtype) / size for x in ends))


def _standard_scores(p: Empirical, y: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """z of y, and of the samples ``[S, …]`` of *one* prediction with their probabilities.

    Differences to the first sample, in units of the largest, keep the digits of samples that are
    nearly equal, and are 0 if they are equal.
    """
    probabilities, x, y = p.probabilities(), p.samples - p.samples[:1], y - p.samples[0]
    largest = jnp.max(jnp.abs(x), axis=0)
    unit = jnp.where(largest > 0, largest, 1.0)
    x, y = x / unit[None], y / unit
    mean = jnp.tensordot(probabilities, x, axes=1)
    x, y = x - mean[None], y - mean
    deviation = safe_sqrt(jnp.tensordot(probabilities, jnp.square(x), axes=1))
    safe = jnp.where(largest > 0, deviation, 1.0)
    return y / safe, x / safe[None], probabilities


def _sorted(samples: jax.Array, exists: jax.Array | None = None) -> jax.Array:
    """Samples ``[n, S]`` in order, or vectors ``[n, S, d]`` by the first coordinate, and so on.

    Those that do not exist come last.
    """
    is_last = [] if exists is None else [~exists]
    if samples.ndim == 2:
        coordinates = [samples]
    else:
        coordinates = [samples[:, :, c] for c in range(samples.shape[2])]
    keys = is_last + coordinates
    ordered = lax.sort(keys, dimension=1, num_keys=len(keys))[len(is_last) :]
    return ordered[0] if samples.ndim == 2 else jnp.stack(ordered, axis=2)


def _weighted_mean(p: Empirical, values: jax.Array) -> jax.Array:
    """The mean over the samples of *one* prediction of values ``[S, …]``."""
    probabilities = p.probabilities().reshape(-1, *(1,) * (values.ndim - 1))
    return jnp.sum(probabilities * values, axis=0)
