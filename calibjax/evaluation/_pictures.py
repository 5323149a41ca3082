"""The curves of an evaluation."""

from typing import Any

import jax

from calibjax.curves import (
    corp_curve,
    coverage_curve,
    pit_curve,
    reliability_curve,
    residual_map,
    witness_map,
)
from calibjax.evaluation._measures import judged_probabilities


def curves_of(
    key: jax.Array, predictions: Any, targets: jax.Array, confidence_level: float, n_resamples: int
) -> dict[str, Any]:
    """What the pictures show of predictions of this family, by name."""
    options: dict[str, Any] = {"confidence_level": confidence_level, "n_resamples": n_resamples}
    keys = jax.random.split(key)
    where = map_of(key, predictions, targets, confidence_level, n_resamples)
    if predictions.label_probabilities() is not None:
        judged = judged_probabilities(predictions, targets)
        return {
            "reliability": reliability_curve(keys[0], *judged, **options),
            "corp": corp_curve(*judged, key=keys[1], **options),
        } | where
    if predictions.target_shape != "n":
        return {}
    return {
        "pit": pit_curve(keys[0], predictions, targets, **options),
        "coverage": coverage_curve(keys[1], predictions, targets, **options),
    } | where


def map_of(
    key: jax.Array, predictions: Any, targets: jax.Array, confidence_level: float, n_resamples: int
) -> dict[str, Any]:
    """The map that shows where predictions of this family are wrong, by its name; or none."""
    options: dict[str, Any] = {"confidence_level": confidence_level, "n_resamples": n_resamples}
    if predictions.label_probabilities() is not None:
        return {"witness": witness_map(key, predictions, targets, **options)}
    if predictions.target_shape != "n":
        return {}
    return {"residuals": residual_map(key, predictions, targets, **options)}
