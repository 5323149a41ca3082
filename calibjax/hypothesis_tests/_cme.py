"""The test with mean deviations at test locations."""

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import gammaincc
from jax.typing import ArrayLike

from calibjax._check import check_integer
from calibjax._distribution import Distribution
from calibjax._interval_censored import Targets
from calibjax._numbers import dot, root_mean_square
from calibjax._rows import Data, check_locations, padded
from calibjax._sharding import Axis, all_max, all_of, all_sum, on_devices
from calibjax._struct import is_traced
from calibjax.discrepancy import SumOfTerms, check_inputs, deviation
from calibjax.estimators import h_and_locations
from calibjax.hypothesis_tests._nulls import check_null, ranked, redrawn
from calibjax.hypothesis_tests._result import CalibrationTestResult
from calibjax.intervals import NormInterval, remark_on_rare_events, three_moment_errors
from calibjax.kernels import KernelLike


def asymptotic_cme_test(
    kernel: KernelLike,
    predictions: Distribution,
    targets: Targets,
    test_predictions: Distribution,
    test_targets: ArrayLike,
    *,
    null: str = "asymptotic",
    key: jax.Array | None = None,
    n_resamples: int = 999,
    where: ArrayLike | None = None,
) -> CalibrationTestResult:
    """Is the mean deviation of the data at J test locations different from 0?

    .. math::
        Q = n \\bar z^\\top S^{-1} \\bar z, \\qquad p = P(\\chi^2_J \\ge Q)

    where z_bar and S are the mean and the covariance (ddof = 1) of the n vectors z_i with the
    deviations z_ij = k((p_i, y_i), t_j) - E k((p_i, Z), t_j), Z ~ p_i.  The test is powerful if the
    locations are well chosen; they must not depend on the targets.

    `null` chooses what Q is compared with:

    - "asymptotic": the chi-squared law, as above.  It needs no draws, and many samples near each
      location, with both outcomes of a rare event.  With n < 100 J the test rejects calibrated
      models too often, and for binary predictions close to 0 or 1 with larger n too: with 3 random
      locations and probabilities uniform on [0, 1] it rejects 12 % at level 5 % for n = 300, and
      7 % for n = 1000; with 3 expected events among n = 100 it rejects 77 %.
    - "model": the Q of R = n_resamples data sets whose targets are drawn from the predictions,
      p = (1 + #{Q* >= Q}) / (R + 1), with ties counted.  If rows are independent given the
      predictions, the level is exact at every n and J, also for rare events.  Here S / n is the
      mean of z_bar z_bar^T over all R + 1 data sets, and has a pseudoinverse.  Divided by an S of
      its own, a data set without an event would have the largest Q, and too many events would
      never be seen.

    "asymptotic" takes O(n J^2) time and O(n J) memory.  "model" takes O(n J) time for each data set
    and O(n + R J) memory, where 100 draws of each target take some 1.5 kB a row.

    Args:
        kernel: usually a TensorProduct, or what `default_kernel` returns.
        predictions: a batch of n predictions of one family.
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.  With a `PITKernel` also
            `Between`, where they are censored or binned, for "asymptotic".
        test_predictions: J predictions of the same family; see `sample_test_locations`.  For
            "asymptotic" 1 <= J < n.
        test_targets: the targets of the locations, ``[J]`` or ``[J, d]``.
        null: "asymptotic" or "model".
        key: a key of `jax.random` for "model"; None for "asymptotic".
        n_resamples: R > J, for "model"; draw r of a row depends only on the key, r and the number
            of the row among the kept rows.
        where: boolean mask ``[n]``; masked rows may hold anything.  n counts the kept rows.

    Returns:
        CalibrationTestResult; its estimate is `ucme`, of which the confidence_interval of
        "asymptotic" says how large it may be; "model" has none.  Inside jit a bad value, too few
        kept rows or a singular covariance of "asymptotic" makes all numbers NaN.  Outside of jit
        the method of "asymptotic" says so if fewer than ten rare events are expected, which are
        targets other than the most probable one.

    Raises:
        TypeError, ValueError: as in `skce`; a key is missing for "model", or given for
            "asymptotic"; for "asymptotic", n <= J, or S is singular, for example because two
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
        >>> key = jax.random.key(0)
        >>> float(cj.asymptotic_cme_test(*data, *locations, null="model", key=key).pvalue)
        0.223

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Appendix C.2.
    """
    terms, data = check_inputs(
        kernel, predictions, targets, where=where, intervals=True, formula=deviation
    )
    locations = check_locations(predictions, test_predictions, test_targets, "test")
    n, n_locations = data.n_kept(), locations.n
    n_resamples = check_null(null, ("asymptotic", "model"), key, n_resamples, data)
    data = padded(data)
    if key is not None:
        check_integer("n_resamples", n_resamples, n_locations + 1)
        return _model_cme_test((key, terms, locations), data, n_resamples)
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
            "duplicates, or locations far from all data?  null='model' does without an inverse."
        )
    return remark_on_rare_events(result, data, "null='model'")


@on_devices
def _asymptotic_cme_test(
    axis: Axis, shared: tuple[SumOfTerms, Data], data: Data
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
    # The estimate is the squared norm of z_bar / sqrt(J), whose error has this covariance.
    covariance = all_sum(dot(centred.T, centred), axis) / (n * (n - 1) * n_locations)
    errors = three_moment_errors(jnp.trace(covariance), covariance)
    result = CalibrationTestResult(
        statistic=statistic,
        pvalue=gammaincc(jnp.asarray(n_locations / 2, statistic.dtype), statistic / 2),
        estimate=estimate,
        interval=NormInterval(estimate, errors),
        method=f"asymptotic_cme_test, {n_locations} locations",
    )
    return result, singular


@on_devices
def _model_cme_test(
    axis: Axis, shared: tuple[jax.Array, SumOfTerms, Data], data: Data, n_resamples: int
) -> CalibrationTestResult:
    key, kernel, locations = shared
    h, locations = h_and_locations(kernel, locations, data, axis)
    n = h.count()

    means = redrawn(lambda h: h.deviation_sums(locations) / n, key, h, n_resamples)
    # The weights of the locations are 1, or all NaN if a location is invalid.
    means = jnp.where(n >= 2, means * locations.weights[None, :], jnp.nan)
    method = f"asymptotic_cme_test, {locations.n} locations, null of {n_resamples} draws"
    estimate = jnp.mean(jnp.square(means[-1]))
    return ranked(_squared_lengths(means, n), estimate, method=f"{method} from the model")


def _squared_lengths(means: jax.Array, n: jax.Array) -> jax.Array:
    """x^T C^+ x for each row x of `means` ``[R + 1, J]``, where C is the mean of all x x^T.

    C^+ is the pseudoinverse: directions in which no row has more than rounding errors are left out.
    """
    n_rows, n_locations = means.shape
    scale = root_mean_square(jnp.full(n_rows, 1 / n_rows, means.dtype), means)
    scaled = means / jnp.where(scale > 0, scale, 1.0)[None, :]
    # With scaled = U diag(s) V^T the value of row b is n_rows sum_k U_bk^2.
    left, sizes, _ = jnp.linalg.svd(scaled, full_matrices=False)
    rounding = 10 * jnp.finfo(sizes.dtype).eps * (n_locations + jnp.sqrt(n))
    counted = sizes > rounding * sizes[0]
    values = n_rows * jnp.sum(jnp.where(counted[None, :], jnp.square(left), 0.0), axis=1)
    return jnp.where(jnp.isnan(sizes[0]), jnp.nan, values)
