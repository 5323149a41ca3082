"""The test with mean deviations at test locations, and random locations."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import gammaincc
from jax.typing import ArrayLike

from calibjax._base.check import check_integer, check_key
from calibjax._base.sharding import Axis, all_max, all_of, all_sum, axis_size, on_devices, rows_at
from calibjax._base.struct import is_traced, widest_dtype
from calibjax._data.data import NOT_PLAIN, Data, Rows, as_data, in_dtype
from calibjax._data.distribution import Distribution
from calibjax._data.interval_censored import Targets
from calibjax._data.padding import check_locations, check_rows, padded
from calibjax._numbers.arithmetic import dot
from calibjax.discrepancy import SumOfTerms, check_kernel_of, deviation
from calibjax.estimators import h_and_locations
from calibjax.hypothesis_tests._result import CalibrationTestResult
from calibjax.intervals.rare_events import note_on_rare_events
from calibjax.kernels.base import KernelLike

Family = TypeVar("Family", bound=Distribution)


def asymptotic_cme_test(
    kernel: KernelLike,
    predictions: Distribution | Data,
    targets: Targets | None,
    test_predictions: Distribution,
    test_targets: ArrayLike,
    *,
    where: ArrayLike | None = None,
) -> CalibrationTestResult:
    """Tests whether the mean deviation of the data at J test locations differs from 0.

    .. math::
        Q = n \\bar z^\\top S^{-1} \\bar z, \\qquad p = P(\\chi^2_J \\ge Q)

    where z_bar and S are the mean and the covariance (ddof = 1) of the n vectors z_i with the
    deviations z_ij = k((p_i, y_i), t_j) - E k((p_i, Z), t_j), Z ~ p_i.  The test is powerful if the
    locations are well chosen; they must not depend on the targets.

    The approximation for Q needs many samples near each location, with both outcomes of a rare
    event.  With n < 100 J the test rejects calibrated models too often, and for binary predictions
    close to 0 or 1 with larger n too: with 3 random locations and probabilities uniform on [0, 1]
    it rejects 12 % at level 5 % for n = 300, and 7 % for n = 1000; with 3 expected events among n =
    100 it rejects 77 %.  `consistency_test` of `ucme` at the locations is exact at every n and J.

    O(n J^2) time and O(n J) memory.

    Args:
        kernel: usually a TensorProduct, or what `default_kernel` returns.
        predictions, targets: as in `Data`.  With a `PITKernel` also `IntervalCensored`.
        test_predictions: J predictions of the same family, 1 <= J < n; see `sample_test_locations`.
        test_targets: the targets of the locations, ``[J]`` or ``[J, d]``.
        where: boolean mask ``[n]``; masked rows may hold anything.  n counts the kept rows.

    Returns:
        CalibrationTestResult; its estimate is `ucme`.  Inside jit a bad value, too few kept rows or
        a singular covariance makes all numbers NaN.  Outside of jit the method says so if fewer
        than ten rare events are expected, which are targets other than the most probable one.

    Raises:
        TypeError, ValueError: as in `skce`; n <= J, or S is singular, for example because two
            locations coincide.

    See also:
        `sample_test_locations` for locations, `ucme` for the estimate.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.full(1000, 0.5))
        >>> locations = cj.Bernoulli(jnp.array([0.5])), jnp.array([1])
        >>> data = cj.default_kernel(predictions), predictions, jnp.arange(1000) < 520
        >>> float(cj.asymptotic_cme_test(*data, *locations).pvalue)
        0.206

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Appendix C.2.
    """
    data = as_data(predictions, targets, where=where, intervals=True, without=NOT_PLAIN)
    terms = check_kernel_of(kernel, data, formula=deviation)
    locations = check_locations(data.predictions, test_predictions, test_targets, "test")
    n, n_locations = data.n_kept(), locations.n
    data = padded(data)
    if n <= n_locations:
        raise ValueError(
            f"test_predictions must hold fewer locations than there are samples, n = {n}, got "
            f"{n_locations}."
        )
    result, singular = _asymptotic_cme_test((terms, locations), data)
    if not is_traced(singular) and singular:
        raise ValueError(
            "test_predictions and test_targets must be locations at which the deviations are "
            f"linearly independent, got {n_locations} with a singular covariance; are there "
            "duplicates, or locations far from all data?"
        )
    return note_on_rare_events(result, data, "consistency_test")


@on_devices
def _asymptotic_cme_test(
    axis: Axis, shared: tuple[SumOfTerms, Rows], data: Rows
) -> tuple[CalibrationTestResult, jax.Array]:
    kernel, locations = shared
    h, locations = h_and_locations(kernel, locations, data, axis)
    weights, n, n_locations = h.weights, h.count(), locations.n
    deviations = h.deviations(locations)
    mean = all_sum(dot(weights, deviations), axis) / n
    centred = weights[:, None] * (deviations - mean[None, :])
    # S = R^T R / (n-1) with a triangular R from a QR factorisation, in units of the standard
    # deviations: the condition number of S itself would be the square of the condition number of R.
    scale = jnp.sqrt(all_sum(jnp.sum(jnp.square(centred), axis=0), axis))
    safe = jnp.where(scale > 0, scale, 1.0)
    factor = jnp.linalg.qr(centred / safe[None, :], mode="r")
    if axis is not None:
        # A QR factorisation of the stacked factors of all devices gives the factor of all rows.
        factor = jnp.linalg.qr(all_of(factor, axis).reshape(-1, n_locations), mode="r")
    values = jnp.linalg.svd(factor, compute_uv=False)
    rounding = 10 * jnp.finfo(values.dtype).eps
    largest = all_max(jnp.max(jnp.abs(weights[:, None] * deviations), axis=0), axis)
    constant = scale <= rounding * jnp.sqrt(n) * largest
    dependent = values[-1] <= rounding * n_locations * values[0]
    singular = jnp.any(constant) | dependent | (n <= n_locations)
    factor = jnp.where(singular, jnp.eye(n_locations, dtype=factor.dtype), factor)
    whitened = solve_triangular(factor, mean / safe, trans="T")
    statistic = n * (n - 1) * jnp.sum(jnp.square(whitened))
    # The weights of the locations are 1, or all NaN if a location is invalid.
    statistic = jnp.where(singular, jnp.nan, statistic * jnp.prod(locations.weights))
    estimate = jnp.where(jnp.isnan(statistic), jnp.nan, jnp.mean(jnp.square(mean)))
    result = CalibrationTestResult(
        statistic=statistic,
        pvalue=gammaincc(jnp.asarray(n_locations / 2, statistic.dtype), statistic / 2),
        estimate=estimate,
        method=f"asymptotic_cme_test, {n_locations} locations",
    )
    return result, singular


def sample_test_locations(
    key: jax.Array,
    predictions: Distribution | Data,
    n_locations: int,
    *,
    where: ArrayLike | None = None,
) -> tuple[Any, jax.Array]:
    """Locations for `asymptotic_cme_test`: some of the predictions, and a target drawn from each.

    The predictions are drawn without replacement.  The locations do not depend on the targets of
    the data, so that the test with them is valid.

    Args:
        key: a key of `jax.random`.
        predictions: a batch of n predictions of one family, or `Data` of them.
        n_locations: J, from 1 to n.
        where: boolean mask ``[n]``; masked rows may hold anything and are not drawn.

    Returns:
        J predictions, and targets ``[J]`` or ``[J, d]``.  Inside jit, where kept rows cannot be
        counted beforehand, the predictions are NaN if fewer than J rows are kept.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.linspace(0, 1, 100))
        >>> locations, targets = cj.sample_test_locations(jax.random.key(0), predictions, 5)
        >>> locations.probs.shape, targets.shape
        ((5,), (5,))
    """
    check_key(key)
    data = check_rows(predictions, where)
    n_locations = check_integer("n_locations", n_locations, 1, data.n_kept(), "n = ")
    return _sample_test_locations(key, Rows(data.predictions, where=data.where), n_locations)


@on_devices
def _sample_test_locations(
    axis: Axis, key: jax.Array, data: Data, n_locations: int
) -> tuple[Any, jax.Array]:
    predictions, n, where = data.predictions, data.n, data.where
    row_key, target_key = jax.random.split(key)
    # The rows with the J largest of n random numbers are drawn; masked rows have the number -1.
    order = jax.random.uniform(row_key, (n * axis_size(axis),), jnp.float32)
    if where is not None:
        where = all_of(where, axis).reshape(-1)
        order = jnp.where(where, order, -1.0)
    locations = rows_at(predictions, n, lax.top_k(order, n_locations)[1], axis)
    locations = in_dtype(locations, widest_dtype(*jax.tree.leaves(locations)))
    targets = locations.sample(target_key)
    if where is not None:
        # Inside jit too few kept rows cannot be an error.
        enough = jnp.sum(where) >= n_locations
        locations = jax.tree.map(lambda x: jnp.where(enough, x, jnp.nan), locations)
    return locations, targets
