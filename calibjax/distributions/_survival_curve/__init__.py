"""Predicted survival curves."""

from calibjax.distributions._survival_curve._survival_curve import SurvivalCurve
