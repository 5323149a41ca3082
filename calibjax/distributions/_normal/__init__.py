"""Normal predictions of real numbers and, with independent coordinates, of vectors."""

from calibjax.distributions._normal import _gaussian as _gaussian
from calibjax.distributions._normal import _laplacian as _laplacian
from calibjax.distributions._normal import _matern as _matern
from calibjax.distributions._normal._diagonal import (
    MultivariateNormalDiag as MultivariateNormalDiag,
)
from calibjax.distributions._normal._normal import Normal as Normal
