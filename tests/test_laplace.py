"""Laplace predictions where the scales of both and of the kernel meet, and at all scales."""

import functools
import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden.recompute import quadrature
from marks import fast_in_float32, slow

import calibjax as cj
from calibjax.expectations.dispatch import residual_product

KERNELS = {"laplacian": cj.LaplacianKernel, "gaussian": cj.GaussianKernel}
PROFILES = {"laplacian": lambda r: np.exp(-np.abs(r)), "gaussian": lambda r: np.exp(-(r**2) / 2)}
# Of the simpler kernel also test_expectations and test_extreme_scales, both fast.
every_kernel = pytest.mark.parametrize("kernel", slow({"laplacian"}, KERNELS))

# All in lengthscales.  For a gap e, scales that meet that of the kernel, each other, or both.
GAPS = (0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
MEETINGS = (
    lambda e: (1 + e, 3.0),
    lambda e: (0.3, 1 - e),
    lambda e: (0.4, 0.4 + 0.4 * e),
    lambda e: (2.5, 2.5 - 2.5 * e),
    lambda e: (1 + e, 1 - e / 2),
    lambda e: (1 - e, 1 + e / 3),
)
# The Gaussian form changes where a distance is an inverse scale: 1 and 2.5 are there too.
DISTANCES = (0.0, 0.3, 1.0, 2.5, 5.0, 30.0)
EXTREMES = (1e-3, 0.03, 1.0, 40.0, 1e3)


def rows():
    """Cases ``[n, 5]``: loc, scale, the other scale, lengthscale, and y or the other location."""
    scales = [meeting(e) for meeting in MEETINGS for e in GAPS]
    scales += itertools.product(EXTREMES, EXTREMES)
    cases = [(0.25 + d / 2, s / 2, t / 2, 0.5, 0.25) for s, t in scales for d in DISTANCES]
    return np.array(cases, "float32")


ROWS = rows()
MEET = np.arange(len(ROWS)) < len(MEETINGS) * len(GAPS) * len(DISTANCES)
TIES = ROWS[:, 0] == ROWS[:, 4]
# Parallel to no axis: a derivative that is wrong in any argument is wrong in this direction.
DIRECTION = (0.5, 0.3, -0.4, 0.6, -0.8)


def both(kernel, x):
    """Both primitives of one row."""
    loc, scale, other, lengthscale, y = x
    p, q, k = cj.Laplace(loc, scale), cj.Laplace(y, other), KERNELS[kernel](lengthscale)
    return jnp.stack([cj.mean_embedding(p, k, y), cj.inner_product(p, k, q)])


@functools.cache
def first(kernel):
    """Values ``[n, 2]`` and gradients ``[n, 2, 5]``, in reverse mode."""
    f = functools.partial(both, kernel)
    return jax.jit(jax.vmap(lambda x: (f(x), jax.jacrev(f)(x))))


@functools.cache
def second(kernel):
    """First and second derivatives in DIRECTION, ``[n, 2]`` each, in forward mode."""

    def slope(x):
        direction = jnp.asarray(DIRECTION, x.dtype)
        return jax.jvp(functools.partial(both, kernel), (x,), (direction,))[1]

    return jax.jit(jax.vmap(lambda x: jax.jvp(slope, (x,), (jnp.asarray(DIRECTION, x.dtype),))))


def evaluated(function, dtype, shift=0.0):
    """Of all rows, each moved by the same shift."""
    with jax.enable_x64(dtype == "float64"), jax.debug_nans(True):
        found = function(jnp.asarray(ROWS.astype(dtype) + shift))
        assert all(x.dtype == dtype and jnp.all(jnp.isfinite(x)) for x in found)
        return [np.array(x) for x in found]


@functools.cache
def exact(kernel):
    return evaluated(first(kernel), "float64")


def central_difference(kernel, direction, step=1e-4):
    """Of `exact`, to the fourth order of the step."""

    def quotients(step):
        shift = step * np.array(direction)
        up, down = (evaluated(first(kernel), "float64", sign * shift) for sign in (1, -1))
        return [(a - b) / (2 * step) for a, b in zip(up, down, strict=True)]

    return [(4 * a - b) / 3 for a, b in zip(quotients(step), quotients(2 * step), strict=True)]


@every_kernel
def test_against_quadrature(kernel, float64):
    loc, scale, other, lengthscale, y = (x[:, None] for x in ROWS.astype("float64").T)

    def expectation(law, kinks, f):
        z, weights = quadrature({"kind": "laplace", **law}, kinks)
        return np.sum(weights * f(z[..., 0]), axis=-1)

    @jax.jit
    @jax.vmap
    def embedding(z, loc, scale, lengthscale):
        p, k = cj.Laplace(loc, scale), KERNELS[kernel](lengthscale)
        return jax.vmap(lambda z: cj.mean_embedding(p, k, z))(z)

    # The embedding of the wider prediction, just verified, under the narrower one: the other way
    # round the nodes would be too far apart.
    swap = scale < other
    centre, width = np.where(swap, y, loc), np.maximum(scale, other)
    narrower = {"loc": np.where(swap, loc, y), "scale": np.minimum(scale, other)}
    wider = centre[:, 0], width[:, 0], lengthscale[:, 0]
    expected = [
        expectation(
            {"loc": loc, "scale": scale}, y, lambda z: PROFILES[kernel]((z - y) / lengthscale)
        ),
        expectation(narrower, centre, lambda z: embedding(z, *wider)),
    ]
    np.testing.assert_allclose(exact(kernel)[0].T, expected, rtol=0, atol=1e-13)


@every_kernel
def test_float32(kernel):
    found, expected = evaluated(first(kernel), "float32"), exact(kernel)
    np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=5e-7)
    np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=1e-5)


