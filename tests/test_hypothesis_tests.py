"""What holds for every test: masks, transformations, bad values, dtypes, degenerate data."""

import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import FAMILIES, TESTS, cast, sample
from marks import slow
from scipy import stats

import calibjax as cj

N = 24
INSTANCES = ["categorical-tv-white", "normal-w2-gaussian"]
NUMBERS = "statistic", "pvalue", "estimate"

# These share most of their code with others of the table.
SLOW = {
    "spectrum",
    "gamma",
    "pearson",
    "features",
    "blocks of 3",
    "blocks of 2, null",
    "distribution-free, biased",
    "distribution-free, blocks of 3",
    "calibration_test",
}


every_test = pytest.mark.parametrize("name", slow(SLOW, TESTS))
some_families = pytest.mark.parametrize(
    "instance", [INSTANCES[0], pytest.param(INSTANCES[1], marks=pytest.mark.slow)]
)


def numbers(result):
    return [getattr(result, name) for name in NUMBERS]


def close(result, expected, rtol=1e-11):
    np.testing.assert_allclose(numbers(result), numbers(expected), rtol, atol=1e-13)


# Masked rows hold garbage, and the rest is as if they were dropped: with the same draws, because a
# resample is made of the first n_kept random numbers.
MASK = jnp.asarray(np.repeat([True, False, True, True], 6))  # whole blocks of 2 and of 3


# Those draw by position, so that only the law of their draws is the same: see below.
BY_POSITION = {"cme", "consistency"}


@every_test
@some_families
def test_inside_jit(name, instance, key, float64):
    # One program: it says what the test outside of jit says, of whichever rows are kept.
    kernel, predictions, targets = sample(instance, N)
    test, jitted = TESTS[name], jax.jit(TESTS[name])
    every_row = jnp.ones(N, bool)
    mask = None if name not in BY_POSITION else every_row
    result = test(key, kernel, predictions, targets, where=mask)
    traced = jitted(key, kernel, predictions, targets, where=every_row)
    chex.assert_trees_all_close(traced, result, rtol=1e-11, atol=1e-13)
    assert traced.method == result.method
    for value in numbers(traced):
        assert value.shape == () and value.dtype == jnp.float64
    assert 0 <= result.pvalue <= 1
    if name not in BY_POSITION:
        garbage = jax.tree.map(
            lambda x: jnp.where(MASK.reshape(-1, *(1,) * (x.ndim - 1)), x, jnp.nan), predictions
        )
        bad_targets = jnp.where(MASK, targets, jnp.full_like(targets, -7))
        expected = test(key, kernel, *jax.tree.map(lambda x: x[MASK], (predictions, targets)))
        close(test(key, kernel, garbage, bad_targets, where=MASK), expected)
        close(jitted(key, kernel, garbage, bad_targets, where=MASK), expected)
    # Bad values, and too few rows, cannot be looked at: nothing is said of them.
    nothing = [jitted(key, kernel, predictions, targets, where=jnp.arange(N) < n) for n in (0, 1)]
    nothing.append(jitted(key, kernel, bad_row(predictions), targets, where=every_row))
    bad_target = 4 if instance == INSTANCES[0] else jnp.nan
    nothing.append(jitted(key, kernel, predictions, targets.at[7].set(bad_target), where=every_row))
    if instance == INSTANCES[0]:
        unnormalised = cj.Categorical(2 * predictions.probs)
        nothing.append(jitted(key, kernel, unnormalised, targets, where=every_row))
    for result in nothing:
        assert all(jnp.isnan(value) for value in numbers(result))


def bad_row(predictions):
    return jax.tree.map(lambda x: x.at[5].set(jnp.nan), predictions)


@pytest.mark.parametrize("name", slow(SLOW | {"cme", "consistency"}, TESTS))
def test_vmap_over_data_sets_is_a_loop(name, key, float64):
    kernel, *_ = sample(INSTANCES[0], N)
    batches = [cast(FAMILIES["categorical"](N, seed)) for seed in (0, 1, 2)]
    keys = jax.random.split(key, 3)
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *batches)
    found = jax.jit(jax.vmap(lambda key, batch: TESTS[name](key, kernel, *batch)))(keys, stacked)
    expected = [TESTS[name](k, kernel, *batch) for k, batch in zip(keys, batches, strict=True)]
    for number in NUMBERS:
        each = [getattr(result, number) for result in expected]
        np.testing.assert_allclose(getattr(found, number), each, rtol=1e-10, atol=1e-13)
    assert "pvalue of shape (3,)" in repr(found)


