"""Isotonic recalibration: reliability without bins, and the decomposition of scores."""

from calibjax.corp._corp_curve import CORPCurve as CORPCurve
from calibjax.corp._corp_curve import corp_curve as corp_curve
