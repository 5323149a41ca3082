"""The test with default choices, for a first look at a model."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._batch import kept_first
from calibjax._check import check_key
from calibjax._data import check_data
from calibjax._distribution import Distribution
from calibjax._sharding import gathered
from calibjax.estimators import skce
from calibjax.expectations import default_kernel
from calibjax.hypothesis_tests._asymptotic import asymptotic_skce_test
from calibjax.hypothesis_tests._block import asymptotic_block_skce_test
from calibjax.hypothesis_tests._consistency import consistency_test
from calibjax.hypothesis_tests._result import CalibrationTestResult
from calibjax.kernels import Distance, Kernel, TotalVariation, Wasserstein

# Up to this number of rows a simulated null distribution costs little, and it is the most accurate.
_MAX_CONSISTENCY_ROWS = 256
# Above this number of rows the bootstrap takes longer than a user with a CPU would wait.
_MAX_BOOTSTRAP_ROWS = 50_000
# With 64 features the test was as powerful as with all pairs.
_N_FEATURES = 64


def calibration_test(
    key: jax.Array, predictions: Distribution, targets: ArrayLike, *, where: ArrayLike | None = None
) -> CalibrationTestResult:
    """Is this model calibrated?  A small p-value says that it is not.

    The kernel is `default_kernel`, made from the predictions alone, and the estimate is the
    unbiased SKCE.  The number of rows n chooses the test, and the `method` of the result names it:

    - n <= 256: `consistency_test` with 999 draws from the model.  Its level is exact.  It evaluates
      the estimate 1000 times, which takes seconds for samples, mixtures and full covariances.
    - n <= 50 000: `asymptotic_skce_test` with 1000 resamples.
    - Larger n: `asymptotic_skce_test` with 64 random features, O(n) time.  The default kernels of
      counts, samples, mixtures and full covariances have no random features; for these it is
      `asymptotic_block_skce_test` with blocks of floor(sqrt(n)) rows, O(n^1.5) time, which is far
      less powerful.

    If fewer than ten rare events are expected among all rows, call `consistency_test` yourself: the
    other tests need more.

    Args:
        key: a key of `jax.random`.
        predictions: a batch of n >= 2 predictions of one family.
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.
        where: boolean mask ``[n]``; masked rows may hold anything.  n counts the kept rows, or all
            rows inside jit, where kept rows cannot be counted.

    Returns:
        CalibrationTestResult of the chosen test.

    Raises:
        TypeError, ValueError: as in `skce`.
        NotImplementedError: a family of your own has no closed form with the default kernel.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.zeros(500), jnp.full(500, 0.5))
        >>> targets = jax.random.normal(jax.random.key(0), 500)
        >>> cj.calibration_test(jax.random.key(1), predictions, targets)
        CalibrationTestResult(asymptotic_skce_test, bootstrap of 1000, default_kernel
        TensorProduct(DistanceKernel(Wasserstein), GaussianKernel); estimate = 0.079 ± 0.01,
        statistic = -0.00093, pvalue = 0.001)
    """
    check_key(key)
    data = check_data(predictions, targets, where)
    n = data.n_kept()
    kernel = default_kernel(predictions, where=where)
    if n <= _MAX_CONSISTENCY_ROWS:
        estimator = jax.tree_util.Partial(skce, kernel)
        result = consistency_test(key, estimator, predictions, targets, where=where)
    elif n <= _MAX_BOOTSTRAP_ROWS:
        result = asymptotic_skce_test(key, kernel, predictions, targets, where=where)
    elif isinstance(kernel.prediction_kernel.distance, (TotalVariation, Wasserstein)):
        result = asymptotic_skce_test(
            *(key, kernel, predictions, targets),
            method="features",
            n_features=_N_FEATURES,
            where=where,
        )
    else:
        if where is not None:
            # Kept rows come first, because a block with a masked row does not count.
            data, n_kept = kept_first(gathered(data), gathered(where))
            where = jnp.arange(data.n) < n_kept
        result = asymptotic_block_skce_test(
            kernel, *data.samples, block_size=math.isqrt(n), where=where
        )
    method = f"{result.method}, default_kernel {_nested_names(kernel)}"
    return dataclasses.replace(result, method=method)


def _nested_names(node: Any) -> str:
    """The type name of a kernel or distance, with the names of its parts in parentheses."""
    members = getattr(node, "__dict__", {}).values()
    parts = [_nested_names(member) for member in members if isinstance(member, (Kernel, Distance))]
    return type(node).__name__ + (f"({', '.join(parts)})" if parts else "")
