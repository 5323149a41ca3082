"""Is a posterior right? Simulations whose parameters are known, and draws of their posteriors."""

from calibjax.evaluation._posterior._check_posterior import (
    ParameterCheck,
    PosteriorCheck,
    check_posterior,
)
