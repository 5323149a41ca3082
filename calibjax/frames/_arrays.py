"""Predictions and targets as people have them, as a distribution and an array."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from calibjax._base.sharding import on_one_device
from calibjax._base.struct import on_host
from calibjax._data import Between, Distribution
from calibjax._numbers import TOLERANCE
from calibjax.distributions import Bernoulli, as_predictions, is_foreign
from calibjax.frames._array_conversion import (
    absent_options,
    as_numpy,
    column_names,
    with_options,
)
from calibjax.frames._labels import labels_in_python
from calibjax.frames._lifetimes import read_intervals, read_lifetimes


class Inputs(NamedTuple):
    """Predictions, targets ``[n]``, ``[n, d]`` or Between, and the names of the classes or None."""

    predictions: Distribution
    targets: np.ndarray | Between
    classes: list[Any] | None


def read_inputs(
    predictions: Any, targets: Any, classes: Sequence[Any] | None, normalize: bool
) -> Inputs:
    """Everything that `evaluate` takes, for one check of both; errors say what to do.

    Raises:
        TypeError, ValueError: see `evaluate`.
    """
    if isinstance(targets, Distribution) or is_foreign(targets):
        raise TypeError(
            f"targets must hold values, got {type(targets).__name__}: predictions come first, "
            "evaluate(predictions, targets)."
        )
    predictions, targets = read_lifetimes(predictions, targets)
    if isinstance(predictions, Between):
        raise TypeError(
            "predictions must be a distribution, got Between: predictions come first, "
            "evaluate(predictions, targets)."
        )
    if isinstance(targets, Between):
        for name, given in {"classes": classes is not None, "normalize": normalize}.items():
            if given:
                raise ValueError(f"{name} must not be given for targets that are Between.")
        return Inputs(*read_intervals(predictions, targets), None)
    observed = as_numpy("targets", targets)
    native, columns = isinstance(predictions, Distribution), None
    if native or is_foreign(predictions):
        if normalize:
            raise ValueError("normalize must be False for predictions that are a distribution.")
        family = on_one_device(predictions) if native else as_predictions(predictions)
    else:
        array = as_numpy("predictions", predictions)
        absent = np.zeros(array.shape, bool)
        if array.ndim == 2 and array.dtype.kind == "f" and np.isnan(array).any():
            absent = absent_options(array, np.isnan(array))
            array = np.where(absent, 0, array)
        probs: Any = _probabilities(array, observed, normalize)
        if probs.ndim == 1:
            family = jax.device_put(jax.tree.map(on_host, Bernoulli(probs).keeping_digits()))
        else:
            family = with_options(probs, absent)
        columns = column_names(predictions)
    names = None
    if family.has_labels:
        observed, names = labels_in_python(observed, classes, columns, family)
    elif classes is not None:
        raise ValueError(
            f"classes must be None for predictions {type(family).__name__}, which have no classes."
        )
    elif observed.dtype.kind == "U":
        raise TypeError(f"targets of {type(family).__name__} must be numbers, got strings.")
    elif observed.ndim == 2 and observed.shape[1] == 1 and family.target_shape == "n":
        observed = observed[:, 0]
    if observed.dtype.kind in "iu" and family.target_kind == "real":
        observed = observed.astype(float)  # JAX would cut large integers off
    # What float32 cannot tell apart, `as_data` finds in the numbers as they came.
    return Inputs(family, observed, names)


def _probabilities(array: np.ndarray, targets: np.ndarray, normalize: bool) -> np.ndarray:
    """Probabilities of an event ``[n]`` or of classes ``[n, m]``; an error if they are none."""
    if _are_labels(array) and _are_probabilities(targets):
        raise ValueError(
            "predictions must be probabilities, got labels, and probabilities as targets: "
            "predictions come first, evaluate(predictions, targets)."
        )
    if array.ndim == 1 and targets.ndim == 2 and targets.shape[1] > 1 and not _are_labels(array):
        raise ValueError(
            f"predictions must be probabilities or a distribution, got numbers, and targets of "
            f"shape {list(targets.shape)}: predictions come first, and of draws make "
            "calibjax.Empirical(draws)."
        )
    if array.dtype.kind == "U":
        raise TypeError(
            "predictions must be probabilities or a distribution, got strings: of predicted names "
            "of classes calibration cannot be judged."
        )
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    is_grid = targets.ndim > 1 and not np.all((array >= 0) & (array <= 1))
    if array.ndim > 2 and (is_grid or targets.shape == array.shape[:-1]):
        raise ValueError(
            "predictions must be probabilities [n] of an event or [n, m] of classes, got shape "
            f"{list(array.shape)}; of a grid name the dimensions, as in evaluate({{'y': (('time', "
            "'station'), targets), 'x': (('time', 'station', 'member'), predictions)}, target='y', "
            "draws='x')."
        )
    if array.ndim not in (1, 2):
        raise ValueError(
            "predictions must be probabilities [n] of an event or [n, m] of classes, got shape "
            f"{list(array.shape)}; of an ensemble [n, K, m] make calibjax.Mixture.ensemble("
            "calibjax.Categorical(array))."
        )
    _check_rows(array, targets)
    bad = ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"predictions must be finite; row {row} is {array[row]}. Drop such rows, or say what "
            "the model predicts there."
        )
    if array.dtype.kind in "biu" and array.ndim == 1 and np.any(array > 1):
        raise ValueError(
            "predictions must be probabilities, got whole numbers: of predicted labels calibration "
            "cannot be judged. Take the model's predict_proba, or its softmax."
        )
    array = array.astype(float) if array.dtype.kind in "biu" else array
    if array.ndim == 1:
        _check_events(array)
        return array
    return _rows_that_sum_to_one(array, normalize)


def _are_labels(array: np.ndarray) -> bool:
    return array.dtype.kind == "U" or bool(np.all(array == np.floor(array)))


def _are_probabilities(array: np.ndarray) -> bool:
    is_inside = array.dtype.kind == "f" and bool(np.all((array >= 0) & (array <= 1)))
    return is_inside and not _are_labels(array)


def _check_rows(array: np.ndarray, targets: np.ndarray) -> None:
    n = len(array)
    if not array.size or not targets.size:
        raise ValueError("predictions and targets must have at least two rows, got none.")
    if len(targets) == n:
        return
    hint = ""
    if array.ndim == 2 and targets.ndim == 2 and len(targets) == array.shape[1]:
        hint = (
            "; if rows are classes, pass the transpose, predictions.T, and of survival curves the "
            "times, calibjax.SurvivalCurve(times, predictions.T)"
        )
    elif array.ndim == 2 and len(targets) == array.shape[1]:
        hint = (
            "; if rows are classes, pass the transpose, predictions.T, and of survival curves "
            "targets must be times and events"
        )
    raise ValueError(
        f"targets must have one row for each of the {n} rows of predictions, got {len(targets)}"
        f"{hint}."
    )


def _check_events(array: np.ndarray) -> None:
    wrong = (array < 0) | (array > 1)
    if not wrong.any():
        return
    row = int(np.argmax(wrong))
    said = f"predictions must be probabilities in [0, 1]; row {row} is {array[row]}"
    if -TOLERANCE < array.min() and array.max() < 1 + TOLERANCE:
        raise ValueError(f"{said}. Rounding errors are mended by numpy.clip(predictions, 0, 1).")
    if array.min() >= 0 and 1 < array.max() <= 100:
        raise ValueError(f"{said}. If they are percentages, divide them by 100.")
    raise ValueError(
        f"{said}. If they are logits, pass calibjax.Bernoulli.from_logits(predictions); if they "
        "are predicted means, pass a distribution, such as calibjax.Normal(mean, sd)."
    )


def _rows_that_sum_to_one(array: np.ndarray, normalize: bool) -> np.ndarray:
    sums = array.sum(axis=1, dtype=float)
    wrong = np.abs(sums - 1) > TOLERANCE
    negative = (array < 0).any(axis=1)
    if normalize and not negative.any() and (sums > 0).all():
        return array / sums[:, None]
    if negative.any() or (wrong.any() and array.max() > 1 and not normalize):
        if not negative.any() and np.allclose(sums, 100, atol=2):
            raise ValueError(
                "predictions must have rows that sum to 1; row 0 sums to "
                f"{sums[0]:g}: they look like percentages, divide them by 100."
            )
        row = int(np.argmax(negative | wrong))
        if array.min() > -TOLERANCE and not wrong.any():
            raise ValueError(
                f"predictions must not be negative; row {row} has {array[row].min()}. Rounding "
                "errors are mended by numpy.clip(predictions, 0, 1)."
            )
        raise ValueError(
            f"predictions must be probabilities that sum to 1; row {row} is "
            f"{_short(array[row])}. If they are logits, pass "
            "calibjax.Categorical.from_logits(predictions); if they are draws, "
            "calibjax.Empirical(predictions)."
        )
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"predictions must have rows that sum to 1; row {row} sums to {sums[row]:.4g}. If they "
            "are rounded or counts, normalize=True divides each row by its sum."
        )
    return array


def _short(row: np.ndarray) -> str:
    shown = ", ".join(f"{x:.3g}" for x in row[:4])
    return f"[{shown}{', …' if len(row) > 4 else ''}]"
