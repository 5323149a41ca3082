"""A regressor that predicts quantiles and intervals, which are mended."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import RegressorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.utils import indexable
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)

from calibjax._distribution import Distribution
from calibjax._rows import filled_up
from calibjax.distributions import Normal, Quantiles
from calibjax.evaluation import read_dependence
from calibjax.recalibration import Recalibrator, fit_recalibrator
from calibjax.sklearn._forecasters import fitted, kind_of, numbers_of
from calibjax.sklearn._meta import Wrapper
from calibjax.sklearn._rows import columns_of, filled_columns, held_out, known_of


class RecalibratedRegressor(RegressorMixin, Wrapper):
    """A regressor that predicts quantiles and intervals, mended by `fit_recalibrator`.

    What it makes of the estimator is, in this order,

    - quantiles, if the estimator is a quantile regressor, such as
      ``HistGradientBoostingRegressor(loss="quantile")`` or ``QuantileRegressor()``: a copy of it
      is fitted for each level, and quantiles that cross are sorted;
    - normal predictions, if `predict` has ``return_std``, as of Gaussian processes and
      ``BayesianRidge``;
    - else normal predictions around its number, whose one deviation is the root of the mean
      squared error of held-out rows.

    The map is fitted to predictions of rows that did not train the model that made them, by
    cross-validation, and the estimator is fitted again to all rows.  Rows count as often as they
    are held out, and not at all if they never are, as the first ones of a ``TimeSeriesSplit``.  A
    model that is trained already is passed as ``FrozenEstimator(model)``; then all rows given to
    `fit` fit the map, and none of them should have trained the model.

    Args:
        estimator: a regressor; None for ``LinearRegression()``.
        levels: the levels of quantiles, ascending, at least 2.
        method: as in `fit_recalibrator`, such as "auto", "shift_scale" or "pit_isotonic".
        cv: what `sklearn.model_selection.check_cv` takes: a number of folds, a splitter, or a list
            of pairs of rows.
        groups: names of columns of X, or positions in an array, such as ``["region"]``: the map
            knows these groups of rows. The estimator sees them, too; a ``ColumnTransformer`` in
            front of it may drop them.
        covariates: the same of columns of numbers that "auto" and "conditional" may look at.

    After `fit`: ``estimators_``, one, or one for each level, fitted to all rows; ``recalibrator_``,
    the map; ``scale_``, the deviation around a number, None if the estimator says more.

    See also:
        `fit_recalibrator`, `cross_fit`.

    Example:
        >>> import numpy as np
        >>> from sklearn.linear_model import QuantileRegressor
        >>> from calibjax.sklearn import RecalibratedRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(800, 3))
        >>> y = X[:, 0] + rng.normal(size=800)
        >>> lines = QuantileRegressor(alpha=0.0)
        >>> model = RecalibratedRegressor(lines, levels=(0.1, 0.5, 0.9), method="pit_beta")
        >>> low, high = model.fit(X[:400], y[:400]).predict_interval(X[400:], 0.8).T
        >>> print(round(float(np.mean((low <= y[400:]) & (y[400:] <= high))), 1))
        0.8
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        levels: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95),
        method: str = "auto",
        cv: Any = 5,
        groups: Sequence[str | int] | None = None,
        covariates: Sequence[str | int] | None = None,
    ) -> None:
        self.estimator, self.levels, self.method, self.cv = estimator, levels, method, cv
        self.groups, self.covariates = groups, covariates

    estimators_: list[Any]
    recalibrator_: Recalibrator
    scale_: float | None

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, clusters: Any = None, times: Any = None
    ) -> "RecalibratedRegressor":
        """Fits the estimator and the map.

        Args:
            X: features ``[n, d]``, in whatever form the estimator takes.
            y: numbers ``[n]``.
            sample_weight: how much each row counts, for the map, and for an estimator that takes
                it; None if all count the same.
            clusters: names or numbers of clusters ``[n]``: rows of one, such as a patient, may
                depend on each other, and are in one fold.
            times: numbers or dates ``[n]``, of which neighbours may depend on each other: folds are
                blocks of consecutive ones. Not with clusters.
        """
        X, y = indexable(X, column_or_1d(y, warn=True))
        check_consistent_length(y, clusters, times)
        dependence = read_dependence(clusters, times, None)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        estimator, levels = self._base(), [float(level) for level in self.levels]
        kind, _ = kind_of(estimator)
        if isinstance(estimator, FrozenEstimator):
            self.estimators_ = [estimator]
            held, numbers = np.arange(len(y)), numbers_of(self.estimators_, kind, X)
        else:
            self.estimators_ = fitted(estimator, levels, X, y, weights)

            def predict(X: Any, y: np.ndarray, weights: np.ndarray | None, new: Any) -> np.ndarray:
                return numbers_of(fitted(estimator, levels, X, y, weights), kind, new)

            held, numbers = held_out(self.cv, X, y, weights, dependence, predict)
        self._keep_features(self.estimators_[0])
        y = np.asarray(y, float)[held]
        groups, covariates = columns_of(X, self.groups), columns_of(X, self.covariates)
        known = known_of(held, weights, dependence, groups=groups, covariates=covariates)
        self.scale_ = None
        if kind == "number":
            squared = np.average((y - numbers[:, 0]) ** 2, weights=known["weights"])
            self.scale_ = float(np.sqrt(squared)) or 1.0
        with jax.enable_x64(True):
            self.recalibrator_ = fit_recalibrator(
                self._forecasts(numbers), jnp.asarray(y), self.method, **known
            )
        return self

    def predict_distribution(self, X: Any) -> Distribution:
        """The mended predictions, which all functions of calibjax take, such as `evaluate`."""
        beside = columns_of(X, self.groups), columns_of(X, self.covariates)
        return self.recalibrator_(self._forecasts(self._numbers(X)), *beside)

    def predict_quantiles(self, X: Any, levels: Sequence[float] | None = None) -> np.ndarray:
        """Mended quantiles at levels in (0, 1), ``[n, K]``; at those of the estimator if None."""
        numbers = self._numbers(X)
        with jax.enable_x64(True):
            beside = [filled_columns(columns_of(X, x)) for x in (self.groups, self.covariates)]
            mended = self.recalibrator_(self._forecasts(filled_up(numbers)), *beside)
            at = jnp.asarray(self.levels if levels is None else levels, float)
            return np.asarray(_quantiles(mended, at))[: len(numbers)]

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Central intervals that hold targets with a probability, ``[n, 2]``."""
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must be between 0 and 1, got {coverage}.")
        return self.predict_quantiles(X, ((1 - coverage) / 2, (1 + coverage) / 2))

    def predict(self, X: Any) -> np.ndarray:
        """The medians of the mended predictions, ``[n]``."""
        return self.predict_quantiles(X, (0.5,))[:, 0]

    def _numbers(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return numbers_of(self.estimators_, kind_of(self._base())[0], X)

    def _forecasts(self, numbers: np.ndarray) -> Normal | Quantiles:
        """Predictions of calibjax, of what the estimators say."""
        values = jnp.asarray(numbers)
        if kind_of(self._base())[0] == "quantiles":
            return Quantiles(values, tuple(float(level) for level in self.levels), sort=True)
        if self.scale_ is not None:
            return Normal(values[:, 0], jnp.full_like(values[:, 0], self.scale_))
        least = jnp.finfo(values.dtype).tiny
        return Normal(values[:, 0], jnp.maximum(values[:, 1], least))

    def _base(self) -> Any:
        return LinearRegression() if self.estimator is None else self.estimator


@jax.jit
def _quantiles(predictions: Any, levels: jax.Array) -> jax.Array:
    return jax.vmap(predictions.quantile, out_axes=1)(levels)
