"""The test that simulates data from a calibrated model."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._batch import kept_first
from calibjax._check import check_flag, check_integer, check_key
from calibjax._data import Data, check_data, clean
from calibjax._distribution import Distribution
from calibjax._sharding import gathered
from calibjax._struct import bind
from calibjax.hypothesis_tests._counting import counted_pvalue
from calibjax.hypothesis_tests._result import CalibrationTestResult

# The number of rows that are resampled at a time.
_ROWS = 2**16


def consistency_test(
    key: jax.Array,
    estimator: Callable[..., jax.Array],
    predictions: Distribution,
    targets: ArrayLike,
    *,
    n_resamples: int = 1000,
    resample_predictions: bool = True,
    where: ArrayLike | None = None,
) -> CalibrationTestResult:
    """Is an estimate too large for targets that are drawn from the predictions themselves?

    For each resample, n predictions are drawn with replacement, a target is drawn from each of
    them, and the estimator is evaluated again: p = (1 + #{T* >= T}) / (n_resamples + 1).  The test
    works for any estimator at any n, if resampled predictions resemble new ones.

    Resampled predictions contain ties.  If the estimator is sensitive to ties, the test rejects
    calibrated models too often: always for the ECE of more than two classes in 10 uniform bins.
    With ``resample_predictions=False`` only targets are drawn; given the predictions, the level is
    then exact for every estimator and n.

    The time is n_resamples times the time of the estimator.  Some 2^16 rows are resampled at a
    time, so memory is bounded if the memory of the estimator is.

    Args:
        key: a key of `jax.random`.
        estimator: a function of (predictions, targets) that returns a scalar and can be traced; it
            is called with ``where=where`` too if `where` is given.  Functions that do the same
            share what is compiled: `jax.tree_util.Partial` lets parameters change, and its
            booleans, Python integers and strings are options:
            ``Partial(cj.skce, kernel, unbiased=False)``.
        predictions: a batch of n >= 2 predictions of one family.
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.
        n_resamples: the number of resamples; resample r depends only on (key, r).
        resample_predictions: whether predictions are drawn too, as in the reference, or only
            targets.
        where: boolean mask ``[n]``; masked rows may hold anything, and are not drawn.

    Returns:
        CalibrationTestResult; its statistic and its estimate are the estimator's value, and its
        null_distribution holds the values for the resamples.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value.
            Inside jit a bad value makes all numbers NaN.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> def brier(predictions, targets):
        ...     return jnp.mean((targets - predictions.probs) ** 2)
        >>> predictions = cj.Bernoulli(jnp.full(100, 0.9))
        >>> targets = jnp.arange(100) < 60
        >>> result = cj.consistency_test(jax.random.key(0), brier, predictions, targets)
        >>> float(result.pvalue)
        0.001

    Reference: Bröcker and Smith, Increasing the reliability of reliability diagrams, Weather and
    Forecasting, 2007; Vaicenavicius et al., Evaluating model calibration in classification,
    AISTATS 2019.
    """
    check_key(key)
    if not callable(estimator):
        raise TypeError(f"estimator must be a callable, got {type(estimator).__name__}.")
    data = check_data(predictions, targets, where)
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    resample_predictions = check_flag("resample_predictions", resample_predictions)
    return _consistency_test(
        key, bind(estimator), gathered(data), n_resamples, resample_predictions
    )


@functools.partial(jax.jit, static_argnames=("n_resamples", "resample_predictions"))
def _consistency_test(
    key: jax.Array,
    estimator: Callable[..., jax.Array],
    data: Data,
    n_resamples: int,
    resample_predictions: bool,
) -> CalibrationTestResult:
    data = clean(data)
    n, dtype = data.n, data.weights.dtype
    options = {} if data.where is None else {"where": data.where}
    kept, n_kept = kept_first(data, data.where)

    def estimate(predictions, targets):
        value = jnp.asarray(estimator(predictions, targets, **options))
        if value.shape:
            raise ValueError(f"estimator must return a scalar, got shape {list(value.shape)}.")
        return value.astype(dtype)

    def resample(number):
        row_key, target_key = jax.random.split(jax.random.fold_in(key, number))
        predictions = data.predictions
        if resample_predictions:
            drawn = jax.random.randint(row_key, (n,), 0, n_kept, jnp.int32)
            predictions = jax.tree.map(lambda x: x[drawn], kept.predictions)
        return estimate(predictions, predictions.sample(target_key))

    draws = lax.map(resample, jnp.arange(n_resamples), batch_size=max(1, _ROWS // n))
    statistic = estimate(*data.samples)
    # All weights are NaN if a row is invalid, and then the comparison is false.
    statistic = jnp.where(jnp.sum(data.weights) >= 2, statistic, jnp.nan)
    return CalibrationTestResult(
        statistic=statistic,
        pvalue=counted_pvalue(statistic, draws),
        estimate=statistic,
        null_distribution=draws,
        method=f"consistency_test of {n_resamples}",
    )
