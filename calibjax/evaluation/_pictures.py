"""The curves of an evaluation."""

from typing import Any

import jax

from calibjax.corp import corp_curve
from calibjax.curves import coverage_curve, pit_curve, reliability_curve, residual_map, witness_map
from calibjax.evaluation._measures import judged_probabilities


def curves_of(
    key: jax.Array, predictions: Any, targets: jax.Array, confidence_level: float, n_resamples: int
) -> dict[str, Any]:
    """What the pictures show of predictions of this family, by name."""
    options: dict[str, Any] = {"confidence_level": confidence_level, "n_resamples": n_resamples}
    keys = jax.random.split(key, 3)
    if predictions.label_probabilities() is not None:
        judged = judged_probabilities(predictions, targets)
        return {
            "reliability": reliability_curve(keys[0], *judged, **options),
            "corp": corp_curve(*judged, key=keys[1], **options),
            "witness": witness_map(keys[2], predictions, targets, **options),
        }
    if predictions.target_shape != "n":
        return {}
    return {
        "pit": pit_curve(keys[0], predictions, targets, **options),
        "coverage": coverage_curve(keys[1], predictions, targets, **options),
        "residuals": residual_map(keys[2], predictions, targets, **options),
    }
