"""Predictions recalibrated by maps that were fitted to other rows, and the gain of a score."""

from collections.abc import Callable
from typing import Any, NamedTuple, Unpack

import jax
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.check import check_choice
from calibjax._data.capabilities import KnownQuantiles
from calibjax._data.data import Data, RowOptions, as_data
from calibjax._data.distribution import Distribution, Labels, as_labels
from calibjax._data.interval_censored import IntervalCensored, Targets
from calibjax._data.padding import filled
from calibjax._data.row_columns import CovariatesLike
from calibjax._data.typed_column import NamedColumns
from calibjax.distributions import Quantiles
from calibjax.estimators.labels import check_classes
from calibjax.measures.measure import Measure, Subset
from calibjax.measures.quantiles import pinball_losses
from calibjax.measures.risk_by_time import Lifetimes, brier_rows
from calibjax.measures.sampling import Estimate, Sampling
from calibjax.nulls.ranks import one_level
from calibjax.recalibration._cross_validation import numbers_of_folds
from calibjax.recalibration._fit_recalibrator import data_outside_jit, fit_recalibrator
from calibjax.scores import crps, log_score


def cross_fit(
    predictions: Distribution | Data,
    targets: Targets | None = None,
    method: str = "auto",
    folds: int | ArrayLike = 5,
    *,
    groups: NamedColumns | None = None,
    covariates: CovariatesLike | None = None,
    lower: float | None = None,
    **rows: Unpack[RowOptions],
) -> Any:
    """Recalibrates each row by a map that was fitted without its fold.

    Log scores, tests and `evaluate` then use all rows, and no row has fitted its own map.  They
    are those of maps that were fitted to a part of the rows; `fit_recalibrator` fits a map to all
    rows for later use.

    Args:
        predictions, targets: as in `fit_recalibrator`.
        method, groups, covariates, lower: as in `fit_recalibrator`.
        folds: the number of folds, at least 2: random folds of rows or clusters with a fixed seed,
            blocks of consecutive times; or the fold of each row, integers ``[n]``, without clusters
            and times.
        rows: as in `fit_recalibrator`.  The parts that "auto" holds out also keep clusters and
            times together; a row of weight 0 fits no map, but is recalibrated.

    Returns:
        The recalibrated predictions, in the order of the rows.

    Raises:
        TypeError, ValueError: as `fit_recalibrator`; fewer than 2 folds, or more than there are
            rows, clusters or times; clusters or times with given folds.

    See also:
        `fit_recalibrator`.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> logits = 3 * jax.random.normal(jax.random.key(0), (500,))
        >>> targets = cj.Bernoulli.from_logits(logits / 3).sample(jax.random.key(1))
        >>> predictions = cj.Bernoulli.from_logits(logits)
        >>> recalibrated = cj.cross_fit(predictions, targets, "temperature", 5)
        >>> for p in (predictions, recalibrated):
        ...     print(round(float(cj.log_score(p, targets).mean()), 2))
        0.76
        0.6

    Reference: Stone, Cross-validatory choice and assessment of statistical predictions, Journal of
    the Royal Statistical Society B 1974.
    """
    data = data_outside_jit("cross_fit", predictions, targets, rows, folds, covariates)
    if np.ndim(folds) > 0 and data.is_dependent:
        name = "clusters" if data.horizon is None else "times"
        raise ValueError(f"{name} must be None with the fold of each row, got an array.")
    return _cross_fit(data, method, folds, lower, groups=groups, covariates=covariates)


