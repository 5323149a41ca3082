"""p-values of `compare_calibration` for models whose calibration errors are known to be equal."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import calibjax as cj

# Each function of (key, n) returns two models and the targets.  Features x are standard normal.

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
_DRAWS = 4


def _two_features(key, n):
    x_key, y_key = jax.random.split(key)
    return *jax.random.normal(x_key, (2, n)), y_key


def _mean_sigmoid(x, scale):
    """E sigmoid(x + scale Z) for a standard normal Z."""
    nodes, weights = jnp.asarray(_NODES, x.dtype), jnp.asarray(_WEIGHTS, x.dtype)
    return jax.nn.sigmoid(x[:, None] + scale * nodes[None, :]) @ weights / jnp.sum(weights)


def labels_calibrated(key, n):
    # One model sees one of two features, the other one sees both.
    x, z, key = _two_features(key, n)
    sharp = jax.nn.sigmoid(x + 1.5 * z)
    first = cj.Bernoulli(_mean_sigmoid(x, 1.5))
    return first, cj.Bernoulli(sharp), jax.random.bernoulli(key, sharp)


def labels_equally_wrong(key, n):
    # Each model sees one of two features, and thinks that it sees all: the features can be
    # exchanged.
    x, z, key = _two_features(key, n)
    models = cj.Bernoulli(jax.nn.sigmoid(2 * x)), cj.Bernoulli(jax.nn.sigmoid(2 * z))
    return *models, jax.random.bernoulli(key, jax.nn.sigmoid(x + z))


def labels_sharp(key, n):
    # One model is nearly sure, the other one knows next to nothing.
    x, z, key = _two_features(key, n)
    sharp = jnp.where(x > 0, 0.98, 0.02)
    blunt = cj.Bernoulli(0.5 + 0.01 * jnp.tanh(z))
    targets = jax.random.bernoulli(key, sharp)
    return blunt, cj.Bernoulli(sharp), targets


def normal_calibrated(key, n):
    x, z, key = _two_features(key, n)
    first, second = cj.Normal(x, jnp.full(n, 2**0.5)), cj.Normal(x + z, jnp.ones(n))
    return first, second, second.sample(key)


def normal_equally_wrong(key, n):
    x, z, key = _two_features(key, n)
    models = cj.Normal(x, jnp.ones(n)), cj.Normal(z, jnp.ones(n))
    return *models, cj.Normal(x + z, jnp.ones(n)).sample(key)


def normal_sharp(key, n):
    x, z, key = _two_features(key, n)
    first, second = cj.Normal(x, jnp.full(n, 1.01**0.5)), cj.Normal(x + z, jnp.full(n, 0.1))
    return first, second, second.sample(key)


def counts_calibrated(key, n):
    # A Poisson variable whose rate has a gamma law is negative binomial: two families.
    x_key, rate_key, y_key = jax.random.split(key, 3)
    mean, size = jnp.exp(jax.random.normal(x_key, n) / 2), jnp.full(n, 3.0)
    rate = mean * jax.random.gamma(rate_key, 3.0, (n,)) / 3.0
    sharp = cj.Poisson(rate, max_count=128)
    return cj.NegativeBinomial(mean, size, max_count=256), sharp, sharp.sample(y_key)


def counts_equally_wrong(key, n):
    x, z, key = _two_features(key, n)
    models = [cj.Poisson(jnp.exp(u / 2), max_count=128) for u in (x, z)]
    return *models, cj.Poisson(jnp.exp((x + z) / 2), max_count=128).sample(key)


def _samples_of(case, key, n):
    key, *draw_keys = jax.random.split(key, 3)
    *models, targets = case(key, n)
    draws = [
        cj.Empirical(model.sample(draw_key, (_DRAWS,)).T, fair=True)
        for model, draw_key in zip(models, draw_keys, strict=True)
    ]
    return *draws, targets


def wrong_labels(temperature, key, n):
    """A calibrated model, and one that is over-confident by a temperature."""
    first, second, targets = labels_calibrated(key, n)
    return first, cj.apply_temperature(second, 1 / temperature), targets


def wrong_normal(ratio, key, n):
    """A calibrated model, and one whose standard deviations are too small by a ratio."""
    first, second, targets = normal_calibrated(key, n)
    return first, cj.Normal(second.loc, ratio * second.scale), targets


#: By what is predicted and what is true, all of them under H0.
CASES = {
    "labels": {
        "both calibrated": labels_calibrated,
        "equally wrong": labels_equally_wrong,
        "one sharp, one blunt": labels_sharp,
    },
    "normal": {
        "both calibrated": normal_calibrated,
        "equally wrong": normal_equally_wrong,
        "one sharp, one blunt": normal_sharp,
    },
    "counts": {
        "both calibrated": counts_calibrated,
        "equally wrong": counts_equally_wrong,
    },
    f"{_DRAWS} samples": {
        "both calibrated": functools.partial(_samples_of, normal_calibrated),
        "equally wrong": functools.partial(_samples_of, normal_equally_wrong),
    },
}

#: The number of data sets for each number of rows.
DATA_SETS = {50: 1000, 300: 400, 3000: 60}

#: What is wrong with the second model, and how much: 1 is nothing.
POWER = {
    "labels": (wrong_labels, (1.0, 1.25, 1.5, 2.0, 3.0)),
    "normal": (wrong_normal, (1.0, 0.9, 0.8, 0.7, 0.6)),
}
POWER_ROWS, POWER_DATA_SETS = 300, 200

# How many pairs of rows are computed together.
_PAIRS = 2**22


def pvalues(case, n, n_data_sets, n_resamples=199):
    """The p-values of simulated data sets, ``[n_data_sets]``."""
    return np.asarray(_pvalues(n, n_data_sets, n_resamples, jax.tree_util.Partial(case)))


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _pvalues(n, n_data_sets, n_resamples, case):
    def pvalue(key):
        data_key, key = jax.random.split(key)
        return cj.compare_calibration(key, None, *case(data_key, n), n_resamples=n_resamples).pvalue

    keys = jax.random.split(jax.random.key(20240817), n_data_sets)
    return jax.lax.map(pvalue, keys, batch_size=max(1, min(n_data_sets, _PAIRS // n**2)))
