"""What clinical and credit papers report of the probability of an event.

The intercept, the slope and the smooth curve are logistic regressions of the event on logit p:

    logit P(Y = 1) = a + logit p,   a + b logit p,   sum_k t_k B_k(logit p)

with a restricted cubic spline B.  Their estimates of maximum likelihood depend on the targets only
through the sums of y B_k(logit p) over the rows, so that those of drawn targets need no rows.

Reference: Van Calster et al., Calibration: the Achilles heel of predictive analytics, BMC Medicine
2019; Austin and Steyerberg, The integrated calibration index (ICI), Statistics in Medicine 2019;
Harrell, Regression modeling strategies, 2015, section 2.4 for the spline.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from calibjax._base.text import named_rows
from calibjax._numbers.arithmetic import in_blocks
from calibjax.measures.measure import Measure, MeasureResult, NumberOfRows, Subset

#: Names of measures.
RATIO, EVENTS, EXPECTED = "observed / expected", "observed events", "expected events"
INTERCEPT, SLOPE = "calibration-in-the-large", "calibration slope"
# Statistics of the distances of p from the smooth curve: their mean, or a quantile.
_DISTANCES = {"ICI": None, "E50": 0.5, "E90": 0.9}
#: Events are rare if the median probability is below: axes of plots are logarithmic.
RARE = 0.05
# Levels of the quantiles at which the spline has its knots.
_KNOTS = (0.05, 0.275, 0.5, 0.725, 0.95)
# Minimum expected number of events, and of rows without one, for each parameter.
_EVENTS_PER_PARAMETER = 10
# Maximum number of points at which a fit to many data sets looks at the predictions.
_MOST_POINTS = 256
# Newton's steps: their number, the largest change of a logit, and the last change, whose square is
# the order of the error.
_MOST_STEPS, _LARGEST_STEP, _CONVERGED = 30, 3.0, 1e-4
# Decimals of a number of events: those of its sum are rounding.
_DECIMALS = 6
# What is added to a curvature, relatively, for data sets that have no estimate.
_RIDGE = 1e-12
# A function whose part that others do not determine is smaller, relatively, is left out.
_DETERMINED = 1e-6
# Maximum number of functions of a spline.
_ALL = len(_KNOTS)


def expit(logits: np.ndarray) -> np.ndarray:
    from scipy import special

    return np.asarray(special.expit(logits))


def logits_of(probabilities: np.ndarray) -> np.ndarray:
    """logit p of the second of two labels, given the probabilities of both, ``[n]``."""
    with np.errstate(divide="ignore"):
        both = np.log(probabilities)
    return both[:, 1] - both[:, 0]


def spline_basis(logits: np.ndarray, at: np.ndarray | None = None) -> np.ndarray:
    """1, the logit, and up to three functions that bend, at all rows: ``[n, 2]`` to ``[n, 5]``.

    A restricted cubic spline is linear beyond its first and last knot.  Predictions decide how many
    knots there are, so that drawn targets have the same ones.  `at` are other logits, ``[g]``, at
    which the functions of these rows are wanted, ``[g, K]``.
    """
    z = np.where(np.isfinite(logits), logits, 0.0)
    x = z if at is None else at
    share, straight = expit(z).mean(), np.stack([np.ones_like(x), x], axis=1)
    n_bends = int(min(share, 1 - share) * z.size / _EVENTS_PER_PARAMETER) - 2
    knots = np.unique(np.quantile(z, _KNOTS))
    knots = knots[np.linspace(0, knots.size - 1, min(knots.size, n_bends + 2)).round().astype(int)]
    if n_bends < 1 or knots.size < 3:
        return straight
    *first, before, last = knots

    def cubic(knot: float) -> np.ndarray:
        return np.maximum(x - knot, 0.0) ** 3 / (last - knots[0]) ** 2

    bends = [
        cubic(knot)
        - cubic(before) * (last - knot) / (last - before)
        + cubic(last) * (before - knot) / (last - before)
        for knot in first
    ]
    return np.column_stack([straight, *bends])


class Fits(NamedTuple):
    """Logistic regressions of D data sets on one design.

    Args:
        coefficients: those of the functions of a basis that are added to the logit, ``[D, K]``.
        probabilities: those of the fits at the points of the design, ``[D, C]``.
        converged: whether there is an estimate of maximum likelihood, ``[D]``.
    """

    coefficients: np.ndarray
    probabilities: np.ndarray
    converged: np.ndarray


class Design(NamedTuple):
    """Predictions of some rows, as a logistic regression sees them.

    Args:
        features: orthonormal functions of the logit, of each row ``[n, k]``.
        mixing: the features are the functions of a basis times this matrix, ``[K, k]``.
        logits, shares: logit p, and the weights of the rows, whose sum is 1, ``[n]``.
    """

    features: np.ndarray
    mixing: np.ndarray
    logits: np.ndarray
    shares: np.ndarray

    @classmethod
    def of(cls, basis: np.ndarray, logits: np.ndarray, shares: np.ndarray) -> "Design":
        """That of functions ``[n, K]``, without those that are sums of others at these rows."""
        root = np.sqrt(shares)[:, None]
        diagonal = np.abs(np.diag(np.linalg.qr(root * basis)[1]))
        used = diagonal > _DETERMINED * np.sqrt(shares @ np.square(basis))
        mixing = np.zeros((used.size, used.sum()))
        mixing[used] = np.linalg.inv(np.linalg.qr(root * basis[:, used])[1])
        return cls(basis @ mixing, mixing, logits, shares)

    def points(self) -> "Design":
        """At most 256 points instead of the rows, each the mean of rows with similar logits."""
        n = len(self.logits)
        if n <= _MOST_POINTS:
            return self
        order = np.argsort(self.logits, kind="stable")
        starts = np.linspace(0, n, _MOST_POINTS, endpoint=False).astype(int)
        shares = np.add.reduceat(self.shares[order], starts)

        def mean(x: np.ndarray) -> np.ndarray:
            return (np.add.reduceat((self.shares * x.T).T[order], starts).T / shares).T

        return Design(mean(self.features), self.mixing, mean(self.logits), shares)

    def fit(self, sums: np.ndarray) -> Fits:
        """Logistic regressions of D data sets by Newton's method with bounded steps.

        Logits are logit p + features t; t = 0 is a calibrated model.

        Args:
            sums: the means over rows of the target times each function of the basis, ``[D, K]``.
        """
        features, k = self.features, self.features.shape[1]
        products = (features[:, :, None] * features[:, None, :]).reshape(-1, k * k)
        sums, t, moved = sums @ self.mixing, np.zeros((len(sums), k)), np.full(len(sums), np.inf)
        for _ in range(_MOST_STEPS):
            (left,) = np.nonzero(moved > _CONVERGED)
            q = expit(self.logits + in_blocks(t[left], features.T))
            gradients = sums[left] - in_blocks(q * self.shares, features)
            hessians = in_blocks(q * (1 - q) * self.shares, products).reshape(-1, k, k)
            hessians += _RIDGE * np.trace(hessians, axis1=1, axis2=2)[:, None, None] * np.eye(k)
            steps = np.linalg.solve(hessians, gradients[:, :, None])[:, :, 0]
            moved[left] = np.abs(in_blocks(steps, features.T)).max(axis=1)
            factors = np.minimum(1.0, _LARGEST_STEP / np.maximum(moved[left], _LARGEST_STEP))
            t[left] += factors[:, None] * steps
            if moved.max() <= _CONVERGED:
                break
        q = expit(self.logits + in_blocks(t, features.T))
        return Fits(t @ self.mixing.T, q, moved <= _CONVERGED)

    def influence(self, probabilities: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """How much each row moves the coefficients of the fit with these probabilities, ``[n, K]``.

        To first order the estimate is the truth plus the mean of H^{-1} B_i (y_i - q_i).
        """
        curvature = probabilities * (1 - probabilities) * self.shares
        hessian = (self.features.T * curvature) @ self.features
        moves = self.features * (targets - probabilities)[:, None] @ np.linalg.inv(hessian)
        return moves @ self.mixing.T


def fit_to_rows(
    rows: Subset,
    logits: np.ndarray,
    targets: np.ndarray,
    n_functions: int = _ALL,
    *,
    allows_limit: bool = False,
) -> tuple[Design, np.ndarray, Fits] | str:
    """The regression of some rows on the first functions of the spline, or why there is none.

    Args:
        rows: those that are fitted.
        logits, targets: of all rows, ``[n]``.
        n_functions: the largest number of functions of the spline.
        allows_limit: whether coefficients may be infinite: where no event occurred, or only
            events did, probabilities have the limits 0 and 1.

    Returns:
        The design, its functions ``[m, K]``, and the fit.
    """
    some, shares = rows.index, rows.sampling.shares()
    lost = some[~np.isfinite(logits[some])]
    if lost.size:
        return f"0 and 1 have no logit: {named_rows(rows.names[lost])}"
    functions = spline_basis(logits[some])[:, :n_functions]
    n, k = functions.shape
    if n <= k:
        return "too few rows"
    design = Design.of(functions, logits[some], shares)
    found = design.fit((shares * targets[some]) @ functions[None])
    is_finite = found.converged[0] and design.mixing.shape[1] >= min(k, 2)
    if not (is_finite or allows_limit):
        return "no finite estimate"
    return design, functions, found


def regression_measures(
    logits: np.ndarray, targets: np.ndarray, drawn: np.ndarray | None
) -> dict[str, NumberOfRows]:
    """The intercept, the slope and distances from the smooth curve.

    Args:
        logits: logit p of each row, ``[n]``.
        targets: whether the event occurred, ``[n]``.
        drawn: of data sets drawn from the predictions, and last the observed one, the means of the
            target times each function of `spline_basis`, ``[R + 1, K]``; or None.
    """

    @functools.cache
    def fitted(rows: Subset, n_functions: int) -> tuple[Design, np.ndarray, Fits] | str:
        is_curve = n_functions == _ALL
        return fit_to_rows(rows, logits, targets, n_functions, allows_limit=is_curve)

    @functools.cache
    def drawn_fits(rows: Subset, n_functions: int) -> tuple[Design, Fits]:
        """Those of drawn data sets, at points instead of the rows."""
        found = fitted(rows, n_functions)
        assert drawn is not None and not isinstance(found, str)
        points = found[0].points()
        return points, points.fit(drawn[:, :n_functions])

    def result(
        rows: Subset,
        column: np.ndarray,
        n_functions: int,
        of_draws: Callable[[Design, Fits], np.ndarray],
        **options: Any,
    ) -> MeasureResult:
        """With Student's interval for the mean of a column of these rows, as regressions do."""
        values = None
        if drawn is not None and not rows.sampling.is_dependent:
            values = of_draws(*drawn_fits(rows, n_functions))[:, None, None]
        else:
            options["error"] = None
        return Measure(column, drawn=values, has_skewness=False, **options)(rows.alone())

    def coefficient(k: int, rows: Subset) -> MeasureResult:
        found = fitted(rows, k + 1)
        if isinstance(found, str):
            return MeasureResult(math.nan, note=found)
        design, _, fits = found
        moves = design.influence(fits.probabilities[0], targets[rows.index])[:, k]
        column, expected = k + fits.coefficients[0, k] + moves, (float(k), float(k))
        options = {"expected": expected, "error": _size if k == 0 else None}
        return result(rows, column, k + 1, lambda _, x: k + x.coefficients[:, k], **options)

    def distance(level: float | None, rows: Subset) -> MeasureResult:
        """The mean distance of p from the curve, or the quantile of a level."""
        found = fitted(rows, _ALL)
        if isinstance(found, str):
            return MeasureResult(math.nan, note=found)
        design, functions, fits = found

        def values(design: Design, fits: Fits) -> np.ndarray:
            gaps = np.abs(fits.probabilities - expit(design.logits))
            return gaps @ design.shares if level is None else _quantile(gaps, design.shares, level)

        column = np.broadcast_to(values(design, fits), rows.index.shape)
        has_interval = level is None and bool(fits.converged[0])
        if has_interval:
            q = fits.probabilities[0]
            gaps = q - expit(design.logits)
            slopes = (np.sign(gaps) * q * (1 - q) * design.shares) @ functions
            column = np.abs(gaps) + design.influence(q, targets[rows.index]) @ slopes
        options = {"possible": (0.0, 1.0), "has_interval": has_interval, "error": _size}
        return result(rows, column, _ALL, values, **options)

    found: dict[str, NumberOfRows] = {
        INTERCEPT: functools.partial(coefficient, 0),
        SLOPE: functools.partial(coefficient, 1),
    }
    return found | {name: functools.partial(distance, x) for name, x in _DISTANCES.items()}