def _cross_fit(
    data: Data,
    method: str | Callable[[Data], Any],
    folds: int | ArrayLike,
    lower: float | None = None,
    **beside: Any,
) -> Any:
    """`cross_fit` of checked data, with groups and covariates in `beside`.

    A function as `method` fits a map to the data that it is called with, and returns new
    predictions of all rows.
    """
    kept = np.ones(data.n, bool) if data.where is None else np.asarray(data.where)
    fold, found = numbers_of_folds(folds, data), []
    for k in range(fold.max() + 1):
        others = data.replace(where=kept & (fold != k))
        if callable(method):
            found.append(method(others))
        else:
            recalibrator = fit_recalibrator(others, None, method, lower=lower, **beside)
            found.append(recalibrator(data.predictions, **beside))

    def chosen(*parts: Any) -> Any:
        return jax.device_put(np.stack(list(map(np.asarray, parts)))[fold, np.arange(len(fold))])

    return jax.tree.map(chosen, *found)


class HeldOut(NamedTuple):
    """Predictions and scores of held-out rows.

    Args:
        predictions: predictions after `cross_fit`.
        before: the score of each row before it, ``[n]``.
        after: the score of each row after it, ``[n]``.
    """

    predictions: Any
    before: np.ndarray
    after: np.ndarray


def held_out(
    data: Data,
    method: str | Callable[[Data], Any],
    folds: int | np.ndarray,
    *,
    score: str | None = None,
    **options: Any,
) -> HeldOut:
    """`_cross_fit` of checked data, and a score of rows: "log", "brier", "crps" or "pinball".

    None for that of `default_score`.
    """
    found = _cross_fit(data, method, folds, **options)
    return HeldOut(found, *(row_scores(p, data.targets, score) for p in (data.predictions, found)))


def default_score(predictions: Distribution, targets: Any) -> str:
    """The name of the CRPS for samples, the pinball loss for quantiles, and else the log score.

    Survival curves on one grid have the integrated Brier score: their log score is often infinite.
    """
    is_hidden = isinstance(targets, IntervalCensored)
    if is_hidden and Lifetimes.of(as_data(predictions, targets, intervals=True)) is not None:
        return "brier"
    if is_hidden or not isinstance(predictions, KnownQuantiles):
        return "log"
    return "pinball" if isinstance(predictions, Quantiles) else "crps"


def row_scores(predictions: Distribution, targets: Any, score: str | None = None) -> np.ndarray:
    """The score of each row, ``[n]``; by default that of `default_score`."""
    score = score or default_score(predictions, targets)
    if score == "brier" and isinstance(targets, IntervalCensored):
        lifetimes = Lifetimes.of(as_data(predictions, targets, intervals=True))
        assert lifetimes is not None  # the caller has looked
        found = brier_rows(lifetimes, Sampling(lifetimes.times.size))
        return np.zeros(lifetimes.times.size) if found is None else found
    if score == "brier":
        n = len(predictions)
        probs = np.asarray(filled(as_labels(predictions), n).label_probabilities(), float)
        return brier_scores(probs[:n], targets)
    of_rows: Any = {"log": log_score, "crps": crps, "pinball": pinball_losses}[score]
    return np.asarray(of_rows(predictions, targets), np.float64)


def brier_scores(probs: np.ndarray, targets: ArrayLike) -> np.ndarray:
    """(p - y)^2 of two classes, and of more the sum of squares over all classes, ``[n]``."""
    m = probs.shape[1]
    squares = np.sum(np.square(probs - np.eye(m)[np.asarray(targets).astype(int)]), axis=1)
    return squares / 2 if m == 2 else squares


_UNITS = {"log": "nats", "brier": "", "crps": "units of the targets"}


