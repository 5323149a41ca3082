"""Confidence intervals for the SKCE of few rows, and of few events."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import calibjax as cj

ROWS = (10, 20, 50)
DATA_SETS = 2000
N_RESAMPLES = 199
# All predictions are of one number, which the pairs of a grid of this size stand for.
_GRID = 400

LABELS = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), 0.5), cj.WhiteKernel())
NUMBERS = cj.TensorProduct(cj.DistanceKernel(cj.Wasserstein()), cj.GaussianKernel(1.5))

#: From the levels of rows, in [0, 1], their predictions, and the laws of their targets.
Case = Callable[[jax.Array], tuple[Any, Any]]


def _events(predicted: Callable[[jax.Array], Any], actual: Callable[[jax.Array], Any]) -> Case:
    return lambda u: (cj.Bernoulli(predicted(u)), cj.Bernoulli(jnp.clip(actual(u), 0.0, 1.0)))


def _normal(shift: float) -> Case:
    def case(u: jax.Array) -> tuple[Any, Any]:
        loc = jax.scipy.special.ndtri(jnp.clip(u, 1e-4, 1 - 1e-4))
        return cj.Normal(loc, jnp.ones_like(u)), cj.Normal(loc + shift, jnp.ones_like(u))

    return case


def _constant(value: float) -> Callable[[jax.Array], jax.Array]:
    return lambda u: jnp.full_like(u, value)


def _certain(u: jax.Array) -> jax.Array:
    return jnp.round(u)


CASES: Mapping[str, Case] = {
    "all predictions 0.5, calibrated": _events(_constant(0.5), _constant(0.5)),
    "all predictions 0.5, events of 90 %": _events(_constant(0.5), _constant(0.9)),
    "0 or 1, wrong in 10 %": _events(_certain, lambda u: 0.1 + 0.8 * _certain(u)),
    "0…3 %, calibrated": _events(lambda u: 0.03 * u, lambda u: 0.03 * u),
    "0…3 %, 4 times as many": _events(lambda u: 0.03 * u, lambda u: 0.12 * u),
    "0…100 %, calibrated": _events(lambda u: u, lambda u: u),
    "0…100 %, 20 points more": _events(lambda u: u, lambda u: u + 0.2),
    "normal, calibrated": _normal(0.0),
    "normal, half a deviation off": _normal(0.5),
}


def skce_of(case: Case, kernel: Any) -> float:
    """The mean over pairs of k_P(p, q) <mu(r) - mu(p), mu(s) - mu(q)>, for actual laws r and s."""
    both = case((jnp.arange(_GRID) + 0.5) / _GRID)

    def pair(a: Any, b: Any) -> jax.Array:
        (p, r), (q, s) = a, b

        def inner(x: Any, y: Any) -> jax.Array:
            return cj.inner_product(x, kernel.target_kernel, y)

        difference = inner(r, s) - inner(p, s) - inner(r, q) + inner(p, q)
        return kernel.prediction_kernel(p, q) * difference

    return float(jnp.mean(jax.vmap(jax.vmap(pair, (None, 0)), (0, None))(both, both)))


def misses(name: str, n: int, n_data_sets: int) -> dict[str, float]:
    """How often the interval at 95 % lies above the SKCE and below it."""
    case, kernel = CASES[name], NUMBERS if name.startswith("normal") else LABELS
    truth = skce_of(case, kernel)

    @functools.partial(jax.jit)
    def intervals(keys: jax.Array) -> Any:
        def of_set(key: jax.Array) -> Any:
            rows_key, targets_key, key = jax.random.split(key, 3)
            predictions, actual = case(jax.random.uniform(rows_key, (n,)))
            data = kernel, predictions, actual.sample(targets_key)
            return cj.skce_confidence_interval(key, *data, n_resamples=N_RESAMPLES)

        return jax.lax.map(of_set, keys, batch_size=100)

    low, high = map(np.asarray, intervals(jax.random.split(jax.random.key(5), n_data_sets)))
    # The SKCE of a calibrated model is 0 up to rounding.
    return {
        "above": float(np.mean(low > truth + 1e-6)),
        "below": float(np.mean(high < truth - 1e-6)),
    }
