"""Numbers of float64 that float32 cannot tell apart: an error only where that matters."""

import jax
import numpy as np
import pytest

import calibjax as cj
from calibjax._data.data import as_data

N, S = 200, 20
DAY = 2460000.5  # whose neighbours in float32 are 0.25 away


def rows(offset, sd):
    rng = np.random.default_rng(0)
    mean = rng.normal(size=N)
    draws = mean[:, None] + rng.normal(size=(N, S))
    return offset + sd * mean, offset + sd * draws, offset + sd * (mean + rng.normal(size=N))


def predictions(name, mean, draws, sd):
    levels = np.arange(1, S + 1) / (S + 1)
    return {
        "samples": lambda: cj.Empirical(draws),
        "loc": lambda: cj.Normal(mean, np.full(N, sd)),
        "values": lambda: cj.Quantiles(np.sort(draws, axis=1), levels),
        "components.loc": lambda: cj.Mixture.ensemble(cj.Normal(draws, np.full((N, S), sd))),
    }[name]()


@pytest.mark.parametrize("name", ["samples", "loc", "values", "components.loc"])
def test_large_offsets_are_an_error_that_names_the_parameter(name):
    mean, draws, targets = rows(DAY, 0.1)
    with pytest.raises(ValueError, match=f"targets and {name} must not .* such as 2460000 from"):
        as_data(predictions(name, mean, draws, 0.1), targets)
    mean, draws, targets = rows(DAY, 100.0)
    as_data(predictions(name, mean, draws, 100.0), targets)


def test_the_error_counts_what_is_left():
    # Multiples of 0.05 in one day: of 0, 0.05, … 0.95 float32 keeps 0, 0.25, 0.5, 0.75 and 1.
    targets = DAY - 0.5 + np.arange(N) % 20 / 20
    draws = targets[:, None] + 0.05 * (np.arange(S) % 3 - 1)
    values = np.unique(np.append(targets, draws)).size
    with pytest.raises(ValueError, match=f" {values} different values become [56]\\."):
        as_data(cj.Empirical(draws), targets)


def test_one_coordinate_of_vectors_is_enough():
    _, draws, targets = rows(DAY, 0.1)
    vectors = cj.Empirical(np.stack([draws - DAY, draws], axis=-1))
    with pytest.raises(ValueError, match="targets and samples must not"):
        as_data(vectors, np.stack([targets - DAY, targets], axis=-1))


def test_evaluate_takes_the_numbers_as_given():
    mean, draws, targets = rows(DAY, 0.1)
    with pytest.raises(ValueError, match="targets and samples must not"):
        cj.evaluate(cj.Empirical(draws), targets)
    frame = {"mean": mean, "sd": np.full(N, 0.1), "y": targets}
    with pytest.raises(ValueError, match="targets and loc must not"):
        cj.evaluate(frame, target="y", mean="mean", sd="sd")
    with pytest.raises(ValueError, match="targets and samples must not"):
        cj.evaluate({"draws": draws, "y": targets}, target="y", draws="draws")


def test_x64_takes_them():
    _, draws, targets = rows(DAY, 0.1)
    with jax.enable_x64(True):
        as_data(cj.Empirical(draws), targets)


ORDINARY = {
    "equal": lambda m, d, y: (cj.Empirical(d * 0), y * 0),
    "equal up to rounding": lambda m, d, y: (cj.Normal(y * 3 / 3, np.full(N, 1e-9)), y),
    "near but wide": lambda m, d, y: (cj.Normal(y * (1 + 1e-9), np.ones(N)), y),
    "decades": lambda m, d, y: (cj.Empirical(np.exp(8 * d)), np.exp(8 * y)),
    "tiny": lambda m, d, y: (cj.Empirical(1e-30 * d), 1e-30 * y),
    "kelvin": lambda m, d, y: (cj.Empirical(300 + 0.01 * d), 300 + 0.01 * y),
    "most draws equal": lambda m, d, y: (cj.Empirical(np.maximum(d, 2.0)), np.maximum(y, 2.0)),
    "dates of events in seconds": lambda m, d, y: (cj.Empirical(1.7e9 + 1e6 * d), 1.7e9 + 1e6 * y),
    "float32": lambda m, d, y: (cj.Empirical(np.float32(DAY + d)), np.float32(DAY + y)),
    "positive": lambda m, d, y: (cj.Gamma(np.full(N, 1e4), np.full(N, 1e-3)), 1e7 + 1e5 * y),
}


@pytest.mark.parametrize("case", ORDINARY)
def test_ordinary_rows_pass(case):
    as_data(*ORDINARY[case](*rows(0.0, 1.0)))


def test_few_collisions_among_many_numbers_pass():
    rng = np.random.default_rng(0)
    draws = rng.random((10, 100_000))
    assert np.unique(draws.astype(np.float32)).size < draws.size
    as_data(cj.Empirical(draws), rng.random(10))


def test_masked_rows_do_not_count():
    _, draws, targets = rows(DAY, 0.1)
    draws[::2], targets[::2] = draws[::2] - DAY, targets[::2] - DAY
    with pytest.raises(ValueError, match="must not"):
        as_data(cj.Empirical(draws), targets, where=np.arange(N) % 2 == 1)
    as_data(cj.Empirical(draws), targets, where=np.arange(N) % 2 == 0)
