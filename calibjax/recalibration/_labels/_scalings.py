"""Fits of softmax(W log p + b): temperatures, slopes of each class, and matrices.

All are convex.  What they differ in is which entries of W there are, and how they are penalised.
"""

from collections.abc import Callable

import numpy as np

from calibjax.recalibration._labels._fitted import Fitted
from calibjax.recalibration._labels._likelihood import (
    slope_of_likelihood,
    softmax,
)
from calibjax.recalibration._labels._penalised import Penalty, least_penalised_loss
from calibjax.recalibration._labels._rows import LabelRows, mixed_with_uniform, with_floor
from calibjax.recalibration._labels._steps import Scaling, TemperedAndUniform, run
from calibjax.recalibration._mixture import mixture_weights

# Strengths of the penalty of Dirichlet calibration, of which cross-validation chooses one.
_STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0)


def fit_temperature(rows: LabelRows) -> Fitted:
    """softmax(log(p) / T)."""
    floor, raised = with_floor(rows)
    slope, converged, words = slope_of_likelihood(raised)
    steps = floor, Scaling(slope, np.array(0.0)), mixed_with_uniform(rows)
    return Fitted(steps, converged, words)


def fit_ets(rows: LabelRows) -> Fitted:
    """w_0 softmax(log(p) / T) + w_1 p + w_2 / m: T first, then the weights by EM (Zhang 2020)."""
    floor, raised = with_floor(rows)
    slope, converged, words = slope_of_likelihood(raised)
    kept = raised.kept()
    tempered = softmax(slope * np.log(kept.probs))
    uniform = np.full(len(kept.targets), 1 / rows.n_classes)
    of_parts = np.stack([kept.of_targets(tempered), kept.of_targets(), uniform], axis=1)
    weights = mixture_weights(of_parts, kept.weights)
    steps = floor, TemperedAndUniform(slope, weights), mixed_with_uniform(rows)
    shares = ", ".join(f"{x:.2g}" for x in weights)
    return Fitted(steps, converged, f"{words}; shares {shares}")


def fit_vector(rows: LabelRows) -> Fitted:
    """softmax(v o log p + b), without a penalty (Guo 2017)."""
    return _one_scaling(rows, Penalty(), is_full=False)


def fit_matrix(rows: LabelRows) -> Fitted:
    """softmax(W log p + b), without a penalty (Guo 2017)."""
    return _one_scaling(rows, Penalty(), is_full=True)


def fit_dirichlet(rows: LabelRows) -> Fitted:
    """softmax(W log p + b), entries off the diagonal and biases penalised (Kull 2019).

    The strength is that of the smallest loss in three folds.
    """
    m = rows.n_classes

    def fit(rows: LabelRows, strength: float) -> Fitted:
        penalty = Penalty(others=strength / (m * (m - 1)), bias=strength / m)
        return _one_scaling(rows, penalty, is_full=True)

    fold = np.random.default_rng(0).permutation(len(rows.targets)) % 3
    losses = []
    for strength in _STRENGTHS:
        loss = 0.0
        for k in range(3):
            without = np.where(fold == k, 0.0, rows.weights)
            if not without.any():
                continue
            held_out = rows._replace(weights=np.where(fold == k, rows.weights, 0.0)).kept()
            steps = fit(rows._replace(weights=without), strength).steps
            log_probs = np.log(held_out.of_targets(run(steps, held_out.probs, rows.ragged)))
            loss -= float(held_out.weights @ log_probs)
        losses.append(loss)
    return fit(rows, _STRENGTHS[int(np.argmin(losses))])


def fit_svs(rows: LabelRows) -> Fitted:
    """softmax((1 + v) o L + b) of L = log p after a temperature, v and b drawn to 0."""
    strength = rows.n_classes / rows.size()
    return _after_temperature(rows, Penalty(diagonal=strength, bias=strength), is_full=False)


def fit_sms(rows: LabelRows) -> Fitted:
    """softmax(L + W L + b) of L = log p after a temperature, W and b drawn to 0."""
    m, n = rows.n_classes, rows.size()
    penalty = Penalty(diagonal=m / n, others=m * (m - 1) / n, bias=m / n)
    return _after_temperature(rows, penalty, is_full=True)


def _after_temperature(rows: LabelRows, penalty: Penalty, is_full: bool) -> Fitted:
    floor, raised = with_floor(rows)
    slope, _, _ = slope_of_likelihood(raised)
    mixed = mixed_with_uniform(rows)
    share = np.asarray(mixed.share)
    tempered = (1 - share) * softmax(slope * np.log(raised.probs)) + share / rows.n_classes
    fitted = _scaling_of(raised._replace(probs=tempered), penalty, is_full)
    first = floor, Scaling(slope, np.array(0.0)), mixed
    return fitted._replace(steps=(*first, *fitted.steps, mixed))


def _one_scaling(rows: LabelRows, penalty: Penalty, is_full: bool) -> Fitted:
    floor, raised = with_floor(rows)
    fitted = _scaling_of(raised, penalty, is_full)
    return fitted._replace(steps=(floor, *fitted.steps, mixed_with_uniform(rows)))


def _scaling_of(rows: LabelRows, penalty: Penalty, is_full: bool) -> Fitted:
    weight, bias, is_minimum = least_penalised_loss(rows.kept(), penalty, is_full)
    present = np.bincount(rows.kept().targets, minlength=rows.n_classes) > 0
    # The bias of a class that never came falls for ever, unless a penalty holds it.
    converged = is_minimum and (penalty.bias > 0 or bool(present.all()))
    diagonal = np.diagonal(weight) if is_full else weight
    words = (
        f"slopes {diagonal.min():.2g} … {diagonal.max():.2g}, "
        f"shifts {bias.min():+.2g} … {bias.max():+.2g}"
    )
    return Fitted((Scaling(weight, bias),), converged, words)


SCALINGS: dict[str, Callable[[LabelRows], Fitted]] = {
    "temperature": fit_temperature,
    "ets": fit_ets,
    "vector": fit_vector,
    "svs": fit_svs,
    "sms": fit_sms,
    "matrix": fit_matrix,
    "dirichlet": fit_dirichlet,
}
