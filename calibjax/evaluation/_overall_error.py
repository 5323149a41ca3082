"""What one bias and one dispersion, or logits shifted and scaled, explain of an error.

**Quantiles.**  If a forecast has the bias a and its intervals should be f times as wide, both in
normal scores, then P(Y <= q_u) = Phi((Phi^-1(u) - a) / f), so that the normal scores of observed
shares lie on a line (Berkson, Application of minimum logit chi-square, 1955, for the weights).

**Cells.**  An error in a cell of a map is local if it differs from what the overall error explains
by more than the critical score of the map.
"""

import functools

import jax
import numpy as np

from calibjax._base.compile import quick_jit
from calibjax._base.struct import with_fields
from calibjax._data.capabilities import is_exchangeable
from calibjax._data.data import Data
from calibjax._data.distribution import Distribution, as_labels
from calibjax.curves import ResidualMap, WitnessMap
from calibjax.measures.families import expected_squares, moments, numbers_of_members
from calibjax.measures.measure import Measure, MeasureResult, Subset
from calibjax.measures.sampling import Sampling

#: The levels at which PITs are compared with a uniform distribution.
LEVELS = np.arange(1, 20) / 20
# Maximum number of probabilities that fit logits; probabilities are at least _LEAST.
_MOST_NUMBERS, _LEAST = 2**20, 1e-12


def probit_line(levels: np.ndarray, shares: np.ndarray, n: float) -> tuple[np.ndarray, np.ndarray]:
    """Intercept and slope of normal scores of shares ``[…, K]`` of n rows, over those of levels."""
    from scipy.special import ndtri

    z, shares = ndtri(levels), np.clip(shares, 0.5 / n, 1 - 0.5 / n)
    scores = ndtri(shares)
    weights = np.exp(-np.square(scores)) / (shares * (1 - shares))
    weights = weights / weights.sum(axis=-1, keepdims=True)
    of_z, of_scores = ((weights * x).sum(axis=-1, keepdims=True) for x in (z, scores))
    centred = weights * (z - of_z)
    slope = (centred * scores).sum(axis=-1) / (centred * z).sum(axis=-1)
    return of_scores[..., 0] - slope * of_z[..., 0], slope


def widening(
    data: Data,
    rows: np.ndarray,
    below: tuple[np.ndarray, np.ndarray],
    sampling: Sampling,
    level: float,
) -> MeasureResult:
    """How many times as wide intervals should be once the bias is removed, with an interval.

    Ensembles and counts have few ranks: the standard deviation of errors is divided by that of
    forecasts.

    Args:
        data: predictions and targets of numbers.
        rows: the indices of the rows that count, ``[n]``.
        below: levels ``[K]``, and whether targets are at most the quantiles there, ``[n, K]``.
        sampling: how these rows count.
        level: the level of the interval.
    """
    predictions, (levels, is_below) = data.predictions, below
    if is_exchangeable(predictions) or predictions.target_kind == "integer":
        means, deviations = (np.asarray(x, np.float64)[rows] for x in moments(predictions))
        errors = np.asarray(data.targets, np.float64)[rows] - means
        variances, n_members = np.square(deviations), numbers_of_members(predictions, data.n)
        if n_members is not None:
            variances = expected_squares(variances, n_members[rows])
        columns = np.stack([errors, np.square(errors), variances], axis=1)
        measure = Measure(
            columns, lambda m: np.sqrt((m[..., 1] - m[..., 0] ** 2) / m[..., 2]), is_ratio=True
        )
    else:
        n = rows.size
        measure = Measure(is_below, lambda m: 1 / probit_line(levels, m, n)[1], is_ratio=True)
    every = np.arange(rows.size)
    with np.errstate(divide="ignore", invalid="ignore"):
        return measure(Subset(every, sampling, 1 - level, every))


def local_errors(data: Data, found: WitnessMap | ResidualMap) -> WitnessMap | ResidualMap:
    """A map whose cells are significant only where the overall error does not explain them."""
    rows = np.flatnonzero(data.counted_rows()[: data.n_kept()])
    if isinstance(found, WitnessMap):
        scores = _scores_of_classes(data, rows, found)
    else:
        scores = _scores_of_numbers(data, rows, found)
    is_local = np.abs(scores) > np.asarray(found.critical)
    return with_fields(found, significant=np.asarray(found.significant) & is_local)