@every_kernel
def test_gradients_where_scales_meet(kernel):
    gradient = exact(kernel)[1]
    for i in range(5):
        slope = central_difference(kernel, np.eye(5)[i])[0]
        np.testing.assert_allclose(gradient[MEET, :, i], slope[MEET], rtol=0, atol=1e-10)
    # The distance of equal locations has slope 0, up to the rounding of two equal terms.
    assert np.all(np.abs(gradient[TIES][..., [0, 4]]) < 1e-16)


@every_kernel
@pytest.mark.slow
def test_forward_mode_twice(kernel):
    slope, curvature = evaluated(second(kernel), "float32")
    along = exact(kernel)[1] @ np.array(DIRECTION)
    np.testing.assert_allclose(slope[MEET], along[MEET], rtol=0, atol=1e-5)
    expected = central_difference(kernel, DIRECTION)[1] @ np.array(DIRECTION)
    smooth = MEET & ~TIES
    np.testing.assert_allclose(curvature[smooth], expected[smooth], rtol=0, atol=1e-4)
    # The third derivative jumps at equal locations, so that the difference quotient needs a step
    # that is small beside the scales.
    expected = central_difference(kernel, DIRECTION, step=1e-7)[1] @ np.array(DIRECTION)
    np.testing.assert_allclose(curvature[TIES], expected[TIES], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-3, 0.045])
def test_h_of_narrow_predictions_in_float32(scale):
    # h is of the order of (scale / l)^2, its four terms are of the order of 1.
    rng = np.random.default_rng(0)
    loc, scales = rng.normal(size=24), scale * rng.uniform(0.5, 1, 24)
    y = loc + scales * rng.laplace(size=24)
    rows = [x.astype("float32") for x in (loc, scales, y)]

    def h_and_gradient(dtype):
        def target_part(loc, scales, y, kernel):
            of_pair = jax.vmap(residual_product, in_axes=(None, None, None, 0, 0))
            of_pairs = jax.vmap(of_pair, in_axes=(0, None, 0, None, None))
            h = of_pairs(cj.Laplace(loc, scales), kernel, y, cj.Laplace(loc, scales), y)
            return jnp.sum(h), h

        kernel = cj.GaussianKernel(jnp.ones((), dtype))
        rows_ = [jnp.asarray(x, dtype) for x in rows]
        value = jax.jit(jax.grad(target_part, argnums=(0, 1, 2), has_aux=True))(*rows_, kernel)
        return jax.tree.map(lambda x: np.array(x, float), value)

    with jax.enable_x64(True):
        gradient, exact = h_and_gradient("float64")
    found_gradient, found = h_and_gradient("float32")
    rms = np.sqrt(np.mean(exact**2))
    assert rms < 3 * scale**2
    assert np.max(np.abs(found - exact)) < 1e-3 * rms
    for a, b in zip(found_gradient, gradient, strict=True):
        assert np.max(np.abs(a - b)) < 1e-3 * np.max(np.abs(b))


