"""Models that are calibrated or wrong in a known way, as functions of a key and n."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import calibjax as cj

#: ``scenario(key, n)`` returns n predictions, and targets that follow another law.
Scenario = Callable[[jax.Array, int], tuple[Any, jax.Array]]

CALIBRATED = "calibrated"


class Setting(NamedTuple):
    """Scenarios with predictions of one family and n rows; the first one is calibrated.

    Args:
        is_t_cal: whether data sets are large, and the number of bins that T-Cal needs is known.
    """

    title: str
    n: int
    scenarios: Mapping[str, Scenario]
    is_t_cal: bool = False


def binary(true_probability: Callable[[jax.Array], jax.Array]) -> Scenario:
    """Probabilities that are uniform on [0, 1], and labels with other probabilities."""

    def scenario(key, n):
        score_key, label_key = jax.random.split(key)
        p = jax.random.uniform(score_key, (n,))
        label = jax.random.uniform(label_key, (n,)) < true_probability(p)
        return cj.Bernoulli(p), label.astype(jnp.int32)

    return scenario


def logit_line(offset: float, slope: float) -> Scenario:
    return binary(lambda p: jax.nn.sigmoid(offset + slope * jax.scipy.special.logit(p)))


def waves(frequency: int) -> Scenario:
    return binary(lambda p: p + 0.5 * jnp.minimum(p, 1 - p) * jnp.sin(2 * jnp.pi * frequency * p))


BINARY = {
    CALIBRATED: binary(lambda p: p),
    "offset of 0.25 logit": logit_line(0.25, 1.0),
    "slope 1.35": logit_line(0.0, 1.35),
    "waves, 1": waves(1),
    "waves, 3": waves(3),
    "waves, 6": waves(6),
    "waves, 12": waves(12),
    "wrong in opposite ways": binary(lambda p: p + 0.4 * jnp.cos(2 * jnp.pi * p) * p * (1 - p)),
    "bump of width 0.05": binary(lambda p: p - 0.25 * jnp.exp(-jnp.square((p - 0.75) / 0.05))),
}

N_CLASSES = 10


def classes(wrong: Callable[[jax.Array, jax.Array], jax.Array]) -> Scenario:
    """Softmax of normal logits, and labels with the probabilities ``wrong(logits, confidence)``."""

    def scenario(key, n):
        logit_key, label_key = jax.random.split(key)
        logits = 1.5 * jax.random.normal(logit_key, (n, N_CLASSES))
        p = jax.nn.softmax(logits)
        true = wrong(logits, jnp.max(p, axis=1))
        labels = jax.random.categorical(label_key, jnp.log(true))
        return cj.Categorical(p), labels.astype(jnp.int32)

    return scenario


def tempered(temperature: Callable[[jax.Array], jax.Array]) -> Scenario:
    """Logits that are `temperature` of the confidence times too large."""
    return classes(lambda logits, top: jax.nn.softmax(logits / temperature(top)[:, None]))


def _too_few_of_class_0(logits: jax.Array, confidence: jax.Array) -> jax.Array:
    q = jax.nn.softmax(logits).at[:, 0].multiply(0.7)
    return q / jnp.sum(q, axis=1, keepdims=True)


def _class_0_is_1(logits: jax.Array, confidence: jax.Array) -> jax.Array:
    q = jax.nn.softmax(logits)
    moved = 0.35 * q[:, 0]
    return q.at[:, 0].add(-moved).at[:, 1].add(moved)


def _wrong_where_sure_of_class_0(logits: jax.Array, confidence: jax.Array) -> jax.Array:
    q = jax.nn.softmax(logits)
    moved = jnp.where(q[:, 0] > 0.6, 0.35 * q[:, 0], 0.0)
    return q.at[:, 0].add(-moved).at[:, 1:].add(moved[:, None] / (N_CLASSES - 1))


_SURE = tempered(lambda top: jnp.where(top > 0.6, 1.6, 1.0))
_OPPOSITE = tempered(lambda top: jnp.where(top > 0.45, 1.3, 0.75))
_TEMPERED = tempered(lambda top: jnp.full_like(top, 1.15))

CLASSES = {
    CALIBRATED: tempered(jnp.ones_like),
    "logits 1.15 times too large": _TEMPERED,
    "too sure above 0.6": _SURE,
    "too sure above 0.45, not sure enough below": _OPPOSITE,
    "30 % too few of a class": classes(_too_few_of_class_0),
    "35 % of a class are another": classes(_class_0_is_1),
    "wrong where sure of a class": classes(_wrong_where_sure_of_class_0),
}
MORE_CLASSES = {
    CALIBRATED: CLASSES[CALIBRATED],
    "logits 1.15 times too large": _TEMPERED,
    "too sure above 0.6": _SURE,
    "too sure above 0.45, not sure enough below": _OPPOSITE,
}


def regression(wrong: Callable[..., jax.Array]) -> Scenario:
    """Normal predictions around a curve; the error is ``wrong(key, x, e)`` deviations, e normal."""

    def scenario(key, n):
        keys = jax.random.split(key, 4)
        x, mean, deviation = _curve(*keys[:2], n)
        error = wrong(keys[2], x, jax.random.normal(keys[3], (n,)))
        return cj.Normal(mean, deviation), mean + deviation * error

    return scenario


def _curve(x_key: jax.Array, deviation_key: jax.Array, n: int):
    x = jax.random.uniform(x_key, (n,), minval=-2.0, maxval=2.0)
    return x, 2 * jnp.sin(x) + x, 0.3 + 0.5 * jax.random.uniform(deviation_key, (n,))


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


def counts(draw: Callable[[jax.Array, jax.Array], jax.Array]) -> Scenario:
    """Poisson predictions of rates from 0.5 to 8, and counts ``draw(key, rate)``."""

    def scenario(key, n):
        rate_key, count_key = jax.random.split(key)
        rate = 0.5 * 16 ** jax.random.uniform(rate_key, (n,))
        return cj.Poisson(rate, max_count=64), draw(count_key, rate).astype(jnp.int32)

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
    is_zero = jax.random.bernoulli(zero_key, 0.04, rate.shape)
    return jnp.where(is_zero, 0, jax.random.poisson(count_key, rate))


COUNTS = {
    CALIBRATED: counts(jax.random.poisson),
    "rates 7 % too small": counts(lambda key, rate: jax.random.poisson(key, 1.07 * rate)),
    "over-dispersed": over_dispersed(lambda rate: jnp.full_like(rate, 12.0)),
    "over-dispersed above 4": over_dispersed(lambda rate: jnp.where(rate > 4, 10.0, 1e4)),
    "under-dispersed": counts(_binomial),
    "4 % are 0": counts(_with_zeros),
}

N_SAMPLES = 10


def ensemble(wrong: Callable[[jax.Array, jax.Array], tuple[Any, Any]]) -> Scenario:
    """Samples of normal laws; ``wrong(x, e)`` gives the spread of samples and the error."""

    def scenario(key, n):
        keys = jax.random.split(key, 4)
        x, mean, deviation = _curve(*keys[:2], n)
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


def bumps(n_bumps: int) -> Scenario:
    """The true probabilities of T-Cal's experiment: bumps of a Hölder-smooth curve in the middle.

    z + rho m^-s zeta(frac(u)) (-1)^floor(u) with u = 2 m (z - 1/4) for z in [1/4, 3/4], where
    zeta(x) = exp(-1 / (x (1 - x))), rho = 100 and s = 0.6.

    Source: Lee, Huang, Hassani and Dobriban, T-Cal: an optimal test for the calibration of
    predictive models, JMLR 2023.
    """

    def true_probability(z):
        u = 2 * n_bumps * (z - 0.25)
        x = u - jnp.floor(u)
        inner = x * (1 - x)
        bump = jnp.where(inner > 0, jnp.exp(-1 / jnp.where(inner > 0, inner, 1.0)), 0.0)
        sign = 1 - 2 * (jnp.floor(u) % 2)
        inside = (z >= 0.25) & (z <= 0.75)
        return jnp.where(inside, z + 100 * n_bumps**-0.6 * bump * sign, z)

    return binary(true_probability)


BUMPS = {CALIBRATED: BINARY[CALIBRATED]} | {
    f"{m} bumps": bumps(m) for m in (40, 70, 100, 130, 160, 190)
}

SETTINGS = {
    "binary": Setting("Probabilities of two classes", 400, BINARY),
    "classes": Setting("Ten classes", 400, CLASSES),
    "classes_1000": Setting("Ten classes, more rows", 1000, MORE_CLASSES),
    "regression": Setting("Normal predictions", 400, REGRESSION),
    "counts": Setting("Poisson predictions", 400, COUNTS),
    "samples": Setting(f"Ensembles of {N_SAMPLES}", 400, SAMPLES),
    "t_cal_2000": Setting("The bumps of T-Cal", 2000, BUMPS, is_t_cal=True),
    "t_cal_5000": Setting("The bumps of T-Cal", 5000, BUMPS, is_t_cal=True),
    "t_cal_10000": Setting("The bumps of T-Cal", 10_000, BUMPS, is_t_cal=True),
}
