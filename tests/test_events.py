"""Events whose absence has a probability that 1 - p loses in float32: the same at every door."""

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.special import log_expit

import calibjax as cj
from calibjax.cli._columns import Columns
from calibjax.cli._monitor_state import zero_probability_row
from calibjax.frames import Columns as FrameColumns
from calibjax.frames import PredictionColumns, read_arrays, read_table

# 1 - p, of which float32 would keep 3, 1 and no digits.
RARE = np.array([1e-4, 1e-7, 1e-9, 1e-12])
# The unlikely and the likely label, of events that are likely, and of those that are not.
P = np.concatenate([1 - RARE, 1 - RARE, RARE, RARE])
Y = np.repeat([0, 1, 1, 0], RARE.size)
FRAME = {"p": P, "p_0": 1 - P, "p_1": P, "y": Y}
FORMATS = {
    "csv": pl.DataFrame.write_csv,
    "jsonl": pl.DataFrame.write_ndjson,
    "parquet": pl.DataFrame.write_parquet,
    "npz": lambda frame, path: np.savez(path, **frame.to_dict(as_series=False)),
}


def in_python(predictions):
    return lambda _: read_arrays(predictions(), Y).predictions


def in_frame(frame, **names):
    return lambda _: FrameColumns(target="y", **names).of(read_table(frame(FRAME), "y")).predictions


def in_file(ending):
    def read(folder):
        path = folder / f"x.{ending}"
        FORMATS[ending](pl.DataFrame(FRAME), path)
        model = Columns(target="y", prob="p").read(path)
        assert zero_probability_row(model, np.arange(Y.size)) is None
        return model.predictions

    return read


DOORS = {
    "array": in_python(lambda: P),
    "array [n, 1]": in_python(lambda: P[:, None]),
    "list": in_python(P.tolist),
    "two columns": in_python(lambda: np.stack([1 - P, P], axis=1)),
    "Bernoulli": in_python(lambda: cj.Bernoulli(P)),
    "Bernoulli, unread": lambda _: cj.Bernoulli(P),
    "pandas column": in_python(lambda: pd.Series(P)),
    "logits": lambda _: cj.Bernoulli.from_logits(np.log(P) - np.log1p(-P)),
    "pandas": in_frame(pd.DataFrame, prob="p"),
    "polars": in_frame(pl.DataFrame, prob="p"),
    "pandas, two columns": in_frame(pd.DataFrame, probs="p_*"),
    **{ending: in_file(ending) for ending in FORMATS},
}


@pytest.mark.parametrize("door", DOORS)
def test_the_log_score_is_that_of_float64(door, tmp_path):
    predictions = DOORS[door](tmp_path)
    expected = -np.log(np.where(Y == 1, P, 1 - P))
    np.testing.assert_allclose(cj.log_score(predictions, Y), expected, rtol=3e-7, atol=1e-7)


def test_maps_keep_them():
    predictions = cj.Bernoulli(P)
    fit = cj.fit_recalibrator(predictions, Y, "temperature")
    two = np.asarray(fit(cj.Categorical(np.stack([1 - P, P], axis=1))).probs)
    np.testing.assert_allclose(fit(predictions).label_probabilities(), two, rtol=1e-5)
    # A quarter of the temperature takes the odds to the fourth power, and a file has them, too.
    sharp = cj.apply_temperature(predictions, 0.25)
    np.testing.assert_allclose(sharp.complement[:2], RARE[:2] ** 4, rtol=1e-3)
    (column,) = (
        PredictionColumns("prob", ["p"], "p").columns_of(predictions.with_full_precision()).values()
    )
    np.testing.assert_allclose(1 - column, 1 - P, rtol=1e-4)


@pytest.mark.slow
def test_an_evaluation_keeps_them():
    p, y = np.tile(P, 4), np.tile(Y, 4)
    found = cj.evaluate(p, y)
    assert len(found.zero_probability.rows) == 0 and "the event" in found.verdict
    exact = -np.log(np.where(y == 1, p, 1 - p)).mean()
    assert found.measures["log loss"].value == pytest.approx(exact, rel=1e-6)


