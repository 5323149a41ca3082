"""Expectations of target kernels under predictions, chosen by the types of both.

Each family registers its closed forms beside its class.  This subpackage holds the dispatch and
the rules that many families share.
"""

from calibjax.expectations.defaults import default_kernel, default_kernels, product_kernel
from calibjax.expectations.dispatch import MeanEmbeddingDistance, inner_product, mean_embedding

__all__ = [
    "MeanEmbeddingDistance", "default_kernel", "default_kernels", "inner_product",
    "mean_embedding", "product_kernel",
]  # fmt: skip
__dir__ = __all__.copy
