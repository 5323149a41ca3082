"""Laplace predictions of real numbers."""

from calibjax.distributions._laplace import _gaussian as _gaussian
from calibjax.distributions._laplace import _laplacian as _laplacian
from calibjax.distributions._laplace._laplace import Laplace as Laplace
