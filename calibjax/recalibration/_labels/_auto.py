"""The method for given rows: each candidate is judged on rows that did not fit it."""

import numpy as np

from calibjax.recalibration._labels._fit_curves import CURVES
from calibjax.recalibration._labels._fitted import Fitted
from calibjax.recalibration._labels._rows import LabelRows, with_floor
from calibjax.recalibration._labels._scalings import SCALINGS
from calibjax.recalibration._labels._steps import Average, run
from calibjax.recalibration._mixture import best_mixture

#: The fit of each method, by its name.
FITS = SCALINGS | CURVES
#: Methods that have one curve, which two classes allow.
ONLY_TWO = ("quadratic", "venn_abers")

N_FOLDS = 5
_OF_TWO = ("temperature", "ets", "svs", "beta", "quadratic", "spline", "isotonic")
_OF_MANY = ("temperature", "ets", "svs", "sms", "beta", "spline", "isotonic")
# Of more classes, a curve of each or a number of each pair takes minutes.
_MOST_CURVES, _MOST_PAIRS = 30, 200


def candidates(n_classes: int) -> tuple[str, ...]:
    """The methods that "auto" tries, besides nothing."""
    if n_classes == 2:
        return _OF_TWO
    slow = {"spline", "beta", "isotonic"} if n_classes > _MOST_CURVES else set()
    slow |= {"sms"} if n_classes > _MOST_PAIRS else set()
    return tuple(name for name in _OF_MANY if name not in slow)


def fit_nothing(rows: LabelRows) -> Fitted:
    """Probabilities as they are, but for the rule for zeros."""
    floor, _ = with_floor(rows)
    return Fitted((floor,), True, "")


def fit_method(name: str, rows: LabelRows) -> Fitted:
    """The fit of a method, or of "nothing"."""
    return fit_nothing(rows) if name == "nothing" else FITS[name](rows)


def fit_auto(
    rows: LabelRows, part: np.ndarray | None = None
) -> tuple[str, Fitted, dict[str, float]]:
    """What was chosen, its fit, and the mean log loss of each candidate on held-out rows.

    Args:
        rows: all of which have weights above 0.
        part: the number of the part of each row that is left out in turn, ``[n]``; by chance if it
            is not given.
    """
    names = ("nothing", *candidates(rows.n_classes))
    if len(rows.targets) < 2:
        return "nothing", fit_method("nothing", rows), {}
    fold = _folds(rows.targets) if part is None else part
    held_out = np.stack([held_out_probabilities(name, rows, fold) for name in names], axis=1)
    share = rows.weights / rows.weights.sum()
    losses = -share @ np.log(held_out)
    return *_mixture(rows, names, held_out), dict(zip(names, map(float, losses), strict=True))


def _mixture(rows: LabelRows, names: tuple[str, ...], held_out: np.ndarray) -> tuple[str, Fitted]:
    shares, words = best_mixture(names, held_out, rows.weights)
    fits = [fit_method(name, rows) for name in shares]
    if len(fits) == 1:
        return next(iter(shares)), fits[0]
    average = Average(np.array(list(shares.values())), tuple(fit.steps for fit in fits))
    return "mixture", Fitted((average,), all(fit.converged for fit in fits), words)


def held_out_probabilities(name: str, rows: LabelRows, fold: np.ndarray) -> np.ndarray:
    """The probability of each target by a map that was fitted without its fold, ``[n]``."""
    found = np.zeros(len(fold))
    for k in range(fold.max() + 1):
        without = rows._replace(weights=np.where(fold == k, 0.0, rows.weights))
        probs = run(fit_method(name, without).steps, rows.probs, rows.ragged)
        found = np.where(fold == k, rows.of_targets(probs), found)
    return np.maximum(found, np.finfo(np.float32).tiny)


def _folds(targets: np.ndarray) -> np.ndarray:
    """Numbers of folds, by chance, and with equally many rows of each class."""
    n = len(targets)
    order = np.random.default_rng(0).permutation(n)
    by_class = order[np.argsort(targets[order], kind="stable")]
    fold = np.empty(n, int)
    fold[by_class] = np.arange(n) % min(N_FOLDS, n)
    return fold
