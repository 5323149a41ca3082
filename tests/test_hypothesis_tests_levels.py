"""Levels and powers of the tests over simulated data sets."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax as cj

LEVEL, N_DATA_SETS = 0.05, 2000


def bernoulli(key, n):
    return cj.Bernoulli(jax.random.uniform(key, n))


def categorical(key, n, n_classes, concentration):
    alpha = jnp.full(n_classes, concentration)
    return cj.Categorical(jax.random.dirichlet(key, alpha, (n,)))


def normal(key, n):
    loc_key, scale_key = jax.random.split(key)
    scale = jax.random.uniform(scale_key, n, minval=0.2, maxval=2.0)
    return cj.Normal(jax.random.normal(loc_key, n), scale)


def diag(key, n):
    loc_key, scale_key = jax.random.split(key)
    scale = jax.random.uniform(scale_key, (n, 2), minval=0.2, maxval=2.0)
    return cj.MultivariateNormalDiag(jax.random.normal(loc_key, (n, 2)), scale)


FAMILIES = {
    "bernoulli": bernoulli,
    "3 classes": functools.partial(categorical, n_classes=3, concentration=1.0),
    "10 peaked classes": functools.partial(categorical, n_classes=10, concentration=0.3),
    "normal": normal,
    "diag": diag,
}


def asymptotic(method, key, kernel, *data):
    return cj.asymptotic_skce_test(key, kernel, *data, method=method, n_resamples=199)


def features(key, kernel, *data):
    options = {"method": "features", "n_features": 32, "n_resamples": 199}
    return cj.asymptotic_skce_test(key, kernel, *data, **options)


def blocks(options, key, *arguments):
    return cj.asymptotic_block_skce_test(*arguments, **options)


def cme(key, kernel, predictions, targets):
    locations = cj.sample_test_locations(key, predictions, 3)
    return cj.asymptotic_cme_test(kernel, predictions, targets, *locations)


def bound(options, key, *arguments):
    return cj.distribution_free_skce_test(*arguments, **options)


def consistency(key, kernel, *data):
    estimator = jax.tree_util.Partial(cj.skce, kernel)
    return cj.consistency_test(key, estimator, *data, n_resamples=99)


# Where the theory of each holds: n, at least 30 blocks, at least 100 samples for each location.
TESTS = {
    "bootstrap": (functools.partial(asymptotic, "bootstrap"), 64),
    "wild": (functools.partial(asymptotic, "wild"), 64),
    "bootstrap of more": (functools.partial(asymptotic, "bootstrap"), 200),
    "spectrum": (functools.partial(asymptotic, "spectrum"), 64),
    "gamma": (functools.partial(asymptotic, "gamma"), 64),
    "pearson": (functools.partial(asymptotic, "pearson"), 64),
    "features": (features, 64),
    "32 blocks of 2": (functools.partial(blocks, {"block_size": 2}), 64),
    "30 blocks of 8": (functools.partial(blocks, {"block_size": 8}), 240),
    "32 blocks of 2, null": (functools.partial(blocks, {"variance": "null"}), 64),
    "cme": (cme, 300),
    "bound": (functools.partial(bound, {}), 64),
    "bound, biased": (functools.partial(bound, {"unbiased": False}), 64),
    "bound, blocks of 3": (functools.partial(bound, {"block_size": 3}), 64),
    "consistency": (consistency, 64),
}


# Where p is close to 0, hardly any of n = 300 targets is 1, and locations there see no normal mean.
MORE_ROWS = {("bernoulli", "cme"): 3000}


def rejection_rates(family, test, n, targets_of, n_data_sets=N_DATA_SETS):
    """How often each level of 0.01, 0.05, 0.1 rejects."""

    def pvalue(key):
        of_predictions, of_targets, of_test = jax.random.split(key, 3)
        predictions = family(of_predictions, n)
        kernel = cj.default_kernel(predictions)
        return test(of_test, kernel, predictions, targets_of(of_targets, predictions)).pvalue

    keys = jax.random.split(jax.random.key(20240817), n_data_sets)
    pvalues = jax.jit(lambda keys: jax.lax.map(pvalue, keys, batch_size=50))(keys)
    return np.mean(np.asarray(pvalues)[:, None] <= [0.01, 0.05, 0.1], axis=0)


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_calibrated_models_are_rejected_as_rarely_as_stated(family, test):
    function, n = TESTS[test]
    n = MORE_ROWS.get((family, test), n)
    rates = rejection_rates(FAMILIES[family], function, n, lambda key, p: p.sample(key))
    standard_error = np.sqrt(LEVEL * (1 - LEVEL) / N_DATA_SETS)
    assert rates[1] <= LEVEL + 4 * standard_error


@pytest.mark.parametrize("test", [name for name in TESTS if "bound" not in name])
def test_wrong_models_are_rejected(test):
    # Targets that come with the square of what is predicted; bounds need more data to see it.
    def squared(key, predictions):
        return jax.random.bernoulli(key, jnp.square(predictions.probs))

    function, _ = TESTS[test]
    rates = rejection_rates(bernoulli, function, 300, squared, n_data_sets=200)
    blind = {"32 blocks of 2": 0.1, "32 blocks of 2, null": 0.1}
    assert rates[1] > blind.get(test, 0.5)


def test_the_convenience_keeps_its_level_at_few_rows():
    def pvalue(key):
        of_predictions, of_targets, of_test = jax.random.split(key, 3)
        predictions = cj.Bernoulli(jax.random.uniform(of_predictions, 20))
        return cj.calibration_test(of_test, predictions, predictions.sample(of_targets)).pvalue

    keys = jax.random.split(jax.random.key(0), 1000)
    pvalues = jax.jit(lambda keys: jax.lax.map(pvalue, keys, batch_size=10))(keys)
    standard_error = np.sqrt(LEVEL * (1 - LEVEL) / 1000)
    assert np.mean(pvalues <= LEVEL) <= LEVEL + 4 * standard_error
    assert np.mean(pvalues <= 2 * LEVEL) > LEVEL  # nor does it never reject
