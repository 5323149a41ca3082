"""The rational quadratic kernel, where the generic tests do not look."""

import jax.numpy as jnp
import numpy as np
import pytest
from instances import FAMILIES, TARGET_KERNELS, cast

import calibjax as cj


def test_with_a_large_alpha_it_is_gaussian(float64):
    x, y = jnp.array([0.3, -1.0]), jnp.array([1.1, 0.4])
    values = [k(x, y) for k in (cj.RationalQuadraticKernel(0.8, 1e9), cj.GaussianKernel(0.8))]
    np.testing.assert_allclose(*values, rtol=1e-7)


def test_families_with_sums_and_quadrature_have_it():
    for family in ("categorical", "student_t"):
        p, y = cast(FAMILIES[family](2, 0), "float32")
        assert 0 < cj.mean_embedding(p[0], TARGET_KERNELS["rational_quadratic"], y[0]) < 1


def test_bad_parameters():
    kernel = cj.TensorProduct(
        cj.DistanceKernel(cj.TotalVariation()), cj.RationalQuadraticKernel(1.0, -1.0)
    )
    with pytest.raises(ValueError, match="alpha of RationalQuadraticKernel must be positive"):
        cj.skce(kernel, *cast(FAMILIES["bernoulli"](4, 0), "float32"))
