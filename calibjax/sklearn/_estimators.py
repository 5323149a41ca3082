"""Estimators around another one, whose predictions are recalibrated by a map of held-out rows."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from typing import Any, ClassVar, Literal, Protocol, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    MetaEstimatorMixin,
    RegressorMixin,
    clone,
    is_classifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GroupKFold, PredefinedSplit, StratifiedGroupKFold, check_cv
from sklearn.utils import _safe_indexing, get_tags, indexable
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    has_fit_parameter,
)

from calibjax._base.compile import filled_up
from calibjax._data.data import RowOptions
from calibjax._data.distribution import Distribution
from calibjax.distributions import Categorical, Normal, Quantiles
from calibjax.frames import read_rows
from calibjax.recalibration import Recalibrator, fit_recalibrator


class Model(Protocol):
    """What is asked of an estimator; of a regressor no probabilities and classes."""

    classes_: np.ndarray

    def fit(self, X: object, y: np.ndarray, **options: np.ndarray) -> Self: ...

    def predict(self, X: object, **options: bool) -> Any: ...

    def predict_proba(self, X: object) -> np.ndarray: ...

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...


class RecalibratedEstimator(MetaEstimatorMixin, BaseEstimator):
    """An estimator that reads the features, and a map that recalibrates what it predicts.

    A subclass says what it predicts, and of which columns of the features the map knows.
    """

    _default: ClassVar[type]
    #: Fitted copies of the estimator, of features, targets and weights.
    _fitted: Callable[..., list[Model]]
    #: What models predict of features, ``[n, K]``.
    _numbers: Callable[..., np.ndarray]
    #: Predictions of calibjax, of what models predict, and its targets ``[n]``.
    _forecasts: Callable[..., Distribution]
    _targets: Callable[..., np.ndarray]
    estimator: Model | None
    method: str
    cv: object
    groups: Sequence[str | int] | None
    estimators_: list[Model]
    recalibrator_: Recalibrator

    def fit(
        self,
        X: object,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        clusters: object = None,
        times: object = None,
    ) -> Self:
        """Fits the estimator and the map.

        Args:
            X: features ``[n, d]``, in whatever form the estimator takes.
            y: classes or numbers ``[n]``.
            sample_weight: how much each row counts, for the map, and for an estimator that takes
                it; None if all count the same.
            clusters: names or numbers of clusters ``[n]``: rows of one, such as a patient, may
                depend on each other, and are in one fold.
            times: numbers or dates ``[n]``, of which neighbours may depend on each other: folds are
                blocks of consecutive ones. Not with clusters.
        """
        X, observed = indexable(X, column_or_1d(y, warn=True))
        if is_classifier(self):
            check_classification_targets(observed)
        check_consistent_length(observed, clusters, times)
        dependence = read_rows(clusters=clusters, times=times)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        columns = self._columns(X)
        is_fitted = isinstance(self._base(), FrozenEstimator)
        self.estimators_ = [self._base()] if is_fitted else self._fitted(X, observed, weights)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimators_[0], name):
                setattr(self, name, getattr(self.estimators_[0], name))
        if is_fitted:
            held, numbers = np.arange(len(observed)), self._numbers(self.estimators_, X)
        else:
            held, numbers = self._held_out(X, observed, weights, dependence)
        clusters, times = dependence.get("clusters"), dependence.get("times")
        if clusters is None and times is None and np.any(np.diff(held) == 0):
            # A row that was held out several times is a cluster.
            clusters = np.arange(len(observed))
        of_rows = {"weights": weights, "clusters": clusters, "times": times} | columns
        known = jax.tree.map(lambda x: np.asarray(x)[held], of_rows)
        targets = self._targets(observed)[held]
        self._learn(numbers, targets, known["weights"])
        with jax.enable_x64(True):
            forecasts = self._forecasts(numbers)
            self.recalibrator_ = fit_recalibrator(forecasts, targets, self.method, **known)
        return self

    def _held_out(
        self, X: object, y: np.ndarray, weights: np.ndarray | None, dependence: RowOptions
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows as often as they are held out, and what models say of them that did not see them."""
        held, found = [], []
        for train, test in _folds_of(self.cv, X, y, dependence, is_classifier(self)):
            others, rows = (np.arange(len(y))[np.asarray(x)] for x in (train, test))
            some = None if weights is None else weights[others]
            models = self._fitted(_safe_indexing(X, others), y[others], some)
            found.append(self._numbers(models, _safe_indexing(X, rows)))
            held.append(rows)
        if not sum(map(len, held)):
            raise ValueError("cv must hold out at least 1 row, got none.")
        order = np.argsort(np.concatenate(held), kind="stable")
        return np.concatenate(held)[order], np.concatenate(found)[order]

    def _recalibrated(self, X: object) -> tuple[Any, int]:
        """The recalibrated predictions, filled up to a bucket, and the number of rows."""
        check_is_fitted(self)
        numbers = self._numbers(self.estimators_, X)
        filled = jax.tree.map(filled_up, self._columns(X))
        return self.recalibrator_(self._forecasts(filled_up(numbers)), **filled), len(numbers)

    def _columns(self, X: object) -> dict[str, dict[str, np.ndarray] | None]:
        """What the map looks at beside predictions: arguments of `fit_recalibrator`."""
        return {"groups": columns_of(X, self.groups)}

    def _learn(self, numbers: np.ndarray, targets: np.ndarray, weights: np.ndarray | None) -> None:
        """Keeps what forecasts need beside what models say of held-out rows."""

    def _base(self) -> Model:
        """The estimator, or the default one."""
        return self._default() if self.estimator is None else self.estimator

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self._base()).input_tags
        return tags


