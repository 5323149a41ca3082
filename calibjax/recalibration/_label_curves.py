"""Maps with one curve for two classes, and else with a curve of each class against the rest.

**Nondecreasing curves.**  With counts c_1, …, c_u of rows and e_1, …, e_u of events, in the order
of their scores, isotonic regression is the slope of the lower convex hull of the points (sum c, sum
e).  A new row between them adds one segment, and its probability is the slope of the line that
carries the segment: the one that touches the hull of all points before it and the hull of all
points behind it.  Venn-Abers probabilities are found so for every rank of a new score, in nearly
linear time.
"""

import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.struct import struct
from calibjax._numbers.arithmetic import isotonic_frequencies
from calibjax._numbers.validity import ArrayT
from calibjax.recalibration._penalised_regression import (
    logistic_regression,
    natural_spline,
    smooth_basis,
    spline_fits,
)
from calibjax.recalibration._probability_maps import (
    Cells,
    Fitted,
    LabelRows,
    Numbers,
    Step,
    cells_of,
    mixed_with_uniform,
    softmax,
    with_floor,
)

# The levels of the quantiles at which the spline has its eight knots.
_LEVELS = np.linspace(0.01, 0.99, 8)


@struct
class BetaCurve(Step):
    """logit q = c + a ln p - b ln(1 - p), with coefficients (c, a, b) of each curve ``[c, 3]``."""

    coefficients: Numbers

    def __call__(self, probs: ArrayT, xp: ModuleType = jnp) -> ArrayT:
        p, rest = of_curves(xp, probs)
        c, a, b = xp.asarray(self.coefficients).T[:, None]
        return from_logits(xp, c + a * xp.log(p) - b * xp.log(rest))


@struct
class SplineCurve(Step):
    """logit q a natural cubic spline of logit p: values and curvatures at its knots ``[c, k]``."""

    knots: Numbers
    values: Numbers
    curvatures: Numbers

    def __call__(self, probs: ArrayT, xp: ModuleType = jnp) -> ArrayT:
        spline = functools.partial(natural_spline, xp)
        tables = self.knots, self.values, self.curvatures
        return from_logits(xp, _each_curve(xp, spline, log_odds(xp, probs), *tables))


