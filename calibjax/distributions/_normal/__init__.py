"""Normal predictions of real numbers and, with independent coordinates, of vectors."""

from calibjax.distributions._normal import _gaussian, _laplacian, _matern
from calibjax.distributions._normal._diagonal import MultivariateNormalDiag
from calibjax.distributions._normal._normal import Normal
