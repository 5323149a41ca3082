"""Curves and maps: what a picture of calibration shows, as arrays."""

from calibjax.curves._corp_curve import CORPCurve, corp_curve
from calibjax.curves._coverage_curve import CoverageCurve, coverage_curve
from calibjax.curves._pit_curve import PITCurve, pit_curve
from calibjax.curves._reliability_curve import ReliabilityCurve, reliability_curve
from calibjax.curves._residual_map import ResidualMap, residual_map
from calibjax.curves._witness_map import WitnessMap, witness_map
