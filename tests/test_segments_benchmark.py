"""The benchmark of segments: what is planted can be named, its models are calibrated, its page."""

import jax
import numpy as np
import pytest
import scipy.stats

import calibjax as cj
from benchmarks import segments
from benchmarks.works.segments import _yekutieli


def test_planted_segments_are_segments():
    for name, case in segments.power_cases().items():
        levels = {
            column: segments._quarters(values)
            if np.unique(values).size > 12
            else list(map(str, np.unique(values)))
            for column, values in case.groups.items()
        }
        assert case.planted, name
        for conditions in case.planted:
            assert all(level in levels[column] for column, level in conditions.items()), name


def test_adjusted_pvalues_by_scipy():
    pvalues = np.array([0.001, 0.2, 0.03, 0.8, 0.0004])
    expected = scipy.stats.false_discovery_control(pvalues, method="by").min()
    assert _yekutieli(pvalues) == pytest.approx(expected)


def test_the_page():
    rates = {test: {"0.05": 0.04, "0.01": 0.02} for test in ("segments", "bonferroni")}
    result = {"n_data_sets": 400, "rates": rates, "first": 0.5}
    results = {"level": {"events": result}, "power": {"events": result}, "device": "cpu"}
    page = segments.page(results)
    assert "| events | 400 | 0.040 | 0.020 | 0.040 |  |  | 0.760 |" in page
    assert "above the level: none." in page and "| events | 0.500 | 0.040" in page


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normal", "counts", "five quantiles"])
def test_the_models_are_calibrated(name):
    case = segments.level_cases()[name]

    def places(key):
        of_data, of_place = jax.random.split(key)
        return cj.pit(of_place, *case.draw(of_data))

    found = np.ravel(jax.jit(jax.vmap(places))(jax.random.split(jax.random.key(0), 20)))
    assert scipy.stats.kstest(found, "uniform").pvalue > 1e-3
