"""Curves and maps: what a picture of calibration shows, as arrays."""

from calibjax.curves._error_maps import ResidualMap, WitnessMap, residual_map, witness_map
from calibjax.curves._pit_curve import CoverageCurve, PITCurve, coverage_curve, pit_curve
from calibjax.curves._reliability_curve import (
    CORPCurve,
    ReliabilityCurve,
    corp_curve,
    reliability_curve,
)
