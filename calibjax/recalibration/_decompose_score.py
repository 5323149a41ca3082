"""A proper score in parts: what a better calibration would gain, and what would remain."""

from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from calibjax._check import check_array, check_choice, check_shapes
from calibjax._distribution import Distribution
from calibjax._rows import Data, Dependence, as_data, first_rows, padded
from calibjax._struct import is_traced
from calibjax.intervals import Estimate, Sampling, mean_interval
from calibjax.recalibration._cross_fit import FitOptions, out_of_folds
from calibjax.recalibration._folds import numbers_of_folds
from calibjax.recalibration._recalibrator import check_labels
from calibjax.resampling import one_level
from calibjax.scores import crps, log_score

_UNITS = {"log": "nats", "brier": "", "crps": "units of the targets"}


class ScoreDecomposition(NamedTuple):
    """A mean score and its parts; see `decompose_score`.  It prints them.

    Args:
        score: the mean score S(p), which is calibration + refinement, and so
            calibration + uncertainty - resolution.
        calibration: S(p) - S(q), by how much a recalibrated model is better on rows that did not
            recalibrate it.
        refinement: S(q), what recalibration leaves.
        uncertainty: S(c) of a forecast c that is the same for all rows, how often targets happen.
        resolution: S(c) - S(q), what is gained by telling rows apart.
        name: "log", "brier" or "crps".
        words: the method, the folds, the number of rows and the level of confidence.

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
    words: str

    def __repr__(self) -> str:
        """Words, as `print` shows them."""
        unit = f", in {_UNITS[self.name]}" if _UNITS[self.name] else ""
        return "\n".join(
            [
                f"ScoreDecomposition: {self.name} score {self.score}{unit}",
                f"  = calibration {self.calibration}: what recalibration gains",
                f"  + refinement {self.refinement}: what it leaves",
                f"  refinement = uncertainty {self.uncertainty} - resolution {self.resolution}",
                f"  {self.words}",
            ]
        )


def decompose_score(
    predictions: Distribution,
    targets: ArrayLike,
    *,
    score: str | None = None,
    method: str | None = None,
    folds: int | ArrayLike = 5,
    clusters: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    confidence_level: float = 0.95,
) -> ScoreDecomposition:
    """How much of a proper score is miscalibration, and how much is left after it is mended.

    .. math::
        \\bar S(p) = \\underbrace{\\bar S(p) - \\bar S(q)}_{\\text{calibration}}
        + \\underbrace{\\bar S(q)}_{\\text{refinement}}, \\qquad
        \\bar S(q) = \\underbrace{\\bar S(c)}_{\\text{uncertainty}}
        - \\underbrace{(\\bar S(c) - \\bar S(q))}_{\\text{resolution}}

    p are the predictions, q those of `cross_fit`, which mends each row by a map that was fitted to
    other folds, and c says for each row how often targets happened in the other folds.  Calibration
    is the log score, Brier score or CRPS that a user of the model would have gained: it is negative
    where a map harms.

    **It is a lower bound, on average.**  A map that is fitted to some rows is worse than the best
    map, so that the calibration part of a calibrated model is a little below 0: by 0.008 nats for
    300 rows of two classes, by 0.002 for 1000 and by 0.0006 for 3000.  The part that `corp_curve`
    shows is an upper bound: it has one map, the isotonic one, which is fitted to the rows that it
    judges, and so always gains.

    Each interval is `evaluate`'s interval of a mean, of the differences of scores row by row, with
    a correction for their skewness.  It takes the maps as they are, and does not know the bias: an
    interval of calibration above 0 says that recalibration is worth having, and one around 0 or
    below that these rows do not show it.

    Args:
        predictions: n >= 2 predictions that `fit_recalibrator` takes: of labels or real numbers.
        targets: labels ``0 … m-1`` or numbers, array ``[n]``.
        score: "log", the log score in nats, of labels; "brier", (p - y)^2 of two classes and the
            sum of squares over all classes of more; "crps", in units of the targets, of numbers.
            By default "log" of labels and "crps" of numbers.
        method: how to mend, as in `fit_recalibrator`.  By default "spline" for two classes, "svs"
            for more, and "pit_beta" for numbers: of few parameters, for the sake of the bias.
        folds: a number of folds of 2 or more, or the number of the fold of each row, ``[n]``, such
            as weeks in blocks.
        clusters: numbers of clusters, integers ``[n]``: rows of one may depend on each other.  They
            stay together in given numbers of folds, and count as one in intervals.
        weights: how much each row counts, nonnegative numbers ``[n]``, in the fits, in the means,
            and in what c says.
        confidence_level: the probability of each interval, in (0, 1).

    Returns:
        ScoreDecomposition.  Score and calibration are infinite, without intervals, if the model
        called a target impossible.  The time is that of `cross_fit`.

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
    if is_traced((predictions, targets, folds, clusters, weights)):
        raise TypeError("decompose_score must be called outside of jit, got traced arguments.")
    data = as_data(predictions, targets, weights=weights)
    level = float(one_level(confidence_level, np.float64))
    has_labels = predictions.has_labels
    if score is None:
        score = "log" if has_labels else "crps"
    check_choice("score of labels" if has_labels else "score of numbers", score, _of(has_labels))
    if method is None:
        of_labels = "spline" if has_labels and check_labels(predictions) == 2 else "svs"
        method = of_labels if has_labels else "pit_beta"
    if clusters is not None:
        check_array("clusters", clusters, "integer")
        check_shapes({"clusters": (clusters, "n")}, {"n": data.n})
    together = Dependence(clusters if np.ndim(folds) == 0 else None)
    fold = numbers_of_folds(folds, together, data)
    options = FitOptions(weights=weights, clusters=clusters)
    mended = out_of_folds(predictions, targets, method, fold, options)
    of_model, of_mended = _scores(score, predictions, targets), _scores(score, mended, targets)
    counts = None if weights is None else np.asarray(weights, np.float64)
    every = np.ones(data.n) if counts is None else counts
    of_frequencies = _scores_of_frequencies(score, predictions, np.asarray(targets), fold, every)
    unit = None if clusters is None else np.unique(np.asarray(clusters), return_inverse=True)[1]
    sampling = Sampling(data.n, weights=counts, clusters=unit)

    def part(values: np.ndarray) -> Estimate:
        interval = mean_interval(values, level, sampling=sampling)
        low, high = interval or (np.nan, np.nan)
        # An infinite score of a row without weight counts for nothing.
        return Estimate(float(np.average(values[every > 0], weights=every[every > 0])), low, high)

    n_folds = int(fold.max()) + 1
    words = f"{method} in {n_folds} folds of {data.n} rows; intervals of {100 * level:.4g} %"
    return ScoreDecomposition(
        score=part(of_model),
        calibration=part(of_model - of_mended),
        refinement=part(of_mended),
        uncertainty=part(of_frequencies),
        resolution=part(of_frequencies - of_mended),
        name=score,
        words=words,
    )


