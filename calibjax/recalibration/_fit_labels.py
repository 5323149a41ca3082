"""Maps of predictions of labels: the fit of each method, and the mixture of all that are fast."""

from collections.abc import Callable

import jax
import numpy as np

from calibjax._base.check import check_choice
from calibjax._base.struct import on_host
from calibjax._data import Data, NamedColumns
from calibjax.recalibration._cross_validation import counted, in_words, mixture_weights, parts_of
from calibjax.recalibration._fit_groups import fit_groups
from calibjax.recalibration._label_curves import fit_beta, fit_isotonic, fit_spline, fit_venn_abers
from calibjax.recalibration._probability_maps import (
    Average,
    Fitted,
    LabelRows,
    fit_sms,
    fit_svs,
    fit_temperature,
    fit_vector,
    run,
    with_floor,
)
from calibjax.recalibration._recalibrator import (
    Recalibrator,
    check_labels,
    numbers_of_classes,
    recalibrator_of,
)

#: The fit of each method, by its name.
FITS: dict[str, Callable[[LabelRows], Fitted]] = {
    "temperature": fit_temperature,
    "vector": fit_vector,
    "svs": fit_svs,
    "sms": fit_sms,
    "beta": fit_beta,
    "spline": fit_spline,
    "isotonic": fit_isotonic,
    "venn_abers": fit_venn_abers,
}
OF_LABELS = ("auto", "nothing", *FITS)
_N_FOLDS = 5
_OF_TWO = ("temperature", "svs", "beta", "spline", "isotonic")
_OF_MANY = ("temperature", "svs", "sms", "beta", "spline", "isotonic")
# Of more classes, a curve of each or a number of each pair takes minutes.
_MOST_CURVES, _MOST_PAIRS = 30, 200


def fit_labels(
    data: Data, method: str, groups: NamedColumns | None, in_order: bool
) -> Recalibrator:
    """`fit_recalibrator` of checked data; times go to parts in their order."""
    n_classes = check_labels(data.predictions)
    check_choice("method for labels", method, OF_LABELS)
    if n_classes < 2:
        raise ValueError(
            f"predictions must have at least 2 classes, got {n_classes}; one column of "
            "probabilities is Bernoulli(probs[:, 0])."
        )
    if method == "venn_abers" and n_classes > 2:
        raise ValueError(
            f"method {method!r} is for two classes, got predictions of {n_classes}; "
            "'spline' and 'sms' are for more."
        )
    rows, kept = rows_of_labels(data)
    part: np.ndarray | None = None
    losses: dict[str, float] = {}
    if method == "auto" or groups is not None:
        part = parts_of(data, kept, in_order, _N_FOLDS)
    if method == "auto":
        method, fitted, losses = fit_auto(rows, part)
    else:
        fitted = fit_method(method, rows)
    of_groups = None
    if groups is not None:
        after = rows._replace(probs=run(fitted.steps, rows.probs, rows.ragged))
        of_groups = fit_groups(groups, kept, after, part)
    return recalibrator_of(
        data.predictions,
        fitted,
        of_groups,
        method=method,
        losses=tuple(losses.items()),
        n_rows=len(rows.targets),
        n_classes=n_classes,
        n_impossible=int(np.sum(rows.of_targets() <= rows.zero)),
    )


def rows_of_labels(data: Data) -> tuple[LabelRows, np.ndarray]:
    """The rows of checked data that count, in NumPy, and which these are, ``[n]``."""
    kept, counts = counted(data)
    with jax.ensure_compile_time_eval():
        # At the fit as where the map is used, 1 - p is what jax makes of p.
        probs = on_host(numbers_of_classes(jax.tree.map(on_host, data.predictions)))
    probs = np.asarray(probs, float)[kept]
    labels = np.asarray(data.targets)[kept].astype(int)
    said = data.predictions.ragged, data.predictions.is_binary
    rows = LabelRows(probs, labels, counts, *said)
    lacking = np.flatnonzero(rows.of_targets() == 0)
    if rows.ragged and lacking.size:
        row = lacking[0]
        raise ValueError(
            "targets must be classes that their rows have, whose numbers are above 0 in ragged "
            f"predictions, got {labels[row]} in row {np.flatnonzero(kept)[row]}."
        )
    return rows, kept


def candidates(n_classes: int) -> tuple[str, ...]:
    """The methods that "auto" tries, besides nothing."""
    if n_classes == 2:
        return _OF_TWO
    slow = {"spline", "beta", "isotonic"} if n_classes > _MOST_CURVES else set()
    slow |= {"sms"} if n_classes > _MOST_PAIRS else set()
    return tuple(name for name in _OF_MANY if name not in slow)


def fit_method(name: str, rows: LabelRows) -> Fitted:
    """The fit of a method; of "nothing" only zeros are raised."""
    return Fitted((with_floor(rows)[0],), True, "") if name == "nothing" else FITS[name](rows)


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
    held_out = np.stack([_held_out_probabilities(name, rows, fold) for name in names], axis=1)
    share = rows.weights / rows.weights.sum()
    losses = -share @ np.log(held_out)
    known = dict(zip(names, map(float, losses), strict=True))
    shares, words = in_words(names, mixture_weights(held_out, rows.weights))
    fits = [fit_method(name, rows) for name in shares]
    if len(fits) == 1:
        return next(iter(shares)), fits[0], known
    average = Average(np.array(list(shares.values())), tuple(fit.steps for fit in fits))
    return "mixture", Fitted((average,), all(fit.converged for fit in fits), words), known


def _held_out_probabilities(name: str, rows: LabelRows, fold: np.ndarray) -> np.ndarray:
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
    fold[by_class] = np.arange(n) % min(_N_FOLDS, n)
    return fold
