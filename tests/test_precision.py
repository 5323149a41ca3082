"""Targets and the numbers that they are compared with, in two precisions: ties remain ties."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax as cj

N, GRID = 60, np.array([0.1, 0.3, 0.7])
RNG = np.random.default_rng(0)
MEMBERS, TARGETS = RNG.choice(GRID, (N, 10)), RNG.choice(GRID, N)
FORECASTS = np.sort(RNG.choice(GRID, (N, 5)), axis=1)
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)


def survival_curve(dtype):
    # The probabilities are compared with nothing, and keep their digits.
    probs = np.tile([0.8, 0.5, 0.25], (N, 1)).astype("float32")
    return cj.SurvivalCurve(np.tile(GRID, (N, 1)).astype(dtype), probs)


def truncated(dtype):
    base = cj.Normal(np.zeros(N, "float32"), np.ones(N, "float32"))
    return cj.Truncated(base, np.full(N, 0.1, dtype), np.full(N, 0.7, dtype))


FAMILIES = {
    "Empirical": lambda dtype: cj.Empirical(MEMBERS.astype(dtype)),
    "weighted Empirical": lambda dtype: cj.Empirical(
        MEMBERS.astype(dtype), np.full((N, 10), 0.125 * 0.8, "float32")
    ),
    "Quantiles": lambda dtype: cj.Quantiles(FORECASTS.astype(dtype), LEVELS),
    "Mixture": lambda dtype: cj.Mixture.ensemble(
        cj.Quantiles(np.stack([FORECASTS] * 2, axis=1).astype(dtype), LEVELS)
    ),
    "SurvivalCurve": survival_curve,
    "Truncated": truncated,
}
#: Of predictions and of targets, and the coarser one.
PRECISIONS = [
    ("float32", "float64", "float32"),
    ("float64", "float32", "float32"),
    ("float16", "float64", "float16"),
]


@pytest.mark.parametrize(("of_predictions", "of_targets", "coarser"), PRECISIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_ties_of_two_precisions(family, of_predictions, of_targets, coarser, float64):
    """As if all numbers had been given in float64, with the digits of the coarser dtype."""

    def interval(of_predictions, of_targets, through):
        def with_digits(dtype):
            return lambda x: np.asarray(x).astype(through).astype(dtype)

        predictions = FAMILIES[family](of_predictions)
        if through != "float64":
            names = predictions.compared_with_targets
            leaves = {id(predictions.parameter(name)) for name in names}
            predictions = jax.tree.map(
                lambda x: with_digits("float64")(x) if id(x) in leaves else x, predictions
            )
        targets = with_digits(of_targets)(TARGETS)
        with jax.numpy_dtype_promotion("standard"):  # of ends of the support and a target
            return np.array(cj.pit_interval(predictions, targets))

    found = interval(of_predictions, of_targets, "float64")
    # Both are in float64 here.
    np.testing.assert_array_equal(found, interval("float64", "float64", coarser))


def test_ties_inside_of_jit(float64):
    """Rounding is no two conversions, which XLA may leave out, and has a derivative."""
    # Both in the coarser one.
    expected = cj.pit_interval(
        cj.Empirical(jnp.asarray(MEMBERS, "float32")), jnp.asarray(TARGETS, "float32")
    )

    @jax.jit
    def place_and_gradient(samples, targets):
        def loss(samples):
            return jnp.mean(cj.crps(cj.Empirical(samples), targets))

        return cj.pit_interval(cj.Empirical(samples), targets), jax.grad(loss)(samples)

    for of_samples, of_targets in (("float32", "float64"), ("float64", "float32")):
        samples, targets = MEMBERS.astype(of_samples), TARGETS.astype(of_targets)
        found, gradient = place_and_gradient(samples, targets)
        np.testing.assert_allclose(found, expected, atol=1e-6)
        assert gradient.dtype == of_samples and np.all(np.isfinite(gradient))
        assert np.any(gradient != 0)


def test_what_is_compared_with_nothing_keeps_its_digits(float64):
    loc, targets = np.float32(RNG.normal(size=N)), RNG.normal(size=N)
    found = cj.pit_interval(cj.Normal(loc, np.ones(N, "float32")), targets).low
    expected = cj.pit_interval(cj.Normal(loc.astype(float), np.ones(N)), targets).low
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["Empirical", "Quantiles"])
@pytest.mark.parametrize("of_predictions", ["float32", "float64"])
@pytest.mark.parametrize("of_targets", ["float32", "float64"])
def test_level_of_right_forecasts(family, of_predictions, of_targets, float64):
    rng, n_rejected = np.random.default_rng(1), 0
    for seed in range(60):
        if family == "Empirical":
            predictions = cj.Empirical(rng.choice(GRID, (100, 10)).astype(of_predictions))
        else:
            # P(Y < v) <= u <= P(Y <= v).
            values = np.tile([0.1, 0.3, 0.3, 0.7], (100, 1)).astype(of_predictions)
            predictions = cj.Quantiles(values, (0.2, 0.4, 0.6, 0.8))
        targets = rng.choice(GRID, 100).astype(of_targets)
        options = {"n_resamples": 99}
        with jax.numpy_dtype_promotion("standard"):
            result = cj.calibration_test(jax.random.key(seed), predictions, targets, **options)
        n_rejected += bool(result.pvalue <= 0.05)
    # Binomial, three deviations above 5 %.
    assert n_rejected <= 8
