"""Fits of maps to labels, and which of them predict held-out rows best."""

import functools
from collections.abc import Callable

import jax
import numpy as np

from calibjax._base.check import check_choice
from calibjax._data.data import Data
from calibjax._data.distribution import Binary, as_labels
from calibjax._data.named_columns import NamedColumns
from calibjax.recalibration import _probability_maps as maps
from calibjax.recalibration._cross_validation import in_words, mixture_weights, parts_of
from calibjax.recalibration._fit_groups import fit_groups
from calibjax.recalibration._label_curves import fit_beta, fit_isotonic, fit_spline, fit_venn_abers
from calibjax.recalibration._probability_maps import Chosen, Fitted, LabelRows
from calibjax.recalibration._recalibrator import (
    Recalibrator,
    check_labels,
    probabilities_on_host,
    recalibrator_of,
)

#: The fit of each method, by its name.
FITS: dict[str, Callable[[LabelRows], Fitted]] = {
    "nothing": lambda rows: Fitted((maps.with_floor(rows)[0],), True, ""),
    "temperature": maps.fit_temperature,
    "vector": maps.fit_vector,
    "svs": functools.partial(maps.fit_after_temperature, is_full=False),
    "sms": functools.partial(maps.fit_after_temperature, is_full=True),
    "beta": fit_beta,
    "spline": fit_spline,
    "isotonic": fit_isotonic,
    "venn_abers": fit_venn_abers,
}
# Maps with steps between the scores of rows, of which only equal ones are one.
_OF_SCORES = ("isotonic", "venn_abers")
OF_LABELS = ("auto", *FITS)
# The number of parts of the rows that are left out in turn.
_N_FOLDS = 5
_OF_TWO = ("temperature", "svs", "beta", "spline", "isotonic")
_OF_MANY = ("temperature", "svs", "sms", "beta", "spline", "isotonic")
# The largest numbers of classes with a curve for each, and with a number for each pair, which more
# would need minutes for.
_MOST_CURVES, _MOST_PAIRS = 30, 200


def fit_labels(data: Data, method: str, groups: NamedColumns | None) -> Recalibrator:
    """`fit_recalibrator` of checked data."""
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
    part = of_groups = None
    if method == "auto" or groups is not None:
        part = parts_of(data, kept, _N_FOLDS)
    chosen = fit_chosen(method, rows, part)
    if groups is not None:
        after = rows._replace(probs=maps.run(chosen[1].steps, rows.probs, rows.ragged))
        of_groups = fit_groups(groups, kept, after, part)
    n_impossible = int(np.sum(rows.of_targets() <= rows.zero))
    known = {"n_rows": len(rows.targets), "n_classes": n_classes, "n_impossible": n_impossible}
    return recalibrator_of(data.predictions, chosen, of_groups, **known)


def rows_of_labels(data: Data) -> tuple[LabelRows, np.ndarray]:
    """The rows of checked data that count, in NumPy, and which these are, ``[n]``."""
    kept, counts = data.counted()
    with jax.ensure_compile_time_eval():
        probs = probabilities_on_host(data.predictions)[kept].astype(float)
    labels = np.asarray(data.targets)[kept].astype(int)
    said = as_labels(data.predictions).ragged, isinstance(data.predictions, Binary)
    rows = LabelRows(probs, labels, counts, np.ones(len(labels)), *said, data.n)
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


def fit_chosen(method: str, rows: LabelRows, part: np.ndarray | None) -> Chosen:
    """The method that was chosen, its fit, and the log losses of the candidates.

    Args:
        method: "auto" or one of `FITS`.
        rows: all of which have weights above 0.
        part: the number of the part of each row that is left out in turn, ``[n]``; by chance if it
            is not given.
    """
    if method != "auto" or len(rows.targets) < 2:
        name = "nothing" if method == "auto" else method
        return name, FITS[name](rows), {}
    names = ("nothing", *candidates(rows.n_classes))
    fold = _folds(rows.targets) if part is None else part
    smooth, cells = rows.pooled(fold)

    def held_out(name: str) -> np.ndarray:
        if cells is None or name not in _OF_SCORES:
            return _held_out_logs(name, smooth, fold if cells is None else cells.part)
        logs = rows.weights * _held_out_logs(name, rows, fold)
        return np.bincount(cells.number, logs) / cells.weights

    logs = np.stack([held_out(name) for name in names], axis=1)
    losses = -(smooth.weights / smooth.weights.sum()) @ logs
    known = dict(zip(names, map(float, losses), strict=True))
    shares, words = in_words(names, mixture_weights(np.exp(logs), smooth.weights))
    fits = [FITS[name](rows if name in _OF_SCORES else smooth) for name in shares]
    if len(fits) == 1:
        return next(iter(shares)), fits[0], known
    average = maps.Average(np.array(list(shares.values())), tuple(fit.steps for fit in fits))
    return "mixture", Fitted((average,), all(fit.converged for fit in fits), words), known


def _held_out_logs(name: str, rows: LabelRows, fold: np.ndarray) -> np.ndarray:
    """The log probability of each target by a map that was fitted without its fold, ``[n]``."""
    found = np.zeros(len(fold))
    for k in range(fold.max() + 1):
        inside = fold == k
        own, steps = rows.at(inside), FITS[name](rows.at(~inside)).steps
        found[inside] = own.of_targets(maps.run(steps, own.probs, rows.ragged))
    return np.log(np.maximum(found, np.finfo(np.float32).tiny))


def _folds(targets: np.ndarray) -> np.ndarray:
    """Numbers of folds, by chance, and with equally many rows of each class."""
    n = len(targets)
    order = np.random.default_rng(0).permutation(n)
    by_class = order[np.argsort(targets[order], kind="stable")]
    fold = np.empty(n, int)
    fold[by_class] = np.arange(n) % min(_N_FOLDS, n)
    return fold
