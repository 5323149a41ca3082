"""What is printed for each kind of model, calibrated and not, is that of `tests/printed/`.

    CALIBJAX_WRITE_PRINTED=1 python -m pytest -m '' tests/test_printed.py

writes these files again: read the differences before you commit them.
"""

import os
import re
from itertools import zip_longest
from pathlib import Path

import jax
import numpy as np
import polars as pl
import pytest
from scipy.special import expit, ndtri
from typer.testing import CliRunner

import calibjax as cj
from calibjax.cli import app
from calibjax.hub import hub_table

FOLDER = Path(__file__).parent / "printed"
KEY = jax.random.key(0)
N = 600
LEVELS = 0.1, 0.25, 0.5, 0.75, 0.9


def logits_of(rng, size=N):
    return rng.normal(0, 1.5, size)


def happened(rng, logits):
    return (rng.random(logits.shape) < expit(logits)).astype(int)


def classifier(rng, wrong):
    logits = logits_of(rng, (N, 4))
    powers = np.exp(logits * (1.6 if wrong else 1))
    targets = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    probs = powers / powers.sum(axis=1, keepdims=True)
    return cj.evaluate(cj.Categorical(probs), targets)


def event(rng, wrong):
    logits = logits_of(rng)
    return cj.evaluate(cj.Bernoulli(expit(logits)), happened(rng, logits + 0.6 * wrong))


def rare_event(rng, wrong):
    logits = rng.normal(-4, 0.7, 10 * N)
    return cj.evaluate(cj.Bernoulli(expit(logits)), happened(rng, logits + 0.5 * wrong))


def numbers(rng, wrong):
    x = rng.normal(size=N)
    scale = np.full(N, 0.7 if wrong else 1.0)
    return cj.evaluate(cj.Normal(x, scale), x + rng.normal(size=N))


def counts(rng, wrong):
    rate = np.exp(rng.normal(1.5, 0.5, N))
    return cj.evaluate(cj.Poisson(rate), rng.poisson(rate * (1.2 if wrong else 1)))


def quantile_forecasts(rng, wrong):
    """Normal quantiles of numbers, and the numbers."""
    x = rng.normal(size=N)
    values = x[:, None] + ndtri(np.array(LEVELS)) * (0.6 if wrong else 1)
    return cj.Quantiles(values, LEVELS), x + rng.normal(size=N)


def quantiles(rng, wrong):
    return cj.evaluate(*quantile_forecasts(rng, wrong))


