"""Maps of class probabilities: their steps, and those of the form softmax(W log p + b).

A map is a tuple of steps from class probabilities ``[n, m]`` to class probabilities.  The fits of
W and b are convex.  They differ in which entries of W there are, and how these are penalised: a
temperature, slopes of each class, and a matrix.

**Cells.**  A map that is smooth in the logit is fitted as well to a few thousand cells of rows with
nearly equal logits as to a million rows.  Each cell has the mean logit of its rows of one label, so
that a loss that is linear in the logits is exact, and the error of any other one is a part
d^2 / 100 of its curvature, with d = 0.01 the width of a cell: some 1e-7 of a log loss.
"""

import functools
import math
from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.compile import bucket, filled_up, quick_jit
from calibjax._base.struct import struct
from calibjax._numbers.arithmetic import dot
from calibjax._numbers.validity import ArrayT
from calibjax.distributions import LEAST_OF_CLASS

#: Numbers of a map: of NumPy from a fit, and traced where it is used.
Numbers = jax.Array | np.ndarray
# Smaller probabilities than this are rounding, whatever a model says.
_LEAST = 1e-15
# Classes that a row does not have: what a temperature makes of them should be next to nothing.
_LEAST_ABSENT = 1e-37

# So few rows are fitted as they are.
MOST_ROWS = 4096
_WIDTH = 0.01
# Logits of all other probabilities than 0 and 1 are below.
_FARTHEST = 1000.0


class Cells(NamedTuple):
    """Weighted rows of an event, ``[C]``.

    `counts` says for how many rows of equal weights each one stands, `part` is that of all of its
    rows, and `number` the cell of each row that was given, ``[n]``.
    """

    logits: np.ndarray
    events: np.ndarray
    weights: np.ndarray
    counts: np.ndarray
    part: np.ndarray
    number: np.ndarray


def cells_of(
    logits: np.ndarray,
    events: np.ndarray,
    weights: np.ndarray,
    counts: np.ndarray,
    part: np.ndarray | None = None,
) -> Cells:
    """Cells of many rows, and else each row by itself; rows of different parts share no cell.

    Args:
        logits: of the event, ``[n]``, infinite where its probability is 0 or 1.
        events: 1 where it happened, and else 0.
        weights, counts: positive numbers, as those of `Cells`.
        part: a number from 0 of each row, or None.
    """
    n = len(logits)
    part = np.zeros(n, int) if part is None else part
    if n <= MOST_ROWS:
        return Cells(logits, events, weights, counts, part, np.arange(n))
    cell = np.floor(np.clip(logits, -_FARTHEST, _FARTHEST) / _WIDTH).astype(int)
    key = (cell * 2 + events) * (part.max() + 1) + part
    _, first, number = np.unique(key, return_index=True, return_inverse=True)
    total, squares = np.bincount(number, weights), np.bincount(number, weights**2 / counts)
    mean = np.bincount(number, weights * logits) / total
    return Cells(mean, events[first], total, total**2 / squares, part[first], number)


class LabelRows(NamedTuple):
    """Probabilities ``[n, m]`` in float64, labels and positive weights.

    `counts` says for how many rows of equal weights each one stands.  `ragged` says that zeros are
    no probabilities, but classes that a row does not have, and that what is up to `LEAST_OF_CLASS`
    is 0.  `by_one` says that an event was given by one number, from 1 - p of which nothing more is
    known.  `n_data` is the number of rows that all parts of a data set come from, or 0.
    """

    probs: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    counts: np.ndarray
    ragged: bool = False
    by_one: bool = False
    n_data: int = 0

    @property
    def n_classes(self) -> int:
        return self.probs.shape[1]

    @property
    def zero(self) -> float:
        """Up to this a number is the probability 0."""
        return LEAST_OF_CLASS if self.ragged else 0.0

    def at(self, chosen: np.ndarray | slice) -> "LabelRows":
        """Some of the rows."""
        rows = self.probs[chosen], self.targets[chosen], self.weights[chosen], self.counts[chosen]
        return LabelRows(*rows, self.ragged, self.by_one, self.n_data)

    def size(self) -> float:
        """How many rows of equal weights have a mean as exact as that of these (Kish 1965)."""
        total = np.sum(self.weights)
        return float(total * (total / np.sum(np.square(self.weights) / self.counts)))

    def pooled(self, part: np.ndarray | None = None) -> tuple["LabelRows", Cells | None]:
        """Rows of two classes with cells as rows, and the cells; else these rows, and None."""
        if self.n_classes != 2 or self.ragged:
            return self, None
        with np.errstate(divide="ignore"):  # of probabilities 0 and 1, which are cells
            logits = np.log(self.probs[:, 1]) - np.log(self.probs[:, 0])
        cells = cells_of(logits, self.targets, self.weights, self.counts, part)
        if len(cells.logits) == len(logits):
            return self, None
        probs = np.exp(-np.logaddexp(0.0, np.stack([cells.logits, -cells.logits], axis=1)))
        rows = LabelRows(probs, cells.events, cells.weights, cells.counts, by_one=self.by_one)
        return rows, cells

    def of_targets(self, probs: np.ndarray | None = None) -> np.ndarray:
        """The probabilities of the targets, ``[n]``."""
        probs = self.probs if probs is None else probs
        return np.take_along_axis(probs, self.targets[:, None], axis=1)[:, 0]


