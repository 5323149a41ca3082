"""A reliability diagram as a display of scikit-learn."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax.curves import CORPCurve, corp_curve
from calibjax.distributions import Bernoulli
from calibjax.sklearn._classifier import labels_of, probabilities_of


class ReliabilityDisplay:
    """How often a class came against its predicted probability, without bins, and with bands.

    `from_estimator` and `from_predictions` make one, as displays of scikit-learn are made.  It
    shows the curve of `corp_curve` by `calibjax.plot.reliability`: a calibrated model leaves the
    band somewhere with probability 5 %.  It needs matplotlib.

    Args:
        curve: what `corp_curve` returned.
        name: what the picture is called; None for the name that it has.

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

    ax_: Any
    figure_: Any

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        pos_label: Any = None,
        name: str | None = None,
        ax: Any = None,
    ) -> "ReliabilityDisplay":
        """The picture of a fitted classifier.

        Args:
            estimator: a classifier with `predict_proba`.
            X: features of rows that did not train it.
            y: classes ``[n]``.
            pos_label: the class whose probability is shown; None for the second one of two.
            name: what the picture is called; None for the class of the estimator.
            ax: axes of matplotlib, or None for a new figure.
        """
        probs, classes = probabilities_of(estimator, X), estimator.classes_
        if pos_label is None:
            if len(classes) != 2:
                raise ValueError(
                    f"pos_label must be one of the {len(classes)} classes {list(classes)}, got "
                    "None."
                )
            pos_label = classes[1]
        y = np.asarray(y)
        labels_of(y, classes)
        (column,) = labels_of(np.asarray([pos_label]), classes)
        said = name or type(estimator).__name__
        events = (y == pos_label).astype(int)
        return cls.from_predictions(events, probs[:, column], name=said, ax=ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_prob: Any,
        *,
        pos_label: Any = None,
        name: str | None = None,
        ax: Any = None,
    ) -> "ReliabilityDisplay":
        """The picture of probabilities.

        Args:
            y_true: what came, ``[n]``, one of two values.
            y_prob: the probabilities of the event, ``[n]``.
            pos_label: the value of the event; None for 1 of 0 and 1, or of -1 and 1.
            name: what the picture is called.
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

    def plot(self, ax: Any = None, *, name: str | None = None) -> "ReliabilityDisplay":
        """Draws into axes, or into a new figure.

        Args:
            ax: axes of matplotlib, or None.
            name: what the picture is called, in place of the display's name.
        """
        from calibjax.plot import reliability

        self.ax_ = reliability(self.curve, ax=ax)
        self.figure_ = self.ax_.figure
        title = name or self.name
        if title is not None:
            self.ax_.set_title(title, loc="left")
        return self