def fitted_clone(estimator: Model, X: object, y: np.ndarray, weights: np.ndarray | None) -> Model:
    """A copy of an estimator, fitted; weights are given to those that take them."""
    takes_weights = weights is not None and has_fit_parameter(estimator, "sample_weight")
    options = {"sample_weight": weights} if takes_weights else {}
    return clone(estimator).fit(X, y, **options)


def columns_of(X: object, names: Sequence[str | int] | None) -> dict[str, np.ndarray] | None:
    """Columns of features, by names in frames and by positions in arrays; None of none."""
    if names is None:
        return None
    try:
        return {str(name): np.asarray(_safe_indexing(X, name, axis=1)) for name in names}
    except (LookupError, ValueError) as error:
        raise ValueError(f"X must have the columns {list(names)}: {error}.") from error


def _folds_of(
    cv: object, X: object, y: np.ndarray, dependence: RowOptions, of_classes: bool
) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    """Rows that train a model, and others that fit the map to its predictions.

    With a number of folds, rows of one cluster are in one fold, and times make blocks of
    consecutive ones.  Splitters are given clusters or times as groups.  Folds of classes have all
    of them, as far as that can be.
    """
    clusters, times = dependence.get("clusters"), dependence.get("times")
    if not isinstance(cv, Integral) or (clusters is None and times is None):
        splitter = check_cv(cv, y, classifier=of_classes)
        return splitter.split(X, y, times if clusters is None else clusters)
    if clusters is not None:
        by_cluster = StratifiedGroupKFold if of_classes else GroupKFold
        return by_cluster(int(cv)).split(X, y, clusters)
    number = np.unique(np.asarray(times), return_inverse=True)[1]
    n_times = int(number.max()) + 1
    if n_times < 2:
        raise ValueError("times must have at least 2 different values, got 1.")
    return PredefinedSplit(number * min(int(cv), n_times) // n_times).split()


class RecalibratedClassifier(ClassifierMixin, RecalibratedEstimator):
    """A classifier whose probabilities are recalibrated by `fit_recalibrator`.

    The map is fitted to predictions of rows that did not train the model that made them, by
    cross-validation, and the estimator is fitted again to all rows: as
    ``CalibratedClassifierCV(ensemble=False)`` does, with the maps of calibjax in place of its two.
    Rows count as often as they are held out, and not at all if they never are, as the first ones of
    a ``TimeSeriesSplit``.
    A model that is trained already is passed as ``FrozenEstimator(model)``; then all rows given to
    `fit` fit the map, and none of them should have trained the model.

    Args:
        estimator: a classifier with `predict_proba`; None for ``LogisticRegression()``.
        method: as in `fit_recalibrator`, such as "auto", "temperature" or "sms".
        cv: what `sklearn.model_selection.check_cv` takes: a number of folds, a splitter, or a list
            of pairs of rows.
        groups: names of columns of X, or positions in an array, such as ``["region"]``: the map
            knows these groups of rows.  The estimator also sees them; a ``ColumnTransformer`` in
            front of it may drop them.

    After `fit`: ``classes_``; ``estimator_``, fitted to all rows; ``recalibrator_``, the map.

    See also:
        `fit_recalibrator`, `cross_fit`.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from sklearn.metrics import log_loss
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from calibjax.sklearn import RecalibratedClassifier
        >>> X, y = load_digits(return_X_y=True)
        >>> for model in (GaussianNB(), RecalibratedClassifier(GaussianNB(), method="sms")):
        ...     probabilities = model.fit(X[::2], y[::2]).predict_proba(X[1::2])
        ...     print(round(log_loss(y[1::2], probabilities), 1))
        4.8
        0.6
    """

    _default = LogisticRegression

    def __init__(
        self,
        estimator: Model | None = None,
        *,
        method: str = "auto",
        cv: object = 5,
        groups: Sequence[str | int] | None = None,
    ) -> None:
        self.estimator, self.method, self.cv, self.groups = estimator, method, cv, groups

    @property
    def estimator_(self) -> Model:
        """The classifier that was fitted to all rows."""
        return self.estimators_[0]

    @property
    def classes_(self) -> np.ndarray:
        """The classes, in the order of the probabilities."""
        return self.estimator_.classes_

    def predict_proba(self, X: object) -> np.ndarray:
        """Recalibrated probabilities of all classes, ``[n, m]``, in the order of ``classes_``."""
        with jax.enable_x64(True):
            recalibrated, n = self._recalibrated(X)
            found = np.asarray(recalibrated.probs)[:n]
        return found / found.sum(axis=1, keepdims=True)

    def predict(self, X: object) -> np.ndarray:
        """The class with the largest recalibrated probability, ``[n]``."""
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def _fitted(self, X: object, y: np.ndarray, weights: np.ndarray | None) -> list[Model]:
        check_has_probabilities(self._base())
        return [fitted_clone(self._base(), X, y, weights)]

    def _numbers(self, models: list[Model], X: object) -> np.ndarray:
        (model,) = models
        found = probabilities_of(model, X)
        # A class that did not train the model has the probability 0.
        probs = np.zeros((len(found), len(self.classes_)))
        probs[:, labels_of(model.classes_, self.classes_)] = found
        return probs

    def _targets(self, y: np.ndarray) -> np.ndarray:
        return labels_of(y, self.classes_)

    def _forecasts(self, numbers: np.ndarray) -> Categorical:
        return Categorical(jnp.asarray(numbers))


def labels_of(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The numbers of classes among sorted ones, ``[n]``.

    Raises:
        ValueError: a label is not a class.
    """
    labels = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    unknown = np.asarray(classes)[labels] != y
    if unknown.any():
        got = np.asarray(y)[np.argmax(unknown)]
        raise ValueError(f"y must hold the classes {list(classes)} of the estimator, got {got!r}.")
    return labels.astype(np.int32)


def check_has_probabilities(estimator: Model) -> None:
    """A TypeError if an estimator predicts no probabilities."""
    if not hasattr(estimator, "predict_proba"):
        raise TypeError(f"estimator must have predict_proba, got {type(estimator).__name__}.")


def probabilities_of(estimator: Model, X: object) -> np.ndarray:
    """The probabilities of all classes, ``[n, m]``, in float64."""
    check_has_probabilities(estimator)
    return np.asarray(estimator.predict_proba(X), float)


def forecasts_of(estimator: Model, X: object, y: ArrayLike) -> tuple[Categorical, np.ndarray]:
    """Predictions of a classifier, and the observed labels."""
    probs = probabilities_of(estimator, X)
    return Categorical(jnp.asarray(probs)), labels_of(np.asarray(y), estimator.classes_)


Kind = Literal["quantiles", "deviation", "number"]


class RecalibratedRegressor(RegressorMixin, RecalibratedEstimator):
    """A regressor that predicts quantiles and intervals, recalibrated by `fit_recalibrator`.

    The estimator gives, in this order of preference,

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
            knows these groups of rows.  The estimator also sees them; a ``ColumnTransformer`` in
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
        estimator: Model | None = None,
        *,
        levels: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95),
        method: str = "auto",
        cv: object = 5,
        groups: Sequence[str | int] | None = None,
        covariates: Sequence[str | int] | None = None,
    ) -> None:
        self.estimator, self.levels, self.method, self.cv = estimator, levels, method, cv
        self.groups, self.covariates = groups, covariates

    _default = LinearRegression
    scale_: float | None

    def predict_distribution(self, X: object) -> Distribution:
        """Recalibrated predictions, which all functions of calibjax take, such as `evaluate`."""
        check_is_fitted(self)
        forecasts = self._forecasts(self._numbers(self.estimators_, X))
        return self.recalibrator_(forecasts, **self._columns(X))

    def predict_quantiles(self, X: object, levels: Sequence[float] | None = None) -> np.ndarray:
        """Recalibrated quantiles ``[n, K]`` at levels in (0, 1), or at those of the estimator."""
        with jax.enable_x64(True):
            recalibrated, n = self._recalibrated(X)
            at = jnp.asarray(self.levels if levels is None else levels, float)
            return np.asarray(_quantiles(recalibrated, at))[:n]

    def predict_interval(self, X: object, coverage: float = 0.9) -> np.ndarray:
        """Central intervals that hold targets with a probability, ``[n, 2]``."""
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must be between 0 and 1, got {coverage}.")
        return self.predict_quantiles(X, ((1 - coverage) / 2, (1 + coverage) / 2))

    def predict(self, X: object) -> np.ndarray:
        """The medians of the recalibrated predictions, ``[n]``."""
        return self.predict_quantiles(X, (0.5,))[:, 0]

    def _columns(self, X: object) -> dict[str, dict[str, np.ndarray] | None]:
        return super()._columns(X) | {"covariates": columns_of(X, self.covariates)}

    def _fitted(self, X: object, y: np.ndarray, weights: np.ndarray | None) -> list[Model]:
        estimator, (_, parameter) = self._base(), kind_of(self._base())
        if parameter is None:
            return [fitted_clone(estimator, X, y, weights)]
        copies = [clone(estimator).set_params(**{parameter: float(x)}) for x in self.levels]
        return [fitted_clone(copy, X, y, weights) for copy in copies]

    def _numbers(self, models: list[Model], X: object) -> np.ndarray:
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
        return Normal(values[:, 0], jnp.maximum(values[:, 1], jnp.finfo(values.dtype).tiny))


def kind_of(estimator: Model) -> tuple[Kind, str | None]:
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
def _quantiles(predictions: Distribution, levels: jax.Array) -> jax.Array:
    return jax.vmap(predictions.quantile, out_axes=1)(levels)
