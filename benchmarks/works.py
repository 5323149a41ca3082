"""The work that is measured, ours and that of the peers; each function returns a call."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from scipy.spatial.distance import pdist, squareform

import calibjax as cj

LENGTHSCALE = 0.5
LABEL_KERNEL = cj.TensorProduct(
    cj.DistanceKernel(cj.TotalVariation(), LENGTHSCALE), cj.WhiteKernel()
)
NORMAL_KERNEL = cj.TensorProduct(cj.DistanceKernel(cj.Wasserstein()), cj.GaussianKernel(1.0))


def label_data(n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities ``[n, m]`` and labels drawn from them: a calibrated classifier."""
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(m), n).astype(np.float32)
    labels = (rng.random((n, 1)) > np.cumsum(probs, axis=1)).sum(axis=1)
    return probs, np.minimum(labels, m - 1).astype(np.int32)


def real_data(*shape: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means, standard deviations and targets drawn from them."""
    rng = np.random.default_rng(0)
    loc, noise = rng.normal(size=(2, *shape))
    scale = rng.uniform(0.3, 2.0, shape)
    targets = loc + scale * noise
    return loc.astype(np.float32), scale.astype(np.float32), targets.astype(np.float32)


def skce_of_probs(probs: jax.Array, labels: jax.Array, block_size: int | None = None) -> jax.Array:
    return cj.skce(LABEL_KERNEL, cj.Categorical(probs), labels, block_size=block_size)


def skce(
    n: int, m: int, block_size: int | None = None, gradient: bool = False, jitted: bool = False
):
    """Ours, as a user calls it; with `gradient` the jitted value and gradient in the probs."""
    function = functools.partial(skce_of_probs, block_size=block_size)
    if gradient:
        function = jax.value_and_grad(function)
    if gradient or jitted:
        function = jax.jit(function)
    return functools.partial(function, *map(jnp.asarray, label_data(n, m)))


def skce_by_vmap(n: int, m: int):
    """Peer: h of one pair, vmapped twice, and its mean off the diagonal."""

    def h(p, y, q, z):
        residuals = (y == z) - p[z] - q[y] + jnp.dot(p, q)
        return jnp.exp(-0.5 * jnp.sum(jnp.abs(p - q)) / LENGTHSCALE) * residuals

    @jax.jit
    def mean(probs, labels):
        matrix = jax.vmap(jax.vmap(h, (None, None, 0, 0)), (0, 0, None, None))
        values = matrix(probs, labels, probs, labels)
        return (jnp.sum(values) - jnp.trace(values)) / (n * (n - 1))

    return functools.partial(mean, *map(jnp.asarray, label_data(n, m)))


def skce_by_scipy(n: int, m: int, rowwise: bool = False):
    """Peer: distances by pdist, residuals by BLAS, their product and its sum.

    As one writes it, with square matrices; or `rowwise`, without ever making the triangle square.
    """
    probs, labels = label_data(n, m)

    def mean():
        kernel = pdist(probs, "cityblock")
        kernel *= -0.5 / LENGTHSCALE
        np.exp(kernel, out=kernel)
        residuals = np.eye(m, dtype=probs.dtype)[labels] - probs
        gram = residuals @ residuals.T
        if not rowwise:
            return np.sum(squareform(kernel) * gram) / (n * (n - 1))
        total, start = 0.0, 0
        for i in range(n - 1):
            stop = start + n - 1 - i
            total += kernel[start:stop] @ gram[i, i + 1 :]
            start = stop
        return 2 * total / (n * (n - 1))

    return mean


def normal_skce(n: int):
    """Ours, for Normal predictions with a Gaussian kernel."""
    loc, scale, targets = map(jnp.asarray, real_data(n))
    return lambda: cj.skce(NORMAL_KERNEL, cj.Normal(loc, scale), targets)


def plain_residual(p_loc, p_scale, y, q_loc, q_scale, z):
    """The textbook: four exponentials.  For small scales nothing but rounding is left of them."""
    p_variance, q_variance = 1 + p_scale**2, 1 + q_scale**2

    def term(d, variance):
        return jnp.exp(-(d**2) / (2 * variance)) * lax.rsqrt(variance)

    between = term(p_loc - q_loc, p_variance + q_variance - 1)
    return (
        jnp.exp(-((y - z) ** 2) / 2)
        - term(p_loc - z, p_variance)
        - (term(q_loc - y, q_variance) - between)
    )


def stable_residual(p_loc, p_scale, y, q_loc, q_scale, z):
    """The same without cancellation: what y and p differ by at z, less the same at q."""

    def target_minus_mean(m, v):
        rate = 1 / (1 + v)
        widening = p_scale**2 * rate
        shrinking = 1 / (1 + widening)
        d, t = p_loc - m, y - m
        exact = d**2 * (widening * shrinking) + (y - p_loc) * (t + d)
        exponent = jnp.where(d**2 < 16, exact, t**2 - d**2 * shrinking)
        log_ratio = exponent * rate / 2 - jnp.log1p(widening) / 2
        log_target = -(t**2) * rate / 2 - jnp.log1p(v) / 2
        log_mean = -(d**2) * shrinking * rate / 2 - jnp.log1p(widening) / 2 - jnp.log1p(v) / 2
        positive = log_ratio > 0
        difference = jnp.expm1(jnp.where(positive, -log_ratio, log_ratio))
        larger = jnp.exp(jnp.where(positive, log_mean, log_target))
        return larger * jnp.where(positive, difference, -difference)

    return target_minus_mean(z, jnp.zeros_like(z)) - target_minus_mean(q_loc, q_scale**2)


def normal_by_hand(n: int, residual: Callable[..., jax.Array], tile_rows: int = 512):
    """Peer: a loop over tiles of the upper triangle, with one fused expression in each."""
    rows = tuple(map(jnp.asarray, real_data(n)))
    size = min(n, tile_rows)
    index = jnp.arange(n)

    @jax.jit
    def mean(rows):
        def step(total, tile):
            def cut(x, i):
                return lax.dynamic_slice(x, (i * size,), (size,))

            ours, theirs = (jax.tree.map(lambda x, i=i: cut(x, i), (*rows, index)) for i in tile)
            p_loc, p_scale, y, i = (x[:, None] for x in ours)
            q_loc, q_scale, z, j = (x[None, :] for x in theirs)
            distance = jnp.sqrt((p_loc - q_loc) ** 2 + (p_scale - q_scale) ** 2)
            h = jnp.exp(-distance) * residual(p_loc, p_scale, y, q_loc, q_scale, z)
            each_pair_twice = jnp.where(tile[0] == tile[1], 1.0, 2.0)
            return total + each_pair_twice * jnp.sum(jnp.where(i == j, 0.0, h)), None

        tiles = tuple(map(jnp.asarray, np.triu_indices(n // size)))
        return lax.scan(step, jnp.zeros(()), tiles)[0] / (n * (n - 1))

    return functools.partial(mean, rows)


def training_steps(batch: int, m: int) -> dict[str, Callable[[], Any]]:
    """A training step of a small convolutional network, without and with the penalty."""
    keys = jax.random.split(jax.random.key(0), 6)
    shapes = {"conv1": (3, 3, 1, 32), "conv2": (3, 3, 32, 64), "dense": (7 * 7 * 64, m)}
    parameters = {
        name: jax.random.normal(key, shape) / np.sqrt(np.prod(shape[:-1]))
        for key, (name, shape) in zip(keys, shapes.items(), strict=False)
    }
    images = jax.random.normal(keys[4], (batch, 28, 28, 1))
    labels = jax.random.randint(keys[5], (batch,), 0, m)
    optimizer = optax.adam(1e-3)

    def logits_of(parameters):
        x = images
        for name in ("conv1", "conv2"):
            x = lax.conv_general_dilated(
                x, parameters[name], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = jax.nn.relu(x).reshape(batch, x.shape[1] // 2, 2, x.shape[2] // 2, 2, -1)
            x = x.max(axis=(2, 4))
        return x.reshape(batch, -1) @ parameters["dense"]

    def step(weight, parameters, state):
        def loss(parameters):
            logits = logits_of(parameters)
            nll = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
            if not weight:
                return nll
            return nll + weight * cj.skce(LABEL_KERNEL, cj.Categorical.from_logits(logits), labels)

        value, gradient = jax.value_and_grad(loss)(parameters)
        updates, state = optimizer.update(gradient, state)
        return value, optax.apply_updates(parameters, updates), state

    state = optimizer.init(parameters)
    return {
        name: functools.partial(jax.jit(functools.partial(step, weight)), parameters, state)
        for name, weight in (("without", 0.0), ("with", 1.0))
    }


def bootstrap_test(n: int, m: int, n_resamples: int):
    """The bootstrap test of classes, with H and the draws in it."""
    probs, labels = map(jnp.asarray, label_data(n, m))
    arguments = jax.random.key(0), LABEL_KERNEL, cj.Categorical(probs), labels
    return lambda: cj.asymptotic_skce_test(*arguments, n_resamples=n_resamples).pvalue


def bootstrap_test_by_numpy(n: int, m: int, n_resamples: int):
    """Peer: the same products of matrices with BLAS, counts by bincount."""
    probs, labels = label_data(n, m)
    residuals = np.eye(m, dtype=np.float32)[labels] - probs

    def test():
        rng = np.random.default_rng(0)
        total_variation = squareform(pdist(probs, "cityblock").astype(np.float32)) / 2
        matrix = np.exp(-total_variation / LENGTHSCALE) * (residuals @ residuals.T)
        diagonal = np.diagonal(matrix)
        counts = np.empty((n_resamples, n), np.float32)
        for row in counts:
            row[:] = np.bincount(rng.integers(n, size=n), minlength=n)
        twice = np.sum(counts @ matrix * counts, axis=1) - counts @ diagonal
        draws = (n / (n - 1) * twice - 2 * (counts @ np.sum(matrix, axis=1))) / n**2
        total, trace = np.sum(matrix), np.sum(diagonal)
        statistic = (total - trace) / (n - 1) ** 2 - total / n**2
        return (1 + np.sum(draws >= statistic)) / (1 + n_resamples)

    return test


def normal_bootstrap_test(n: int, n_resamples: int):
    """The bootstrap test of normal predictions, with H and the draws in it."""
    loc, scale, targets = map(jnp.asarray, real_data(n))
    arguments = jax.random.key(0), NORMAL_KERNEL, cj.Normal(loc, scale), targets
    return lambda: cj.asymptotic_skce_test(*arguments, n_resamples=n_resamples).pvalue


def hypothesis_tests(n: int, m: int) -> dict[str, Callable[[], jax.Array]]:
    """Each test, with 1000 draws where it draws, and blocks of sqrt(n)."""
    probs, labels = map(jnp.asarray, label_data(n, m))
    predictions, key = cj.Categorical(probs), jax.random.key(0)
    data = LABEL_KERNEL, predictions, labels
    locations = cj.sample_test_locations(key, predictions, 10)
    estimator = jax.tree_util.Partial(cj.skce, LABEL_KERNEL)

    def asymptotic(method):
        return lambda: cj.asymptotic_skce_test(key, *data, method=method).pvalue

    tests = {
        "bootstrap": asymptotic("bootstrap"),
        "gamma": asymptotic("gamma"),
        "blocks of 2": lambda: cj.asymptotic_block_skce_test(*data).pvalue,
        "blocks of sqrt(n)": lambda: (
            cj.asymptotic_block_skce_test(*data, block_size=math.isqrt(n)).pvalue
        ),
        "cme, 10 locations": lambda: cj.asymptotic_cme_test(*data, *locations).pvalue,
        "distribution-free": lambda: cj.distribution_free_skce_test(*data).pvalue,
    }
    if n <= 1024:
        tests["spectrum"] = asymptotic("spectrum")
        tests["pearson"] = asymptotic("pearson")
        tests["consistency"] = lambda: cj.consistency_test(key, estimator, *data[1:]).pvalue
    return tests


def families(n: int) -> dict[str, tuple[Callable[[Any], jax.Array], Any]]:
    """For each pair of a family and a target kernel: skce of its predictions, and predictions."""
    probs, labels = map(jnp.asarray, label_data(n, 10))
    loc, scale, targets = map(jnp.asarray, real_data(n))
    locs, scales, vectors = map(jnp.asarray, real_data(n, 3))
    total_variation = cj.DistanceKernel(cj.TotalVariation())
    wasserstein = cj.DistanceKernel(cj.Wasserstein())
    cases = {
        "Categorical, White": (total_variation, cj.WhiteKernel(), cj.Categorical(probs), labels),
        "Bernoulli, White": (
            total_variation,
            cj.WhiteKernel(),
            cj.Bernoulli(probs[:, 0]),
            (labels == 0).astype(jnp.int32),
        ),
        **{
            f"Normal, {name}": (wasserstein, kernel, cj.Normal(loc, scale), targets)
            for name, kernel in {
                "Gaussian": cj.GaussianKernel(1.0),
                "Laplacian": cj.LaplacianKernel(1.0),
                "Matern 5/2": cj.Matern52Kernel(1.0),
            }.items()
        },
        "MultivariateNormalDiag, Gaussian": (
            wasserstein,
            cj.GaussianKernel(1.0),
            cj.MultivariateNormalDiag(locs, scales),
            vectors,
        ),
    }

    def of(kernel, targets):
        return lambda predictions: cj.skce(kernel, predictions, targets)

    return {
        name: (of(cj.TensorProduct(prediction_kernel, target_kernel), targets), predictions)
        for name, (prediction_kernel, target_kernel, predictions, targets) in cases.items()
    }
