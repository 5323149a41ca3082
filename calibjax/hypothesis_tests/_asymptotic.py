"""The test with the unbiased estimate over all pairs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._batch import kept_first
from calibjax._check import check_choice, check_integer, check_key
from calibjax._data import Data, clean
from calibjax._distribution import Distribution
from calibjax._door import check_inputs
from calibjax._sharding import Axis, all_sum, gathered, on_devices
from calibjax.discrepancy import h
from calibjax.features import one_feature
from calibjax.hypothesis_tests._null_laws import Law, bootstrap, gamma, pearson, spectrum
from calibjax.hypothesis_tests._result import CalibrationTestResult
from calibjax.kernels import KernelLike
from calibjax.operators import H, low_rank_h, tiled_h_of_clean

# Up to how many rows a matrix of all pairs is held.
_MAX_MATRIX_ROWS = 8192


def _tiles(key: jax.Array, kernel: Any, data: Data, n_features: int, axis: Axis):
    return tiled_h_of_clean(kernel, data, axis), key


def _matrix(key: jax.Array, kernel: Any, data: Data, n_features: int, axis: Axis):
    return tiled_h_of_clean(kernel, data, axis).dense(), key


def _features(key: jax.Array, kernel: Any, data: Data, n_features: int, axis: Axis):
    feature_key, key = jax.random.split(key)
    return low_rank_h(feature_key, kernel, data, n_features, axis), key


class _Method(NamedTuple):
    """What stands for H, and what for the law of the estimate under H0."""

    #: ``operator(key, kernel, data, n_features, axis)`` returns H and the key that is left.
    operator: Callable[..., tuple[H, jax.Array]]
    law: Law
    formula: Callable[..., jax.Array] = h
    holds_matrix: bool = False
    words: str = ""


_METHODS = {
    "bootstrap": _Method(_tiles, bootstrap),
    "spectrum": _Method(_matrix, spectrum, holds_matrix=True),
    "gamma": _Method(_tiles, gamma),
    "pearson": _Method(_matrix, pearson, holds_matrix=True),
    "features": _Method(_features, spectrum, formula=one_feature, words=", {} features"),
}


def asymptotic_skce_test(
    key: jax.Array,
    kernel: KernelLike,
    predictions: Distribution,
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
    check_choice("method", method, _METHODS)
    how = _METHODS[method]
    kernel, data = check_inputs(kernel, predictions, targets, where, formula=how.formula)
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    n_features = check_integer("n_features", n_features, 1)
    if how.holds_matrix and data.n > _MAX_MATRIX_ROWS:
        raise ValueError(
            f"method must be 'bootstrap', 'gamma' or 'features' above n = {_MAX_MATRIX_ROWS}, got "
            f"{method!r}, which holds an n x n matrix, with n = {data.n}."
        )
    if how.holds_matrix:
        data = gathered(data)
    return _asymptotic_skce_test((key, kernel), data, n_resamples, method, n_features)


@on_devices
def _asymptotic_skce_test(
    axis: Axis, shared: Any, data: Data, n_resamples: int, method: str, n_features: int
) -> CalibrationTestResult:
    key, kernel = shared
    how = _METHODS[method]
    data, n_kept = kept_first(clean(data, axis), data.where)
    # One row alone gives 0 / 0, but for the rounding of its features.
    enough = all_sum(jnp.asarray(n_kept), axis) > 1
    weights = jnp.where(enough, data.weights, jnp.nan)
    data = Data(data.predictions, data.targets, weights=weights)
    operator, key = how.operator(key, kernel, data, n_features, axis)
    verdict = how.law(key, operator, n_kept, n_resamples)
    of_draws = "" if verdict.draws is None else f" of {n_resamples}"
    return CalibrationTestResult(
        statistic=verdict.statistic,
        pvalue=verdict.pvalue,
        estimate=operator.unbiased(verdict.row_sums),
        standard_error=operator.standard_error(verdict.row_sums),
        null_distribution=verdict.draws,
        method=f"asymptotic_skce_test, {method}{of_draws}{how.words.format(n_features)}",
    )