def _size(means: np.ndarray) -> np.ndarray:
    return np.abs(means[..., 0])


def _quantile(values: np.ndarray, shares: np.ndarray, level: float) -> np.ndarray:
    """The least of the weighted values ``[D, C]`` up to which a share of the rows lies, ``[D]``."""
    order = np.argsort(values, axis=1)
    up_to = np.cumsum(shares[order], axis=1)
    at = np.minimum((up_to < level - _DETERMINED).sum(axis=1), values.shape[1] - 1)
    return np.take_along_axis(values, np.take_along_axis(order, at[:, None], 1), 1)[:, 0]


def total(column: np.ndarray, drawn: np.ndarray | None = None) -> NumberOfRows:
    """The sum of a column, with the range of the observed number of events; weights average 1."""

    def result(rows: Subset) -> MeasureResult:
        def of_means(means: np.ndarray) -> np.ndarray:
            return np.round(rows.index.size * means[..., 0], _DECIMALS)

        return Measure(column, of_means, drawn=drawn, has_interval=False)(rows)

    return result


def auc(rows_above: np.ndarray, targets: np.ndarray) -> NumberOfRows:
    """The area under the ROC curve, with DeLong's interval.

    It is P(p > p') + P(p = p') / 2 for an event p and a row p' without one: discrimination, which
    is not calibration.

    Args:
        rows_above: numbers that increase with p, ``[n]``.
        targets: whether the event occurred, ``[n]``.
    """

    def result(rows: Subset) -> MeasureResult:
        y, shares = targets[rows.index] == 1, rows.sampling.shares()
        if y.all() or not y.any():
            return MeasureResult(math.nan, note="needs rows with and without the event")
        _, ranks = np.unique(rows_above[rows.index], return_inverse=True)
        # The share of rows of the other kind below each row, ties half.
        placed = np.empty(y.size)
        for kind in (True, False):
            others = np.bincount(ranks, shares * (y != kind), ranks.max() + 1)
            below = (np.cumsum(others) - others / 2)[ranks] / others.sum()
            placed = np.where(y == kind, below if kind else 1 - below, placed)
        value = shares @ (placed * y) / (shares @ y)
        factor = np.where(y, 1 / (shares @ y), 1 / (shares @ ~y))
        column = value + (placed - value) * factor
        return Measure(column, possible=(0.0, 1.0))(rows.alone())

    return result
