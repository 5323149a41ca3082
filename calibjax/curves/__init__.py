"""Curves and maps: what a picture of calibration shows, as arrays."""

from calibjax.curves._contributions import contributions, contributions_of_data
from calibjax.curves._corp_curve import CORPCurve, corp_curve
from calibjax.curves._covariate_curve import CovariateCurve, covariate_curve
from calibjax.curves._coverage_curve import CoverageCurve, coverage_curve, coverage_curve_of_data
from calibjax.curves._pit_curve import pit_curve, pit_curve_of_data
from calibjax.curves._pit_result import PITCurve
from calibjax.curves._reliability_curve import (
    ReliabilityCurve,
    reliability_curve,
    reliability_curve_of_data,
)
from calibjax.curves._residual_map import ResidualMap, residual_map, residual_map_of_data
from calibjax.curves._risk_curve import RiskCurve, risk_curve, risk_curve_of_data
from calibjax.curves._smooth_ece import smooth_ece, smooth_ece_of_data
from calibjax.curves._witness_map import WitnessMap, witness_map, witness_map_of_data
