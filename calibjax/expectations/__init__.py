"""Expectations of target kernels under predictions: closed forms, one file for each pair."""

from calibjax.expectations import _algebra as _algebra
from calibjax.expectations import _empirical as _empirical
from calibjax.expectations import _finite as _finite
from calibjax.expectations import _laplace_gaussian as _laplace_gaussian
from calibjax.expectations import _laplace_laplacian as _laplace_laplacian
from calibjax.expectations import _mixture as _mixture
from calibjax.expectations import _multivariate_normal_gaussian as _multivariate_normal_gaussian
from calibjax.expectations import _normal_gaussian as _normal_gaussian
from calibjax.expectations import _normal_laplacian as _normal_laplacian
from calibjax.expectations import _normal_matern as _normal_matern
from calibjax.expectations import _poisson as _poisson
from calibjax.expectations._default_kernel import default_kernel as default_kernel
from calibjax.expectations._dispatch import inner_product as inner_product
from calibjax.expectations._dispatch import mean_embedding as mean_embedding
from calibjax.expectations._dispatch import residual_product as residual_product
from calibjax.expectations._dispatch import residual_product_tile as residual_product_tile
from calibjax.expectations._mean_embedding_distance import (
    MeanEmbeddingDistance as MeanEmbeddingDistance,
)
