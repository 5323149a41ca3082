"""Tests, intervals and curves of another number of rows on the same rung of the ladder.

Outside of jit nothing is compiled for it, and the results are those of the rows as they are, which
is what a user's jit sees.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import cast
from marks import slow

import calibjax as cj
from calibjax._rows import check_data, padded, rung
from calibjax.hypothesis_tests._block import check_complete_blocks

RNG = np.random.default_rng
KEY = jax.random.key(1)
FIRST, OTHER, RUNG = 47, 45, 48
R = {"n_resamples": 99}
KERNEL = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), 0.4), cj.WhiteKernel())
LOCATIONS = cj.Bernoulli(jnp.array([0.2, 0.8], jnp.float32)), jnp.array([1, 0])


def of_event(n):
    probs = RNG(0).uniform(size=FIRST)
    targets = RNG(1).uniform(size=FIRST) < probs**2
    return cast((cj.Bernoulli(probs[:n]), targets[:n]), "float32")


def of_number(n):
    loc = RNG(0).normal(size=FIRST)
    predictions = cj.Normal(loc[:n], np.full(n, 0.8))
    return cast((predictions, (loc + RNG(1).normal(size=FIRST))[:n]), "float32")


def of_count(n):
    rate = RNG(0).uniform(0.5, 4.0, FIRST)
    return cast((cj.Poisson(rate[:n], max_count=32), RNG(1).poisson(rate)[:n]), "float32")


def of_quantiles(n):
    values = np.sort(RNG(0).normal(size=(FIRST, 3)), axis=1)
    predictions = cj.Quantiles(values[:n], (0.1, 0.5, 0.9))
    # One of them is a quantile: its place is chosen.
    return cast((predictions, np.where(np.arange(n) == 3, values[:n, 1], 0.3)), "float32")


def asymptotic(method):
    return lambda p, y: cj.asymptotic_skce_test(KEY, KERNEL, p, y, method=method, **R)


def of_models(n):
    predictions, targets = of_event(n)
    others = [cj.Bernoulli(RNG(seed).uniform(size=n).astype(np.float32)) for seed in (5, 6)]
    return [predictions, *others], targets


FROM_MODEL = {"null": "model", "key": KEY, **R}
OF_EVENTS = {
    "calibration_test": lambda p, y: cj.calibration_test(KEY, p, y, **R),
    "landmarks": lambda p, y: cj.aggregated_skce_test(KEY, [KERNEL], p, y, n_features=46, **R),
    **{method: asymptotic(method) for method in ("bootstrap", "wild", "gamma", "pearson")},
    **{method: asymptotic(method) for method in ("spectrum", "features")},
    "blocks": lambda p, y: cj.asymptotic_block_skce_test(KERNEL, p, y, block_size=4),
    "blocks, model": lambda p, y: cj.asymptotic_block_skce_test(KERNEL, p, y, **FROM_MODEL),
    "bound": lambda p, y: cj.distribution_free_skce_test(KERNEL, p, y),
    "distribution free, model": lambda p, y: cj.distribution_free_skce_test(
        KERNEL, p, y, **FROM_MODEL
    ),
    "cme": lambda p, y: cj.asymptotic_cme_test(KERNEL, p, y, *LOCATIONS),
    "cme, model": lambda p, y: cj.asymptotic_cme_test(KERNEL, p, y, *LOCATIONS, **FROM_MODEL),
    "locations": lambda p, y: cj.sample_test_locations(KEY, p, 3),
    "state": lambda p, y: cj.SKCEState.empty(4).update(KERNEL, p, y),
    "interval": lambda p, y: cj.skce_confidence_interval(KEY, KERNEL, p, y, **R),
    "bounded interval": lambda p, y: cj.skce_confidence_interval(
        None, KERNEL, p, y, method="distribution_free"
    ),
    "temperature": lambda p, y: cj.equivalent_temperature(KEY, KERNEL, p, y, **R),
    "contributions": lambda p, y: cj.contributions(KERNEL, p, y),
    "reliability": lambda p, y: cj.reliability_curve(KEY, p, y, n_bins=3, **R),
    "witness": lambda p, y: cj.witness_map(KEY, p, y, n_bins=3, **R),
    "smooth ECE": cj.smooth_ece,
}
OF_NUMBERS = {
    "pit": lambda p, y: cj.pit_curve(KEY, p, y, n_bins=10, **R),
    "coverage": lambda p, y: cj.coverage_curve(KEY, p, y, n_levels=5, **R),
    "residuals": lambda p, y: cj.residual_map(KEY, p, y, n_bins=2, **R),
    "calibration_test": OF_EVENTS["calibration_test"],
}
CASES = {
    **{f"event, {name}": (of_event, call) for name, call in OF_EVENTS.items()},
    "comparison": (
        of_models,
        lambda models, y: cj.compare_calibration(KEY, KERNEL, models[0], models[1:], y, **R),
    ),
    **{f"number, {name}": (of_number, call) for name, call in OF_NUMBERS.items()},
    **{f"count, {name}": (of_count, call) for name, call in OF_NUMBERS.items()},
    **{f"quantiles, {name}": (of_quantiles, call) for name, call in OF_NUMBERS.items()},
}
# Others of their kind are fast.
SLOW = {name for name in CASES if name.startswith(("count", "quantiles"))}
SLOW |= {f"event, {name}" for name in ("features", "pearson", "cme, model", "blocks, model")}
SLOW |= {"event, interval", "event, landmarks", "number, calibration_test", "number, coverage"}


@pytest.mark.parametrize("name", slow(SLOW, CASES))
def test_another_number_of_rows(name, caplog):
    data, call = CASES[name]
    jax.block_until_ready(call(*data(FIRST)))
    rows = data(OTHER)
    caplog.clear()
    with jax.log_compiles(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = call(*rows)
    compiled = [r.getMessage() for r in caplog.records if "XLA compilation" in r.getMessage()]
    assert not compiled
    assert_same(found, jax.jit(call)(*rows))


def assert_same(found, expected):
    """But for rounding; p-values are multiples of 1 / 100, and whole numbers are equal."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        ours, theirs = np.asarray(ours), np.asarray(theirs)
        assert ours.shape == theirs.shape
        if ours.dtype.kind == "f":
            size = np.max(np.abs(theirs), initial=0, where=np.isfinite(theirs))
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5 * size)
        else:
            np.testing.assert_array_equal(ours, theirs)


def test_a_check_of_masked_blocks_compiles_nothing(caplog):
    predictions, targets = of_event(OTHER)
    where = np.arange(OTHER) % 15 != 2
    data = check_data(predictions, targets, jnp.asarray(where))
    with jax.log_compiles(), warnings.catch_warnings():
        with pytest.raises(ValueError, match="at least 9 complete blocks of 5 rows, got 6"):
            check_complete_blocks(data, 5, at_least=9)
    assert "Compiling" not in caplog.text


def test_a_mask_remains():
    predictions, targets = of_event(OTHER)
    where = jnp.arange(OTHER) % 15 != 2
    data = padded(check_data(predictions, targets, where))
    assert rung(OTHER) == rung(FIRST) == rung(int(where.sum())) == data.n == RUNG
    assert data.where.sum() == where.sum()
    kept = jax.tree.map(lambda x: x[where], (predictions, targets))
    masked = cj.calibration_test(KEY, predictions, targets, where=where, **R)
    assert_same(masked.null_distribution, cj.calibration_test(KEY, *kept, **R).null_distribution)
