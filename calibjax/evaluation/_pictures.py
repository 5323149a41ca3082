"""The curves of an evaluation."""

from typing import Any

import jax

from calibjax import curves
from calibjax._rows import Data
from calibjax.evaluation._label_statistics import judged


def curves_of(
    key: jax.Array, data: Data, confidence_level: float, n_resamples: int
) -> dict[str, Any]:
    """What the pictures show of predictions of this family, by name."""
    options: dict[str, Any] = {"confidence_level": confidence_level, "n_resamples": n_resamples}
    keys = jax.random.split(key)
    where = map_of(key, data, confidence_level, n_resamples)
    if data.predictions.has_labels:
        binary = judged(data)
        ordered = {}
        if data.predictions.is_ordered:
            of_pit = jax.random.fold_in(key, len(keys))
            ordered["pit"] = curves.pit_curve_of_data(of_pit, data, n_bins=20, **options)
        return (
            {
                "reliability": curves.reliability_curve_of_data(
                    keys[0], binary, n_bins=15, **options
                ),
                "corp": curves.corp_curve(
                    *binary.samples,
                    key=keys[1],
                    where=binary.where,
                    weights=binary.weights,
                    **options,
                ),
            }
            | ordered
            | where
        )
    if data.predictions.target_shape != "n":
        return {}
    return {
        "pit": curves.pit_curve_of_data(keys[0], data, n_bins=20, **options),
        "coverage": curves.coverage_curve_of_data(keys[1], data, n_levels=19, **options),
    } | where


def map_of(key: jax.Array, data: Data, confidence_level: float, n_resamples: int) -> dict[str, Any]:
    """The map that shows where predictions of this family are wrong, by its name; or none."""
    options: dict[str, Any] = {"confidence_level": confidence_level, "n_resamples": n_resamples}
    if data.predictions.has_labels:
        return {"witness": curves.witness_map_of_data(key, data, n_bins=10, **options)}
    if data.predictions.target_shape != "n":
        return {}
    return {"residuals": curves.residual_map_of_data(key, data, n_bins=5, **options)}
