"""Curves and maps: what a picture of calibration shows, as arrays."""

from calibjax.curves._contributions import contributions as contributions
from calibjax.curves._contributions import contributions_of_data as contributions_of_data
from calibjax.curves._corp_curve import CORPCurve as CORPCurve
from calibjax.curves._corp_curve import corp_curve as corp_curve
from calibjax.curves._covariate_curve import CovariateCurve as CovariateCurve
from calibjax.curves._covariate_curve import covariate_curve as covariate_curve
from calibjax.curves._coverage_curve import CoverageCurve as CoverageCurve
from calibjax.curves._coverage_curve import coverage_curve as coverage_curve
from calibjax.curves._coverage_curve import coverage_curve_of_data as coverage_curve_of_data
from calibjax.curves._pit_curve import pit_curve as pit_curve
from calibjax.curves._pit_curve import pit_curve_of_data as pit_curve_of_data
from calibjax.curves._pit_result import PITCurve as PITCurve
from calibjax.curves._reliability_curve import ReliabilityCurve as ReliabilityCurve
from calibjax.curves._reliability_curve import reliability_curve as reliability_curve
from calibjax.curves._reliability_curve import (
    reliability_curve_of_data as reliability_curve_of_data,
)
from calibjax.curves._residual_map import ResidualMap as ResidualMap
from calibjax.curves._residual_map import residual_map as residual_map
from calibjax.curves._residual_map import residual_map_of_data as residual_map_of_data
from calibjax.curves._risk_curve import RiskCurve as RiskCurve
from calibjax.curves._risk_curve import risk_curve as risk_curve
from calibjax.curves._risk_curve import risk_curve_of_data as risk_curve_of_data
from calibjax.curves._smooth_ece import smooth_ece as smooth_ece
from calibjax.curves._smooth_ece import smooth_ece_of_data as smooth_ece_of_data
from calibjax.curves._witness_map import WitnessMap as WitnessMap
from calibjax.curves._witness_map import witness_map as witness_map
from calibjax.curves._witness_map import witness_map_of_data as witness_map_of_data
