"""Gamma predictions of positive numbers."""

from calibjax.distributions._gamma._gamma import Gamma as Gamma
from calibjax.distributions._gamma._rule import log_of_deviance as log_of_deviance
from calibjax.distributions._gamma._rule import slope_of_deviance as slope_of_deviance
from calibjax.distributions._gamma._tails import gamma_tails as gamma_tails