def test_logits_far_from_zero():
    logits = np.array([69.0, -69.0, 20.0, -20.0])
    for y, sign in ((1, 1), (0, -1)):
        found = cj.log_score(cj.Bernoulli.from_logits(logits), np.full(4, y))
        np.testing.assert_allclose(found, -log_expit(sign * logits), rtol=1e-6, atol=1e-7)


def test_certain_events_are_certain():
    p, y = np.array([0.0, 1.0, 0.0, 1.0]), np.array([0, 1, 1, 0])
    found = np.asarray(cj.log_score(cj.Bernoulli(p), y))
    np.testing.assert_array_equal(found, [0, 0, np.inf, np.inf])


def test_a_monitor_takes_events_with_and_without_complements(tmp_path):
    y = np.tile([1, 0, 1, 1, 0, 0, 1, 0], 4)
    p = np.where(np.arange(y.size) == 9, 1 - 1e-9, 0.5)
    evidence = []
    for family in (lambda p: cj.Bernoulli(p), lambda p: cj.Categorical(np.stack([1 - p, p], 1))):
        monitor = cj.CalibrationMonitor.start(jax.random.key(0), family(np.full(y.size, 0.5)))
        evidence.append(float(monitor.update(family(p), y).log_e_value))
    assert np.isfinite(evidence).all() and evidence[0] == pytest.approx(evidence[1], abs=1e-3)
    # Its file is of no batch: one row may lack options or digits, and not those of another day.
    for one, other in (
        (cj.Bernoulli.from_logits(np.zeros(4)), cj.Bernoulli(np.full(4, 0.5, np.float32))),
        (cj.Categorical(np.eye(2), ragged=True), cj.Categorical(np.full((2, 2), 0.5))),
    ):
        cj.CalibrationMonitor.start(jax.random.key(0), one).save(tmp_path / "x.npz")
        cj.CalibrationMonitor.start(jax.random.key(0), other).load(tmp_path / "x.npz")


def test_a_complement_belongs_to_its_probabilities():
    p = cj.Bernoulli(np.array([0.25, 0.5]), complement=np.array([0.75, 0.75]))
    with pytest.raises(ValueError, match="probs must be in .*, and 1 together with complement"):
        cj.log_score(p, np.array([0, 1]))
    # One leaf or two: predictions of one family.
    kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation()), cj.WhiteKernel())
    plain, y = cj.Bernoulli(np.float32([0.25, 0.5])), np.array([0, 1])
    logits = cj.Bernoulli.from_logits(np.log(np.float32([1 / 3, 1])))
    for p in (plain, logits):
        found = [cj.witness(kernel, p, y, at, y) for at in (plain, logits)]
        np.testing.assert_allclose(*found, rtol=1e-5)


@pytest.mark.parametrize(
    ("complement", "error", "words"),
    [
        (0.5, ValueError, "row 0 is 0.1"),
        ([0.9, 0.8], TypeError, "^complement must be an array, got list"),
        (np.array([True, True]), TypeError, "^complement must hold real values, got dtype bool"),
        (np.array([0.9]), ValueError, r"^complement must have shape \[n\] with n = 2 .* \[1\]"),
        (np.array([[0.9], [0.8]]), ValueError, r"^complement must have shape \[n\], .* \[2, 1\]"),
        (np.array([1, 1]), ValueError, "and 1 together with complement; row 0 is 0.1"),
    ],
)
def test_complements_are_checked_like_probabilities(complement, error, words):
    with pytest.raises(error, match=words):
        cj.log_score(cj.Bernoulli(np.array([0.1, 0.2]), complement=complement), np.array([0, 1]))


@pytest.mark.parametrize("weights", [None, np.array([[0.25, 0.75]] * 4)], ids=["equal", "unequal"])
def test_ensembles_of_events_keep_them(weights):
    p = np.stack([1 - RARE, 1 - RARE / 2], axis=1)
    mixtures = cj.Mixture(weights, cj.Bernoulli(p))
    shares = [0.5, 0.5] if weights is None else weights[0]
    found = cj.log_score(mixtures, np.zeros(4, int))
    np.testing.assert_allclose(found, -np.log((1 - p) @ shares), rtol=1e-6)
    # Monitors of mixtures with complements, and of those without, are of one family.
    monitor = cj.CalibrationMonitor.start(jax.random.key(0), mixtures)
    monitor.update(cj.Mixture(weights, cj.Bernoulli(np.float32(p))), np.ones(4, int))
