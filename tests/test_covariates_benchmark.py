"""The benchmark of tests with covariates: its models, and its page."""

import jax
import numpy as np
import pytest
from scipy import stats

from benchmarks.works.covariates import ERRORS, normal, simulation

MODELS = {"normal": normal(ERRORS["none"], 3), "posterior": simulation("posterior")}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_models_are_calibrated_given_the_columns(name, key):
    """PIT values are uniform, also of the rows where a column is large."""
    rows = jax.jit(jax.vmap(MODELS[name]))(jax.random.split(key, 20))
    places = np.asarray(jax.vmap(lambda rows: rows.predictions.cdf(rows.targets))(rows))
    is_large = np.asarray(rows.columns)[..., 0] > 0.5
    assert stats.kstest(places.ravel(), "uniform").pvalue > 0.001
    assert stats.kstest(places[is_large], "uniform").pvalue > 0.001