def _of(has_labels: bool) -> tuple[str, ...]:
    """The scores of labels, or of numbers."""
    return ("log", "brier") if has_labels else ("crps",)


def _scores(score: str, predictions: Distribution, targets: ArrayLike) -> np.ndarray:
    """The score of each row, ``[n]``."""
    data = Data.unchecked(predictions, targets)
    if score == "brier":
        probs = np.asarray(predictions.label_probabilities(), np.float64)
        return _brier(probs, np.asarray(targets).astype(int))
    of_data = log_score if score == "log" else crps
    return np.asarray(first_rows(of_data(padded(data)), data.n), np.float64)


def _brier(probs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    squares = np.sum(np.square(probs - np.eye(probs.shape[1])[targets]), axis=1)
    return squares / 2 if probs.shape[1] == 2 else squares


def _scores_of_frequencies(
    score: str,
    predictions: Distribution,
    targets: np.ndarray,
    fold: np.ndarray,
    weights: np.ndarray,
) -> np.ndarray:
    """The score of each row if the targets of the other folds are its forecast, ``[n]``."""
    scores = np.zeros(len(targets))
    for k in range(fold.max() + 1):
        inside = fold == k
        others, own, counts = targets[~inside], targets[inside], weights[~inside]
        # Their sum is how many rows of equal weights would be as exact.
        counts = counts * (counts.sum() / np.sum(counts**2))
        if score == "crps":
            sample = others.astype(np.float64)
            scores[inside] = _crps_of_sample(sample, counts, own.astype(np.float64))
            continue
        m = check_labels(predictions)
        # As of a map: what did not happen in so many rows may happen.
        share = np.bincount(others.astype(int), counts, minlength=m)
        share = (share + 1 / m) / (counts.sum() + 1)
        own = own.astype(int)
        rows = np.broadcast_to(share, (len(own), m))
        scores[inside] = -np.log(share[own]) if score == "log" else _brier(rows, own)
    return scores


def _crps_of_sample(sample: np.ndarray, weights: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """E|Y - y| - E|Y - Y'| / 2 for the law of a sample with weights, in O(n log n)."""
    order = np.argsort(sample)
    ordered, share = sample[order], weights[order] / weights.sum()
    ends = np.concatenate([[0.0], np.cumsum(share)])
    sums = np.concatenate([[0.0], np.cumsum(share * ordered)])
    below = np.searchsorted(ordered, targets)
    distance = targets * (2 * ends[below] - 1) - 2 * sums[below] + sums[-1]
    # Half of E|Y - Y'| is sum_i s_i y_i (S_i + S_{i-1} - 1), with sums S of the shares s.
    return distance - np.sum((ends[1:] + ends[:-1] - 1) * share * ordered)
