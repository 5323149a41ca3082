"""The test that a newcomer finds first."""

import dataclasses
import math
from typing import Any

import jax
from jax.typing import ArrayLike

from calibjax._check import check_key
from calibjax.estimators import check_samples, skce
from calibjax.expectations import default_kernel
from calibjax.hypothesis_tests._asymptotic import asymptotic_skce_test
from calibjax.hypothesis_tests._block import asymptotic_block_skce_test
from calibjax.hypothesis_tests._consistency import consistency_test
from calibjax.hypothesis_tests._result import CalibrationTestResult

# Up to here a simulated null distribution costs little, and is closer to the truth.
_MAX_CONSISTENCY_ROWS = 128
# Above, the bootstrap takes longer than a CPU user would wait for.
_MAX_BOOTSTRAP_ROWS = 50_000


def calibration_test(
    key: jax.Array, predictions: Any, targets: ArrayLike, *, where: jax.Array | None = None
) -> CalibrationTestResult:
    """Is this model calibrated?  A small p-value says that it is not.

    The kernel is `default_kernel`, made from the predictions alone; the estimate is the unbiased
    SKCE.  The test is the one that suits n rows, and the method of the result says which: up to
    n = 128 `consistency_test`, whose level is the closest to nominal for few data; up to
    n = 50 000 `asymptotic_skce_test`, both with 1000 resamples; above `asymptotic_block_skce_test`
    with blocks of floor(sqrt(n)) rows, O(n^1.5) time.

    Args:
        key: a key of `jax.random`.
        predictions: a batch of n >= 2 predictions of one family.
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.
        where: boolean mask ``[n]``; masked rows may hold anything.

    Raises:
        TypeError, ValueError: as in `skce`.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.zeros(200), jnp.full(200, 0.5))
        >>> targets = jax.random.normal(jax.random.key(0), 200)
        >>> cj.calibration_test(jax.random.key(1), predictions, targets)
        CalibrationTestResult(asymptotic_skce_test, bootstrap of 1000, default kernel of Wasserstein
        and GaussianKernel; estimate = 0.08 ± 0.02, statistic = -0.0023, pvalue = 0.001)
    """
    check_key(key)
    n = check_samples(predictions, targets, where)
    kernel = default_kernel(predictions, where=where)
    if n <= _MAX_CONSISTENCY_ROWS:
        estimator = jax.tree_util.Partial(skce, kernel)
        result = consistency_test(key, estimator, predictions, targets, where=where)
    elif n <= _MAX_BOOTSTRAP_ROWS:
        result = asymptotic_skce_test(key, kernel, predictions, targets, where=where)
    else:
        result = asymptotic_block_skce_test(
            kernel, predictions, targets, block_size=math.isqrt(n), where=where
        )
    of_predictions = type(kernel.prediction_kernel.distance).__name__
    of_targets = type(kernel.target_kernel).__name__
    method = f"{result.method}, default kernel of {of_predictions} and {of_targets}"
    return dataclasses.replace(result, method=method)
