"""The test with the unbiased estimate over all pairs."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._batch import kept_first
from calibjax._check import check_choice, check_integer, check_key
from calibjax._pairwise import all_pairs_sum, quadratic_forms
from calibjax._sharding import Axis, all_sum, gathered, on_devices
from calibjax._struct import as_pytree
from calibjax.discrepancy import h, h_tile, squared_h_tile
from calibjax.estimators import Inputs, check_inputs, clean
from calibjax.features import one_feature
from calibjax.hypothesis_tests._bootstrap import bootstrap
from calibjax.hypothesis_tests._counting import counted_pvalue
from calibjax.hypothesis_tests._feature_moments import feature_moments
from calibjax.hypothesis_tests._result import CalibrationTestResult
from calibjax.hypothesis_tests._weighted_chi_squared import (
    gamma_pvalue,
    pearson_pvalue,
    spectrum_draws,
)

_METHODS = ("bootstrap", "spectrum", "gamma", "pearson", "features")
# Methods that need all of H at once, and up to which n they have it.
_OF_MATRIX, _MAX_MATRIX_ROWS = ("spectrum", "pearson"), 8192


def asymptotic_skce_test(
    key: jax.Array,
    kernel: Any,
    predictions: Any,
    targets: ArrayLike,
    *,
    n_resamples: int = 1000,
    method: str = "bootstrap",
    n_features: int = 256,
    where: ArrayLike | None = None,
) -> CalibrationTestResult:
    """Is the unbiased SKCE over all pairs larger than that of a calibrated model would be?

    The most powerful test here.  Its p-value is asymptotically exact; `method` says what stands for
    the law of the estimate under H0, where n SKCE_u tends to sum_i lambda_i (Z_i^2 - 1):

    - "bootstrap": the centred multinomial bootstrap of S = n/(n-1) SKCE_u - SKCE_b, and
      p = (1 + #{T* >= S}) / (n_resamples + 1).  The right choice, but for its time at large n:
      O(n^2 n_resamples), with O(n) memory: a byte for each row and resample, of which at most 1024
      go together.
    - "gamma": the gamma law with the first two moments; draws nothing, O(n^2) time, O(n) memory,
      for when the bootstrap takes too long.  For decisions at 0.05 and 0.1, where it is right
      within a fifth; smaller p-values are too small, where h has a long tail of small eigenvalues
      by factors of 1.5 to 4 at 0.01 and 3 to 60 at 0.001.
    - "pearson": three moments; right within a tenth down to 0.01, within a third at 0.001.  Holds
      H: O(n^3) time, n <= 8192.
    - "spectrum": draws of the limit, with lambda the eigenvalues of H / n.  As good as the
      bootstrap where n is large.  Holds H: O(n^3) time, n <= 8192.
    - "features": that of a kernel of n_features random features in place of the kernel, whose H has
      only twice as many eigenvalues.  The choice at large n: O(n n_features^2) time, O(n) memory.
      The p-value is that of a valid test however few they are, since they are drawn without the
      data; with 64 it was as powerful as the bootstrap.

    For all but "bootstrap" the statistic is n SKCE_u.  All of them estimate the law under H0 from H
    itself, so that data which cannot show it mislead them: where fewer than some ten rare events
    are to be expected among all rows, they reject calibrated models too often, and
    `consistency_test` does not.

    Args:
        key: a key of `jax.random`; "gamma" and "pearson" do not use it.
        kernel: usually a TensorProduct, or what `default_kernel` returns.
        predictions: a batch of n >= 2 predictions of one family.
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.
        n_resamples: number of draws under H0; draw r depends on (key, r) alone.
        method: "bootstrap", "gamma", "pearson", "spectrum" or "features".
        n_features: how many features "features" draws; which kernels have some, see
            `random_feature_skce`.
        where: boolean mask ``[n]``; masked rows may hold anything, and n is the number of others.

    Returns:
        CalibrationTestResult.  Its standard_error is that of a model that is *not* calibrated, from
        row sums of H (Hájek projection); under H0 it is too large.  With "features" the estimate is
        that of the random kernel, and there is none: it would leave out the error of the features.
        The null_distribution holds the draws.  Inside jit a bad value, or fewer than two kept rows,
        make all numbers NaN.  As a loss use `skce`: this estimate has no gradient in bounded
        memory.

    Raises:
        TypeError, ValueError: as in `skce`.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.full(100, 0.5))
        >>> targets = jnp.arange(100) < 75
        >>> kernel = cj.default_kernel(predictions)
        >>> result = cj.asymptotic_skce_test(jax.random.key(0), kernel, predictions, targets)
        >>> float(result.pvalue)
        0.001

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Remark B.2; for "features" the kernel is that of `random_feature_skce`.
    """
    check_key(key)
    inputs = Inputs(as_pytree(kernel), predictions, targets, where)
    n = check_inputs(inputs, one_feature if method == "features" else h)
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    n_features = check_integer("n_features", n_features, 1)
    check_choice("method", method, _METHODS)
    if method in _OF_MATRIX and n > _MAX_MATRIX_ROWS:
        raise ValueError(
            f"method must be 'bootstrap', 'gamma' or 'features' above n = {_MAX_MATRIX_ROWS}, got "
            f"{method!r}, which holds an n x n matrix, with n = {n}."
        )
    rows = gathered(inputs[1:]) if method in _OF_MATRIX else inputs[1:]
    shared = key, inputs.kernel
    return _asymptotic_skce_test(shared, rows, n_resamples, method, n_features)


@on_devices
def _asymptotic_skce_test(
    axis: Axis, shared: Any, inputs: Any, n_resamples: int, method: str, n_features: int
) -> CalibrationTestResult:
    key, kernel = shared
    kernel, rows = clean(kernel, *inputs, axis=axis)
    rows, n_kept = kept_first(rows, inputs[2])
    samples, weights = (rows.predictions, rows.targets), rows.weights
    n = all_sum(jnp.asarray(n_kept, weights.dtype), axis)
    # One row gives 0 / 0, but for the rounding of its features.
    n = jnp.where(n > 1, n, jnp.nan)

    def unbiased(row_sums: jax.Array) -> jax.Array:
        return all_sum(jnp.sum(weights * row_sums), axis) / (n * (n - 1))

    def diagonal_of_h() -> jax.Array:
        return weights * jax.vmap(lambda a: h(kernel, a, a))(samples)

    def trace(diagonal: jax.Array) -> jax.Array:
        return all_sum(jnp.sum(diagonal), axis)

    draws = None
    if method == "features":
        feature_key, key = jax.random.split(key)
        data = kernel, samples, weights
        matrix, row_sums = feature_moments(feature_key, *data, n_features, axis)
        estimate = unbiased(row_sums)
        statistic = n * estimate
        draws = spectrum_draws(key, matrix / n, n_resamples)
        pvalue = counted_pvalue(statistic, draws)
    elif method == "bootstrap":
        diagonal = diagonal_of_h()
        data = kernel, samples, weights
        draws, row_sums = bootstrap(key, *data, diagonal, n_kept, n_resamples, axis)
        estimate = unbiased(row_sums)
        biased = (n - 1) / n * estimate + trace(diagonal) / jnp.square(n)
        statistic = n / (n - 1) * estimate - biased
        pvalue = counted_pvalue(statistic, draws)
    elif method == "gamma":
        no_vectors = jnp.zeros((0, weights.shape[0]), weights.dtype)
        _, row_sums = quadratic_forms(h_tile, kernel, samples, weights, no_vectors, axis)
        squares = all_pairs_sum(squared_h_tile, kernel, samples, weights, axis)
        diagonal = diagonal_of_h()
        t2 = (squares + trace(jnp.square(diagonal))) / jnp.square(n)
        estimate = unbiased(row_sums)
        statistic = n * estimate
        pvalue = gamma_pvalue(statistic, trace(diagonal) / n, t2)
    else:
        off_diagonal = weights[:, None] * h_tile(kernel, samples, samples) * weights[None, :]
        off_diagonal = jnp.fill_diagonal(off_diagonal, 0, inplace=False)
        matrix = (off_diagonal + jnp.diag(diagonal_of_h())) / n
        row_sums = jnp.sum(off_diagonal, axis=1)
        estimate = unbiased(row_sums)
        statistic = n * estimate
        if method == "spectrum":
            draws = spectrum_draws(key, matrix, n_resamples)
            pvalue = counted_pvalue(statistic, draws)
        else:
            pvalue = pearson_pvalue(statistic, matrix)
    return CalibrationTestResult(
        statistic=statistic,
        pvalue=pvalue,
        estimate=estimate,
        standard_error=None
        if method == "features"
        else _hajek_standard_error(row_sums, weights, estimate, n, axis),
        null_distribution=draws,
        method=f"asymptotic_skce_test, {method}"
        + (f" of {n_resamples}" if draws is not None else "")
        + (f", {n_features} features" if method == "features" else ""),
    )


def _hajek_standard_error(
    row_sums: jax.Array, weights: jax.Array, unbiased: jax.Array, n: jax.Array, axis: Axis
) -> jax.Array:
    """2 / sqrt(n) times the standard deviation of E[h((p, y), .)], from means of rows."""
    deviations = weights * (row_sums / (n - 1) - unbiased)
    return 2 * jnp.sqrt(all_sum(jnp.sum(jnp.square(deviations)), axis) / (n * (n - 1)))
