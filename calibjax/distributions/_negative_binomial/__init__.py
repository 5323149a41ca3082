"""Negative binomial predictions of counts."""

from calibjax.distributions._negative_binomial._negative_binomial import NegativeBinomial
