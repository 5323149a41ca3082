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
# Minimum probability; smaller ones are rounding.
_LEAST = 1e-15
# Probability of classes that a row lacks, which stays negligible after a temperature.
_LEAST_ABSENT = 1e-37

# Maximum number of rows that are fitted without cells, and the width of cells in logits.
MOST_ROWS = 4096
_WIDTH = 0.01
# Larger than the logit of any probability below 1.
_FARTHEST = 1000.0


class Cells(NamedTuple):
    """Weighted rows of an event, ``[C]``.

    `counts` is the number of rows of equal weights that each one stands for, `part` the part of its
    rows, and `number` the cell of each given row, ``[n]``.
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
    """Pools many rows into cells, each of one part; few rows are a cell each.

    Args:
        logits: logits of the event, ``[n]``, infinite where its probability is 0 or 1.
        events: 1 where the event occurred, else 0, ``[n]``.
        weights, counts: positive numbers, as in `Cells`, ``[n]``.
        part: the part of each row, from 0, ``[n]``, or None.
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

    `counts` is the number of rows of equal weights that each one stands for.  `ragged` means that
    zeros, up to `LEAST_OF_CLASS`, are classes that a row lacks.  `by_one` means that an event was
    given by one number p, so that 1 - p is rounded.  `n_data` is the number of rows of the whole
    data set, or 0.
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
        """The number up to which probabilities count as 0."""
        return LEAST_OF_CLASS if self.ragged else 0.0

    def at(self, chosen: np.ndarray | slice) -> "LabelRows":
        """Some of the rows."""
        rows = self.probs[chosen], self.targets[chosen], self.weights[chosen], self.counts[chosen]
        return LabelRows(*rows, self.ragged, self.by_one, self.n_data)

    def size(self) -> float:
        """The effective sample size (Kish 1965)."""
        total = np.sum(self.weights)
        return float(total * (total / np.sum(np.square(self.weights) / self.counts)))

    def pooled(self, part: np.ndarray | None = None) -> tuple["LabelRows", Cells | None]:
        """For two classes, cells as rows, and the cells; else these rows and None."""
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
    """The steps of a map, whether the search found a minimum, and a description."""

    steps: tuple
    converged: bool
    description: str


#: The chosen method, its fit, and the held-out losses of the candidates.
Chosen = tuple[str, Fitted, dict[str, float]]


class Step:
    """A step of a map; files store the name of its class."""


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
    """(1 - share) p + share / m, so that no class has probability 0."""

    share: Numbers

    def __call__(self, probs: ArrayT, xp: ModuleType = jnp) -> ArrayT:
        share = xp.asarray(self.share)
        return (1 - share) * probs + share / probs.shape[1]


@struct
class Average(Step):
    """The mean of the probabilities after several maps, with weights ``[k]``."""

    weights: Numbers
    maps: tuple[tuple, ...]

    def __call__(self, probs: ArrayT, xp: ModuleType = jnp) -> ArrayT:
        found = xp.stack([apply(steps, probs, xp) for steps in self.maps])
        return xp.tensordot(self.weights, found, axes=1)


def apply(steps: tuple, probs: ArrayT, xp: ModuleType = jnp) -> ArrayT:
    """Probabilities after all steps in turn.

    `xp` is NumPy to score a fit, which compiles nothing, and jax.numpy to apply a map.
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
    """Probabilities after a map, in NumPy and float64."""
    recalibrated = apply(steps, probs, np)
    return of_present(np, recalibrated, probs) if ragged else recalibrated


def with_floor(rows: LabelRows) -> tuple[Floor, LabelRows]:
    """The rule for zeros, and the rows, or the cells of many, after it.

    If the rows have zeros, these become half of the smallest positive probability: a zero means
    "rarer than every positive prediction".  Without this rule one target of probability 0 would
    decide the fit.  Classes that a ragged row lacks become negligible.
    """
    probs = rows.probs
    positive, n_probs = probs[probs > rows.zero], np.sum(probs > 0) if rows.ragged else probs.size
    least = max(positive.min() / 2, _LEAST) if positive.size < n_probs else _LEAST
    floor = Floor(np.array(least), np.array(_LEAST_ABSENT if rows.ragged else least))
    return floor, rows._replace(probs=floor(probs, np)).pooled()[0]


def mixed_with_uniform(rows: LabelRows) -> MixedWithUniform:
    """The step that acts as one more row with a uniform label."""
    return MixedWithUniform(np.array(1 / (rows.size() + 1)))


# Temperatures are from 0.01 to 100, as those of `fit_temperature`.
_LARGEST_SLOPE = 100.0
_MOST_STEPS = 1000
_NUMBERS_TO_START = 2**18


def _slope_of_likelihood(rows: LabelRows) -> tuple[np.ndarray, bool, str]:
    """The s = 1 / T with the least loss of softmax(s log p), whether it is inside, and T as text.

    The loss is convex in s.  Newton's steps stay inside of an interval that has the minimum.
    """
    share = rows.weights / rows.weights.sum()
    logs = np.log(rows.probs)
    of_target = share @ rows.of_targets(logs)
    low, high, s = 1 / _LARGEST_SLOPE, _LARGEST_SLOPE, 1.0
    # If every target has the largest probability, s diverges.
    if np.all(rows.of_targets(logs) == logs.max(axis=1)) and not np.all(logs == logs[:, :1]):
        return np.array(high), False, f"T = {1 / high:.3g}"
    # A subset of rows gives the start of the search.
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
        # The geometric mean is the middle of the interval in logarithms.
        new = new if low < new < high else float(np.sqrt(low * high))
        if abs(new - s) < 1e-12 * s:
            break
        s = new
    inside = 1.01 / _LARGEST_SLOPE < s < _LARGEST_SLOPE / 1.01
    return np.array(s), bool(inside), f"T = {1 / s:.3g}"


def fit_temperature(rows: LabelRows) -> Fitted:
    """Fits softmax(log(p) / T)."""
    floor, raised = with_floor(rows)
    slope, converged, words = _slope_of_likelihood(raised)
    scaling = Scaling(slope, np.array(0.0))
    words += " (logits are divided by T; above 1: over-confident)"
    return Fitted((floor, scaling, mixed_with_uniform(rows)), converged, words)


def fit_vector(rows: LabelRows) -> Fitted:
    """Fits softmax(v o log p + b), without a penalty (Guo 2017)."""
    floor, raised = with_floor(rows)
    fitted = _scaling_of(raised, math.inf, is_full=False)
    return fitted._replace(steps=(floor, *fitted.steps, mixed_with_uniform(rows)))


def fit_after_temperature(rows: LabelRows, is_full: bool) -> Fitted:
    """Fits softmax(L + W L + b) of L = log p after a temperature, with W and b shrunk to 0.

    W is a full matrix or a diagonal one.
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
    """Minimises the penalised loss over W or its diagonal, and b, by L-BFGS-B from W = 1, b = 0.

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
    # Parts of few rows are padded to the bucket of all rows, with share 0.
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
    # Status 1 is the step limit.  A line search that rounding has ended is at a minimum.
    ended = found.status != 1 and bool(np.all(np.isfinite(found.x)))
    # Numbers diverge if all decisions are right, and without a penalty the bias of a class that
    # never occurred.
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
