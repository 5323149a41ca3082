"""Do verdicts name what is wrong?

Models are wrong in a way that is known, and `evaluate` says in which way they are wrong.  It may
name the truth, something that is not true, or nothing.

    python -m benchmarks.verdicts             # writes VERDICTS.md
    python -m benchmarks.verdicts --sets 20   # fewer data sets
    python -m benchmarks.verdicts --only rare # lines of some cases, the others stay as they are

A direction is named if it stands first in the verdict; of a model that is wrong in one segment, and
right elsewhere, the segment must be named.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.special import expit, ndtri

import calibjax as cj
from benchmarks.harness import ROOT

N, LEVELS, MEMBERS = 600, (0.1, 0.25, 0.5, 0.75, 0.9), 20
Rng = np.random.Generator
#: Predictions and targets of a data set, and what `evaluate` is told beside them.
DataSet = tuple[Any, np.ndarray, Mapping[str, Any]]


def events(rng: Rng, shift: float = 0.0, slope: float = 1.0, middle: float = 0.0) -> DataSet:
    logits = rng.normal(middle, 1.5 if middle == 0 else 0.7, N if middle == 0 else 10 * N)
    truth = expit(middle + slope * (logits - middle) + shift)
    return cj.Bernoulli(expit(logits)), (rng.random(logits.size) < truth).astype(int), {}


def classes(rng: Rng, shift: float = 0.0, slope: float = 1.0) -> DataSet:
    logits = rng.normal(0, 1.5, (N, 4))
    truth = slope * logits + shift * (np.arange(4) == 2)
    targets = np.argmax(truth + rng.gumbel(size=truth.shape), axis=1)
    powers = np.exp(logits)
    return cj.Categorical(powers / powers.sum(axis=1, keepdims=True)), targets, {}


def _numbers(rng: Rng, shift: float, factor: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    means, spreads = rng.normal(0, 3, N), np.exp(rng.normal(0, 0.5, N))
    return means, spreads, means + spreads * (shift + factor * rng.normal(size=N))


def normal(rng: Rng, shift: float = 0.0, factor: float = 1.0) -> DataSet:
    means, spreads, targets = _numbers(rng, shift, factor)
    return cj.Normal(means, spreads), targets, {}


def quantiles(rng: Rng, shift: float = 0.0, factor: float = 1.0) -> DataSet:
    means, spreads, targets = _numbers(rng, shift, factor)
    values = means[:, None] + spreads[:, None] * ndtri(np.array(LEVELS))
    return cj.Quantiles(values, LEVELS), targets, {}


def ensemble(rng: Rng, shift: float = 0.0, factor: float = 1.0) -> DataSet:
    means, spreads, targets = _numbers(rng, shift, factor)
    members = means[:, None] + spreads[:, None] * rng.normal(size=(N, MEMBERS))
    return cj.Empirical(members), targets, {}


def in_segment(rng: Rng) -> DataSet:
    region = rng.integers(5, size=N)
    logits = rng.normal(0, 1.5, N)
    happened = rng.random(N) < expit(logits + 1.2 * (region == 2))
    return (
        cj.Bernoulli(expit(logits)),
        happened.astype(int),
        {"groups": {"region": np.array(list("abcde"))[region]}},
    )


COLUMNS = "true error", "false error", "none"
TEXT = f"""\
# Are verdicts right?

Share of data sets whose verdict first names the true error (or segment), a false one, or none. Each
data set has {N} rows (rare events: {10 * N}). Made by `python -m benchmarks.verdicts`.

| case | {" | ".join(COLUMNS)} | data sets |
|---|---|---|---|---|"""

#: What is wrong, in the words of the verdict; None of a calibrated model.
CASES: dict[str, tuple[Callable[[Rng], DataSet], str | None]] = {
    "events, calibrated": (events, None),
    "events, logits .5 higher": (lambda rng: events(rng, shift=0.5), "risk under-estimated"),
    "events, logits .5 lower": (lambda rng: events(rng, shift=-0.5), "risk over-estimated"),
    "events, logits times .6": (lambda rng: events(rng, slope=0.6), "over-confident"),
    "events, logits times 1.6": (lambda rng: events(rng, slope=1.6), "under-confident"),
    "rare events, calibrated": (lambda rng: events(rng, middle=-4.0), None),
    "rare events, 1.5 times as many": (
        lambda rng: events(rng, 0.42, middle=-4.0),
        "risk under-estimated",
    ),
    "rare events, .6 times as many": (
        lambda rng: events(rng, -0.55, middle=-4.0),
        "risk over-estimated",
    ),
    "four classes, calibrated": (classes, None),
    "four classes, one .8 higher": (lambda rng: classes(rng, 0.8), "class 2 under-estimated"),
    "four classes, logits times .6": (lambda rng: classes(rng, slope=0.6), "over-confident"),
    "one of five regions, logits 1.2 higher": (in_segment, "clearest segment: c"),
}
for _name, _draw in {"normal": normal, "quantiles": quantiles, "ensemble": ensemble}.items():
    CASES |= {
        f"{_name}, calibrated": (_draw, None),
        f"{_name}, .3 deviations higher": (lambda rng, f=_draw: f(rng, shift=0.3), "biased low"),
        f"{_name}, .3 deviations lower": (lambda rng, f=_draw: f(rng, shift=-0.3), "biased high"),
        f"{_name}, spread 1.4": (lambda rng, f=_draw: f(rng, factor=1.4), "under-dispersive"),
        f"{_name}, spread .7": (lambda rng, f=_draw: f(rng, factor=0.7), "over-dispersive"),
    }


def said(data_set: DataSet, truth: str | None) -> str:
    """Whether the verdict names the truth, something that is not true, or nothing."""
    predictions, targets, options = data_set
    found = cj.evaluate(predictions, targets, **options)
    names = [x.name for x in found.directions]
    if truth is not None and truth.startswith("clearest"):
        segments = found.segments.rejected(found.level)
        if not segments:
            return "none"
        return (
            "true error"
            if segments[0].name == truth.removeprefix("clearest segment: ")
            else "false error"
        )
    if not names:
        return "none"
    return "true error" if names[0] == truth else "false error"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--only", default="", help="cases whose names begin so")
    options = parser.parse_args()
    page = ROOT / "benchmarks" / "VERDICTS.md"
    lines = {line.split("|")[1].strip(): line for line in page.read_text().splitlines()[6:]}
    for name, (draw, truth) in CASES.items():
        if name.startswith(options.only):
            rngs = np.random.default_rng(0).spawn(options.sets)
            counts = Counter(said(draw(rng), truth) for rng in rngs)
            shares = [f"{counts[x] / options.sets:.2f}" for x in COLUMNS]
            lines[name] = f"| {' | '.join([name, *shares, str(options.sets)])} |"
            print(lines[name], flush=True)
            table = [lines[case] for case in CASES if case in lines]
            page.write_text("\n".join([TEXT, *table]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
