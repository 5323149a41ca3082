"""Maps with a smooth curve of each class: one for two classes, else one against the rest."""

from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.struct import struct
from calibjax._numbers import ArrayT
from calibjax.recalibration._penalised_regression import (
    STRENGTHS,
    Regression,
    logistic_regression,
    natural_spline,
    smooth_basis,
)
from calibjax.recalibration._probability_maps import (
    Fitted,
    LabelRows,
    Numbers,
    mixed_with_uniform,
    with_floor,
)

# Of the spline: eight knots at quantiles.
_LEVELS = np.linspace(0.01, 0.99, 8)


@struct
class BetaCurve:
    """logit q = c + a ln p - b ln(1 - p), with coefficients (c, a, b) of each curve ``[c, 3]``."""

    coefficients: Numbers

    def __call__(self, probs: jax.Array) -> jax.Array:
        p, rest = of_curves(jnp, probs)
        c, a, b = jnp.asarray(self.coefficients).T[:, None]
        return from_logits(c + a * jnp.log(p) - b * jnp.log(rest))


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


def log_odds(xp: ModuleType, probs: ArrayT) -> ArrayT:
    """logit p of each curve, ``[n, c]``."""
    p, rest = of_curves(xp, probs)
    return xp.log(p) - xp.log(rest)


def from_logits(logits: jax.Array) -> jax.Array:
    """Probabilities of all classes, from logits of curves; of many they are divided by sums."""
    if logits.shape[1] == 1:
        return jax.nn.sigmoid(jnp.concatenate([-logits, logits], axis=1))
    return jax.nn.softmax(jax.nn.log_sigmoid(logits), axis=1)


def happened(rows: LabelRows, curve: int) -> np.ndarray:
    """Whether the event of a curve happened: its class, or the second one of two."""
    return rows.targets == (1 if rows.n_classes == 2 else curve)


def _has_option(rows: LabelRows, curve: int) -> np.ndarray:
    """Which rows have the class of a curve, or all if there is none."""
    has_option = rows.probs[:, curve] > 0
    is_used = rows.ragged and has_option.any()
    return has_option if is_used else np.ones(len(has_option), bool)


def fit_beta(rows: LabelRows) -> Fitted:
    """logit q = c + a ln p - b ln(1 - p) with a, b >= 0 (Kull 2017), of each class alone."""
    floor, raised = with_floor(rows)
    kept = raised.kept()
    p, rest = of_curves(np, kept.probs)
    coefficients, converged = [], True
    for curve in range(p.shape[1]):
        features = np.stack([np.ones(len(p)), np.log(p[:, curve]), -np.log(rest[:, curve])], axis=1)
        used = np.array([True, True, True])
        found = np.zeros(3)
        while True:
            fit = logistic_regression(features[:, used], happened(kept, curve), kept.weights)
            found[:] = 0.0
            found[used] = fit.numbers
            negative = found[1:] < 0
            if not negative.any():
                break
            # Of two negative slopes the larger in size is dropped first.
            used[1 + int(np.argmin(found[1:]))] = False
        coefficients.append(found.copy())
        converged &= fit.converged
    table = np.stack(coefficients)
    steps = floor, BetaCurve(table), mixed_with_uniform(rows)
    return Fitted(steps, converged, f"a {_range(table[:, 1])}, b {_range(table[:, 2])}")


def fit_spline(rows: LabelRows) -> Fitted:
    """logit q a natural cubic spline of logit p, of each class alone, with a penalty on f''."""
    floor, raised = with_floor(rows)
    kept = raised.kept()
    x = log_odds(np, kept.probs)
    before, fits = rows.kept(), []
    for c in range(x.shape[1]):
        used = _has_option(before, c)
        fits.append(_spline(x[used, c], happened(kept, c)[used], kept.weights[used]))
    knots, values, curvatures, converged = zip(*fits, strict=True)
    steps = (
        floor,
        SplineCurve(np.stack(knots), np.stack(values), np.stack(curvatures)),
        mixed_with_uniform(rows),
    )
    return Fitted(steps, all(converged), "8 knots, strength by cross-validation")


def _spline(
    x: np.ndarray, happened: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """Knots, values and curvatures there ``[k]``, and if the fit found a minimum."""
    centre, spread = np.mean(x), max(float(np.std(x)), 1e-3)
    knots = np.quantile((x - centre) / spread, _LEVELS)
    # Knots that fall together, because predictions are few or equal, move apart a little.
    gap = max(1e-2, 1e-3 * (knots[-1] - knots[0]))
    knots = np.maximum.accumulate(knots - gap * np.arange(8)) + gap * np.arange(8)
    basis, curvature_of = smooth_basis(knots)
    features = natural_spline(np, (x - centre) / spread, knots, basis, curvature_of)
    # The first two functions are straight lines, which have no penalty.
    best: Regression | None = None
    start, least = None, np.inf
    for strength in STRENGTHS:
        penalty = np.where(np.arange(8) < 2, 0.0, strength)
        fit = logistic_regression(features, happened, weights, penalty, start)
        start = fit.numbers
        loss = float(weights @ fit.left_out)
        if loss < least:
            best, least = fit, loss
    assert best is not None  # the losses are finite
    values, curvatures = basis @ best.numbers, curvature_of @ best.numbers
    return knots * spread + centre, values, curvatures / spread**2, best.converged


def _range(x: np.ndarray) -> str:
    return f"{x[0]:.2g}" if len(x) == 1 else f"{x.min():.2g} … {x.max():.2g}"
