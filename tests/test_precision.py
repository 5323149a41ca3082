"""Numbers of several dtypes: ties of two precisions, and integers of 64 bits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import depending

import calibjax as cj
from calibjax._data.data import Data

N, GRID = 60, np.array([0.1, 0.3, 0.7])
RNG = np.random.default_rng(0)
MEMBERS, TARGETS = RNG.choice(GRID, (N, 10)), RNG.choice(GRID, N)
FORECASTS = np.sort(RNG.choice(GRID, (N, 5)), axis=1)
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)


def survival_curve(dtype):
    # The probabilities are compared with nothing, and keep their digits.
    probs = np.tile([0.8, 0.5, 0.25], (N, 1)).astype("float32")
    return cj.SurvivalCurve(np.tile(GRID, (N, 1)).astype(dtype), probs)


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


# Integers of 64 bits, of which jax keeps 32: 2^32 + 1 is not taken for 1.

KEY, TOO_LARGE = jax.random.key(0), 2**32 + 1
CLASSES = cj.Categorical(np.full((8, 3), 1 / 3, "float32"))
EVENTS, COUNTS = cj.Bernoulli(np.full(8, 0.5, "float32")), cj.Poisson(np.ones(8, "float32"))
TOTALS = cj.Binomial(np.full(8, 5), np.full(8, 0.5, "float32"))
MONITOR = cj.CalibrationMonitor.start
LABEL_CALLS = {
    "skce": lambda p, y: cj.skce(cj.default_kernel(p), p, y),
    "calibration_test": lambda p, y: cj.calibration_test(KEY, p, y),
    "log_score": cj.log_score,
    "segment_test": lambda p, y: cj.segment_test(KEY, p, y, groups={"a": np.arange(8)}),
    "compare_calibration": lambda p, y: cj.compare_calibration(KEY, p, p, p, y),
    "monitor": lambda p, y: MONITOR(KEY, p).update(p, y),
    "evaluate": cj.evaluate,
    "pit": lambda p, y: cj.pit(KEY, p, y),
}
OF_CLASSES = {
    "ece": cj.ece,
    "ece of top_label": lambda p, y: cj.ece(*cj.top_label(p, y)),
    "ece of one_vs_rest": lambda p, y: cj.ece(*cj.one_vs_rest(p, y, 1)),
    "fit_recalibrator": lambda p, y: cj.fit_recalibrator(p, y, "temperature"),
    "decompose_score": cj.decompose_score,
    "calibration_bins": cj.calibration_bins,
}
INTEGERS = [
    *((name, CLASSES, call) for name, call in (LABEL_CALLS | OF_CLASSES).items()),
    *((name, COUNTS, call) for name, call in LABEL_CALLS.items()),
    ("log_score", TOTALS, cj.log_score),
    ("reliability_curve", EVENTS, lambda p, y: cj.reliability_curve(KEY, p, y)),
    ("IntervalCensored", COUNTS, lambda p, y: cj.log_score(p, cj.IntervalCensored(y, y))),
    (
        "IntervalCensored of two dtypes",
        COUNTS,
        lambda p, y: cj.log_score(p, cj.IntervalCensored(np.int32(y > 5), y)),
    ),
]


def _reads_labels(name, predictions):
    """Whether labels are read as those of a column, whose errors begin with the row."""
    return name == "evaluate" and predictions is CLASSES


@pytest.mark.parametrize(
    ("name", "predictions", "call"), INTEGERS, ids=lambda x: x if isinstance(x, str) else ""
)
@pytest.mark.parametrize("kind", ["int64", "uint64"])
def test_integers_of_64_bits_are_no_others(name, predictions, call, kind):
    targets = np.array([0, 1, 1, 0, 1, 0, 1, 1], kind)
    targets[2] = TOO_LARGE
    # An invalid label of `top_label` is -1.
    shown = "-1" if "of" in name.split() and predictions is CLASSES else TOO_LARGE
    words = ", row 2: expected" if _reads_labels(name, predictions) else " must .*row 2 is"
    with pytest.raises(ValueError, match=f"targets{words}.* {shown}"):
        call(predictions, targets)


@pytest.mark.parametrize(
    ("name", "predictions", "call"), INTEGERS[:22], ids=lambda x: x if isinstance(x, str) else ""
)
def test_booleans_are_targets_of_events(name, predictions, call):
    """Of three classes, and of counts, they were the labels 0 and 1."""
    kind = "labels 0 … 2" if predictions is CLASSES else "counts"
    words = ", row 0: expected" if _reads_labels(name, predictions) else " must be"
    message = f"targets{words} {kind}.*(booleans|True)"
    with pytest.raises((TypeError, ValueError), match=message):
        call(predictions, np.arange(8) % 2 == 0)


def test_booleans_of_two_classes_are_labels():
    two, happened = cj.Categorical(np.full((8, 2), 0.5, "float32")), np.arange(8) < 3
    assert cj.log_score(two, happened).tolist() == cj.log_score(two, happened.astype(int)).tolist()


def test_masked_rows_may_hold_any_integer():
    targets = np.array([0, 1, np.iinfo("int64").min, 0, 1, 0, TOO_LARGE, 1])
    where = np.arange(8) % 4 != 2
    found = cj.ece(CLASSES, targets, where=where)
    assert found == cj.ece(CLASSES, targets % 2, where=where)


@pytest.mark.parametrize("name", ["clusters", "times"])
@pytest.mark.parametrize("how", ["plain", "traced", "masked inside of jit"])
def test_ids_of_64_bits_are_all_distinct(name, how):
    """Ids of equal low or high bits, or of one float32, are as many clusters as small numbers."""
    small = np.repeat(np.arange(4), 2)
    ids = np.array([1, 2**32 + 1, 2**40, 2**40 + 1])[small]

    def numbers(values, where=None):
        dependence = {name: values}
        return depending(Data(EVENTS, np.zeros(8, int), where=where), **dependence).clusters

    with jax.enable_x64(how == "traced"):
        if how == "masked inside of jit":
            found = jax.jit(lambda where: numbers(ids, where))(np.ones(8, bool))
        else:
            found = (jax.jit(numbers) if how == "traced" else numbers)(ids)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, small)
