"""The curves and maps of an evaluation, and where they show an error, in words."""

import contextlib
import dataclasses
import functools
from statistics import NormalDist
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from calibjax import curves
from calibjax._base.struct import with_fields
from calibjax._base.text import class_name, format_distinct, percent, shares_in_words
from calibjax._data.capabilities import is_exchangeable
from calibjax._data.data import Data
from calibjax._data.distribution import Labels, as_binary
from calibjax.curves.pit_curves import pit_and_coverage
from calibjax.distributions import Quantiles
from calibjax.evaluation._directions import DIRECTIONS
from calibjax.evaluation._overall_error import local_errors, probit_line
from calibjax.evaluation._rows import ZERO_PROBABILITY
from calibjax.evaluation._section import N_RESAMPLES, Case, Section, keys_from
from calibjax.evaluation._wording import event_name, number
from calibjax.measures.labels import as_event
from calibjax.measures.quantiles import shares_of_levels
from calibjax.measures.risk_by_time import Lifetimes

# Bins hold equally many rows if more than this share has a probability closer to 0 or 1.
_MOST, _RARE = 0.75, 0.1
# Maximum number of points of a curve in a file.
_MAX_POINTS = 1000


def strategy_of(data: Data) -> str:
    """How probabilities of an event are binned: equal bins hold nearly all rows of rare events."""
    probs = np.asarray(as_binary(data.predictions).binary_probability())[: data.n_kept()]
    is_rare = np.mean(np.minimum(probs, 1 - probs) < _RARE) > _MOST
    return "quantile" if is_rare else "uniform"


def worst_cell(curves: dict[str, Any], classes: list[Any] | None) -> str | None:
    """Where the maps of an evaluation show an error, as text with the number of rows.

    The clearest error and the largest one may be in two cells; None if no cell is significant.
    """
    of_classes = functools.partial(_class_in_words, classes)
    for name, in_words in ("witness", of_classes), ("residuals", _residual_in_words):
        if name in curves:
            cells = curves[name].worst_cell(), curves[name].largest_cell()
            if None not in cells:
                return _clearest_and_largest(*(in_words(curves[name], x) for x in cells))
    return None


def _clearest_and_largest(clearest: str, largest: str) -> str:
    return f"worst {largest}" if clearest == largest else f"clearest {clearest}; largest {largest}"


def worst_level(data: Data, confidence_level: float, is_local: bool = False) -> str | None:
    """The levels of quantiles with the clearest and the largest error, as text, or None.

    An error is clear if more targets are below, or fewer at or below, than by chance, at all K
    levels with the probability `confidence_level`, in the normal approximation with Bonferroni's
    correction.  With `is_local` errors are those that one bias and one dispersion do not explain.
    """
    if not isinstance(data.predictions, Quantiles):
        return None
    levels, below, up_to = shares_of_levels(*data.samples)
    of_below, of_up_to, expected = below.mean(axis=0), up_to.mean(axis=0), levels
    if is_local:
        from scipy.special import ndtr, ndtri

        intercept, slope = probit_line(levels, (of_below + of_up_to) / 2, len(below))
        expected = ndtr(intercept + slope * ndtri(levels))
    excess, lack = of_below - expected, expected - of_up_to
    gaps = np.maximum(excess, lack)
    scores = gaps / np.sqrt(expected * (1 - expected) / len(below))
    critical = NormalDist().inv_cdf(1 - (1 - confidence_level) / (2 * len(levels)))
    if scores.max() < critical:
        return None

    def in_words(worst: int) -> str:
        is_lack = lack[worst] > excess[worst] and np.any(below[:, worst] != up_to[:, worst])
        counted, where = (up_to, "at or below") if is_lack else (below, "below")
        share = percent(counted[:, worst].mean())
        return f"at the {levels[worst]:.4g} quantile: {share} of targets {where}"

    largest = np.argmax(np.where(scores < critical, -1.0, gaps))
    return _clearest_and_largest(in_words(int(np.argmax(scores))), in_words(int(largest)))


# With NumPy: programs of XLA would be compiled for the indices.
def _class_in_words(
    classes: list[Any] | None, witness: curves.WitnessMap, cell: tuple[int, int]
) -> str:
    row, column = cell
    low, high = np.asarray(witness.probability_edges)[column : column + 2].tolist()
    fields = witness.predicted, witness.value, witness.count
    predicted, excess, n = (float(np.asarray(x)[cell]) for x in fields)
    labels = np.asarray(witness.classes).tolist()
    name = event_name(classes) if labels == [1] else class_name(classes, labels[row])
    return (
        f"for {name} at probabilities {low:.2g} to {high:.2g}: "
        f"{shares_in_words(predicted, predicted + excess)} (n = {n:.0f})"
    )


def _residual_in_words(residuals: curves.ResidualMap, cell: tuple[int, int, int]) -> str:
    layer, *indices = cell
    edges = residuals.location_edges, residuals.spread_edges
    means, deviations = (
        " to ".join(dict.fromkeys(map(number, np.asarray(x)[k : k + 2].tolist())))
        for x, k in zip(edges, indices, strict=True)
    )
    value = float(np.asarray(residuals.value)[cell])
    if layer == 0:
        found = f"biased {'low' if value > 0 else 'high'} by {abs(value):.2g} predicted SDs"
    else:
        size, _ = format_distinct((1 + value) ** 0.5, 1.0, 2)
        found = f"errors {size} times as large as predicted"
    n = int(np.asarray(residuals.count)[tuple(indices)])
    return f"for means {means} and SDs {deviations}: {found} (n = {n})"


