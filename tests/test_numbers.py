"""Sums over pairs of numbers, in closed form."""

import jax
import numpy as np

from calibjax._numbers.arithmetic import pairs_weight

RNG = np.random.default_rng(0)


def test_weights_of_pairs():
    weights = RNG.uniform(size=(3, 5))
    products = weights[:, :, None] * weights[:, None] * (1 - np.eye(5))
    with jax.enable_x64(True):
        np.testing.assert_allclose(pairs_weight(weights), products.sum(axis=(1, 2)), rtol=1e-14)
        assert pairs_weight(weights[:, :1]).tolist() == [0, 0, 0]
