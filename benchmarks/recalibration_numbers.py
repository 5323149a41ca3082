"""What maps of forecasts of numbers gain: cases, judges, and a part of `RECALIBRATION.md`."""

import functools
import importlib.util
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn import datasets
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split

import calibjax as cj

METHODS = ("identity", "shift_scale", "pit_beta", "pit_spline", "pit_isotonic", "conditional")
METHODS += ("conformal", "auto")
LEVELS = tuple(k / 20 for k in range(1, 20))
N_RESAMPLES, N_TEST = 199, 1000


class Rows(NamedTuple):
    """Forecasts and targets; targets of one time, or less than `horizon` apart, are dependent."""

    predictions: Any
    targets: np.ndarray
    times: np.ndarray | None = None


class Case(NamedTuple):
    """Rows that fit maps, rows that judge them, and the unit of each target that judges."""

    fit: Rows
    judge: Rows
    unit: np.ndarray | float = 1.0
    horizon: float | None = None


def diabetes() -> Case:
    x, y = datasets.load_diabetes(return_X_y=True)
    x, others, y, targets = train_test_split(x, y, test_size=0.6, random_state=0)
    model = LinearRegression().fit(x, y)
    # Residuals of the training rows are too small.
    scale = np.std(y - model.predict(x))
    loc = model.predict(others).astype(np.float32)
    predictions = cj.Normal(loc, np.full(len(loc), scale, np.float32))
    return _halves(predictions, targets.astype(np.float32))


def boosted_quantiles() -> Case:
    rng = np.random.default_rng(0)
    x = rng.random((4000, 6))
    y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3]
    y = (y + (0.5 + 3 * x[:, 4]) * rng.normal(size=len(y))).astype(np.float32)
    levels = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
    values = []
    for level in levels:
        model = GradientBoostingRegressor(
            loss="quantile", alpha=level, n_estimators=150, max_depth=4, random_state=0
        )
        values.append(model.fit(x[:1000], y[:1000]).predict(x[1000:]))
    predictions = cj.Quantiles(np.stack(values, axis=1).astype(np.float32), levels, sort=True)
    return _halves(predictions, y[1000:])


def heteroscedastic() -> Case:
    """One deviation for all rows, of which some vary three times as much as others."""
    rng = np.random.default_rng(1)
    loc = rng.normal(size=4000)
    deviation = np.where(loc > 0, 1.5, 0.5)
    y = (loc + deviation * rng.normal(size=len(loc))).astype(np.float32)
    scale = np.full(len(loc), np.std(y - loc))
    return _halves(cj.Normal(loc.astype(np.float32), scale.astype(np.float32)), y)


def multi_scale() -> Case:
    """Series whose sizes differ by four decades; large ones are forecast too narrowly."""
    rng = np.random.default_rng(2)
    size = 10 ** rng.uniform(-2, 2, 4000)
    factor = 0.8 + 0.4 * np.log10(size).clip(0)
    y = size * (1 + 0.3 * factor * rng.standard_t(5, len(size)))
    predictions = cj.Normal(size.astype(np.float32), (0.3 * size).astype(np.float32))
    return _halves(predictions, y.astype(np.float32), unit=size)