def _options(case: Case, n_resamples: int) -> dict[str, Any]:
    return {"confidence_level": 1 - case.level, "n_resamples": n_resamples}


class _Maps(Section[dict[str, Any]]):
    """The map that shows where predictions are wrong, by its name; or none."""

    is_printed = is_saved = False

    def compute(self, case: Case) -> dict[str, Any]:
        key, data, options = case.random_keys.curves, case.padded, _options(case, case.n_draws)
        others = dict.fromkeys(("weights", "clusters", "times", "covariates"))
        if data.weights_depend_on_labels():
            return {}
        data = with_fields(data, where=data.counted_rows(), **others)
        if isinstance(data.predictions, Labels):
            strategy = "uniform" if data.predictions.n_labels != 2 else strategy_of(as_event(data))
            options |= {"n_bins": 10, "strategy": strategy}
            return {"witness": curves.witness_map(key, data, **options)}
        if data.predictions.target_shape != "n":
            return {}
        return {"residuals": curves.residual_map(key, data, n_bins=5, **options)}


class _Worst(Section[str | None]):
    """Where the error is largest, as text; None if an overall error explains it everywhere."""

    is_saved = False

    def compute(self, case: Case) -> str | None:
        if not ZERO_PROBABILITY.leaves_error(case):
            return None
        is_overall = bool(DIRECTIONS.of(case))
        of_levels = worst_level(case.data, 1 - case.level, is_overall)
        if of_levels is not None:
            return of_levels
        maps = MAPS.of(case)
        if is_overall:
            maps = {name: local_errors(case.data, x) for name, x in maps.items()}
        return worst_cell(maps, case.data.classes)

    def clause(self, case: Case) -> str | None:
        return self.of(case)


class _Curves(Section[dict[str, Any]]):
    """What the plots show, by name, each with arrays as fields.

    The names are "reliability", "corp" and "witness" for labels, with "calibration" for events and
    "pit" for Ordinal ones, and "pit", "coverage" and "residuals" for numbers, with "spread_skill"
    for members of ensembles; they are the functions of calibjax that made them.  Targets that are
    not known exactly have none but "risk" of survival curves, at the middle one of the times of the
    table.
    """

    is_printed = False

    def compute(self, case: Case) -> dict[str, Any]:
        key, data, options = case.random_keys.curves, case.padded, _options(case, N_RESAMPLES)
        if data.is_censored:
            return _risks(case)
        if case.groups is not None:
            # Plots of groups mask all other rows, and run the same programs.
            data = with_fields(data, where=data.counted_rows())
        keys = keys_from(key)
        found: dict[str, Any] = {}
        if isinstance(data.predictions, Labels):
            binary = as_event(data)
            of_bins = options | {"n_bins": 15, "strategy": strategy_of(binary)}
            if data.predictions.n_labels == 2:
                # Rows at 0 or 1, or few events, have no curve.
                with contextlib.suppress(ValueError):
                    found["calibration"] = curves.calibration_curve(
                        binary, confidence_level=1 - case.level
                    )
            found["reliability"] = curves.reliability_curve(keys[0], binary, **of_bins)
            of_corp = binary.replace(clusters=None, times=None, outcome_weights=None)
            # Its band is that of weights that are known before the targets.
            is_known = not data.weights_depend_on_labels()
            found["corp"] = curves.corp_curve(of_corp, key=keys[1] if is_known else None, **options)
            if data.predictions.is_ordered and is_known:
                found["pit"] = curves.pit_curve(keys[2], data, n_bins=20, **options)
        elif data.predictions.target_shape == "n":
            found["pit"], found["coverage"] = pit_and_coverage(keys, data, 20, **options)
            if is_exchangeable(data.predictions):
                found["spread_skill"] = curves.spread_skill_curve(keys[2], data, **options)
        return found | MAPS.of(case)

    def to_dict(self, case: Case) -> dict[str, Any]:
        return {"curves": {name: _fields_of(curve) for name, curve in self.of(case).items()}}


def _risks(case: Case) -> dict[str, Any]:
    lifetimes = Lifetimes.of(case.padded)
    if lifetimes is None or not (shown := lifetimes.shown()):
        return {}
    time = float(lifetimes.grid[shown[len(shown) // 2]])
    return {"risk": curves.risk_curve(case.padded, time=time, confidence_level=1 - case.level)}


MAPS, WORST, CURVES = _Maps(), _Worst(), _Curves()


def _fields_of(curve: Any) -> dict[str, ArrayLike]:
    return {x.name: _thinned(getattr(curve, x.name)) for x in dataclasses.fields(curve)}


def _thinned(value: ArrayLike) -> ArrayLike:
    """An array, or evenly spaced entries of one that is long."""
    array = np.asarray(value)
    if array.ndim != 1 or array.size <= _MAX_POINTS:
        return value
    return array[np.linspace(0, array.size - 1, _MAX_POINTS).round().astype(int)]
