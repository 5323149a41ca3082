"""Predictions given by samples, and their closed forms."""

from calibjax.distributions._empirical import _expectations as _expectations
from calibjax.distributions._empirical._empirical import Empirical as Empirical