class Fitted(NamedTuple):
    """The steps of a map, whether the search for them found a minimum, and its numbers as text."""

    steps: tuple
    converged: bool
    description: str


#: The method that was chosen, its fit, and the losses of the candidates on held-out rows.
Chosen = tuple[str, Fitted, dict[str, float]]


class Step:
    """A step of a map, which a file names by its class."""


@struct
class Floor(Step):
    """Probabilities raised to `least`, and divided by their sum: no logarithm is infinite.

    0 becomes `of_zero`.
    """

    least: Numbers
    of_zero: Numbers

    def __call__(self, probs: ArrayT, xp: ModuleType = jnp) -> ArrayT:
        raised = xp.where(probs > 0, xp.maximum(probs, self.least), self.of_zero)
        return raised / xp.sum(raised, axis=1, keepdims=True)


@struct
class Scaling(Step):
    """softmax(W log p + b); `weight` is W, as a number, as its diagonal ``[m]``, or ``[m, m]``."""

    weight: Numbers
    bias: Numbers

    def __call__(self, probs: ArrayT, xp: ModuleType = jnp) -> ArrayT:
        logs = xp.log(probs)
        weight, bias = xp.asarray(self.weight), xp.broadcast_to(self.bias, logs.shape)
        if weight.ndim == 2:
            return softmax(xp, (dot if xp is jnp else np.dot)(logs, weight.T) + bias)
        return softmax(xp, xp.broadcast_to(weight, logs.shape) * logs + bias)


@struct
class MixedWithUniform(Step):
    """(1 - share) p + share / m: no class is impossible."""

    share: Numbers

    def __call__(self, probs: ArrayT, xp: ModuleType = jnp) -> ArrayT:
        share = xp.asarray(self.share)
        return (1 - share) * probs + share / probs.shape[1]


@struct
class Average(Step):
    """The mean of what several maps make of the probabilities, with weights ``[k]``."""

    weights: Numbers
    maps: tuple[tuple, ...]

    def __call__(self, probs: ArrayT, xp: ModuleType = jnp) -> ArrayT:
        return xp.tensordot(
            self.weights, xp.stack([apply(steps, probs, xp) for steps in self.maps]), axes=1
        )


def apply(steps: tuple, probs: ArrayT, xp: ModuleType = jnp) -> ArrayT:
    """What all steps make of probabilities, one after another.

    `xp` is NumPy where a fit is judged, which compiles nothing, and jax.numpy where it is used.
    """
    for step in steps:
        probs = step(probs, xp)
    return probs


def of_present(xp: ModuleType, recalibrated: ArrayT, probs: ArrayT) -> ArrayT:
    """New probabilities of the classes that ragged rows have: zeros stay zeros."""
    found = xp.where(probs > 0, recalibrated, 0.0)
    return found / xp.sum(found, axis=1, keepdims=True)


def softmax(xp: ModuleType, logits: ArrayT) -> ArrayT:
    """Probabilities proportional to exp(logits), over the last axis."""
    powers = xp.exp(logits - xp.max(logits, axis=1, keepdims=True))
    return powers / xp.sum(powers, axis=1, keepdims=True)


def run(steps: tuple, probs: np.ndarray, ragged: bool = False) -> np.ndarray:
    """What a map makes of probabilities of NumPy, in float64."""
    recalibrated = apply(steps, probs, np)
    return of_present(np, recalibrated, probs) if ragged else recalibrated


