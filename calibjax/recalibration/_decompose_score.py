"""A proper score in parts: what a better calibration would gain, and what would remain."""

from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from calibjax._base.check import check_choice
from calibjax._data import Data, Distribution, RowOptions, Targets, as_data
from calibjax.intervals import Estimate, Sampling, mean_interval
from calibjax.recalibration._cross_fit import brier_scores, held_out
from calibjax.recalibration._cross_validation import numbers_of_folds
from calibjax.recalibration._fit_recalibrator import data_outside_jit
from calibjax.recalibration._recalibrator import check_labels
from calibjax.resampling import one_level

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
    """How much of a proper score is miscalibration, and how much is left after it is recalibrated.

    .. math::
        \\bar S(p) = \\underbrace{\\bar S(p) - \\bar S(q)}_{\\text{calibration}}
        + \\underbrace{\\bar S(q)}_{\\text{refinement}}, \\qquad
        \\bar S(q) = \\underbrace{\\bar S(c)}_{\\text{uncertainty}}
        - \\underbrace{(\\bar S(c) - \\bar S(q))}_{\\text{resolution}}

    p are the predictions, q those of `cross_fit`, which recalibrates each row by a map that was
    fitted to other folds, and c says for each row how often targets happened in the other folds.
    Calibration is the log score, Brier score or CRPS that a user of the model would have gained:
    it is negative where a map harms.

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
        predictions, targets: as in `Data`, or one `Data`, of predictions that `fit_recalibrator`
            takes: of labels or real numbers.
        score: "log", the log score in nats, of labels; "brier", (p - y)^2 of two classes and the
            sum of squares over all classes of more; "crps", in units of the targets, of numbers.
            By default "log" of labels and "crps" of numbers.
        method: how to recalibrate, as in `fit_recalibrator`.  By default "spline" for two classes,
        "svs"
            for more, and "pit_beta" for numbers: of few parameters, for the sake of the bias.
        folds: a number of folds of 2 or more, or the number of the fold of each row, ``[n]``, such
            as weeks in blocks.
        clusters: as in `Data`; they stay together in a number of folds, and count as one in
            intervals.
        weights: as in `Data`: in the fits, in the means, and in what c says.
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
    rows = RowOptions(clusters=clusters, weights=weights)
    data = data_outside_jit("decompose_score", predictions, targets, rows, folds)
    data = as_data(data, without=("where", "covariates"))
    level = float(one_level(confidence_level, np.float64))
    has_labels = data.predictions.has_labels
    if score is None:
        score = "log" if has_labels else "crps"
    known = ("log", "brier") if has_labels else ("crps",)
    check_choice("score of labels" if has_labels else "score of numbers", score, known)
    if method is None:
        of_labels = "spline" if has_labels and check_labels(data.predictions) == 2 else "svs"
        method = of_labels if has_labels else "pit_beta"
    fold = numbers_of_folds(folds, data)
    _, of_model, of_recalibrated = held_out(data, method, fold, score=score)
    counts = None if data.weights is None else np.asarray(data.weights, np.float64)
    every = np.ones(data.n) if counts is None else counts
    of_frequencies = _scores_of_frequencies(score, data, fold, every)
    sampling = Sampling.of_data(data)

    def part(values: np.ndarray) -> Estimate:
        interval = mean_interval(values, level, sampling=sampling)
        low, high = interval or (np.nan, np.nan)
        # An infinite score of a row without weight counts for nothing.
        return Estimate(float(np.average(values[every > 0], weights=every[every > 0])), low, high)

    n_folds = int(fold.max()) + 1
    words = f"{method} in {n_folds} folds of {data.n} rows; intervals of {100 * level:.4g} %"
    return ScoreDecomposition(
        score=part(of_model),
        calibration=part(of_model - of_recalibrated),
        refinement=part(of_recalibrated),
        uncertainty=part(of_frequencies),
        resolution=part(of_frequencies - of_recalibrated),
        name=score,
        words=words,
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
        # Their sum is how many rows of equal weights would be as exact.
        counts = counts * (counts.sum() / np.sum(counts**2))
        if score == "crps":
            sample = others.astype(np.float64)
            scores[inside] = _crps_of_sample(sample, counts, own.astype(np.float64))
            continue
        m = check_labels(data.predictions)
        # As of a map: what did not happen in so many rows may happen.
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
    ends = np.concatenate([[0.0], np.cumsum(share)])
    sums = np.concatenate([[0.0], np.cumsum(share * ordered)])
    below = np.searchsorted(ordered, targets)
    distance = targets * (2 * ends[below] - 1) - 2 * sums[below] + sums[-1]
    # Half of E|Y - Y'| is sum_i s_i y_i (S_i + S_{i-1} - 1), with sums S of the shares s.
    return distance - np.sum((ends[1:] + ends[:-1] - 1) * share * ordered)