def test_the_series_for_narrow_predictions_meets_the_closed_form(float64):
    kernel, one = cj.GaussianKernel(1.0), jnp.ones(())
    q = cj.Laplace(0.3 * one, 5e-4 * one)

    @jax.jit
    def h(scale):
        return residual_product(cj.Laplace(0 * one, scale), kernel, 2e-3 * one, q, 0.301 * one)

    # On either side of the border, a hair apart.
    below, above = h(one * 1e-3 * (1 - 1e-9)), h(one * 1e-3 * (1 + 1e-9))
    assert abs(below) > 1e-7
    np.testing.assert_allclose(below, above, rtol=0, atol=1e-14)


@pytest.mark.parametrize("distance", [80.0, 88.0, 700.0, 720.0])
def test_second_derivatives_far_away(distance, dtype):
    # Equal scales, so that the nodes are close however far they are from 0.
    curvature = curvature_of_far_away(*(jnp.asarray(x, dtype) for x in (1.0, distance)))
    # (1 + d + d^2 / 3) e^{-d} / 16 times a polynomial in d: nothing that a float has.
    assert abs(curvature) <= distance**4 * np.exp(-distance) + 1e-30


@jax.jit
@jax.hessian
def curvature_of_far_away(scale, distance):
    p = cj.Laplace(jnp.zeros_like(scale), scale)
    q = cj.Laplace(distance, jnp.ones_like(scale))
    return cj.inner_product(p, cj.LaplacianKernel(1.0), q)


# By golden/extreme_scales.py, with 300 digits: arguments, value and partial derivatives in a row.
TABLES = json.loads((Path(__file__).parent / "golden" / "extreme_scales.json").read_text())

TARGET_KERNELS = {
    "gaussian": cj.GaussianKernel,
    "laplacian": cj.LaplacianKernel,
    "matern32": cj.Matern32Kernel,
    "matern52": cj.Matern52Kernel,
}

laplace_kernels = pytest.mark.parametrize("kernel", TABLES)

# Errors allowed, in units of rounding.  Twice the largest measured.
ROUNDINGS = {"gaussian": 50, "laplacian": 4}


def expectation(kernel, d, *scales):
    """E k for one or two predictions at the distance d, with lengthscale 1."""
    k, zero = TARGET_KERNELS[kernel](jnp.ones_like(d)), jnp.zeros_like(d)
    p, *others = (cj.Laplace(loc, scale) for loc, scale in zip((d, zero), scales, strict=False))
    return cj.inner_product(p, k, *others) if others else cj.mean_embedding(p, k, zero)


def target_part(family, kernel, loc, scale, y, other_loc, other_scale, other_y, lengthscale):
    p, q = family(loc, scale), family(other_loc, other_scale)
    return residual_product(p, TARGET_KERNELS[kernel](lengthscale), y, q, other_y)


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


@pytest.mark.slow
def test_extreme_laplace_scales():
    # Squares and products of these overflow in float32.
    p = cj.Laplace(jnp.float32(0), jnp.float32(7e-15))
    q = cj.Laplace(jnp.float32(2e12), jnp.float32(7e-15))
    value, slopes = jax.value_and_grad(
        lambda p: cj.inner_product(p, cj.LaplacianKernel(jnp.float32(1)), q)
    )(p)
    assert value == 0 and all(jnp.isfinite(x) for x in jax.tree.leaves(slopes))