def with_floor(rows: LabelRows) -> tuple[Floor, LabelRows]:
    """The rule for zeros, and the rows, or the cells of many, after it.

    Zeros become half of the smallest positive probability, if there are zeros in these rows: a zero
    means "rarer than whatever the model gives a number to".  Without this rule one target of
    probability 0 decides over the whole fit.  Classes that a row does not have are next to nothing.
    """
    probs = rows.probs
    positive, n_probs = probs[probs > rows.zero], np.sum(probs > 0) if rows.ragged else probs.size
    least = max(positive.min() / 2, _LEAST) if positive.size < n_probs else _LEAST
    floor = Floor(np.array(least), np.array(_LEAST_ABSENT if rows.ragged else least))
    return floor, rows._replace(probs=floor(probs, np)).pooled()[0]


def mixed_with_uniform(rows: LabelRows) -> MixedWithUniform:
    """As if one more row had any label: what never happened in n rows may happen."""
    return MixedWithUniform(np.array(1 / (rows.size() + 1)))


# Temperatures are from 0.01 to 100, as those of `fit_temperature`.
_LARGEST_SLOPE = 100.0
_MOST_STEPS = 1000
_NUMBERS_TO_START = 2**18


def _slope_of_likelihood(rows: LabelRows) -> tuple[np.ndarray, bool, str]:
    """The s = 1 / T of the least loss of softmax(s log p), if it is inside, and T in words.

    The loss is convex in s.  Newton's steps stay inside of an interval that has the minimum.
    """
    share = rows.weights / rows.weights.sum()
    logs = np.log(rows.probs)
    of_target = share @ rows.of_targets(logs)
    low, high, s = 1 / _LARGEST_SLOPE, _LARGEST_SLOPE, 1.0
    # If no target has a smaller probability than another class, a larger s is always better.
    if np.all(rows.of_targets(logs) == logs.max(axis=1)) and not np.all(logs == logs[:, :1]):
        return np.array(high), False, f"T = {1 / high:.3g}"
    # Some rows say where the search of all begins.
    step = logs.size // _NUMBERS_TO_START
    if step > 1:
        s = float(_slope_of_likelihood(rows.at(slice(None, None, step)))[0])
    for _ in range(100):
        p = softmax(np, s * logs)
        means = np.einsum("nm,nm->n", p, logs)
        slope = share @ means - of_target
        curvature = share @ np.einsum("nm,nm->n", p, np.square(logs - means[:, None]))
        low, high = (low, s) if slope > 0 else (s, high)
        if abs(slope) <= 1e-13 * max(abs(of_target), 1e-30):
            break
        new = s - slope / curvature if curvature > 0 else np.inf
        # On the scale of logarithms the middle of an interval is its geometric mean.
        new = new if low < new < high else float(np.sqrt(low * high))
        if abs(new - s) < 1e-12 * s:
            break
        s = new
    inside = 1.01 / _LARGEST_SLOPE < s < _LARGEST_SLOPE / 1.01
    return np.array(s), bool(inside), f"T = {1 / s:.3g}"


def fit_temperature(rows: LabelRows) -> Fitted:
    """softmax(log(p) / T)."""
    floor, raised = with_floor(rows)
    slope, converged, words = _slope_of_likelihood(raised)
    scaling = Scaling(slope, np.array(0.0))
    return Fitted((floor, scaling, mixed_with_uniform(rows)), converged, words)


def fit_vector(rows: LabelRows) -> Fitted:
    """softmax(v o log p + b), without a penalty (Guo 2017)."""
    floor, raised = with_floor(rows)
    fitted = _scaling_of(raised, math.inf, is_full=False)
    return fitted._replace(steps=(floor, *fitted.steps, mixed_with_uniform(rows)))


def fit_after_temperature(rows: LabelRows, is_full: bool) -> Fitted:
    """softmax(L + W L + b) of L = log p after a temperature, W and b drawn to 0.

    W is a matrix if it is full, and else a diagonal one.
    """
    floor, raised = with_floor(rows)
    slope, _, _ = _slope_of_likelihood(raised)
    mixed = mixed_with_uniform(rows)
    share = np.asarray(mixed.share)
    tempered = (1 - share) * softmax(np, slope * np.log(raised.probs)) + share / rows.n_classes
    fitted = _scaling_of(raised._replace(probs=tempered), rows.size(), is_full)
    first = floor, Scaling(slope, np.array(0.0)), mixed
    return fitted._replace(steps=(*first, *fitted.steps, mixed))


