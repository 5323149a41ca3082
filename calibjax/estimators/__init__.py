"""Estimators of calibration error."""

from calibjax.estimators._h_matrix import h_matrix as h_matrix
from calibjax.estimators._skce import skce as skce
