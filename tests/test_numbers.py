"""Sums over pairs of numbers in closed form, and products in blocks."""

import jax
import numpy as np
import pytest

from calibjax._numbers.arithmetic import in_blocks, pairs_weight

RNG = np.random.default_rng(0)


def test_weights_of_pairs():
    weights = RNG.uniform(size=(3, 5))
    products = weights[:, :, None] * weights[:, None] * (1 - np.eye(5))
    with jax.enable_x64(True):
        np.testing.assert_allclose(pairs_weight(weights), products.sum(axis=(1, 2)), rtol=1e-14)
        assert pairs_weight(weights[:, :1]).tolist() == [0, 0, 0]


@pytest.mark.parametrize("n, k, m", [(0, 3, 2), (1, 3, 2), (251, 950, 20), (17, 40_000, 2)])
def test_products_in_blocks(n, k, m):
    a, b = RNG.normal(size=(n, k)), RNG.normal(size=(k, m))
    product = np.einsum("nk,km->nm", a, b)
    np.testing.assert_allclose(in_blocks(a, b), product, rtol=1e-9, atol=1e-9)
