"""The root mean squared error of groups against scikit-learn's."""

import jax.numpy as jnp
import numpy as np
from scipy import stats
from sklearn.metrics import mean_squared_error

import calibjax as cj


def test_each_group_has_it_with_an_interval():
    rng = np.random.default_rng(0)
    x, site = rng.normal(size=60), np.arange(60) % 2
    y = x + (1 + site) * rng.normal(size=60)
    evaluation = cj.evaluate(cj.Normal(jnp.asarray(x), 1.0), y)
    for group in evaluation.by({"site": site}).groups:
        rows = site == int(group.name[-1])
        found = group.measures["root mean squared error"]
        expected = mean_squared_error(y[rows], x[rows])
        np.testing.assert_allclose(found.value, expected**0.5, rtol=1e-5)
        half = (found.interval[1] - found.interval[0]) / 2
        error = stats.sem(np.square(y - x)[rows]) / (2 * expected**0.5)
        np.testing.assert_allclose(half / error, stats.t.ppf(0.975, 29), rtol=0.2)