def flu(model: str, fit: str, judge: str) -> Case | None:
    """Forecasts of hospital admissions, in log(1 + y); seasons go from August to July."""
    folder = os.environ.get("CALIBJAX_REFERENCE")
    path = pathlib.Path(folder or "") / "data" / "flusight" / f"{model}.parquet"
    if not folder or not path.exists():
        return None
    import polars as pl

    table = pl.read_parquet(path).filter(pl.col("horizon") >= 0).drop_nulls()
    names = [name for name in table.columns if name.startswith("q0.")]

    def season(start: str) -> Rows:
        end = f"{int(start[:4]) + 1}-08-01"
        rows = table.filter(pl.col("reference_date").is_between(pl.lit(start), pl.lit(end)))
        rows = rows.sort("reference_date")
        values = np.log1p(np.maximum(rows.select(names).to_numpy(), 0)).astype(np.float32)
        levels = tuple(float(name[1:]) for name in names)
        days = rows["target_end_date"].to_numpy().astype("datetime64[D]").astype(int)
        weeks = ((days - days.min()) // 7).astype(np.int32)
        targets = np.log1p(rows["observed"].to_numpy()).astype(np.float32)
        return Rows(cj.Quantiles(values, levels, sort=True), targets, weeks)

    return Case(season(fit), season(judge), horizon=4)


def _halves(predictions: Any, targets: np.ndarray, unit: np.ndarray | float = 1.0) -> Case:
    half = len(targets) // 2
    unit = unit[half:] if isinstance(unit, np.ndarray) else unit
    rows = (
        Rows(predictions[part], targets[part]) for part in (slice(half), slice(half, len(targets)))
    )
    return Case(*rows, unit)


FLU = {"ensemble": "FluSight-ensemble", "baseline": "FluSight-baseline", "flusion": "UMass-flusion"}
SEASONS = {f"20{a} to 20{b}": (f"20{a}-08-01", f"20{b}-08-01") for a, b in ((23, 24), (24, 25))}
CASES: dict[str, Callable[[], Case | None]] = {
    "diabetes, linear": diabetes,
    "boosted quantiles": boosted_quantiles,
} | {
    f"flu, {name}, {seasons}": functools.partial(flu, model, *starts)
    for seasons, starts in SEASONS.items()
    for name, model in FLU.items()
}
CASES |= {"heteroscedastic": heteroscedastic, "multi-scale": multi_scale}


def cases() -> Iterator[tuple[str, Case]]:
    for name, make in CASES.items():
        case = make()
        if case is not None:
            yield name, case


def quantiles(predictions: Any, of_case: Any) -> tuple[np.ndarray, np.ndarray]:
    """Levels that all forecasts of a case have, and the quantiles there ``[n, L]``."""
    levels = of_case.levels if isinstance(of_case, cj.Quantiles) else LEVELS
    if isinstance(predictions, cj.Quantiles):
        chosen = np.searchsorted(predictions.levels, np.array(levels) - 1e-9)
        return np.array(levels), np.asarray(predictions.values, float)[:, chosen]
    at = jax.jit(lambda p: jax.vmap(p.quantile, out_axes=1)(np.float32(LEVELS)))
    return np.array(levels), np.asarray(at(predictions), float)


def judged(case: Case, predictions: Any) -> dict[str, float]:
    """Scores of forecasts of the rows that judge, coverage, and a p-value."""
    y, unit = case.judge.targets, np.asarray(case.unit)
    levels, values = quantiles(predictions, case.fit.predictions)
    gaps = y[:, None] - values
    losses = np.maximum(levels * gaps, (levels - 1) * gaps).mean(axis=1)
    found = {"pinball": float(np.mean(losses / unit))}
    found["crps"] = float(np.mean(np.asarray(cj.crps(predictions, y)) / unit))
    for share in (0.5, 0.9):
        ends = [np.argmin(np.abs(levels - level)) for level in ((1 - share) / 2, (1 + share) / 2)]
        inside = (y >= values[:, ends[0]]) & (y <= values[:, ends[1]])
        found[f"coverage {share}"] = float(np.mean(inside))
    part = np.sort(np.random.default_rng(0).permutation(len(y))[:N_TEST])
    options: dict[str, Any] = {"n_resamples": N_RESAMPLES}
    if case.judge.times is not None:
        options |= {"times": case.judge.times[part], "horizon": case.horizon}
    test = cj.calibration_test(jax.random.key(0), predictions[part], y[part], **options)
    return found | {"p": float(test.pvalue)}


def results_of(case: Case, known: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What each map makes of the rows that judge, beside what is known already."""
    found = dict(known)
    for method in METHODS:
        if method in known:
            continue
        start = time.process_time()
        recalibrator = cj.fit_recalibrator(
            case.fit.predictions, case.fit.targets, method, times=case.fit.times
        )
        seconds = time.process_time() - start
        found[method] = judged(case, recalibrator(case.judge.predictions)) | {"seconds": seconds}
        found[method]["chosen"] = recalibrator.fit.method
    peers = {"plain shift": shifted, "crepes": of_crepes, "MAPIE": of_mapie}
    for name, peer in peers.items():
        if name in known:
            continue
        start = time.process_time()
        recalibrated = peer(case)
        if recalibrated is not None:
            seconds = time.process_time() - start
            found[name] = judged(case, recalibrated) | {"seconds": seconds}
    return found


def shifted(case: Case) -> cj.Quantiles:
    """All quantiles moved by the median residual of the medians."""
    levels, values = quantiles(case.fit.predictions, case.fit.predictions)
    middle = np.argmin(np.abs(levels - 0.5))
    shift = np.median(case.fit.targets - values[:, middle])
    levels, values = quantiles(case.judge.predictions, case.fit.predictions)
    return cj.Quantiles((values + shift).astype(np.float32), tuple(levels))


def of_crepes(case: Case) -> cj.Quantiles | None:
    """Normalised conformal predictive systems of the package crepes, around medians."""
    if importlib.util.find_spec("crepes") is None:
        return None
    from crepes import ConformalPredictiveSystem

    (levels, fit), (_, judge) = (
        quantiles(x.predictions, case.fit.predictions) for x in (case.fit, case.judge)
    )
    low, middle, high = (int(np.argmin(np.abs(levels - u))) for u in (0.15, 0.5, 0.85))

    def spreads(values: np.ndarray) -> np.ndarray:
        return np.maximum(values[:, high] - values[:, low], 1e-3)

    system = ConformalPredictiveSystem()
    system.fit(case.fit.targets - fit[:, middle], sigmas=spreads(fit))
    at = [
        system.predict_percentiles(
            judge[:, middle], sigmas=spreads(judge), higher_percentiles=[100 * u]
        ).ravel()
        for u in levels
    ]
    values = np.sort(np.stack(at, axis=1), axis=1)
    # At levels that the rows of the fit do not reach its quantiles are infinite.
    finite = np.where(np.isfinite(values), values, judge)
    return cj.Quantiles(np.sort(finite, axis=1).astype(np.float32), tuple(levels))


class _Column(RegressorMixin, BaseEstimator):
    """A regressor whose prediction is one column of its features."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.is_fitted_ = True

    def fit(self, X: np.ndarray, y: np.ndarray) -> "_Column":
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(X)[:, self.place]


def of_mapie(case: Case) -> cj.Quantiles | None:
    """Conformalized quantile regression of the package MAPIE, of each pair of opposite levels."""
    if importlib.util.find_spec("mapie") is None:
        return None
    from mapie.regression import ConformalizedQuantileRegressor

    (levels, fit), (_, judge) = (
        quantiles(x.predictions, case.fit.predictions) for x in (case.fit, case.judge)
    )
    middle, values = len(levels) // 2, judge.copy()
    for low in range(middle):
        high = len(levels) - 1 - low
        columns = [_Column(low), _Column(high), _Column(middle)]
        share = float(levels[high] - levels[low])
        # Fewer rows cannot hold such a share.
        if len(fit) * (1 - share) / 2 < 1:
            continue
        system = ConformalizedQuantileRegressor(columns, confidence_level=share, prefit=True)
        system.conformalize(fit, case.fit.targets)
        values[:, [low, high]] = system.predict_interval(judge)[1][:, :, 0]
    return cj.Quantiles(np.sort(values, axis=1).astype(np.float32), tuple(levels))


def part_of_page(
    results: dict[str, Any], table: Callable[[list[str], list[list[str]]], str]
) -> str:
    """The chapter on forecasts of numbers."""
    parts = [
        "## Numbers\n\nMaps of PIT values, fitted to one half of the rows or to one flu season, "
        "and evaluated on the other half or the next season. Pinball loss (half of the weighted "
        "interval score) and CRPS are changes in %; for multi-scale rows they are in units of "
        "the scale. Coverage is that of central 50 and 90 % intervals (or the nearest levels). p "
        f"is that of `calibration_test` on at most {N_TEST} rows; flu weeks less than 4 apart may "
        "depend on each other. `pit_isotonic` is the map of Kuleshov et al.; crepes stands for "
        "its normalised predictive systems, and MAPIE for its conformalized quantile regression "
        "of each pair u, 1 - u."
    ]
    for name, found in results.items():
        before = found["identity"]
        rows = []
        for method, x in found.items():
            changes = [100 * (x[score] / before[score] - 1) for score in ("pinball", "crps")]
            cells = [f"{change:+.1f}" for change in changes]
            cells += [f"{x['coverage 0.5']:.2f}", f"{x['coverage 0.9']:.2f}", f"{x['p']:.3f}"]
            chosen = f" ({x['chosen']})" if method == "auto" else ""
            rows.append([f"`{method}`{chosen}" if method in METHODS else method, *cells])
        header = ["map", "pinball, %", "CRPS, %", "50 % hold", "90 % hold", "p"]
        parts += [f"**{name}**", table(header, rows)]
    return "\n\n".join(parts)