def _scaling_of(rows: LabelRows, size: float, is_full: bool) -> Fitted:
    """The least penalised loss over W, or its diagonal, and b, by L-BFGS-B from W = 1 and b = 0.

    Squares of b and of the diagonal of W - 1 have the penalty m / n, and those of its other entries
    m (m - 1) / n; `size` is n, infinite without a penalty.

    One program computes the loss and its slope: for 5000 rows of 100 classes NumPy takes five times
    as long.  The search is outside of jit: a line search inside takes ten times as long to compile.
    """
    # These parts of SciPy would make `import calibjax` a third of a second longer.
    from scipy.optimize import minimize

    m, dtype = rows.n_classes, jnp.result_type(float)
    ones = np.eye(m) if is_full else np.ones(m)
    strengths = np.where(ones > 0, m / size, m * (m - 1) / size)
    strengths = np.append(strengths.ravel(), np.full(m, m / size))
    share, logs = rows.weights / rows.weights.sum(), np.log(rows.probs)
    # The curvature at the start, with which all numbers have steps of one size.
    variances = share[:, None] * rows.probs * (1 - rows.probs)
    of_weight = variances.T @ logs**2 if is_full else np.sum(variances * logs**2, axis=0)
    curvature = np.append(of_weight.ravel(), np.sum(variances, axis=0)) + 2 * strengths
    units = 1 / np.sqrt(np.maximum(curvature, 1e-6 * curvature.max() + 1e-300))
    # Parts of few rows fill the bucket of all of them.  What fills it has no share.
    size = bucket(max(len(share), rows.n_data if logs.size <= _NUMBERS_TO_START else 0))
    shares = np.append(share, np.zeros(size - len(share))).astype(dtype)
    targets = filled_up(rows.targets, size).astype(np.int32)
    data = jax.device_put((filled_up(logs, size).astype(dtype), targets, shares))

    def loss(steps: np.ndarray) -> tuple[float, np.ndarray]:
        moved = units * steps
        value, slope = _loss_and_slope(moved.astype(dtype), data, is_full)
        slope = np.asarray(slope, float) + 2 * strengths * moved
        return float(value) + float(strengths @ moved**2), units * slope

    # Differences of the loss below this are rounding.
    rounding = 2 * float(jnp.finfo(dtype).eps)
    options = {"maxiter": _MOST_STEPS, "maxfun": 2 * _MOST_STEPS, "ftol": rounding, "gtol": 1e-7}
    found = minimize(loss, np.zeros_like(units), jac=True, method="L-BFGS-B", options=options)
    # Status 1 is the last step.  A line search that rounding has ended is one that is at a minimum.
    ended = found.status != 1 and bool(np.all(np.isfinite(found.x)))
    # If all decisions are right, larger numbers are always better, and so is the bias of a class
    # that never occurred, unless a penalty holds it.
    goes_on = loss(1.5 * found.x)[0] < found.fun
    present = size < math.inf or np.unique(rows.targets).size == m
    moved = units * found.x
    weight, bias = ones + moved[:-m].reshape(ones.shape), moved[-m:]
    diagonal = np.diagonal(weight) if is_full else weight
    words = (
        f"slopes {diagonal.min():.2g} … {diagonal.max():.2g}, "
        f"shifts {bias.min():+.2g} … {bias.max():+.2g}"
    )
    return Fitted((Scaling(weight, bias),), ended and present and not goes_on, words)


@functools.partial(quick_jit, static_argnums=2)
def _loss_and_slope(numbers: jax.Array, data: tuple, is_full: bool) -> tuple[jax.Array, jax.Array]:
    """The mean loss of softmax(log p + V log p + b), and its slope in V and b."""
    logs, targets, share = data
    m = logs.shape[1]

    def loss(numbers: jax.Array) -> jax.Array:
        change, bias = numbers[:-m], numbers[-m:]
        scaled = dot(logs, change.reshape(m, m).T) if is_full else logs * change[None]
        logits = logs + scaled + bias[None]
        of_target = jnp.take_along_axis(logits, targets[:, None], axis=1)[:, 0]
        return jnp.sum(share * (jax.nn.logsumexp(logits, axis=1) - of_target))

    return jax.value_and_grad(loss)(numbers)
