"""Univariate predictions refuse a WhiteKernel: real targets are hardly ever equal."""

from calibjax.distributions._univariate._univariate import Univariate
from calibjax.expectations import inner_product, mean_embedding
from calibjax.kernels import WhiteKernel


def refuse_white_kernel(p, kernel, other):
    # Single points of a quadrature would be as probable as their weights.
    raise TypeError(
        "WhiteKernel is for labels and counts, but targets of "
        f"{type(p).__name__} predictions are real numbers, of which no two are equal."
    )


for function in (mean_embedding, inner_product):
    function.register(Univariate, WhiteKernel)(refuse_white_kernel)