def test_where_is_dropping_rows_at_given_locations(key, float64):
    kernel, predictions, targets = sample(INSTANCES[0], N)
    locations = cj.sample_test_locations(key, predictions, 3)
    kept = jax.tree.map(lambda x: x[MASK], (predictions, targets))
    masked = cj.Categorical(predictions.probs.at[~MASK].set(jnp.nan)), targets.at[~MASK].set(-1)
    for function in (cj.ucme, cj.witness):
        value = function(kernel, *masked, *locations, where=MASK)
        np.testing.assert_allclose(value, function(kernel, *kept, *locations), rtol=1e-12)
    found = cj.asymptotic_cme_test(kernel, *masked, *locations, where=MASK)
    close(found, cj.asymptotic_cme_test(kernel, *kept, *locations))


def test_resamples_are_of_kept_rows_only(key, float64):
    # Kept predictions are 0.25 and 0.75; a masked 1.0 would move means and targets.
    probs = jnp.where(jnp.arange(N) % 2 == 0, 0.25, 0.75)
    masked = cj.Bernoulli(jnp.where(MASK, probs, 1.0))

    def mean_prediction(predictions, targets, where):
        return jnp.mean(predictions.probs, where=where)

    def mean_target(predictions, targets, where):
        return jnp.mean(targets.astype(float), where=where)

    n = int(jnp.sum(MASK))
    for estimator, variance in ((mean_prediction, 1 / 16), (mean_target, 1 / 4)):
        options = {"null": "consistency", "n_resamples": 4000, "where": MASK}
        result = cj.consistency_test(key, estimator, masked, jnp.zeros(N, int), **options)
        draws = result.null_distribution
        assert abs(jnp.mean(draws) - 0.5) < 4 * np.sqrt(variance / n / 4000)
        relative_error = 4 * np.sqrt(2 / 4000)
        np.testing.assert_allclose(jnp.var(draws), variance / n, rtol=relative_error)


@every_test
def test_a_model_that_is_certain_and_right(name, key):
    # h is 0 everywhere: nothing speaks against the model, and nothing is NaN.
    targets = jnp.arange(N) % 3
    predictions = cj.Categorical(jnp.eye(3)[targets])
    kernel = sample(INSTANCES[0], N, dtype="float32")[0]
    if name == "cme":
        with pytest.raises(ValueError, match="linearly independent"):
            TESTS[name](key, kernel, predictions, targets)
        return
    result = TESTS[name](key, kernel, predictions, targets)
    assert result.statistic == 0 and result.pvalue >= 0.5


