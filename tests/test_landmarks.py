"""Interpolation from landmarks keeps the digits of float32, also for wide base kernels."""

import jax
import numpy as np

import calibjax as cj
from calibjax.features._landmarks import landmarks_with_base


def test_coordinates_in_float32():
    """Forms on sums of coordinates, compared with those of NumPy in float64."""
    n, size, lengthscale = 190, 128, 0.9
    rng = np.random.default_rng(0)
    p = rng.beta(2, 3, n).astype(np.float32)
    points = p[np.arange(size) * n // size]

    def kernel(x, y):
        return np.exp(-np.abs(x[:, None] - y[None]).astype(np.float64) / lengthscale)

    base = cj.DistanceKernel(cj.TotalVariation(), lengthscale)

    @jax.jit
    def coordinates(points, predictions):
        landmarks = landmarks_with_base(points, np.int32(n), base, True)
        return landmarks.coordinates(predictions, np.arange(n, dtype=np.int32))

    found = np.float64(coordinates(cj.Bernoulli(points), cj.Bernoulli(p)))
    gram = kernel(points, points)
    expected = np.linalg.solve(gram + 1e-6 * np.trace(gram) * np.eye(size), kernel(points, p)).T
    for _ in range(10):
        residuals = rng.normal(size=n)
        g, exact = residuals @ found, residuals @ expected
        np.testing.assert_allclose(g @ gram @ g, exact @ gram @ exact, rtol=1e-4)