class ScoreDecomposition(NamedTuple):
    """A mean score and its parts; see `decompose_score`.  It prints them.

    Args:
        score: the mean score S(p), which is calibration + refinement, and so
            calibration + uncertainty - resolution.
        calibration: S(p) - S(q), the gain of recalibration on held-out rows.
        refinement: S(q), the score after recalibration.
        uncertainty: S(c) of a forecast c that is the same for all rows, the frequencies of targets.
        resolution: S(c) - S(q), the gain of forecasts that differ between rows.
        name: "log", "brier" or "crps".
        description: the method, the folds, the number of rows and the level of confidence.

    Example:
        >>> import calibjax as cj
        >>> part = cj.Estimate(0.25, 0.2, 0.3)
        >>> cj.ScoreDecomposition(part, part, part, part, part, "brier", "spline").score
        0.25 (0.2 … 0.3)
    """

    score: Estimate
    calibration: Estimate
    refinement: Estimate
    uncertainty: Estimate
    resolution: Estimate
    name: str
    description: str

    def __repr__(self) -> str:
        """Words, as `print` shows them."""
        unit = f", in {_UNITS[self.name]}" if _UNITS[self.name] else ""
        return (
            f"ScoreDecomposition: {self.name} score {self.score}{unit}\n"
            f"  = calibration {self.calibration}: what recalibration gains\n"
            f"  + refinement {self.refinement}: what it leaves\n"
            f"  refinement = uncertainty {self.uncertainty} - resolution {self.resolution}\n"
            f"  {self.description}"
        )


def decompose_score(
    predictions: Distribution | Data,
    targets: Targets | None = None,
    *,
    score: str | None = None,
    method: str | None = None,
    folds: int | ArrayLike = 5,
    clusters: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    confidence_level: float = 0.95,
) -> ScoreDecomposition:
    """Splits a proper score into miscalibration and the score that is left after recalibration.

    .. math::
        \\bar S(p) = \\underbrace{\\bar S(p) - \\bar S(q)}_{\\text{calibration}}
        + \\underbrace{\\bar S(q)}_{\\text{refinement}}, \\qquad
        \\bar S(q) = \\underbrace{\\bar S(c)}_{\\text{uncertainty}}
        - \\underbrace{(\\bar S(c) - \\bar S(q))}_{\\text{resolution}}

    p are the predictions, q those of `cross_fit`, which recalibrates each row by a map that was
    fitted to other folds, and c the frequencies of targets in the other folds.  Calibration is the
    gain in log score, Brier score or CRPS by recalibration: it is negative if a map harms.

    **It is a lower bound, on average.**  A map that is fitted to some rows is worse than the best
    map, so that the calibration part of a calibrated model is a little below 0: by 0.008 nats for
    300 rows of two classes, by 0.002 for 1000 and by 0.0006 for 3000.  The part that `corp_curve`
    shows is an upper bound: its isotonic map is fitted to the same rows, and so always gains.

    Each interval is that of a mean in `evaluate`, of differences of scores in each row, with a
    correction for their skewness.  It is for the given maps, and ignores the bias.  If the interval
    of calibration is above 0, recalibration is useful; if it includes 0 or is below, these rows do
    not show a gain.

    Args:
        predictions, targets: as in `Data`, or one `Data`, of predictions that `fit_recalibrator`
            takes: predictions of labels or real numbers.
        score: "log", the log score in nats, of labels; "brier", (p - y)^2 of two classes and the
            sum of squares over all classes of more; "crps", in units of the targets, of numbers.
            By default "log" of labels and "crps" of numbers.
        method: as in `fit_recalibrator`.  By default "spline" for two classes, "svs" for more, and
            "pit_beta" for numbers: of few parameters, for the sake of the bias.
        folds: the number of folds, at least 2, or the fold of each row, ``[n]``, such as blocks of
            weeks.
        clusters: as in `Data`; each stays in one fold, and counts as one unit in intervals.
        weights: as in `Data`, for the fits, the means and c.
        confidence_level: the probability of each interval, in (0, 1).

    Returns:
        ScoreDecomposition.  Score and calibration are infinite, without intervals, if a target had
        probability 0.  The time is that of `cross_fit`.

    Raises:
        TypeError, ValueError: as `cross_fit`; a score for other predictions.

    See also:
        `corp_curve` for the parts of isotonic regression in sample, `cross_fit`.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> logits = 3 * jax.random.normal(jax.random.key(0), (500,))
        >>> targets = cj.Bernoulli.from_logits(logits / 3).sample(jax.random.key(1))
        >>> parts = cj.decompose_score(cj.Bernoulli.from_logits(logits), targets)
        >>> [round(x.estimate, 2) for x in (parts.score, parts.calibration, parts.refinement)]
        [0.76, 0.16, 0.61]

    Reference: Bröcker, Reliability, sufficiency, and the decomposition of proper scores, Quarterly
    Journal of the Royal Meteorological Society 2009, and Murphy, A new vector partition of the
    probability score, Journal of Applied Meteorology 1973, for the parts; Berta, Holzmüller, Jordan
    and Bach, Rethinking early stopping: refine, then calibrate, 2025, for calibration as the gain
    of recalibration.
    """
    rows = RowOptions(clusters=clusters, weights=weights)
    data = data_outside_jit("decompose_score", predictions, targets, rows, folds)
    data = as_data(data, without=("where", "covariates"))
    level = float(one_level(confidence_level, np.float64))
    has_labels = isinstance(data.predictions, Labels)
    known = ("log", "brier") if has_labels else ("crps",)
    score = known[0] if score is None else score
    check_choice("score of labels" if has_labels else "score of numbers", score, known)
    if method is None:
        method = {None: "pit_beta", 2: "spline"}.get(data.predictions.n_labels, "svs")
    fold = numbers_of_folds(folds, data)
    _, of_model, of_recalibrated = held_out(data, method, fold, score=score)
    every = np.ones(data.n) if data.weights is None else np.asarray(data.weights, np.float64)
    of_frequencies = _scores_of_frequencies(score, data, fold, every)
    (every_row,) = Subset.of(data, level)

    def part(values: np.ndarray) -> Estimate:
        found = Measure(values)(every_row)
        return Estimate(found.value, *(found.interval or (np.nan, np.nan)))

    n_folds = int(fold.max()) + 1
    description = f"{method} in {n_folds} folds of {data.n} rows; intervals of {100 * level:.4g} %"
    return ScoreDecomposition(
        score=part(of_model),
        calibration=part(of_model - of_recalibrated),
        refinement=part(of_recalibrated),
        uncertainty=part(of_frequencies),
        resolution=part(of_frequencies - of_recalibrated),
        name=score,
        description=description,
    )


