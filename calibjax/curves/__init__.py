"""Curves and maps: what a plot of calibration shows, as arrays."""

from calibjax.curves._calibration_curve import (
    CalibrationCurve,
    RiskCurve,
    calibration_curve,
    risk_curve,
)
from calibjax.curves._corp_curve import CORPCurve, corp_curve
from calibjax.curves._error_maps import ResidualMap, WitnessMap, residual_map, witness_map
from calibjax.curves._reliability_curve import ReliabilityCurve, reliability_curve
from calibjax.curves._spread_skill_curve import SpreadSkillCurve, spread_skill_curve
from calibjax.curves.pit_curves import CoverageCurve, PITCurve, coverage_curve, pit_curve

__all__ = [
    "CORPCurve", "CalibrationCurve", "CoverageCurve", "PITCurve", "ReliabilityCurve", "ResidualMap",
    "RiskCurve", "SpreadSkillCurve", "WitnessMap", "calibration_curve", "corp_curve",
    "coverage_curve", "pit_curve", "reliability_curve", "residual_map", "risk_curve",
    "spread_skill_curve", "witness_map",
]  # fmt: skip
__dir__ = __all__.copy
