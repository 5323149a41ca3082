"""Confidence intervals for the SKCE of models whose SKCE is known."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import calibjax as cj

POOL = 200
LEVELS = (0.9, 0.95)
#: The lengthscale of the kernel on predictions in units of that of `product_kernel`.
KERNELS = {"wide": 4.0, "narrow": 0.125}
#: The number of data sets for each number of rows.
DATA_SETS = {50: 500, 300: 150, 3000: 30}
N_RESAMPLES = 399

# The SKCE, in units of t / n, t / sqrt(n), or alone, where t = E h_ii: t / n is the mean squared
# error of the mean function if the model is calibrated.
STRENGTHS = {
    "0": lambda n, t: 0.0,
    "0.3 t/n": lambda n, t: 0.3 * t / n,
    "1 t/n": lambda n, t: t / n,
    "3 t/n": lambda n, t: 3 * t / n,
    "0.3 t/√n": lambda n, t: 0.3 * t / np.sqrt(n),
    "0.01": lambda n, t: 0.01,
    "largest": lambda n, t: np.inf,
}
_FEW_STRENGTHS = ("0", "0.3 t/n", "1 t/n", "largest")


class Pool(NamedTuple):
    """Predictions, laws of targets that differ from them, and a kernel."""

    predictions: Any
    alternative: Any
    kernel: Any


def _family(name: str) -> tuple[Any, Any]:
    """Predictions of the pool, and the laws of targets where the model is wrong most."""
    rng = np.random.default_rng(5)
    loc, scale = rng.normal(size=(POOL, 1)), rng.uniform(0.5, 1.5, (POOL, 1))
    match name:
        case "Bernoulli":
            probs = rng.uniform(0.03, 0.97, POOL)
            pair = cj.Bernoulli(probs), cj.Bernoulli(np.clip(probs + 0.3, 0, 1))
        case "10 classes":
            logits = 1.5 * rng.normal(size=(POOL, 10))
            softmax = functools.partial(jax.nn.softmax, axis=1)
            pair = cj.Categorical(softmax(logits)), cj.Categorical(softmax(-logits))
        case "normal":
            pair = cj.Normal(loc[:, 0], scale[:, 0]), cj.Normal(loc[:, 0] + 0.7, 0.6 * scale[:, 0])
        case "Poisson":
            rate = rng.uniform(0.5, 5.0, POOL)
            pair = cj.Poisson(rate, max_count=64), cj.Poisson(1.6 * rate, max_count=64)
        case _:
            samples = loc + scale * rng.normal(size=(POOL, 5))
            pair = cj.Empirical(samples), cj.Empirical(0.5 * samples + 0.7)
    return jax.tree.map(jnp.asarray, jax.tree.map(np.float32, pair))


FAMILIES = ("Bernoulli", "10 classes", "normal", "Poisson", "5 samples")


def pool_of(family: str, kernel: str) -> Pool:
    """The pool with the product kernel, but for the lengthscale between predictions."""
    predictions, alternative = _family(family)
    product: Any = cj.product_kernel(predictions)
    usual = product.prediction_kernel
    between = cj.DistanceKernel(usual.distance, KERNELS[kernel] * usual.lengthscale)
    return Pool(predictions, alternative, cj.TensorProduct(between, product.target_kernel))


@jax.jit
def skce_of_alternative(pool: Pool) -> jax.Array:
    """The SKCE if all targets follow the alternative: a mean over pairs of the pool."""
    kernel = pool.kernel

    def pair(a: Any, b: Any) -> jax.Array:
        def inner(p: Any, q: Any) -> jax.Array:
            return cj.inner_product(p, kernel.target_kernel, q)

        (p, r), (q, s) = a, b
        difference = inner(r, s) - inner(p, s) - inner(r, q) + inner(p, q)
        return kernel.prediction_kernel(p, q) * difference

    both = pool.predictions, pool.alternative
    rows = jax.lax.map(lambda a: jnp.mean(jax.vmap(pair, (None, 0))(a, both)), both)
    return jnp.mean(rows)


def _data(pool: Pool, key: jax.Array, n: int, strength: jax.Array) -> tuple[Any, jax.Array]:
    """Targets follow the alternative with the probability `strength`, else the prediction.

    The SKCE is strength^2 times the SKCE of the alternative.
    """
    keys = jax.random.split(key, 4)
    rows = jax.random.randint(keys[0], (n,), 0, POOL)
    predictions, other = (jax.tree.map(lambda x: x[rows], p) for p in pool[:2])
    is_wrong = jax.random.uniform(keys[1], (n,)) < strength
    return predictions, jnp.where(is_wrong, other.sample(keys[2]), predictions.sample(keys[3]))


@functools.partial(jax.jit, static_argnames="n")
def _intervals(pool: Pool, keys: jax.Array, n: int, strength: jax.Array) -> dict[str, Any]:
    levels = jnp.asarray(LEVELS)
    z = -jax.scipy.special.ndtri((1 - levels) / 2)

    def of_set(key: jax.Array) -> dict[str, Any]:
        data_key, key = jax.random.split(key)
        predictions, targets = _data(pool, data_key, n, strength)
        data = pool.kernel, predictions, targets
        interval = cj.skce_confidence_interval(
            key, *data, confidence_level=levels, n_resamples=N_RESAMPLES
        )
        test = cj.asymptotic_skce_test(key, *data, method="gamma")
        ends = (test.estimate + sign * z * test.standard_error for sign in (-1, 1))
        blocks = cj.asymptotic_block_skce_test(*data, block_size=int(n**0.5))
        return {
            "ours": interval,
            "Hájek": tuple(jnp.maximum(x, 0.0) for x in ends),
            "blocks": blocks.confidence_interval(levels),
        }

    return jax.lax.map(of_set, keys)


def cases() -> list[tuple[str, str, int, str]]:
    """All (family, kernel, n, strength)."""
    return [
        (family, kernel, n, strength)
        for n in DATA_SETS
        for family in FAMILIES
        for kernel in KERNELS
        # Kernels of samples take the time of all pairs of samples.
        if family != "5 samples" or n == 50
        for strength in (STRENGTHS if n < 3000 and family != "5 samples" else _FEW_STRENGTHS)
    ]


def coverage(
    family: str, kernel: str, n: int, strength: str, n_data_sets: int
) -> dict[str, Any] | None:
    """The rates at which intervals contain the SKCE, and their median widths at 95 %, by name.

    Widths and the SKCE are in units of t / n.  None if no SKCE of this family is so large.
    """
    pool = pool_of(family, kernel)
    largest = float(skce_of_alternative(pool))
    calibrated = _data(pool, jax.random.key(1), 1000, jnp.asarray(0.0))
    unit = float(jnp.mean(jnp.diagonal(cj.h_matrix(pool.kernel, *calibrated))))
    share = min(1.0, STRENGTHS[strength](n, unit) / largest)
    if share == 1 and strength != "largest":
        return None
    truth = share * largest
    keys = jax.random.split(jax.random.key(20261122), n_data_sets)
    found = _intervals(pool, keys, n, jnp.asarray(share**0.5))
    result: dict[str, Any] = {"n_data_sets": n_data_sets, "skce": truth * n / unit}
    for name, (lows, highs) in jax.tree.map(np.asarray, found).items():
        covered = (lows <= truth) & (truth <= highs)
        width = np.median(highs[:, -1] - lows[:, -1]) * n / unit
        result[name] = {"coverage": covered.mean(axis=0).tolist(), "width": float(width)}
        result[name]["certificate"] = (truth <= highs).mean(axis=0).tolist()
    return result
