"""The benchmark of tests with covariates: its models, and its page."""

import json

import jax
import numpy as np
import pytest
from scipy import stats

from benchmarks import covariates
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


def test_the_page_of_made_up_results():
    found = {
        json.dumps(["none", 5]): {"covariates": 0.05, "predictions": 0.04, "segments": 0.06},
        json.dumps(["none", 20]): {"covariates": 0.07},
    }
    page = covariates.page({"normal": found})
    header = "| error | with covariates, d = 5 | with covariates, d = 20 | without, d = 5 |"
    assert header in page
    assert "| none | 0.05 | 0.07 | 0.04 | 0.06 |" in page


def test_cases():
    names = {name for name, d in covariates.cases("normal") if d == 1}
    assert names and all("x2" not in name for name in names)
