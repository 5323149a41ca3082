"""A map of predictions of labels: the rows that count, the fit, and what is known of it."""

import jax
import numpy as np
from jax.typing import ArrayLike

from calibjax._check import check_choice
from calibjax._distribution import Distribution
from calibjax._interval_censored import Targets
from calibjax._rows import Data, Dependence, NamedColumns, as_data
from calibjax._sharding import on_one_device
from calibjax._struct import on_host
from calibjax.recalibration._folds import counted, parts_of
from calibjax.recalibration._groups import fit_groups
from calibjax.recalibration._labels import (
    FITS,
    N_FOLDS,
    ONLY_TWO,
    LabelRows,
    fit_auto,
    fit_method,
    run,
)
from calibjax.recalibration._recalibrator import (
    Recalibrator,
    check_labels,
    is_ragged,
    numbers_of_classes,
    recalibrator_of,
)

OF_LABELS = ("auto", "nothing", *FITS)


def fit_to_labels(
    predictions: Distribution,
    targets: Targets,
    method: str,
    weights: ArrayLike | None,
    where: ArrayLike | None,
    groups: NamedColumns | None,
    dependence: Dependence,
) -> Recalibrator:
    """See `fit_recalibrator`."""
    n_classes = check_labels(predictions)
    check_choice("method for labels", method, OF_LABELS)
    if n_classes < 2:
        raise ValueError(
            f"predictions must have at least 2 classes, got {n_classes}; one column of "
            "probabilities is Bernoulli(probs[:, 0])."
        )
    if method in ONLY_TWO and n_classes > 2:
        raise ValueError(
            f"method {method!r} is for two classes, got predictions of {n_classes}; "
            "'spline' and 'sms' are for more."
        )
    data = on_one_device(as_data(predictions, targets, where=where, weights=weights, at_least=1))
    # At the fit as where the map is used, 1 - p is what jax makes of p.
    held = jax.tree.map(on_host, data.predictions)
    rows, kept = rows_of_labels(data.replace(predictions=held))
    is_used = method == "auto" or groups is not None
    part = parts_of(data, dependence, kept, N_FOLDS, is_used)
    losses: dict[str, float] = {}
    if method == "auto":
        chosen, fitted, losses = fit_auto(rows, part)
    else:
        chosen, fitted = method, fit_method(method, rows)
    of_groups = None
    if groups is not None:
        after = rows._replace(probs=run(fitted.steps, rows.probs, rows.ragged))
        of_groups = fit_groups(groups, kept, after, part)
    return recalibrator_of(
        predictions,
        chosen,
        fitted,
        of_groups,
        losses=losses,
        n_rows=len(rows.targets),
        n_classes=n_classes,
        n_impossible=int(np.sum(rows.of_targets() <= rows.zero)),
    )


def rows_of_labels(data: Data) -> tuple[LabelRows, np.ndarray]:
    """The rows of checked data that count, in NumPy, and which these are, ``[n]``."""
    kept, counts = counted(data)
    with jax.ensure_compile_time_eval():
        probs = on_host(numbers_of_classes(data.predictions))
    probs = np.asarray(probs, float)[kept]
    labels = np.asarray(data.targets)[kept].astype(int)
    said = is_ragged(data.predictions), data.predictions.is_binary
    rows = LabelRows(probs, labels, counts[kept], *said)
    lacking = np.flatnonzero(rows.of_targets() == 0)
    if rows.ragged and lacking.size:
        row = lacking[0]
        raise ValueError(
            "targets must be classes that their rows have, whose numbers are above 0 in ragged "
            f"predictions, got {labels[row]} in row {np.flatnonzero(kept)[row]}."
        )
    return rows, kept