def of_curves(xp: ModuleType, probs: ArrayT) -> tuple[ArrayT, ArrayT]:
    """The probability of the class of each curve, and that of all others, ``[n, c]``.

    Two classes have one curve, that of the second.  Probabilities of other classes are summed,
    because 1 - p would lose small ones.  `xp` is NumPy for a fit, which compiles nothing, and
    jax.numpy for the map.
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


def _each_curve(
    xp: ModuleType, curve: Callable[..., ArrayT], x: ArrayT, *tables: Numbers
) -> ArrayT:
    """Curves with tables ``[c, k]``, each at its numbers of x ``[n, c]``."""
    if xp is jnp:
        of_all: Callable[..., ArrayT] = jax.vmap(curve, (1, *[0] * len(tables)), 1)
        return of_all(x, *tables)
    return xp.stack([curve(*of_one) for of_one in zip(x.T, *tables, strict=True)], axis=1)


def from_logits(xp: ModuleType, logits: ArrayT) -> ArrayT:
    """Probabilities of all classes, from logits of curves; those of many are divided by sums."""
    if logits.shape[1] == 1:
        both = xp.concatenate([-logits, logits], axis=1)
        of_jax: Any = jax.nn.sigmoid
        return of_jax(both) if xp is jnp else xp.exp(-xp.logaddexp(-both, 0.0))
    return softmax(xp, -xp.logaddexp(-logits, 0.0))


def happened(rows: LabelRows, curve: int) -> np.ndarray:
    """Whether the event of a curve happened: its class, or the second one of two."""
    return rows.targets == (1 if rows.n_classes == 2 else curve)


def _cells_of_curves(raised: LabelRows, before: LabelRows | None = None) -> Iterator[Cells]:
    """Rows, or cells of many, for the event of each curve; ragged rows only with its class."""
    logits = log_odds(np, raised.probs)
    for c in range(logits.shape[1]):
        of_rows: tuple = logits[:, c], happened(raised, c), raised.weights, raised.counts
        if before is not None and before.ragged and (has_option := before.probs[:, c] > 0).any():
            of_rows = tuple(x[has_option] for x in of_rows)
        yield cells_of(*of_rows)


def fit_beta(rows: LabelRows) -> Fitted:
    """logit q = c + a ln p - b ln(1 - p) with a, b >= 0 (Kull 2017), of each class alone."""
    floor, raised = with_floor(rows)
    coefficients, converged = [], True
    for cells in _cells_of_curves(raised):
        x = cells.logits
        features = np.stack([np.ones_like(x), -np.logaddexp(0, -x), np.logaddexp(0, x)], axis=1)
        used = np.array([True, True, True])
        found = np.zeros(3)
        while True:
            fit = logistic_regression(features[:, used], cells.events, cells.weights)
            found[:] = 0.0
            found[used] = fit.numbers
            negative = found[1:] < 0
            if not negative.any():
                break
            # If both slopes are negative, the larger in size is dropped first.
            used[1 + int(np.argmin(found[1:]))] = False
        coefficients.append(found.copy())
        converged &= fit.converged
    table = np.stack(coefficients)
    steps = floor, BetaCurve(table), mixed_with_uniform(rows)
    return Fitted(steps, converged, f"a {_range(table[:, 1])}, b {_range(table[:, 2])}")


def fit_spline(rows: LabelRows) -> Fitted:
    """logit q a natural cubic spline of logit p, of each class alone, with a penalty on f''."""
    floor, raised = with_floor(rows)
    fits = [_spline(cells) for cells in _cells_of_curves(raised, rows)]
    *tables, converged = zip(*fits, strict=True)
    steps = floor, SplineCurve(*map(np.stack, tables)), mixed_with_uniform(rows)
    return Fitted(steps, all(converged), "8 knots, strength by cross-validation")


def _spline(cells: Cells) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """Knots, values and curvatures there ``[k]``, and if the fit found a minimum."""
    x, counts = cells.logits, cells.counts
    centre = np.average(x, weights=counts)
    spread = max(float(np.sqrt(np.average((x - centre) ** 2, weights=counts))), 1e-3)
    knots = (_quantiles(x, counts, _LEVELS) - centre) / spread
    # Knots that fall together, because predictions are few or equal, move apart a little.
    gap = max(1e-2, 1e-3 * (knots[-1] - knots[0]))
    knots = np.maximum.accumulate(knots - gap * np.arange(8)) + gap * np.arange(8)
    basis, curvature_of = smooth_basis(knots)
    features = natural_spline(np, (x - centre) / spread, knots, basis, curvature_of)
    fits = (fit for _, fit in spline_fits(features, cells.events, cells.weights, counts))
    best = min(fits, key=lambda fit: float(cells.weights @ fit.left_out))
    values, curvatures = basis @ best.numbers, curvature_of @ best.numbers
    return knots * spread + centre, values, curvatures / spread**2, best.converged


def _quantiles(x: np.ndarray, counts: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """The result of `np.quantile` if each number were repeated `counts` times."""
    order = np.argsort(x)
    behind = np.cumsum(counts[order])
    first_and_last = np.stack([behind - counts[order], behind - 1], axis=1).ravel()
    return np.interp(levels * (behind[-1] - 1), first_and_last, np.repeat(x[order], 2))


def _range(x: np.ndarray) -> str:
    return f"{x[0]:.2g}" if len(x) == 1 else f"{x.min():.2g} … {x.max():.2g}"


#: Distance from 1 below which probabilities are compared by the other classes.
SMALL = 2.0**-10
END = 1 - SMALL
#: Minimum score and sum of other classes, so that scores are positive.
LEAST = 1e-30
# Relative difference of equal scores, 8 units in the last place of float32; that near 1 where an
# event is given by one number, half of the last place; and the maximum length of chains of them.
_PRECISION = float(np.finfo(np.float32).eps)
_ROUNDING_OF_SCORE, _NEAR_ONE = 8 * _PRECISION, _PRECISION / 4
_LONGEST = 8


@struct
class IsotonicCurve(Step):
    """q linear between nondecreasing `scores`, with `values` there ``[c, k]``.

    A score that a row of the fit had lies between two that have its value, so that rounding changes
    nothing.
    """

    scores: Numbers
    values: Numbers
    least: Numbers

    def __call__(self, probs: ArrayT, xp: ModuleType = jnp) -> ArrayT:
        q = _each_curve(xp, xp.interp, scores_of(xp, probs, self.least), self.scores, self.values)
        if q.shape[1] == 1:
            return xp.concatenate([1 - q, q], axis=1)
        total = xp.sum(q, axis=1, keepdims=True)
        return xp.where(total > 0, q / xp.where(total > 0, total, 1.0), 1 / probs.shape[1])


@struct
class VennAbersCurve(Step):
    """q of an event, constant between edges of scores ``[k]``, with `values` ``[k + 1]``.

    They are below, at and above each score that a row of the fit had, whose edges lie around it.
    """

    edges: Numbers
    values: Numbers
    least: Numbers

    def __call__(self, probs: ArrayT, xp: ModuleType = jnp) -> ArrayT:
        x = scores_of(xp, probs, self.least)[:, 0]
        q = xp.asarray(self.values)[xp.searchsorted(xp.asarray(self.edges), x)]
        return xp.stack([1 - q, q], axis=1)


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


def fit_isotonic(rows: LabelRows) -> Fitted:
    """The nondecreasing curve of each class that is nearest to its frequencies (Zadrozny 2002)."""
    least = _least(rows)
    scores, edges_of, values_of, most = scores_of(np, rows.probs, least), [], [], 0
    for curve in range(scores.shape[1]):
        edges, events, count = _ties(scores[:, curve], happened(rows, curve), rows)
        values = np.repeat(isotonic_frequencies(events, count), 2)
        # Between equal values the curve is constant.
        inner = np.r_[True, (values[1:-1] != values[:-2]) | (values[1:-1] != values[2:]), True]
        edges_of.append(edges[inner])
        values_of.append(values[inner])
        most = max(most, len(np.unique(values)))
    curves = IsotonicCurve(_of_one_size(edges_of), _of_one_size(values_of), least)
    steps = curves, mixed_with_uniform(rows)
    return Fitted(steps, True, f"at most {most} different values of a class")


def _of_one_size(curves: list[np.ndarray]) -> np.ndarray:
    """Numbers of curves, padded with the last one, ``[c, size]``."""
    size = _size(max(map(len, curves)))
    return np.stack([np.pad(x, (0, size - len(x)), "edge") for x in curves])


def fit_venn_abers(rows: LabelRows) -> Fitted:
    """Isotonic regression with the new row as an event and as none, of two classes (Vovk 2015)."""
    least = _least(rows)
    edges, events, count = _ties(scores_of(np, rows.probs, least)[:, 0], happened(rows, 0), rows)
    # One more row counts as one of the rows of equal weights.
    unit = count.sum() / rows.size()
    at, between = venn_abers(events / unit, count / unit)
    # Below, at, between, at, …, above.
    values = np.append(np.stack([between[:-1], at], axis=1), between[-1])
    filling = 0, _size(len(edges)) - len(edges)
    edges, values = np.pad(edges, filling, "edge"), np.pad(values, filling, "edge")
    curve = VennAbersCurve(edges, values, least)
    return Fitted((curve,), True, f"{len(at)} different probabilities")


def _least(rows: LabelRows) -> np.ndarray:
    """The smallest sum of other classes beside p near 1 that is distinguished from 0."""
    return np.array(_NEAR_ONE if rows.by_one else LEAST)


def _ties(
    scores: np.ndarray, happened: np.ndarray, rows: LabelRows
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges below and above each score ``[2 u]``, the weight of its events, and of its rows.

    Scores of one chain of differences that may be rounding are one score.
    """
    order = np.argsort(scores)
    x, weights = scores[order], rows.weights[order]
    rounding = _ROUNDING_OF_SCORE * x
    if rows.by_one:
        # The score has the slope t / (1 - p) there.
        rounding += _NEAR_ONE * np.where(x > END, np.exp((x - END) / SMALL), 0.0)
    is_new = np.append(True, np.diff(x) > rounding[:-1])
    start = np.maximum.accumulate(np.where(is_new, np.arange(len(x)), 0))
    # Many rows may have scores so dense that a chain has no end.
    part = np.floor((x - x[start]) / (_LONGEST * rounding[start]))
    is_new[1:] |= part[1:] != part[:-1]
    is_last = np.append(is_new[1:], True)
    below, above = (x - rounding)[is_new], (x + rounding)[is_last]
    middle = (x[is_last][:-1] + x[is_new][1:]) / 2
    below[1:], above[:-1] = np.maximum(below[1:], middle), np.minimum(above[:-1], middle)
    index = np.cumsum(is_new) - 1
    events, count = np.bincount(index, weights * happened[order]), np.bincount(index, weights)
    return np.stack([below, above], axis=1).ravel(), events, count


