"""Laplace predictions of real numbers."""

from calibjax.distributions._laplace import _gaussian, _laplacian
from calibjax.distributions._laplace._laplace import Laplace
