"""Binomial predictions of counts."""

from calibjax.distributions._binomial._binomial import Binomial