def _size(n: int) -> int:
    """One of few lengths, so that curves share compiled programs."""
    return max(64, 2 ** (n - 1).bit_length())


def venn_abers(events: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities p_1 / (1 - p_0 + p_1) at each score ``[u]``, and between them ``[u + 1]``.

    p_y is the probability that isotonic regression gives to a new row of label y, which is among
    the other rows of its score, or alone.
    """
    x, y = np.cumsum(np.pad([count, events], ((0, 0), (1, 0))), axis=1)
    before, behind = _hull_before(x, y), _hull_before(-x[::-1], y[::-1])
    last = len(x) - 1
    # Seen from the right, the same hull: of point i it is point last - i.
    after = last - behind[::-1]

    def touching_slope(left: int, right: int, label: float) -> float:
        """The slope of the line below all points up to `left`, and below those from `right` on.

        The latter are moved by the new row: by 1 to the right, and by its label upwards.
        """

        def slope(i: int, j: int) -> float:
            return (y[j] + label - y[i]) / (x[j] + 1 - x[i])

        while True:
            start = left, right
            # A point further away touches if it is below the line.
            while left > 0 and slope(before[left], right) >= slope(left, right):
                left = before[left]
            while right < last and slope(left, after[right]) <= slope(left, right):
                right = after[right]
            if start == (left, right):
                return slope(left, right)

    def merged(left: int, right: int) -> float:
        p0, p1 = (touching_slope(left, right, label) for label in (0.0, 1.0))
        return p1 / (1 - p0 + p1)

    between = np.array([merged(i, i) for i in range(last + 1)])
    return np.array([merged(i, i + 1) for i in range(last)]), between


def _hull_before(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """For each point, its neighbour in the lower convex hull of it and all points before it.

    The first point is its own neighbour.
    """
    neighbour = np.zeros(len(x), int)
    for i in range(1, len(x)):
        j = i - 1
        # The slope to a neighbour must not be smaller than that from the neighbour on.
        while j > 0 and (y[i] - y[j]) * (x[j] - x[neighbour[j]]) <= (y[j] - y[neighbour[j]]) * (
            x[i] - x[j]
        ):
            j = neighbour[j]
        neighbour[i] = j
    return neighbour