@pytest.mark.slow
@every_test
def test_doubled_precision_is_not_needed(name, key):
    with jax.enable_x64(True):
        exact = TESTS[name](key, *sample(INSTANCES[0], N))
        # float32 data give the same draws and numbers whether or not float64 is enabled.
        enabled = TESTS[name](key, *sample(INSTANCES[0], N, dtype="float32"))
    result = TESTS[name](key, *sample(INSTANCES[0], N, dtype="float32"))
    assert result.pvalue.dtype == enabled.pvalue.dtype == jnp.float32
    np.testing.assert_allclose(numbers(result), numbers(enabled), rtol=1e-5, atol=1e-7)
    if name not in ("spectrum", "features", "cme", "consistency", "calibration_test"):
        # Their random numbers are floating ones, which depend on the precision.
        np.testing.assert_allclose(numbers(result), numbers(exact), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_sixteen_bits(key):
    kernel, predictions, targets = sample(INSTANCES[1], N, dtype="float32")
    predictions, targets = jax.tree.map(lambda x: x.astype(jnp.bfloat16), (predictions, targets))
    wide = jax.tree.map(lambda x: x.astype(jnp.float32), (predictions, targets))
    for name in ("bootstrap", "blocks of 2", "cme", "consistency"):
        result = TESTS[name](key, kernel, predictions, targets)
        assert result.pvalue.dtype == jnp.float32
        close(result, TESTS[name](key, kernel, *wide), rtol=1e-5)
    for usual in (cj.default_kernel, cj.product_kernel):
        jax.tree.map(np.testing.assert_array_equal, usual(predictions), usual(wide[0]))


@pytest.mark.slow
def test_debug_nans(key):
    arguments = sample(INSTANCES[0], N, dtype="float32")
    with jax.debug_nans(True):
        for test in TESTS.values():
            test(key, *arguments)


def test_resamples_without_an_estimate_do_not_speak_against_the_model(key):
    predictions, targets = cj.Bernoulli(jnp.full(30, 0.5)), jnp.arange(30) % 2

    def undefined_unless_balanced(predictions, targets):
        return jnp.where(jnp.sum(targets) == 15, 0.0, jnp.nan)

    result = cj.consistency_test(key, undefined_unless_balanced, predictions, targets)
    assert jnp.any(jnp.isnan(result.null_distribution)) and result.pvalue == 1


@pytest.mark.parametrize(
    "n", [777, *(pytest.param(n, marks=pytest.mark.slow) for n in (100, 1000))]
)
def test_deviations_that_are_all_the_same_have_no_covariance(n):
    # Their mean is rounded, and so nothing is exactly 0.
    predictions, targets = cj.Bernoulli(jnp.full(n, 0.001)), jnp.zeros(n, int)
    location = cj.Bernoulli(jnp.array([0.001])), jnp.array([1])
    arguments = cj.default_kernel(predictions), predictions, targets, *location
    with pytest.raises(ValueError, match="linearly independent"):
        cj.asymptotic_cme_test(*arguments)
    assert jnp.isnan(jax.jit(cj.asymptotic_cme_test)(*arguments).pvalue)


def test_blocks_that_all_agree():
    predictions = cj.Bernoulli(jnp.full(900, 0.3))
    kernel = sample("bernoulli-tv-white", 4, dtype="float32")[0]
    result = cj.asymptotic_block_skce_test(kernel, predictions, jnp.ones(900, int), block_size=3)
    assert result.standard_error == 0 and jnp.isposinf(result.statistic) and result.pvalue == 0


@pytest.mark.slow
def test_rare_events_do_not_mislead_the_simulation(key):
    # No event among 200 of probability 1e-4 is what most data sets look like.
    predictions, targets = cj.Bernoulli(jnp.full(200, 1e-4)), jnp.zeros(200, int)
    assert cj.calibration_test(key, predictions, targets).pvalue > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_pvalues_do_not_depend_on_the_scale_of_the_kernel(scale, key):
    kernel, *data = sample(INSTANCES[0], N, dtype="float32")
    for name in ("bootstrap", "spectrum", "gamma", "pearson", "blocks of 2", "cme"):
        expected = TESTS[name](key, kernel, *data).pvalue
        np.testing.assert_allclose(
            TESTS[name](key, scale * kernel, *data).pvalue, expected, rtol=1e-3
        )


def test_a_negative_factor_inside_jit_gives_nan():
    kernel, *data = sample(INSTANCES[0], N, dtype="float32")

    @jax.jit
    def test(factor):
        return cj.distribution_free_skce_test(kernel + factor * kernel, *data).pvalue

    assert jnp.isfinite(test(0.5)) and jnp.isnan(test(-0.5))


def test_locations_inside_jit_are_never_masked_rows(key):
    predictions = cj.Bernoulli(jnp.linspace(0, 1, 40))

    @jax.jit
    def locations(n_kept):
        where = jnp.arange(40) < n_kept
        return cj.sample_test_locations(key, predictions, 5, where=where)[0].probs

    assert jnp.all(locations(5) <= predictions.probs[4])
    assert jnp.all(jnp.isnan(locations(4)))


def test_a_target_kernel_may_return_a_python_number():
    kernel, predictions, targets = sample(INSTANCES[0], N, dtype="float32")
    constant = cj.TensorProduct(kernel.prediction_kernel, lambda y, z: 1.0)
    assert abs(cj.ucme(constant, predictions, targets, predictions, targets)) < 1e-12


# The result.


@pytest.mark.slow
def test_one_readable_line(key):
    kernel, *data = sample(INSTANCES[0], N, dtype="float32")
    for test in TESTS.values():
        result = test(key, kernel, *data)
        line = repr(result)
        assert "\n" not in line and line == str(result)
        assert result.method in line and f"pvalue = {float(result.pvalue):.3g}" in line
    assert "bootstrap of 99" in repr(TESTS["bootstrap"](key, kernel, *data))
    assert re.search("largest score: .*TotalVariation", repr(cj.calibration_test(key, *data)))


@pytest.mark.parametrize("level", [0.55, 0.8, 0.95])
def test_confidence_interval(level, key, float64):
    result = TESTS["blocks of 2"](key, *sample(INSTANCES[1], N))
    error = stats.norm.ppf((1 + level) / 2) * result.standard_error
    expected = max(0, result.estimate - error), max(0, result.estimate + error)
    np.testing.assert_allclose(result.confidence_interval(level), expected, rtol=1e-12)


def test_results_of_anything_can_be_printed(key):
    result = TESTS["bootstrap"](key, *sample(INSTANCES[0], N, dtype="float32"))
    for leaf in (None, object(), jax.ShapeDtypeStruct((3,), jnp.float32), np.zeros(3)):
        filled = jax.tree.map(lambda _, leaf=leaf: leaf, result)
        assert repr(filled).startswith("CalibrationTestResult(asymptotic_skce_test, bootstrap of")
    plain = jax.tree.map(lambda x: x.tolist(), result)
    assert f"pvalue = {plain.pvalue:.3g}" in repr(plain)
    low, _ = plain.confidence_interval(np.array([0.5, 0.9]))
    np.testing.assert_allclose(low, result.confidence_interval(jnp.array([0.5, 0.9]))[0])


def test_a_level_is_a_probability(key):
    result = TESTS["blocks of 2"](key, *sample(INSTANCES[0], N, dtype="float32"))
    with pytest.raises(ValueError, match=r"confidence_level must be in \(0, 1\), got 95"):
        result.confidence_interval(95)


def test_options_of_the_estimator(key):
    # Booleans and integers of a Partial are structure; kernels and other parameters are leaves.
    kernel, predictions, targets = sample("categorical-tv-white", 12, dtype="float32")
    options = {"unbiased": False, "block_size": 4}
    estimator = jax.tree_util.Partial(cj.skce, kernel, **options)
    result = cj.consistency_test(key, estimator, predictions, targets, n_resamples=9)
    expected = cj.skce(kernel, predictions, targets, **options)
    np.testing.assert_allclose(result.estimate, expected, rtol=1e-6)


@pytest.mark.slow
def test_a_resampled_ece_needs_fixed_predictions(key):
    # Resampled predictions have ties, and the ECE of many bins is smaller there; given the
    # predictions the test is exact: its level is 10 of 100 ranks.
    n_sets, n, level = 300, 40, 0.1
    probs_key, target_key, key = jax.random.split(key, 3)
    predictions = cj.Categorical(jax.random.dirichlet(probs_key, jnp.ones(4), (n_sets, n)))
    targets = jax.random.categorical(target_key, jnp.log(predictions.probs))

    def rejected(null):
        def pvalue(key, p, y):
            return cj.consistency_test(key, cj.ece, p, y, n_resamples=99, null=null).pvalue

        keys = jax.random.split(key, n_sets)
        return np.mean(jax.jit(jax.vmap(pvalue))(keys, predictions, targets) <= level + 1e-6)

    assert abs(rejected("model") - level) < 4 * np.sqrt(level * (1 - level) / n_sets)
    assert rejected("consistency") > 0.5


def test_masked_rows_with_fixed_predictions(key):
    _, predictions, targets = sample("bernoulli-tv-white", 12, dtype="float32")
    where = jnp.arange(12) < 9
    masked = (
        cj.Bernoulli(jnp.where(where, predictions.probs, jnp.nan)),
        jnp.where(where, targets, -1),
    )
    result = cj.consistency_test(key, cj.ece, *masked, n_resamples=50, where=where)
    np.testing.assert_allclose(result.estimate, cj.ece(predictions[:9], targets[:9]), rtol=1e-6)
    assert jnp.all(jnp.isfinite(result.null_distribution))