def _scores_of_classes(data: Data, rows: np.ndarray, found: WitnessMap) -> np.ndarray:
    """The scores of a witness map, of probabilities softmax(b log p + s) that fit the rows."""
    from scipy.special import rel_entr

    p = np.asarray(as_labels(data.predictions).label_probabilities())[rows]
    happened = np.eye(p.shape[1])[np.asarray(data.targets)[rows]]
    shares, edges = np.full(len(p), 1 / len(p)), np.asarray(found.probability_edges)
    corrected = with_fitted_logits(p, happened, shares)
    scores = np.zeros(np.shape(found.value))
    for row, c in enumerate(np.asarray(found.classes)):
        cells, q = np.searchsorted(edges[1:-1], p[:, c]), corrected[:, c]
        columns = np.ones(len(q)), q, happened[:, c], q * (1 - q)
        n, expected, observed, variance = (
            np.bincount(cells, x, minlength=len(edges) - 1) for x in columns
        )
        deviance = rel_entr(observed, expected) + rel_entr(n - observed, n - expected)
        scale = 2 * expected * (1 - expected / np.maximum(n, 1)) / np.maximum(variance, _LEAST)
        scores[row] = np.sqrt(np.maximum(scale * deviance, 0.0))
    return scores


def with_fitted_logits(
    probabilities: np.ndarray, happened: np.ndarray, shares: np.ndarray, shifted: int | None = None
) -> np.ndarray:
    """Probabilities with logits b log p + s, by maximum likelihood of b and of s for each class.

    Args:
        probabilities: p, ``[n, m]``.
        happened: 1 for the observed class, ``[n, m]``.
        shares: the weights of the rows, whose sum is 1, ``[n]``.
        shifted: the only class with another s than 0, beside b = 1; None for all.
    """
    from scipy.optimize import minimize

    logits = np.log(np.maximum(probabilities.astype(np.float64), _LEAST))
    n, m = logits.shape
    step = max(n * m // _MOST_NUMBERS, 1)
    # An outcome of probability 0 would decide the fit alone.
    possible = (logits * happened).sum(axis=1) > np.log(_LEAST)
    some, hits, weights = (x[possible][::step] for x in (logits, happened, shares))

    def predicted(x: np.ndarray, logits: np.ndarray) -> np.ndarray:
        moved = x[0] * logits + x[1:]
        moved = np.exp(moved - moved.max(axis=1, keepdims=True))
        return moved / moved.sum(axis=1, keepdims=True)

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        q = predicted(x, some)
        gaps = weights[:, None] * (q - hits)
        losses = -np.log(np.maximum((q * hits).sum(axis=1), _LEAST))
        return float(weights @ losses), np.append((gaps * some).sum(), gaps.sum(axis=0))

    start, bounds = np.append(1.0, np.zeros(m)), None
    if shifted is not None:
        bounds = [(1.0, 1.0), *((None, None) if c == shifted else (0.0, 0.0) for c in range(m))]
    fit = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return predicted(fit.x, logits)


@functools.partial(quick_jit, light=True)
def location_and_spread(predictions: Distribution) -> tuple[jax.Array, jax.Array]:
    """The location and the spread of each prediction, from one program."""
    return predictions.location(), predictions.spread()


def _scores_of_numbers(data: Data, rows: np.ndarray, found: ResidualMap) -> np.ndarray:
    """The scores of a residual map, of residuals with the mean 0 and the variance 1."""
    places = location_and_spread(data.predictions)
    location, spread, targets = (np.asarray(x, np.float64)[rows] for x in (*places, data.targets))
    errors = (targets - location) / np.where(spread > 0, spread, 1)
    errors = (errors - errors.mean()) / (errors.std() or 1.0)
    edges = (np.asarray(x)[1:-1] for x in (found.location_edges, found.spread_edges))
    bins = [np.searchsorted(x, y) for x, y in zip(edges, (location, spread), strict=True)]
    shape = np.shape(found.count)
    cells, size = np.ravel_multi_index(bins, shape), shape[0] * shape[1]
    n = np.maximum(np.bincount(cells, minlength=size), 1)
    mean, square = (np.bincount(cells, x, minlength=size) / n for x in (errors, errors**2))
    # The cubic root of a mean square is nearly symmetric.
    of_spread = 3 * (np.cbrt(square) - 1) / (np.square(errors).std() or 1.0)
    return (np.sqrt(n) * np.stack([mean, of_spread])).reshape(2, *shape)
