"""Poisson predictions of counts."""

from calibjax.distributions._poisson._poisson import Poisson
