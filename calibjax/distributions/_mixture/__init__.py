"""Mixtures of predictions of one family, and the distance between them."""

from calibjax.distributions._mixture import _expectations
from calibjax.distributions._mixture._mixture import Mixture
from calibjax.distributions._mixture._wasserstein import MixtureWasserstein
