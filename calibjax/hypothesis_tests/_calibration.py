"""The test with default choices, for a first look at a model."""

from typing import Unpack

import jax

from calibjax._check import check_integer, check_key
from calibjax._distribution import Distribution
from calibjax._interval_censored import Targets
from calibjax._rows import CovariatesLike, Data, RowOptions, as_data, padded
from calibjax.hypothesis_tests._aggregated import aggregated_skce_test_of_data
from calibjax.hypothesis_tests._result import CalibrationTestResult


def calibration_test(
    key: jax.Array,
    predictions: Distribution | Data,
    targets: Targets | None = None,
    *,
    n_resamples: int = 999,
    covariates: CovariatesLike | None = None,
    **rows: Unpack[RowOptions],
) -> CalibrationTestResult:
    """Is this model calibrated?  A small p-value says that it is not.

    It is `aggregated_skce_test` with `default_kernels`: targets drawn from the predictions show
    what chance does, and kernels of several kinds and scales look for errors.  Its level is exact
    for every family, every number of rows, and however rare events are: if the model is calibrated,
    and rows are independent given the predictions, the p-value is at most a with probability at
    most a.  Rows that depend on each other need `clusters` or `times`: calibrated forecasts for
    four steps ahead, issued at every step, are rejected in more than a third of all cases without.

    **Covariates** are what else is known of a row before its target: age, region, lead time.  With
    them the test asks more, for whatever kind of row the predictions are wrong,

    .. math::
        H_0: \\mathrm{law}(Y \\mid P, X) = P,

    which is false for a climatology, or for the prior given as posterior, although both are
    calibrated without X.  Its level is exact in the same sense, given predictions and covariates.
    There are four families of kernels: those on predictions alone; on each column; on each pair of
    columns, for errors that only two columns together show; and on predictions and a column.
    Kernels of columns are centred, and see location and spread of numbers and vectors, and
    frequencies, most likely class and log probability of labels (of up to 32 classes).  The largest
    score of each family is transformed as those of kernels are (`aggregated_skce_test`), so that
    1225 pairs drown nothing else, and the statistic is the largest of these four.  Numbers enter by
    their ranks: no monotone change of a column matters, and neither do names of categories.

    O(n n_resamples) time, and memory that does not depend on n_resamples; with d columns
    O(n d^2 n_resamples).  Rows on several devices stay where they are.

    Args:
        key: a key of `jax.random`, such as ``jax.random.key(0)``.
        predictions, targets: as in `Data`, or one `Data`; of single numbers also `Between`.
        n_resamples: the number of draws; p is a multiple of 1 / (n_resamples + 1).
        covariates: as in `Data`.  Dates, times of a zone, periods and decimals have their order,
            too.  Strings are categories, the 64 most frequent ones of each column; inside jit all
            columns are numbers.  A column with one value says nothing.
        rows: `where`, `weights`, `clusters`, `times` and `horizon` of `Data`.

    Returns:
        CalibrationTestResult, whose `members` say what each kernel finds, and `columns` which
        covariates carry an error.

    Raises:
        TypeError, ValueError: as in `aggregated_skce_test`; a covariate that is missing in a row.

    See also:
        `aggregated_skce_test` with kernels of your own, `evaluate` for the whole picture,
        `CalibrationMonitor` for data that keep coming.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.zeros(500), jnp.full(500, 0.5))
        >>> targets = jax.random.normal(jax.random.key(0), (500,))
        >>> float(cj.calibration_test(jax.random.key(1), predictions, targets).pvalue)
        0.001

        Targets that depend on a column, of which the predictions know nothing:

        >>> x = jax.random.normal(jax.random.key(2), (500,))
        >>> predictions, targets = cj.Normal(jnp.zeros(500), jnp.ones(500)), 0.6 * x + 0.8 * targets
        >>> result = cj.calibration_test(
        ...     jax.random.key(1), predictions, targets, covariates={"x": x, "noise": x[::-1]}
        ... )
        >>> result.columns[0].name, result.columns[0].kernel
        ('x', 'column x, location')

    Reference: Gretton, Bousquet, Smola and Schölkopf, Measuring statistical dependence with
    Hilbert-Schmidt norms, ALT 2005, for centred kernels; Biggs, Schrab and Gretton, MMD-FUSE,
    NeurIPS 2023, for the aggregation of many.
    """
    if isinstance(key, Distribution):
        raise TypeError(
            "key must come first, calibration_test(jax.random.key(0), predictions, targets), got "
            f"{type(key).__name__} predictions in its place."
        )
    check_key(key)
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    data = as_data(predictions, targets, intervals=True, covariates=covariates, **rows)
    return calibration_test_of_data(key, padded(data), n_resamples=n_resamples)


def calibration_test_of_data(
    key: jax.Array, data: Data, *, n_resamples: int
) -> CalibrationTestResult:
    """`calibration_test` of checked data."""
    return aggregated_skce_test_of_data(key, None, data, n_resamples=n_resamples)
