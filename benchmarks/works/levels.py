"""p-values of `aggregated_skce_test` for calibrated models."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import calibjax as cj

# Each family is a function of (key, size, n) that returns predictions and targets that are drawn
# from them.  The first n of `size` rows count: one program serves all small n.
Partial = jax.tree_util.Partial


def bernoulli(expected_events, key, size, n):
    of_probs, of_targets = jax.random.split(key)
    largest = jnp.minimum(2 * expected_events / n, 1.0)
    predictions = cj.Bernoulli(largest * jax.random.uniform(of_probs, size))
    return predictions, predictions.sample(of_targets)


def _probabilities(key, shape, n_classes):
    return jax.nn.softmax(2 * jax.random.normal(key, (*shape, n_classes)))


def categorical(n_classes, key, size, n):
    of_probs, of_targets = jax.random.split(key)
    predictions = cj.Categorical(_probabilities(of_probs, (size,), n_classes))
    return predictions, predictions.sample(of_targets)


def _locations_and_scales(key, shape):
    loc_key, scale_key = jax.random.split(key)
    return jax.random.normal(loc_key, shape), jax.random.uniform(scale_key, shape, minval=0.2)


def normal(key, size, n):
    of_predictions, of_targets = jax.random.split(key)
    predictions = cj.Normal(*_locations_and_scales(of_predictions, (size,)))
    return predictions, predictions.sample(of_targets)


def diag(key, size, n):
    of_predictions, of_targets = jax.random.split(key)
    predictions = cj.MultivariateNormalDiag(*_locations_and_scales(of_predictions, (size, 2)))
    return predictions, predictions.sample(of_targets)


def poisson(key, size, n):
    of_rate, of_targets = jax.random.split(key)
    rate = jax.random.uniform(of_rate, size, minval=0.1, maxval=6.0)
    predictions = cj.Poisson(rate, max_count=64)
    return predictions, predictions.sample(of_targets)


def mixture(key, size, n):
    of_predictions, of_targets = jax.random.split(key)
    components = cj.Normal(*_locations_and_scales(of_predictions, (size, 3)))
    predictions = cj.Mixture.ensemble(components)
    return predictions, predictions.sample(of_targets)


def ensemble(key, size, n):
    of_predictions, of_targets = jax.random.split(key)
    components = cj.Categorical(_probabilities(of_predictions, (size, 3), 4))
    predictions = cj.Mixture.ensemble(components)
    return predictions, predictions.sample(of_targets)


def empirical(n_samples, key, size, n):
    of_law, of_samples, of_targets = jax.random.split(key, 3)
    law = cj.Normal(*_locations_and_scales(of_law, (size,)))
    return cj.Empirical(law.sample(of_samples, (n_samples,)).T), law.sample(of_targets)


def _with(function, option):
    """A static option: the number of classes or samples is part of the shapes."""
    return Partial(functools.partial(function, option))


FAMILIES = {
    "0.3 events": Partial(bernoulli, 0.3),
    "1 event": Partial(bernoulli, 1.0),
    "3 events": Partial(bernoulli, 3.0),
    "10 events": Partial(bernoulli, 10.0),
    "2 classes": _with(categorical, 2),
    "10 classes": _with(categorical, 10),
    "1000 classes": _with(categorical, 1000),
    "ensemble of 4 classes": Partial(ensemble),
    "normal": Partial(normal),
    "normal vectors": Partial(diag),
    "Poisson": Partial(poisson),
    "mixture of normals": Partial(mixture),
    "1 sample": _with(empirical, 1),
    "2 samples": _with(empirical, 2),
    "10 samples": _with(empirical, 10),
    "100 samples": _with(empirical, 100),
}

# The number of data sets for each number of rows.
DATA_SETS = {2: 10_000, 5: 10_000, 10: 10_000, 30: 10_000, 100: 2000, 1000: 300}

# Rows of a program, of which the first n count.
_SIZES = (30, 100, 1000)
# How many numbers of all data sets that are computed together are in memory.
_NUMBERS = 2**26


def cases():
    """All (family, n) that make sense: no more events than half of the rows."""
    for family in FAMILIES:
        for n in DATA_SETS:
            events = FAMILIES[family].args[0] if FAMILIES[family].args else 0.0
            if events <= n / 2:
                yield family, n


def levels(family: str, n: int, n_data_sets: int, n_resamples: int = 99) -> np.ndarray:
    """The p-values of data sets from a calibrated model, ``[n_data_sets]``.

    Args:
        family: a name of FAMILIES.
        n: the number of rows.
        n_data_sets: how often predictions, targets and the key of the test are drawn.
        n_resamples: the number of draws of each test.
    """
    size = next(s for s in (*_SIZES, n) if s >= n)
    keys = jax.random.split(jax.random.key(20240817), n_data_sets)
    numbers = size * (n_resamples + 1) * (1000 if family == "1000 classes" else 64)
    batch_size = max(1, min(n_data_sets, _NUMBERS // numbers))
    return np.asarray(_pvalues(FAMILIES[family], keys, n, size, n_resamples, batch_size))


@functools.partial(jax.jit, static_argnames=("size", "n_resamples", "batch_size"))
def _pvalues(family, keys, n, size, n_resamples, batch_size):
    where = jnp.arange(size) < n

    def pvalue(key):
        of_data, of_test = jax.random.split(key)
        predictions, targets = family(of_data, size, jnp.asarray(n, jnp.float32))
        return cj.aggregated_skce_test(
            of_test, None, predictions, targets, n_resamples=n_resamples, where=where
        ).pvalue

    return jax.lax.map(pvalue, keys, batch_size=batch_size)
