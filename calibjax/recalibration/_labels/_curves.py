"""Steps that look at each class alone: one curve for two classes, else one against the rest."""

from types import ModuleType

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._numbers import ArrayT
from calibjax._struct import struct
from calibjax.recalibration._labels._steps import Numbers
from calibjax.recalibration._splines import natural_spline

#: How far from 1 the other classes tell probabilities apart.
SMALL = 2.0**-10
END = 1 - SMALL
#: Smaller probabilities, and rests, are one: scores are positive, and what is near is a factor.
LEAST = 1e-30


@struct
class BetaCurve:
    """logit q = c + a ln p - b ln(1 - p), with coefficients (c, a, b) of each curve ``[c, 3]``."""

    coefficients: Numbers

    def __call__(self, probs: jax.Array) -> jax.Array:
        p, rest = of_curves(jnp, probs)
        c, a, b = jnp.asarray(self.coefficients).T[:, None]
        return from_logits(c + a * jnp.log(p) - b * jnp.log(rest))


@struct
class QuadraticCurve:
    """logit q = c + a l + b l^2 with l = logit p, and coefficients (c, a, b) ``[c, 3]``."""

    coefficients: Numbers

    def __call__(self, probs: jax.Array) -> jax.Array:
        x = log_odds(jnp, probs)
        c, a, b = jnp.asarray(self.coefficients).T[:, None]
        return from_logits(c + a * x + b * jnp.square(x))


@struct
class SplineCurve:
    """logit q a natural cubic spline of logit p: values and curvatures at its knots ``[c, k]``."""

    knots: Numbers
    values: Numbers
    curvatures: Numbers

    def __call__(self, probs: jax.Array) -> jax.Array:
        def of_curve(x, knots, values, curvatures):
            return natural_spline(jnp, x, knots, values, curvatures)

        curves = jax.vmap(of_curve, in_axes=(1, 0, 0, 0), out_axes=1)
        return from_logits(curves(log_odds(jnp, probs), self.knots, self.values, self.curvatures))


@struct
class IsotonicCurve:
    """q linear between nondecreasing `scores`, with `values` there ``[c, k]``.

    A score that a row of the fit had lies between two that have its value, so that rounding changes
    nothing.
    """

    scores: Numbers
    values: Numbers
    least: Numbers

    def __call__(self, probs: jax.Array) -> jax.Array:
        x = scores_of(jnp, probs, self.least)
        q = jax.vmap(jnp.interp, in_axes=(1, 0, 0), out_axes=1)(x, self.scores, self.values)
        if q.shape[1] == 1:
            return jnp.concatenate([1 - q, q], axis=1)
        total = jnp.sum(q, axis=1, keepdims=True)
        return jnp.where(total > 0, q / jnp.where(total > 0, total, 1.0), 1 / probs.shape[1])


@struct
class VennAbersCurve:
    """q of an event, constant between edges of scores ``[k]``, with `values` ``[k + 1]``.

    They are below, at and above each score that a row of the fit had, whose edges lie around it.
    """

    edges: Numbers
    values: Numbers
    least: Numbers

    def __call__(self, probs: jax.Array) -> jax.Array:
        x = scores_of(jnp, probs, self.least)[:, 0]
        q = jnp.asarray(self.values)[jnp.searchsorted(jnp.asarray(self.edges), x)]
        return jnp.stack([1 - q, q], axis=1)


def of_curves(xp: ModuleType, probs: ArrayT) -> tuple[ArrayT, ArrayT]:
    """The probabilities that curves look at, and those of all other classes, ``[n, c]``.

    Of two classes the second one has the only curve.  Probabilities of other classes are added up,
    since 1 - p would lose small ones.  `xp` is NumPy at a fit, which compiles nothing, and
    jax.numpy where a map is used.
    """
    if probs.shape[1] == 2:
        return probs[:, 1:], probs[:, :1]
    nothing = xp.zeros_like(probs[:, :1])
    before = xp.concatenate([nothing, xp.cumsum(probs[:, :-1], axis=1)], axis=1)
    behind = xp.concatenate([nothing, xp.cumsum(probs[:, :0:-1], axis=1)], axis=1)[:, ::-1]
    return probs, before + behind


def scores_of(xp: ModuleType, probs: ArrayT, least: ArrayLike) -> ArrayT:
    """Increasing functions of p that tell the probabilities of curves apart, ``[n, c]``.

    A score is p, on which no operation rounds, up to 1 - t with t = 2^-10.  Floats beyond have lost
    digits that the other classes keep: the score is 1 - t + t log(t / (1 - p)) there, which goes on
    with the same slope, for 1 - p of at least `least`.
    """
    p = probs[:, 1:] if probs.shape[1] == 2 else probs
    # One class of a row at most is beyond, and all others are the rest.
    rest = xp.sum(xp.where(probs > END, 0.0, probs), axis=1, keepdims=True)
    beyond = END + SMALL * xp.log(SMALL / xp.clip(rest, least, SMALL))
    return xp.where(p > END, beyond, xp.maximum(p, LEAST))


def log_odds(xp: ModuleType, probs: ArrayT) -> ArrayT:
    """logit p of each curve, ``[n, c]``."""
    p, rest = of_curves(xp, probs)
    return xp.log(p) - xp.log(rest)


def from_logits(logits: jax.Array) -> jax.Array:
    """Probabilities of all classes, from logits of curves; of many they are divided by sums."""
    if logits.shape[1] == 1:
        return jax.nn.sigmoid(jnp.concatenate([-logits, logits], axis=1))
    return jax.nn.softmax(jax.nn.log_sigmoid(logits), axis=1)