def ensemble(rng, wrong):
    x, day = rng.normal(size=N), np.repeat(np.arange(N // 6), 6)
    members = x[:, None] + rng.normal(size=(N, 10)) * (0.6 if wrong else 1)
    return cj.evaluate(cj.Empirical(members), x + rng.normal(size=N), clusters=day)


def survival(rng, wrong):
    rate, end = np.exp(rng.normal(-3, 0.5, N)), rng.uniform(5, 40, N)
    lifetime = rng.exponential(1 / rate) / (1.5 if wrong else 1)
    curves = {f"S_{t}": np.exp(-rate * t) for t in (5, 10, 20, 40)}
    seen = {"months": np.minimum(lifetime, end), "died": (lifetime <= end).astype(int)}
    frame = pl.DataFrame(curves | seen)
    return cj.evaluate(frame, survival="S_*", target="months", event="died")


def posterior(rng, wrong):
    truth = {name: rng.normal(size=N // 2) for name in ("mu", "tau")}
    observed = {name: x + rng.normal(size=x.size) for name, x in truth.items()}
    spread = {"mu": 1.0, "tau": 0.6 if wrong else 1.0}
    draws = {
        name: x[:, None] / 2 + spread[name] * np.sqrt(0.5) * rng.normal(size=(x.size, 50))
        for name, x in observed.items()
    }
    return cj.check_posterior(truth, draws, observed)


def monitor(rng, wrong, folder):
    logits, week = logits_of(rng), np.repeat(np.arange(N // 50), 50)
    late = wrong & (week >= 4)
    frame = {"week": week, "p": expit(logits), "sold": happened(rng, logits + 1.5 * late)}
    pl.DataFrame(frame).write_csv(folder / "log.csv")
    state = folder / f"{wrong}.sqlite"
    options = ["--by", "week", "--prob", "p", "--target", "sold", "--state", str(state)]
    return CliRunner().invoke(app, ["monitor", str(folder / "log.csv"), *options]).stdout


def hub(rng, wrong):
    predictions, targets = quantile_forecasts(rng, False)
    other = cj.Quantiles(predictions.values + 0.5 * wrong, LEVELS)
    weeks = np.arange(N) // 6
    tasks = {"week": weeks, "place": np.arange(N) % 6}
    models = {
        name: cj.Data(p, targets, times=weeks, horizon=1).replace(groups=tasks)
        for name, p in (("baseline", predictions), ("ours", other))
    }
    return hub_table(KEY, models, n_resamples=199)


def comparison(rng, wrong):
    logits = logits_of(rng)
    ours = cj.Bernoulli(expit(logits * (2 if wrong else 1)))
    baseline, events = cj.Bernoulli(expit(logits)), happened(rng, logits)
    return cj.compare_calibration(KEY, None, baseline, ours, events, n_resamples=199)


def recalibration(rng, wrong):
    logits = logits_of(rng, (N, 4))
    powers = np.exp(logits * (1.6 if wrong else 1))
    targets = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return cj.fit_recalibrator(
        cj.Categorical(powers / powers.sum(axis=1, keepdims=True)), targets, "temperature"
    )


def segments(rng, wrong):
    logits, region = logits_of(rng), rng.integers(5, size=N)
    events = happened(rng, logits + 1.2 * (wrong & (region == 2)))
    groups = {"region": np.array(list("abcde"))[region], "weekday": rng.integers(7, size=N)}
    return cj.segment_test(KEY, cj.Bernoulli(expit(logits)), events, groups)


KINDS = [
    *(classifier, event, rare_event, numbers, counts, quantiles, ensemble, survival, posterior),
    *(monitor, hub, comparison, recalibration, segments),
]
NUMBER = re.compile(r"\d+(?: \d{3})*(?:\.\d+)?(?:e[+-]?\d+)?")


def value_and_tolerance(text):
    """A number, and by how much it may differ: a whole number not at all."""
    value, (digits, _, power) = float(text.replace(" ", "")), text.partition("e")
    unit = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
    return value, max(2.5 * unit, 0.02 * value) if "." in digits or power else 0.0


def same(found, kept):
    """Whether lines are equal but for spaces and the last digits of decimal fractions."""
    if NUMBER.sub("0", " ".join(found.split())) != NUMBER.sub("0", " ".join(kept.split())):
        return False
    numbers = [map(value_and_tolerance, NUMBER.findall(x)) for x in (found, kept)]
    return all(abs(a - b) <= max(s, t) for (a, s), (b, t) in zip(*numbers, strict=True))


def test_same_lines():
    assert same("p = 0.31,  n = 5", "p = 0.32, n = 5") and same("1.2e-05", "1.4e-05")
    assert not same("p = 0.31", "p = 0.37") and not same("n = 5", "n = 6")
    assert not same("a 0.31", "b 0.31")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_printed(kind, tmp_path):
    folder = {"folder": tmp_path} if kind is monitor else {}
    texts = [str(kind(np.random.default_rng(1), wrong, **folder)) for wrong in (False, True)]
    text = "\n\n\n".join(
        f"== {name}\n\n{x.strip()}" for name, x in zip(("calibrated", "wrong"), texts, strict=True)
    )
    file = FOLDER / f"{kind.__name__}.txt"
    if os.environ.get("CALIBJAX_WRITE_PRINTED"):
        file.write_text(text + "\n", encoding="utf-8")
    lines = zip_longest(text.splitlines(), file.read_text("utf-8").splitlines(), fillvalue="")
    assert [x for x in lines if not same(*x)] == []
