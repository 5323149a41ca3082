"""Values and gradients at scales and distances from 1e-6 to 1e6 lengthscales, and beyond."""

import functools
import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import fast_in_float32, slow

import calibjax as cj
from calibjax.expectations import residual_product

# By golden/extreme_scales.py, with 300 digits: arguments, value and partial derivatives in a row.
TABLES = json.loads((Path(__file__).parent / "golden" / "extreme_scales.json").read_text())
KERNELS = {
    "gaussian": cj.GaussianKernel,
    "laplacian": cj.LaplacianKernel,
    "matern32": cj.Matern32Kernel,
    "matern52": cj.Matern52Kernel,
}
laplace_kernels = pytest.mark.parametrize("kernel", TABLES)
# Errors allowed, in units of rounding.  Twice the largest measured.
ROUNDINGS = {"gaussian": 50, "laplacian": 4}


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    with jax.enable_x64(request.param == "float64"):
        yield request.param


def expectation(kernel, d, *scales):
    """E k for one or two predictions at the distance d, with lengthscale 1."""
    k, zero = KERNELS[kernel](jnp.ones_like(d)), jnp.zeros_like(d)
    p, *others = (cj.Laplace(loc, scale) for loc, scale in zip((d, zero), scales, strict=False))
    return cj.inner_product(p, k, *others) if others else cj.mean_embedding(p, k, zero)


def target_part(family, kernel, loc, scale, y, other_loc, other_scale, other_y, lengthscale):
    p, q = family(loc, scale), family(other_loc, other_scale)
    return residual_product(p, KERNELS[kernel](lengthscale), y, q, other_y)


def values_and_gradients(f, arguments):
    """A row of the value and the partial derivatives for each column of arguments."""
    every = tuple(range(len(arguments)))
    value, gradient = jax.jit(jax.vmap(jax.value_and_grad(f, argnums=every)))(*arguments)
    return np.array([value, *gradient], float).T


@laplace_kernels
@pytest.mark.parametrize("predictions", ["one", "two"])
def test_laplace_against_mpmath(kernel, predictions, dtype):
    rows = np.array(TABLES[kernel][predictions])
    n = {"one": 2, "two": 3}[predictions]
    arguments, expected = rows[:, :n], rows[:, n:]
    f = functools.partial(expectation, kernel)
    found = values_and_gradients(f, jnp.asarray(arguments.T, dtype))
    assert np.all(np.isfinite(found))

    d, *scales = arguments.T
    widest = np.maximum(1, np.max(scales, axis=0))
    # The change over a lengthscale or over the scale, whichever is larger, is as exact as the
    # value; the slope in the distance, with the Gaussian kernel, over a lengthscale.
    widths = [np.ones_like(d), widest if kernel == "laplacian" else np.ones_like(d)]
    widths += [1 + scale for scale in scales]
    size = np.abs(expected) + expected[:, :1] / np.transpose(widths)
    # e^{-x} turns the rounding of x into an error of x roundings.
    size *= (1 + d / widest)[:, None]
    rounding = np.finfo(dtype)
    assert np.all(
        np.abs(found - expected) <= ROUNDINGS[kernel] * rounding.eps * size + 10 * rounding.tiny
    )


@laplace_kernels
@fast_in_float32
def test_laplace_h_against_mpmath(kernel, dtype):
    rows = np.array(TABLES[kernel]["pairs"])
    arguments, expected = rows[:, :7], rows[:, 7:]
    f = functools.partial(target_part, cj.Laplace, kernel)
    found = values_and_gradients(f, jnp.asarray(arguments.T, dtype))
    rtol, atol = {"float32": (1e-4, 1e-7), "float64": (1e-12, 1e-15)}[dtype]
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


CORNERS = np.array(
    list(itertools.product((0.0, 1e-6, 1.0, 1e3, 1e6, 1e18), *[(1e-19, 1e-6, 1.0, 1e3, 1e6)] * 2)),
    "float32",
)


@pytest.mark.parametrize(
    "family, kernel",
    [
        *itertools.product([cj.Laplace], TABLES),
        *slow(
            {(cj.Normal, "matern32"), (cj.Normal, "matern52")},
            itertools.product([cj.Normal], ["laplacian", "matern32", "matern52"]),
        ),
    ],
)
@pytest.mark.slow
def test_h_is_finite_in_the_corners_of_float32(family, kernel):
    d, scale, other = jnp.asarray(CORNERS.T)
    zero = jnp.zeros_like(d)
    f = functools.partial(target_part, family, kernel)
    found = values_and_gradients(f, (d, scale, d + scale, zero, other, other, zero + 1))
    assert np.all(np.isfinite(found))
    assert np.all(np.abs(found[:, 0]) <= 2 + 1e-6)
