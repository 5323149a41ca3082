"""Null distributions of targets that are drawn from the predictions: draws, ties, levels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import FAMILIES, cast, sample
from jax.sharding import NamedSharding, PartitionSpec
from marks import slow
from scipy import stats

import calibjax as cj
from calibjax._data.distribution import Discrete
from calibjax.intervals.rare_events import expected_rare_events
from calibjax.nulls.draws import draw_targets
from calibjax.nulls.ranks import counted_pvalue_with_ties

N, R = 24, 19
KEY = jax.random.key(20261122)
MASK = jnp.repeat(jnp.array([True, False, True, True]), 6)  # whole blocks of 2 and of 3


def of_skce(**options):
    def test(kernel, *data, key, **others):
        estimator = jax.tree_util.Partial(cj.skce, kernel, **options)
        return cj.consistency_test(key, estimator, *data, **others)

    return test


def of_estimator(estimator):
    def test(kernel, *data, key, **options):
        return cj.consistency_test(key, estimator, *data, **options)

    return test


OPTIONS = {"pairs": {}, "biased pairs": {"unbiased": False}, "pairs in blocks": {"block_size": 2}}
TESTS = {name: of_skce(**options) for name, options in OPTIONS.items()}
TESTS["ece"] = of_estimator(cj.ece)
every_test = pytest.mark.parametrize("name", slow(TESTS.keys() - {"pairs"}, TESTS))
each_slowly = pytest.mark.parametrize("name", slow(TESTS, TESTS))


def same(found, expected, rtol=1e-10):
    for number in ("statistic", "pvalue", "estimate", "standard_error", "null_distribution"):
        a, b = getattr(found, number), getattr(expected, number)
        if b is not None:
            np.testing.assert_allclose(a, b, rtol, atol=1e-12, err_msg=number)
    assert found.method == expected.method


# The draws.


@every_test
def test_statistics_are_those_of_a_plain_loop(name, float64):
    kernel, predictions, targets = sample("categorical-tv-white", N)
    result = TESTS[name](kernel, predictions, targets, key=KEY, n_resamples=R)
    drawn = draw_targets(KEY, predictions, jnp.arange(N), jnp.int32(0))[:, :R].T

    def estimate(y):
        if name == "ece":
            return cj.ece(predictions, y)
        return cj.skce(kernel, predictions, y, **OPTIONS[name])

    values = np.array([estimate(y) for y in (*drawn, targets)], float)
    np.testing.assert_allclose(result.null_distribution, values[:-1], rtol=1e-9)
    np.testing.assert_allclose(result.statistic, values[-1], rtol=1e-9)
    np.testing.assert_allclose(result.estimate, values[-1])
    at_least = np.sum(values[:-1] >= values[-1])
    np.testing.assert_allclose(result.pvalue, (1 + at_least) / (R + 1))
    assert f"of {R} simulated data sets" in result.method and result.is_exact


@pytest.mark.slow
def test_draws_come_in_groups_and_do_not_depend_on_their_number(float64):
    predictions, targets = cast(FAMILIES["normal"](N, 0))

    def weighted_mean(predictions, targets):
        return jnp.mean(targets * jnp.arange(N, dtype=targets.dtype))

    many, few = (
        cj.consistency_test(KEY, weighted_mean, predictions, targets, n_resamples=n)
        for n in (203, 100)
    )
    groups = [draw_targets(KEY, predictions, jnp.arange(N), jnp.int32(g)) for g in range(3)]
    drawn = np.concatenate(groups, axis=1)[:, :203]
    expected = np.arange(N) @ drawn / N
    np.testing.assert_allclose(many.null_distribution, expected, rtol=1e-12)
    np.testing.assert_allclose(few.null_distribution, expected[:100], rtol=1e-12)
    np.testing.assert_allclose(few.statistic, np.arange(N) @ np.asarray(targets) / N, rtol=1e-12)
    # Another law than that of the predictions would show here.
    z = (drawn - np.asarray(predictions.loc)[:, None]) / np.asarray(predictions.scale)[:, None]
    assert stats.kstest(z.ravel(), "norm").pvalue > 1e-4


@every_test
def test_where_is_dropping_rows(name, float64):
    kernel, predictions, targets = sample("categorical-tv-white", N)
    kept = jax.tree.map(lambda x: x[MASK], (predictions, targets))
    masked = cj.Categorical(predictions.probs.at[~MASK].set(jnp.nan)), targets.at[~MASK].set(-1)
    options = {"key": KEY, "n_resamples": R}
    expected = TESTS[name](kernel, *kept, **options)
    same(TESTS[name](kernel, *masked, where=MASK, **options), expected)


@each_slowly
def test_two_devices_are_one(name, float64):
    kernel, *rows = sample("categorical-tv-white", N)
    mesh = jax.make_mesh((2,), ("rows",), devices=jax.devices()[:2])
    sharding = NamedSharding(mesh, PartitionSpec("rows"))
    options = {"key": KEY, "n_resamples": R}
    expected = TESTS[name](kernel, *rows, where=MASK, **options)
    # Six rows of one device are kept, and twelve of the other.
    cut = jax.tree.map(lambda x: jax.device_put(jnp.asarray(x), sharding), (*rows, MASK))
    same(TESTS[name](kernel, *cut[:2], where=cut[2], **options), expected)


@each_slowly
def test_jit_and_vmap(name, float64):
    kernel, *_ = sample("categorical-tv-white", N)
    batches = [cast(FAMILIES["categorical"](N, seed)) for seed in (0, 1)]
    keys = jax.random.split(KEY, 2)

    def test(key, batch):
        return TESTS[name](kernel, *batch, key=key, n_resamples=R)

    stacked = jax.tree.map(lambda *x: jnp.stack(x), *batches)
    found = jax.jit(jax.vmap(test))(keys, stacked)
    leaves, structure = jax.tree.flatten(found)
    for i in range(2):
        of_set = jax.tree.unflatten(structure, [x[i] for x in leaves])
        same(of_set, test(keys[i], batches[i]))
    # A bad value cannot be looked at: nothing is said of it.
    bad = cj.Categorical(stacked[0].probs.at[:, 3].set(jnp.nan)), stacked[1]
    assert jnp.all(jnp.isnan(jax.jit(jax.vmap(test))(keys, bad).pvalue))


# Ties.


@each_slowly
@pytest.mark.slow
def test_no_event_anywhere(name):
    # No data set has an event, so that all are the same, up to rounding.
    rare = jnp.linspace(-40, -30, 3 * N).reshape(N, 3)
    predictions = cj.Categorical.from_logits(jnp.pad(rare, ((0, 0), (1, 0))))
    kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation()), cj.WhiteKernel())
    result = TESTS[name](kernel, predictions, jnp.zeros(N, int), key=KEY, n_resamples=99)
    assert result.pvalue == 1


@pytest.mark.parametrize("name", slow({"biased pairs", "ece"}, ["pairs", "biased pairs", "ece"]))
@pytest.mark.parametrize("n_events", slow({3}, [1, 3]))
@pytest.mark.slow
def test_the_same_number_of_events_is_a_tie(name, n_events):
    # With equal predictions a statistic depends on the number of events alone; where they are
    # changes its rounding only.
    n, p = 50, 0.03
    predictions, targets = cj.Bernoulli(jnp.full(n, p)), jnp.arange(n) < n_events
    kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation()), cj.WhiteKernel())
    result = TESTS[name](kernel, predictions, targets, key=KEY, n_resamples=999)
    groups = [draw_targets(KEY, predictions, jnp.arange(n), jnp.int32(g)) for g in range(10)]
    counts = np.append(np.concatenate(groups, axis=1).sum(axis=0)[:999], n_events)
    # sum_ij r_i r_j, and without the diagonal.
    values = (counts - n * p) ** 2
    if name == "pairs":
        values = values - counts * (1 - p) ** 2 - (n - counts) * p**2
    at_least = np.sum(values >= values[-1] - 1e-6)
    np.testing.assert_allclose(result.pvalue, at_least / 1000, rtol=1e-6)


def test_ties_up_to_rounding():
    values = jnp.array([1.0, 2.0 - 1e-6, 2.0 + 1e-6, 3.0, jnp.inf, jnp.nan, 1.99, 2.0])
    assert counted_pvalue_with_ties(values) == 6 / 8
    assert counted_pvalue_with_ties(values.at[-1].set(jnp.inf)) == 3 / 8
    assert jnp.isnan(counted_pvalue_with_ties(values.at[-1].set(jnp.nan)))
    assert counted_pvalue_with_ties(jnp.zeros(5)) == 1


# Errors.


def test_wrong_arguments():
    kernel, *data = sample("categorical-tv-white", N, dtype="float32")
    with pytest.raises(ValueError, match="null must be one of model, consistency, got 'bootstrap'"):
        TESTS["ece"](kernel, *data, key=KEY, null="bootstrap")
    with pytest.raises(TypeError, match="key must be a typed key"):
        TESTS["ece"](kernel, *data, key=0)
    with pytest.raises(ValueError, match="n_resamples must be at least 1, got 0"):
        TESTS["ece"](kernel, *data, key=KEY, n_resamples=0)
    at = jax.tree.map(lambda x: x[np.array([3, 3])], data)
    with pytest.raises(ValueError, match="linearly independent"):
        cj.asymptotic_cme_test(kernel, *data, *at)


# Rare events.

RATES = np.array([0.0, 0.001, 0.5, 1.0, 3.7, 40.0])
EXPECTED = {
    "bernoulli": (cj.Bernoulli(jnp.array([0.0, 1e-9, 0.2, 0.9])), 0 + 1e-9 + 0.2 + 0.1),
    "categorical": (cj.Categorical(jnp.array([[0.5, 0.3, 0.2], [0.05, 0.05, 0.9]])), 0.6),
    "poisson": (
        cj.Poisson(jnp.array(RATES)),
        np.sum([1 - stats.poisson.pmf(np.arange(200), rate).max() for rate in RATES]),
    ),
    "labels of an ensemble": (
        cj.Mixture.ensemble(cj.Bernoulli(jnp.array([[0.1, 0.3], [0.8, 1.0]]))),
        0.2 + 0.1,
    ),
    # Of the largest rates not even the bound is small.
    "counts of an ensemble": (
        cj.Mixture.ensemble(cj.Poisson(jnp.array([[0.01, 0.03], [0.0, 0.2]]))),
        1 - np.mean(np.exp([-0.01, -0.03])) + 1 - np.mean(np.exp([0, -0.2])),
    ),
    "normal": (cj.Normal(jnp.zeros(3), jnp.ones(3)), np.inf),
    "ensemble of normals": (
        cj.Mixture(jnp.array([[0.0, 1.0]]), cj.Normal(jnp.zeros((1, 2)), jnp.ones((1, 2)))),
        np.inf,
    ),
    "samples": (cj.Empirical(jnp.zeros((3, 5))), np.inf),
}


@pytest.mark.parametrize("family", slow(EXPECTED.keys() - {"poisson"}, EXPECTED))
def test_expected_rare_events(family):
    predictions, expected = EXPECTED[family]
    if isinstance(predictions, Discrete):
        found = predictions.off_mode_probability()
        assert found.shape == (jax.tree.leaves(predictions)[0].shape[0],)
        np.testing.assert_allclose(jnp.sum(found), expected, rtol=1e-5)
    # Other families have no most probable target, so that nothing is a rare event.
    found = expected_rare_events(None, (predictions, None))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def asymptotic_tests(predictions, targets, where=None):
    kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation()), cj.WhiteKernel())
    data, options = (kernel, predictions, targets), {"where": where}
    at = cj.Bernoulli(jnp.array([0.3])), jnp.array([1])
    return [
        cj.asymptotic_skce_test(KEY, *data, method="gamma", **options),
        cj.asymptotic_block_skce_test(*data, **options),
        cj.asymptotic_cme_test(*data, *at, **options),
    ]


@pytest.mark.slow
def test_asymptotic_tests_say_where_they_fail():
    probs, targets = jnp.linspace(0.01, 0.09, 100), jnp.arange(100) % 20 == 0
    instead = "calibration_test", "consistency_test", "consistency_test"
    found = asymptotic_tests(cj.Bernoulli(probs), targets)
    for result, expected in zip(found, instead, strict=True):
        remark = "; only 5 rare events are expected, and this p-value is not reliable: use "
        assert result.method.endswith(remark + expected)
        assert result.method in repr(result)
    # Only kept rows count, and what they hold elsewhere does not.
    many = jnp.where(jnp.arange(100) < 40, jnp.nan, 0.5), jnp.arange(100) >= 40
    few = jnp.where(jnp.arange(100) < 50, 0.5, probs), jnp.arange(100) >= 50
    for (rows, where), is_few in ((many, False), (few, True)):
        for result in asymptotic_tests(cj.Bernoulli(rows), targets, where):
            assert ("rare events" in result.method) == is_few
    # Inside jit the number is not known.
    for result in jax.jit(asymptotic_tests)(cj.Bernoulli(probs), targets):
        assert "rare" not in result.method


# Levels.


EXACT = TESTS | {"mce": of_estimator(cj.mce), "mmce": of_estimator(cj.mmce)}


@pytest.mark.slow
@pytest.mark.parametrize("n_events", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("name", EXACT)
def test_levels_are_exact_for_rare_events(name, n_events, float64):
    n, n_sets, levels = 100, 2000, np.array([0.01, 0.05])

    def pvalues(key):
        of_predictions, of_targets, of_test, of_ties = jax.random.split(key, 4)
        probs = jax.random.uniform(of_predictions, n, maxval=2 * n_events / n)
        predictions = cj.Bernoulli(probs)
        targets = jax.random.bernoulli(of_targets, probs)
        kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), 0.01), cj.WhiteKernel())
        result = EXACT[name](kernel, predictions, targets, key=of_test, n_resamples=99)
        # Ties that are broken at random leave the uniform law on 1/100, …, 1.
        values = jnp.append(result.null_distribution, result.statistic)
        rounding = 1e-10 * jnp.mean(jnp.abs(values))
        larger = values > result.statistic + rounding
        tied = ~larger & (values >= result.statistic - rounding)
        broken = jax.random.randint(of_ties, (), 1, 1 + jnp.sum(tied))
        return result.pvalue, (jnp.sum(larger) + broken) / 100

    keys = jax.random.split(KEY, n_sets)
    found = jax.jit(lambda keys: jax.lax.map(pvalues, keys, batch_size=50))(keys)
    stated, broken = (np.mean(np.asarray(p)[:, None] <= levels + 1e-9, axis=0) for p in found)
    standard_errors = np.sqrt(levels * (1 - levels) / n_sets)
    assert np.all(np.abs(broken - levels) < 4 * standard_errors), broken
    assert np.all(stated < levels + 4 * standard_errors), stated
