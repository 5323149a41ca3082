"""Scenarios with labels: models that are calibrated or wrong in a known way."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

import calibjax as cj
from benchmarks.power.scenario import CALIBRATED, Scenario


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
    "wrong in opposite ways": binary(lambda p: p + 0.7 * jnp.cos(2 * jnp.pi * p) * p * (1 - p)),
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
    "over-confident above 0.6": _SURE,
    "over-confident above 0.45, unsure below": _OPPOSITE,
    "30 % too few of a class": classes(_too_few_of_class_0),
    "35 % of a class are another": classes(_class_0_is_1),
    "wrong where sure of a class": classes(_wrong_where_sure_of_class_0),
}
MORE_CLASSES = {
    CALIBRATED: CLASSES[CALIBRATED],
    "logits 1.15 times too large": _TEMPERED,
    "over-confident above 0.6": _SURE,
    "over-confident above 0.45, unsure below": _OPPOSITE,
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
