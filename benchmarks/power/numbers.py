"""Scenarios with numbers and counts: models that are calibrated or wrong in a known way."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import calibjax as cj
from benchmarks.power.scenario import CALIBRATED, Scenario

#: ``rows(x_key, deviation_key, n)`` gives where n predictions are, in [-2, 2], their means, and
#: their deviations.
Rows = Callable[[jax.Array, jax.Array, int], tuple[jax.Array, jax.Array, jax.Array]]


def _curve(x_key: jax.Array, deviation_key: jax.Array, n: int):
    x = jax.random.uniform(x_key, (n,), minval=-2.0, maxval=2.0)
    return x, 2 * jnp.sin(x) + x, 0.3 + 0.5 * jax.random.uniform(deviation_key, (n,))


def _decades(x_key: jax.Array, deviation_key: jax.Array, n: int):
    """Means from 0.01 to 100, and deviations of 10 to 30 % of them."""
    x = jax.random.uniform(x_key, (n,), minval=-2.0, maxval=2.0)
    mean = 10.0**x
    return x, mean, mean * (0.1 + 0.2 * jax.random.uniform(deviation_key, (n,)))


def regression(wrong: Callable[..., jax.Array], rows: Rows = _curve) -> Scenario:
    """Normal predictions around a curve; the error is ``wrong(key, x, e)`` deviations, e normal."""

    def scenario(key, n):
        keys = jax.random.split(key, 4)
        x, mean, deviation = rows(*keys[:2], n)
        error = wrong(keys[2], x, jax.random.normal(keys[3], (n,)))
        return cj.Normal(mean, deviation), mean + deviation * error

    return scenario


REGRESSION = {
    CALIBRATED: regression(lambda key, x, e: e),
    "bias of 0.12 deviations": regression(lambda key, x, e: e + 0.12),
    "local bias": regression(lambda key, x, e: e + 0.3 * jnp.sin(3 * x)),
    "deviations 10 % too small": regression(lambda key, x, e: 1.1 * e),
    "deviations locally wrong": regression(lambda key, x, e: (1 + 0.3 * jnp.sin(2 * x)) * e),
    "heavy tails, t of 4": regression(
        lambda key, x, e: jax.random.t(key, 4.0, e.shape) / jnp.sqrt(2.0)
    ),
    "skew, gamma of 8": regression(
        lambda key, x, e: (jax.random.gamma(key, 8.0, e.shape) - 8) / jnp.sqrt(8.0)
    ),
    "two modes": regression(
        lambda key, x, e: 0.85 * jax.random.rademacher(key, e.shape) + 0.527 * e
    ),
}

REGRESSION_DECADES = {
    CALIBRATED: regression(lambda key, x, e: e, _decades),
    "bias of 0.2 deviations": regression(lambda key, x, e: e + 0.2, _decades),
    "bias of 0.4 deviations below 1": regression(lambda key, x, e: e + 0.4 * (x < 0), _decades),
    "local bias": regression(lambda key, x, e: e + 0.3 * jnp.sin(3 * x), _decades),
    "deviations 10 % too small": regression(lambda key, x, e: 1.1 * e, _decades),
    "deviations locally wrong": regression(
        lambda key, x, e: (1 + 0.3 * jnp.sin(2 * x)) * e, _decades
    ),
}


def counts(
    draw: Callable[[jax.Array, jax.Array], jax.Array], ratio: float = 16, max_count: int = 64
) -> Scenario:
    """Poisson predictions of rates from 0.5 to 0.5 ratio, and counts ``draw(key, rate)``."""

    def scenario(key, n):
        rate_key, count_key = jax.random.split(key)
        rate = 0.5 * ratio ** jax.random.uniform(rate_key, (n,))
        return cj.Poisson(rate, max_count=max_count), draw(count_key, rate).astype(jnp.int32)

    return scenario


def over_dispersed(size: Callable[[jax.Array], jax.Array]) -> Scenario:
    """Negative binomial counts of variance rate + rate^2 / size(rate)."""

    def draw(key, rate):
        gamma_key, count_key = jax.random.split(key)
        shape = size(rate)
        return jax.random.poisson(count_key, rate * jax.random.gamma(gamma_key, shape) / shape)

    return counts(draw)


def _binomial(key: jax.Array, rate: jax.Array) -> jax.Array:
    size = jnp.ceil(4 * rate)
    return jax.random.binomial(key, size, rate / size)


def _with_zeros(key: jax.Array, rate: jax.Array) -> jax.Array:
    zero_key, count_key = jax.random.split(key)
    is_zero = jax.random.bernoulli(zero_key, 0.06, rate.shape)
    return jnp.where(is_zero, 0, jax.random.poisson(count_key, rate))


COUNTS = {
    CALIBRATED: counts(jax.random.poisson),
    "rates 7 % too small": counts(lambda key, rate: jax.random.poisson(key, 1.07 * rate)),
    "over-dispersed": over_dispersed(lambda rate: jnp.full_like(rate, 12.0)),
    "over-dispersed above 4": over_dispersed(lambda rate: jnp.where(rate > 4, 10.0, 1e4)),
    "under-dispersed": counts(_binomial),
    "6 % are 0": counts(_with_zeros),
}

_of_decades = functools.partial(counts, ratio=1e4, max_count=6000)


def _with_factor(sigma: Callable[[jax.Array], jax.Array]) -> Callable[..., jax.Array]:
    """Counts whose rates are those predicted times log-normal factors of mean 1."""

    def draw(key, rate):
        factor_key, count_key = jax.random.split(key)
        s = sigma(rate)
        factor = jnp.exp(s * jax.random.normal(factor_key, rate.shape) - s**2 / 2)
        return jax.random.poisson(count_key, rate * factor)

    return draw


COUNTS_DECADES = {
    CALIBRATED: _of_decades(jax.random.poisson),
    "too small by 0.2 roots of the rates": _of_decades(
        lambda key, rate: jax.random.poisson(key, rate + 0.2 * jnp.sqrt(rate))
    ),
    "rates below 50 are 7 % too small": _of_decades(
        lambda key, rate: jax.random.poisson(key, jnp.where(rate < 50, 1.07, 1.0) * rate)
    ),
    "over-dispersed below 50": _of_decades(
        _with_factor(lambda rate: jnp.where(rate < 50, 0.25, 0.0))
    ),
    "variances 25 % too small": _of_decades(
        _with_factor(lambda rate: jnp.sqrt(jnp.log1p(0.25 / rate)))
    ),
}

N_SAMPLES = 10


def ensemble(
    wrong: Callable[[jax.Array, jax.Array], tuple[Any, Any]], rows: Rows = _curve
) -> Scenario:
    """Samples of normal laws; ``wrong(x, e)`` gives the spread of samples and the error."""

    def scenario(key, n):
        keys = jax.random.split(key, 4)
        x, mean, deviation = rows(*keys[:2], n)
        spread, error = wrong(x, jax.random.normal(keys[3], (n,)))
        draws = spread * jax.random.normal(keys[2], (N_SAMPLES, n))
        return cj.Empirical((mean + deviation * draws).T), mean + deviation * error

    return scenario


SAMPLES = {
    CALIBRATED: ensemble(lambda x, e: (1.0, e)),
    "under-dispersed, 0.85": ensemble(lambda x, e: (0.85, e)),
    "over-dispersed, 1.2": ensemble(lambda x, e: (1.2, e)),
    "locally under- and over-dispersed": ensemble(lambda x, e: (1 + 0.3 * jnp.sin(2 * x), e)),
    "bias of 0.15 deviations": ensemble(lambda x, e: (1.0, e + 0.15)),
    "local bias": ensemble(lambda x, e: (1.0, e + 0.35 * jnp.sin(3 * x))),
}

SAMPLES_DECADES = {
    CALIBRATED: ensemble(lambda x, e: (1.0, e), _decades),
    "under-dispersed, 0.85": ensemble(lambda x, e: (0.85, e), _decades),
    "locally under- and over-dispersed": ensemble(
        lambda x, e: (1 + 0.3 * jnp.sin(2 * x), e), _decades
    ),
    "bias of 0.2 deviations": ensemble(lambda x, e: (1.0, e + 0.2), _decades),
    "bias of 0.4 deviations below 1": ensemble(lambda x, e: (1.0, e + 0.4 * (x < 0)), _decades),
    "local bias": ensemble(lambda x, e: (1.0, e + 0.35 * jnp.sin(3 * x)), _decades),
}
