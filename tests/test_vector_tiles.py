"""Tiles of vectors, row by row, are the terms of their pairs, and so are their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax as cj
from calibjax.expectations import residual_product
from calibjax.kernels import vmap_pairs

N, D = 7, 3


@pytest.mark.slow
def test_diagonal_laplacian_tile_is_its_four_terms(float64):
    rng = np.random.default_rng(0)
    p = cj.MultivariateNormalDiag(rng.normal(size=(N, D)), rng.uniform(0.05, 3, (N, D)))
    p, y = jax.tree.map(jnp.asarray, (p, rng.normal(size=(N, D))))
    kernel = cj.LaplacianKernel(jnp.array([0.5, 1.0, 2.0]))
    # A prediction kernel that is 1.
    one = cj.DistanceKernel(cj.EmbeddingDistance(lambda p: jnp.ones(())))

    def by_tiles(kernel, p, y):
        return cj.skce(cj.TensorProduct(one, kernel), p, y)

    def by_terms(kernel, p, y):
        def of_pair(a, b):
            return residual_product.fallback(a[0], kernel, a[1], *b)

        h = vmap_pairs(of_pair)((p, y), (p, y))
        return (jnp.sum(h) - jnp.trace(h)) / (N * (N - 1))

    found, expected = (
        jax.jit(jax.value_and_grad(function, (0, 1, 2)))(kernel, p, y)
        for function in (by_tiles, by_terms)
    )
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
