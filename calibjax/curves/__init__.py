"""Curves: what a picture of calibration shows, as arrays."""

from calibjax.curves._reliability_curve import ReliabilityCurve as ReliabilityCurve
from calibjax.curves._reliability_curve import reliability_curve as reliability_curve
from calibjax.curves._smooth_ece import smooth_ece as smooth_ece
