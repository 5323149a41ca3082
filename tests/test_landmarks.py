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
        rows = np.arange(n, dtype=np.int32)
        return landmarks.coordinates(predictions, rows), landmarks.matrix(base)

    found, form = map(np.float64, coordinates(cj.Bernoulli(points), cj.Bernoulli(p)))
    gram = kernel(points, points)
    expected = np.linalg.solve(gram + 1e-6 * np.trace(gram) * np.eye(size), kernel(points, p)).T
    for _ in range(10):
        residuals = rng.normal(size=n)
        g, exact = residuals @ found, residuals @ expected
        np.testing.assert_allclose(g @ form @ g, exact @ gram @ exact, rtol=1e-4)


def test_predictions_that_differ_in_their_last_digits():
    """Float32 has some hundred numbers in this range, and distances below two of them are 0.

    That makes the base kernel indefinite, and its Cholesky factor NaN.
    """
    n, size = 190, 128
    p = (1 - 1e-5 * np.random.default_rng(0).random(n)).astype(np.float32)
    base = cj.DistanceKernel(cj.EmbeddingDistance(lambda prediction: prediction.probs), 1e-7)

    @jax.jit
    def coordinates(points, predictions):
        landmarks = landmarks_with_base(points, np.int32(n), base, True)
        gram = landmarks.matrix(base)
        return landmarks.coordinates(predictions, np.arange(n, dtype=np.int32)), gram

    points = p[np.arange(size) * n // size]
    found, gram = map(np.asarray, coordinates(cj.Bernoulli(points), cj.Bernoulli(p)))
    assert np.linalg.eigvalsh(gram).min() < -1e-6 * size
    # Coordinates of a narrow kernel are between 0 and 1, up to a few.
    assert np.abs(found).max() < 3
