"""What maps that know groups gain: cases, judges, and a part of `RECALIBRATION.md`."""

import importlib.util
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.special import expit

import calibjax as cj

N_RESAMPLES = 199


class Case(NamedTuple):
    """Probabilities of events, what happened, and groups, of rows that fit and that judge."""

    probs: np.ndarray
    events: np.ndarray
    groups: dict[str, np.ndarray]
    n_fit: int
    truth: np.ndarray | None = None

    def part(self, rows: slice) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        return self.probs[rows], self.events[rows], {k: x[rows] for k, x in self.groups.items()}


def planted(n: int, is_wrong: bool) -> Case:
    """Errors of two regions, old women, and men in a third region, and a slope in a fourth."""
    rng = np.random.default_rng(n)
    n_all = n + 4000
    groups = {
        "region": rng.choice(list("abcdef"), n_all),
        "sex": rng.choice(["f", "m"], n_all),
        "age": rng.normal(size=n_all),
        "noise": rng.choice(list("uvwxyz"), n_all),
    }
    logits = 1.3 * rng.normal(size=n_all) - 0.3
    truth = logits.copy()
    if is_wrong:
        region, is_woman = groups["region"], groups["sex"] == "f"
        truth = 0.8 * logits + 0.1 + 0.5 * (region == "a") - 0.5 * (region == "b")
        truth += 0.6 * (is_woman & (groups["age"] > 0.67)) - 0.5 * ((region == "c") & ~is_woman)
        truth -= 0.4 * logits * (region == "d")
    events = (rng.random(n_all) < expit(truth)).astype(int)
    return Case(expit(logits).astype(np.float32), events, groups, n, expit(truth))


def recidivism(split: int) -> Case | None:
    folder = os.environ.get("CALIBJAX_REFERENCE")
    path = pathlib.Path(folder or "") / "data" / "recidivism.csv"
    if not folder or not path.exists():
        return None
    import polars as pl

    table = pl.read_csv(path, null_values="NA")
    order = np.random.default_rng(split).permutation(len(table))
    names = ("race", "sex", "age", "priors_count")
    groups = {name: table[name].to_numpy()[order] for name in names}
    groups |= {name: groups[name].astype(str) for name in ("race", "sex")}
    probs = np.clip(table["gbmpredprobs"].to_numpy()[order], 0.01, 0.99).astype(np.float32)
    return Case(probs, table["two_year_recid"].to_numpy()[order].astype(int), groups, 600)


def cases() -> Iterator[tuple[str, Case]]:
    yield "planted, n = 2000", planted(2000, is_wrong=True)
    yield "calibrated, n = 2000", planted(2000, is_wrong=False)
    for split in range(3):
        case = recidivism(split)
        if case is not None:
            yield f"recidivism, split {split + 1}", case
    yield "planted, n = 10 000", planted(10_000, is_wrong=True)
    yield "calibrated, n = 10 000", planted(10_000, is_wrong=False)


def of_mcgrad(case: Case) -> np.ndarray | None:
    """The probabilities of MCGrad for the rows that judge."""
    if importlib.util.find_spec("mcgrad") is None:
        return None
    import logging

    import pandas as pd
    from mcgrad import methods

    logging.disable(logging.CRITICAL)
    is_text = {name: x.dtype.kind in "OU" for name, x in case.groups.items()}
    columns = {
        "categorical_feature_column_names": [name for name, text in is_text.items() if text],
        "numerical_feature_column_names": [name for name, text in is_text.items() if not text],
    }
    frame = pd.DataFrame(case.groups | {"p": case.probs.astype(float), "y": case.events})
    model = methods.MCGrad()
    model.fit(frame[: case.n_fit], "p", "y", **columns)
    return np.asarray(model.predict(frame[case.n_fit :], "p", **columns))


def judged(case: Case, probs: np.ndarray) -> dict[str, float]:
    """The log loss, the divergence to the truth, the worst segment, and a p-value of all."""
    _, events, groups = case.part(slice(case.n_fit, None))
    p = np.clip(np.asarray(probs, float), 1e-6, 1 - 1e-6)
    found = {"log": float(-np.mean(np.where(events, np.log(p), np.log1p(-p))))}
    if case.truth is not None:
        t = case.truth[case.n_fit :]
        gaps = t * (np.log(t) - np.log(p)) + (1 - t) * (np.log1p(-t) - np.log1p(-p))
        found["divergence"] = float(np.mean(gaps))
    test = cj.segment_test(
        jax.random.key(0),
        cj.Bernoulli(p.astype(np.float32)),
        events,
        groups,
        n_resamples=N_RESAMPLES,
    )
    rates = [x for x in test.segments if x.statistic == "rate"]
    worst = max(rates, key=lambda x: abs(x.score))
    found |= {"p": float(test.pvalue), "rejected": len(test.rejected())}
    return found | {"worst": worst.value, "name": worst.name, "score": worst.score}


def results_of(case: Case, known: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What each map makes of the rows that judge, unless it is known."""
    if known:
        return known
    probs, events, groups = case.part(slice(case.n_fit))
    later, _, later_groups = case.part(slice(case.n_fit, None))
    found: dict[str, dict[str, Any]] = {"identity": judged(case, later)}

    def keep(name: str, recalibrate: Callable[[], np.ndarray | None]) -> None:
        start = time.process_time()
        recalibrated = recalibrate()
        seconds = time.process_time() - start
        if recalibrated is not None:
            found[name] = judged(case, recalibrated) | {"seconds": seconds}

    def ours(method: str, with_groups: bool) -> np.ndarray:
        columns = (groups, later_groups) if with_groups else (None, None)
        recalibrator = cj.fit_recalibrator(cj.Bernoulli(probs), events, method, groups=columns[0])
        return np.asarray(recalibrator(cj.Bernoulli(later), columns[1]).probs)

    keep("beta", lambda: ours("beta", False))
    keep("identity, groups", lambda: ours("identity", True))
    keep("beta, groups", lambda: ours("beta", True))
    keep("auto, groups", lambda: ours("auto", True))
    keep("MCGrad", lambda: of_mcgrad(case))
    return found


def part_of_page(
    results: dict[str, Any], table: Callable[[list[str], list[list[str]]], str]
) -> str:
    """The chapter on groups."""
    parts = [
        "## Groups\n\nEvents in groups: planted errors in segments and pairs of segments, "
        "calibrated predictions, and recidivism (600 rows to fit, 400 to test, three splits). "
        "Divergence is the Kullback-Leibler divergence to the true probabilities, x 1000. The "
        "worst segment has the largest score of a rate in `segment_test` on the test rows, shown "
        "with observed minus predicted rate. p is that of the test of all segments. Seconds are "
        "CPU seconds of fit and use, including compilation."
    ]
    for name, found in results.items():
        rows = []
        for method, x in found.items():
            divergence = f"{1000 * x['divergence']:.1f}" if "divergence" in x else ""
            seconds = f"{x['seconds']:.1f}" if "seconds" in x else ""
            cells = [f"{x['log']:.4f}", divergence, f"{x['name']}: {x['worst']:+.3f}"]
            rows.append([method, *cells, str(x["rejected"]), f"{x['p']:.3f}", seconds])
        header = ["map", "log loss", "divergence", "worst segment", "rejected", "p", "seconds"]
        parts += [f"**{name}**", table(header, rows)]
    return "\n\n".join(parts)