def _scores_of_frequencies(
    score: str, data: Data, fold: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """The score of each row if the targets of the other folds are its forecast, ``[n]``."""
    targets = np.asarray(data.targets)
    scores = np.zeros(len(targets))
    for k in range(fold.max() + 1):
        inside = fold == k
        others, own, counts = targets[~inside], targets[inside], weights[~inside]
        # Their sum is the effective sample size.
        counts = counts * (counts.sum() / np.sum(counts**2))
        if score == "crps":
            sample = others.astype(np.float64)
            scores[inside] = _crps_of_sample(sample, counts, own.astype(np.float64))
            continue
        m = check_classes(data.predictions)
        # As in a map, no class has probability 0.
        share = np.bincount(others.astype(int), counts, minlength=m)
        share = (share + 1 / m) / (counts.sum() + 1)
        own = own.astype(int)
        rows = np.broadcast_to(share, (len(own), m))
        scores[inside] = -np.log(share[own]) if score == "log" else brier_scores(rows, own)
    return scores


def _crps_of_sample(sample: np.ndarray, weights: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """E|Y - y| - E|Y - Y'| / 2 for the distribution of a sample with weights, in O(n log n)."""
    order = np.argsort(sample)
    ordered, share = sample[order], weights[order] / weights.sum()
    ends, sums = np.cumsum(np.pad([share, share * ordered], ((0, 0), (1, 0))), axis=1)
    below = np.searchsorted(ordered, targets)
    distance = targets * (2 * ends[below] - 1) - 2 * sums[below] + sums[-1]
    # Half of E|Y - Y'| is sum_i s_i y_i (S_i + S_{i-1} - 1), with sums S of the shares s.
    return distance - np.sum((ends[1:] + ends[:-1] - 1) * share * ordered)
