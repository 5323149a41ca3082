"""A regressor that predicts quantiles and intervals, which are recalibrated."""

import inspect
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import RegressorMixin, clone
from sklearn.linear_model import LinearRegression
from sklearn.utils.validation import check_is_fitted

from calibjax._data import Distribution
from calibjax.distributions import Normal, Quantiles
from calibjax.sklearn._estimators import Recalibrated, columns_of, fitted_clone

Kind = Literal["quantiles", "deviation", "number"]


class RecalibratedRegressor(RegressorMixin, Recalibrated):
    """A regressor that predicts quantiles and intervals, recalibrated by `fit_recalibrator`.

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

    scale_: float | None

    def predict_distribution(self, X: Any) -> Distribution:
        """Recalibrated predictions, which all functions of calibjax take, such as `evaluate`."""
        check_is_fitted(self)
        return self.recalibrator_(
            self._forecasts(self._numbers(self.estimators_, X)), **self._columns(X)
        )

    def predict_quantiles(self, X: Any, levels: Sequence[float] | None = None) -> np.ndarray:
        """Recalibrated quantiles ``[n, K]`` at levels in (0, 1), or at those of the estimator."""
        with jax.enable_x64(True):
            recalibrated, n = self._recalibrated(X)
            at = jnp.asarray(self.levels if levels is None else levels, float)
            return np.asarray(_quantiles(recalibrated, at))[:n]

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Central intervals that hold targets with a probability, ``[n, 2]``."""
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must be between 0 and 1, got {coverage}.")
        return self.predict_quantiles(X, ((1 - coverage) / 2, (1 + coverage) / 2))

    def predict(self, X: Any) -> np.ndarray:
        """The medians of the recalibrated predictions, ``[n]``."""
        return self.predict_quantiles(X, (0.5,))[:, 0]

    def _base(self) -> Any:
        return LinearRegression() if self.estimator is None else self.estimator

    def _columns(self, X: Any) -> dict[str, dict[str, np.ndarray] | None]:
        return super()._columns(X) | {"covariates": columns_of(X, self.covariates)}

    def _fitted(self, X: Any, y: np.ndarray, weights: np.ndarray | None) -> list[Any]:
        estimator, (_, parameter) = self._base(), kind_of(self._base())
        if parameter is None:
            return [fitted_clone(estimator, X, y, weights)]
        copies = [clone(estimator).set_params(**{parameter: float(x)}) for x in self.levels]
        return [fitted_clone(copy, X, y, weights) for copy in copies]

    def _numbers(self, models: list[Any], X: Any) -> np.ndarray:
        """Quantiles, a mean and a deviation, or one number, ``[n, K]``."""
        if kind_of(self._base())[0] == "deviation":
            return np.stack(models[0].predict(X, return_std=True), axis=1).astype(float)
        return np.stack([np.asarray(x.predict(X), float) for x in models], axis=1)

    def _targets(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(y, float)

    def _learn(self, numbers: np.ndarray, targets: np.ndarray, weights: np.ndarray | None) -> None:
        self.scale_ = None
        if kind_of(self._base())[0] == "number":
            squared = np.average((targets - numbers[:, 0]) ** 2, weights=weights)
            self.scale_ = float(np.sqrt(squared)) or 1.0

    def _forecasts(self, numbers: np.ndarray) -> Normal | Quantiles:
        values = jnp.asarray(numbers)
        if kind_of(self._base())[0] == "quantiles":
            return Quantiles(values, tuple(float(level) for level in self.levels), sort=True)
        if self.scale_ is not None:
            return Normal(values[:, 0], jnp.full_like(values[:, 0], self.scale_))
        least = jnp.finfo(values.dtype).tiny
        return Normal(values[:, 0], jnp.maximum(values[:, 1], least))


def kind_of(estimator: Any) -> tuple[Kind, str | None]:
    """What an estimator predicts, and of quantile regressors the parameter that is the level."""
    parameters = estimator.get_params(deep=False)
    loss = parameters.get("loss", "quantile")
    if loss == "quantile" and "quantile" in parameters:
        return "quantiles", "quantile"
    if "loss" in parameters and loss == "quantile" and "alpha" in parameters:
        return "quantiles", "alpha"
    inner = getattr(estimator, "estimator", estimator)  # of FrozenEstimator
    if "return_std" in inspect.signature(inner.predict).parameters:
        return "deviation", None
    return "number", None


@jax.jit
def _quantiles(predictions: Any, levels: jax.Array) -> jax.Array:
    return jax.vmap(predictions.quantile, out_axes=1)(levels)
