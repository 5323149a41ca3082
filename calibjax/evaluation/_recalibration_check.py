"""Whether recalibration helps a model: scores and a test of rows that did not fit the maps."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import numpy as np

from calibjax._base.struct import with_fields
from calibjax._base.text import p_in_words
from calibjax._data.data import Data
from calibjax._data.distribution import Distribution, Labels
from calibjax._data.padding import padded
from calibjax.distributions import Empirical, Normal, Quantiles
from calibjax.evaluation._directions import clear_directions_of, directions_in_words
from calibjax.evaluation._groups import SEGMENTS, recalibration_of_segments, segments_in_words
from calibjax.evaluation._rows import ZERO_PROBABILITY
from calibjax.evaluation._section import N_RESAMPLES, Case, Section
from calibjax.evaluation._wording import aligned_numbers, temperature_text
from calibjax.hypothesis_tests import calibration_test
from calibjax.intervals.temperatures import has_temperature
from calibjax.recalibration import apply_temperature, fit_recalibrator, fit_temperature
from calibjax.recalibration.cross_fitting import default_score, held_out

# Minimum number of rows: half of fewer is too few for a fit of several numbers, and for a test.
_LEAST_ROWS = 200
# Maximum number of predicted numbers: with more the fits take as long as the evaluation.
_MOST_NUMBERS = 2**18
# The number of rows above which fewer draws are taken, and their number.  They tell p = 0.005 from
# 0.5 as well, and save more seconds than their program takes to compile, except for events.
_LONG, _FEW_DRAWS = 2**15, 199
# The best single methods for classes, and the number of classes with too many for a matrix.
_OF_TWO, _OF_MANY, _OF_VERY_MANY, _MANY = "spline", "sms", "svs", 200
# The best methods for numbers, and the number of quantile forecasts from which on a map that looks
# for similar ones takes seconds.
_OF_NUMBERS, _OF_MANY_NUMBERS, _MANY_ROWS = "auto", "pit_spline", 2000
_FOLDS = 5
# The names of methods in sentences, where that of the argument does not say what it is.
_NAMES = {
    "auto": "automatic choice of the map, auto",
    "shift_scale": "shift and scale, shift_scale",
    "sms": "structured matrix scaling, sms",
    "svs": "structured vector scaling, svs",
    "pit_spline": "spline of PIT values, pit_spline",
}
_SCORES = {"log": "log loss", "crps": "CRPS", "pinball": "pinball loss"}
#: What is wrong with predictions, in words, by the p-value of their test; empty if nothing is.
ErrorText = Callable[[Data, float], str]


@dataclasses.dataclass(frozen=True)
class RecalibrationCheck:
    """What a recalibration does to rows that did not fit it.

    Args:
        method: the one of `fit_recalibrator`, or "temperature".
        before: the mean score of all rows: for labels the log loss in nats; for quantiles the
            pinball loss, and for other numbers the CRPS, in units of the targets.
        after: the same of `cross_fit`, in which each row has a map that did not see its fold.
        pvalue: the p-value of `calibration_test` after it.
        score: "log loss", "pinball loss" or "CRPS".
        description: the parameters of the map that is fitted to all rows.
        remaining: the error that remains after it, as text; empty if none is detected.
        n_resamples: the number of data sets that the p-value is from.
    """

    method: str
    before: float
    after: float
    pvalue: float
    score: str = "log loss"
    description: str = ""
    remaining: str = ""
    n_resamples: int = N_RESAMPLES

    @property
    def helps(self) -> bool:
        """Whether the score falls."""
        return self.after < self.before

    def in_words(self, level: float) -> str:
        """What it does, and what it leaves, in one sentence."""
        name = f"Recalibration ({_NAMES.get(self.method, self.method)})"
        if not self.helps:
            return f"{name} does not lower held-out {self.score}"
        ends = "not" if self.pvalue > level else "still"
        left = f"; remaining error: {self.remaining}" if self.remaining else ""
        before, after = aligned_numbers([self.before, self.after])
        change = f"lowers held-out {self.score} from {before} to {after}"
        if before == after:
            change = f"leaves held-out {self.score} at {after}"
        found = p_in_words(self.pvalue, self.n_resamples)
        then = f"the held-out recalibrated predictions are {ends} rejected ({found})"
        return f"{name} {change}; {then}{left}."


def best_method(data: Data) -> str | None:
    """The method that predicts new rows best on average, among those that take no time.

    None for few rows, for targets that are not known exactly, and for families of numbers that are
    not the same after a map: they need another program.
    """
    p = data.predictions
    if data.n < _LEAST_ROWS or p.n_labels == 1 or data.is_censored:
        return None
    if p.n_labels == 2:
        return _OF_TWO
    if p.n_labels is not None:
        return _OF_MANY if p.n_labels <= _MANY else _OF_VERY_MANY
    if isinstance(p, Normal):
        return "shift_scale"
    if isinstance(p, Empirical):
        has_maps = p.weights is None and p.target_shape == "n" and p.samples.shape[1] >= 2
        return _OF_NUMBERS if has_maps else None
    if isinstance(p, Quantiles):
        return _OF_NUMBERS if data.n <= _MANY_ROWS else _OF_MANY_NUMBERS
    return None


def recalibration_check(
    key: jax.Array, data: Data, n_resamples: int, error_text: ErrorText | None = None
) -> RecalibrationCheck | None:
    """What the best method does to checked data; None without one, and of very many rows.

    The test has the key, the shapes and so the program of the evaluation, but of many rows.
    """
    method = best_method(data)
    if method is None or _size(data) > _MOST_NUMBERS:
        return None
    return _check(key, data, method, n_resamples, error_text)


def recalibration_checks(
    key: jax.Array, data: Data, n_resamples: int, best: RecalibrationCheck | None = None
) -> list[RecalibrationCheck]:
    """What a temperature and the best method do to checked data, with words; none of few rows.

    What `recalibration_check` found of the best method is not computed again.
    """
    if data.n < _LEAST_ROWS or data.predictions.n_labels == 1:
        return []
    methods, found = ["temperature"] * has_temperature(data.predictions), []
    for method in filter(None, [*methods, best_method(data)]):
        check = best
        if check is None or check.method != method:
            check = _check(key, data, method, n_resamples)
        if method == "temperature" and not isinstance(data.predictions, Labels):
            words = f"T = {temperature_text(float(fit_temperature(data)))}"
        else:
            fit = fit_recalibrator(data, method=method).fit
            words = fit.description + ("" if fit.converged else "; not converged")
        found.append(dataclasses.replace(check, description=words))
    return found


def _check(
    key: jax.Array, data: Data, method: str, n_resamples: int, error_text: ErrorText | None = None
) -> RecalibrationCheck:
    p = data.predictions
    if _size(data) > _MOST_NUMBERS or (data.n > _LONG and p.n_labels != 2):
        n_resamples = min(n_resamples, _FEW_DRAWS)

    def tempered(others: Data) -> Distribution:
        return apply_temperature(p, fit_temperature(others))

    score = default_score(p, data.targets) if p.target_shape == "n" else "log"
    is_tempered = method == "temperature" and not isinstance(p, Labels)
    recalibrated, *scores = held_out(data, tempered if is_tempered else method, _FOLDS, score=score)
    data = with_fields(data, predictions=recalibrated)
    pvalue = round(float(calibration_test(key, padded(data), n_resamples=n_resamples).pvalue), 6)
    before, after = (float(np.mean(x)) for x in scores)
    left = "" if error_text is None else error_text(data, pvalue)
    numbers = method, before, after, pvalue, _SCORES[score]
    return RecalibrationCheck(*numbers, remaining=left, n_resamples=n_resamples)


def _size(data: Data) -> int:
    """The number of probabilities, or of parameters of all rows."""
    leaves = jax.tree.leaves(data.predictions)
    return data.n * (data.predictions.n_labels or 0) or sum(x.size for x in leaves)


class _Recalibration(Section[RecalibrationCheck | None]):
    """What a map does to rows that did not fit it.

    It has ``method``, the log loss of labels, the pinball loss of quantiles or else the CRPS,
    ``before`` and ``after``, and the ``pvalue`` and the error ``remaining`` after it, segments
    included; None unless labels, quantiles, samples or normal predictions are rejected, for fewer
    than 200 rows or 10^5 and more, and for rows that have weights or depend on each other.
    """

    def compute(self, case: Case) -> RecalibrationCheck | None:
        if not (ZERO_PROBABILITY.leaves_error(case) and case.data.is_plain):
            return None
        error_text = functools.partial(_remaining_error, case)
        return recalibration_check(case.random_keys.test, case.data, N_RESAMPLES, error_text)

    def advice(self, case: Case) -> str | None:
        if not case.rejected or ZERO_PROBABILITY.is_all(case):
            return None
        check = self.of(case)
        if check is not None:
            return check.in_words(case.level)
        method = best_method(case.data)
        return method and case.said_as(
            f"to recalibrate, use fit_recalibrator(method={method!r}); "
            "estimate the gain with cross_fit",
            f"to recalibrate, use calibjax recalibrate --method {method}, which shows the gain",
        )


class _Recalibrations(Section[list[RecalibrationCheck]]):
    """What recalibrations do to rows that did not fit them, with their numbers.

    They are a temperature and the method that is best on average, for families that have these.
    There are none for few rows, for targets that are not known exactly, and for rows that have
    weights or depend on each other.
    """

    is_printed = is_saved = False

    def compute(self, case: Case) -> list[RecalibrationCheck]:
        if case.data.is_censored or not case.data.is_plain:
            return []
        best = RECALIBRATION.of(case)
        return recalibration_checks(case.random_keys.test, case.data, N_RESAMPLES, best)


RECALIBRATION, RECALIBRATIONS = _Recalibration(), _Recalibrations()


def _remaining_error(case: Case, data: Data, pvalue: float) -> str:
    """What is wrong with these predictions of the rows of a case, in words."""
    if case.groups is not None:
        found = segments_in_words(SEGMENTS.of_data(case, data), case.level)
        if found is not None:
            return f"{found} (to correct segments, use {recalibration_of_segments(case)})"
    if pvalue > case.level:
        return ""
    return directions_in_words(clear_directions_of(case, padded(data), None))
