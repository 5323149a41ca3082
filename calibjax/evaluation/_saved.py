"""An evaluation as numbers, lists and strings of Python."""

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from calibjax.evaluation._censored import n_unknown
from calibjax.kernels import describe
from calibjax.recalibration import is_end_of_range

# Curves with more points than this are thinned in files.
_MAX_POINTS = 1000


def saved(evaluation: Any) -> dict[str, Any]:
    """What `Evaluation.to_dict` returns."""
    members = evaluation.test.members
    assert members is not None
    equivalent, best = evaluation.effect.equivalent, evaluation.effect.best_temperature
    found = {
        "verdict": evaluation.verdict,
        "sentence": evaluation.sentence,
        "remarks": evaluation.remarks,
        "rejected": evaluation.rejected,
        "pvalue": evaluation.pvalue,
        "level": evaluation.level,
        "n": evaluation.n,
        "n_hidden": n_unknown(evaluation.targets),
        "n_effective": evaluation.n_effective,
        "assumes": evaluation.units or "independent rows",
        "pvalue_of_neighbours": evaluation.pvalue_of_neighbours,
        "pvalues_of_neighbours_in": {x.name: x.pvalue for x in evaluation.neighbours},
        "horizon": evaluation.dependence.horizon,
        "family": evaluation.family,
        "classes": evaluation.classes,
        "seed": evaluation.seed,
        "skce": dataclasses.asdict(evaluation.effect.skce),
        "equivalent_temperature": None
        if equivalent is None
        else {"value": equivalent.temperature, "interval": equivalent.confidence_interval},
        "deviation_ratio": None if equivalent is None else equivalent.deviation_ratio,
        "directions": [dataclasses.asdict(x) for x in evaluation.directions],
        "impossible_rows": evaluation.impossible.rows,
        "pvalue_without_impossible_rows": evaluation.impossible.pvalue_without,
        "best_temperature": best,
        "best_temperature_is_end_of_range": None if best is None else is_end_of_range(best),
        "recalibration": None
        if evaluation.recalibration is None
        else dataclasses.asdict(evaluation.recalibration),
        "measures": {name: dataclasses.asdict(m) for name, m in evaluation.measures.items()},
        "kernels": [
            {"kernel": describe(kernel), "estimate": e, "score": s, "pvalue": p}
            for kernel, e, s, p in zip(
                members.kernels, members.estimates, members.scores, members.pvalues, strict=True
            )
        ],
        "segments": None if evaluation.segments is None else evaluation.segments.to_dict(),
        "curves": {
            name: {f.name: _thinned(getattr(curve, f.name)) for f in dataclasses.fields(curve)}
            for name, curve in evaluation.curves.items()
        },
        "worst_rows": evaluation.worst_rows(),
    }
    return {name: plain(value) for name, value in found.items()}


def _thinned(value: Any) -> Any:
    """An array, or evenly spaced entries of one that is long."""
    if np.ndim(value) != 1 or len(value) <= _MAX_POINTS:
        return value
    return np.asarray(value)[np.linspace(0, len(value) - 1, _MAX_POINTS).round().astype(int)]


def plain(value: Any) -> Any:
    """Arrays as lists, numbers as Python has them, and None for what JSON has no number for."""
    if isinstance(value, (jax.Array, np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.dtype == np.float32:  # 0.001, and not 0.0010000000474974513
            array = array.astype(str).astype(float)
        value = array.tolist()
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
