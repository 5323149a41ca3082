"""Gamma predictions of positive numbers."""

from calibjax.distributions._gamma._gamma import Gamma
from calibjax.distributions._gamma._rule import log_of_deviance, slope_of_deviance
from calibjax.distributions._gamma._tails import gamma_tails
