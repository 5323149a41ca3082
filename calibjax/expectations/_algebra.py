"""Any prediction with a sum or a multiple of target kernels: expectations are linear in k."""

import jax

from calibjax._distribution import Distribution
from calibjax._struct import PyTree
from calibjax.expectations._dispatch import (
    PairDispatch,
    inner_product,
    mean_embedding,
    residual_product,
)
from calibjax.kernels import Scaled, Sum


def _register_linear(function: PairDispatch) -> None:
    @function.register(Distribution, Sum)
    def sum_rule(p: Distribution, kernel: Sum, *args: PyTree) -> jax.Array:
        return function(p, kernel.left, *args) + function(p, kernel.right, *args)

    @function.register(Distribution, Scaled)
    def multiple_rule(p: Distribution, kernel: Scaled, *args: PyTree) -> jax.Array:
        return kernel.valid_factor() * function(p, kernel.kernel, *args)


for _function in (mean_embedding, inner_product, residual_product):
    _register_linear(_function)
