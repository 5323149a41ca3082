"""Any prediction with a sum or a multiple of target kernels: expectations are linear in k."""

from calibjax._distribution import Distribution
from calibjax.expectations._dispatch import inner_product, mean_embedding, residual_product
from calibjax.kernels import Scaled, Sum


@mean_embedding.register(Distribution, Sum)
def sum_mean(p, kernel, y):
    return mean_embedding(p, kernel.left, y) + mean_embedding(p, kernel.right, y)


@inner_product.register(Distribution, Sum)
def sum_inner(p, kernel, q):
    return inner_product(p, kernel.left, q) + inner_product(p, kernel.right, q)


@residual_product.register(Distribution, Sum)
def sum_residual(p, kernel, y, q, z):
    return residual_product(p, kernel.left, y, q, z) + residual_product(p, kernel.right, y, q, z)


@mean_embedding.register(Distribution, Scaled)
def scaled_mean(p, kernel, y):
    return kernel.valid_factor() * mean_embedding(p, kernel.kernel, y)


@inner_product.register(Distribution, Scaled)
def scaled_inner(p, kernel, q):
    return kernel.valid_factor() * inner_product(p, kernel.kernel, q)


@residual_product.register(Distribution, Scaled)
def scaled_residual(p, kernel, y, q, z):
    return kernel.valid_factor() * residual_product(p, kernel.kernel, y, q, z)
