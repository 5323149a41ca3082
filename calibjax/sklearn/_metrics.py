"""Scorers and a reliability diagram for scikit-learn."""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from calibjax.curves import CORPCurve, corp_curve
from calibjax.distributions import Bernoulli
from calibjax.estimators import skce
from calibjax.hypothesis_tests import calibration_test
from calibjax.kernels import DistanceKernel, TensorProduct, TotalVariation, WhiteKernel
from calibjax.sklearn._estimators import Model, forecasts_of, labels_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure


def skce_scorer(estimator: Model, X: object, y: ArrayLike) -> float:
    """Minus the unbiased squared kernel calibration error of a classifier: larger is better.

    The kernel is the same for all models, exp(-TV(p, q) / 0.5) 1[y = y'], so that they can be
    compared.  A model that says the frequencies of the classes for every row is calibrated: choose
    models by a proper score, such as "neg_log_loss", and look at this beside it.

    Args:
        estimator: a classifier with `predict_proba`, fitted.
        X: features.
        y: classes ``[n]``, n >= 2.

    Returns:
        A number: 0 on average if the classifier is calibrated.

    See also:
        `skce`.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.model_selection import cross_val_score
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from calibjax.sklearn import skce_scorer
        >>> X, y = load_iris(return_X_y=True)
        >>> cross_val_score(GaussianNB(), X, y, scoring=skce_scorer, cv=3).shape
        (3,)
    """
    predictions, targets = forecasts_of(estimator, X, y)
    kernel = TensorProduct(DistanceKernel(TotalVariation(), 0.5), WhiteKernel())
    return -float(skce(kernel, predictions, targets))


def calibration_pvalue_scorer(estimator: Model, X: object, y: ArrayLike) -> float:
    """The p-value of `calibration_test`: small if the model is not calibrated on these rows.

    It says whether the error is significant, not how large it is.

    Args:
        estimator: a classifier with `predict_proba`, or a `RecalibratedRegressor`, fitted.
        X: features of rows that did not train it.
        y: what was observed, ``[n]``, n >= 2.

    Returns:
        A number from 0.001 to 1; the same arguments give the same one.

    See also:
        `calibration_test`.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from calibjax.sklearn import calibration_pvalue_scorer
        >>> X, y = load_iris(return_X_y=True)
        >>> model = GaussianNB().fit(X[::2], y[::2])
        >>> pvalue = calibration_pvalue_scorer(model, X[1::2], y[1::2])
    """
    if hasattr(estimator, "predict_distribution"):
        predictions, targets = estimator.predict_distribution(X), np.asarray(y, float)
    else:
        predictions, targets = forecasts_of(estimator, X, y)
    return float(calibration_test(jax.random.key(0), predictions, targets).pvalue)


class ReliabilityDisplay:
    """How often a class occurs against its predicted probability, without bins, and with bands.

    `from_estimator` and `from_predictions` make one, as displays of scikit-learn are made.  It
    shows the curve of `corp_curve` by `calibjax.plot.reliability`: a calibrated model leaves the
    band somewhere with probability 5 %.  It needs matplotlib.

    Args:
        curve: what `corp_curve` returned.
        name: what the plot is called; None for the name that it has.

    After `plot`: ``ax_`` and ``figure_``, of matplotlib.

    See also:
        `corp_curve`.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from calibjax.sklearn import ReliabilityDisplay
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> model = GaussianNB().fit(X[::2], y[::2])
        >>> display = ReliabilityDisplay.from_estimator(model, X[1::2], y[1::2], name="Bayes")
        >>> display.ax_.get_title("left")
        'Bayes'
    """

    def __init__(self, curve: CORPCurve, *, name: str | None = None) -> None:
        self.curve, self.name = curve, name

    ax_: "Axes"
    figure_: "Figure | SubFigure"

    @classmethod
    def from_estimator(
        cls,
        estimator: Model,
        X: object,
        y: ArrayLike,
        *,
        pos_label: object = None,
        name: str | None = None,
        ax: "Axes | None" = None,
    ) -> "ReliabilityDisplay":
        """The plot of a fitted classifier.

        Args:
            estimator: a classifier with `predict_proba`.
            X: features of rows that did not train it.
            y: classes ``[n]``.
            pos_label: the class whose probability is shown; None for the second one of two.
            name: what the plot is called; None for the class of the estimator.
            ax: axes of matplotlib, or None for a new figure.
        """
        forecasts, labels = forecasts_of(estimator, X, y)
        classes = estimator.classes_
        if pos_label is None:
            if len(classes) != 2:
                raise ValueError(f"pos_label must be one of {list(classes)}, got None.")
            pos_label = classes[1]
        (column,) = labels_of(np.asarray([pos_label]), classes)
        said = name or type(estimator).__name__
        return cls.from_predictions(labels == column, forecasts.probs[:, column], name=said, ax=ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_prob: ArrayLike,
        *,
        pos_label: object = None,
        name: str | None = None,
        ax: "Axes | None" = None,
    ) -> "ReliabilityDisplay":
        """The plot of probabilities.

        Args:
            y_true: the observed labels, ``[n]``, one of two values.
            y_prob: the probabilities of the event, ``[n]``.
            pos_label: the value of the event; None for 1 of 0 and 1, or of -1 and 1.
            name: what the plot is called.
            ax: axes of matplotlib, or None for a new figure.
        """
        y = np.asarray(y_true)
        if pos_label is None:
            found = set(np.unique(y).tolist())
            if not (found <= {0, 1} or found <= {-1, 1}):
                raise ValueError(f"pos_label must say which of {sorted(found)} is the event.")
            pos_label = 1
        probs = jnp.asarray(np.asarray(y_prob, float))
        events = (y == pos_label).astype(np.int32)
        curve = corp_curve(Bernoulli(probs), events, key=jax.random.key(0))
        return cls(curve, name=name).plot(ax=ax)

    def plot(self, ax: "Axes | None" = None, *, name: str | None = None) -> "ReliabilityDisplay":
        """Draws into axes, or into a new figure.

        Args:
            ax: axes of matplotlib, or None.
            name: what the plot is called, instead of the display's name.
        """
        from calibjax.plot import reliability

        self.ax_ = reliability(self.curve, ax=ax)
        self.figure_ = self.ax_.figure
        title = name or self.name
        if title is not None:
            self.ax_.set_title(title, loc="left")
        return self
