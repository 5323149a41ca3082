"""The bins of `ece`."""

import jax.numpy as jnp
import numpy as np
import pytest

import calibjax as cj


def binary_data(n=200):
    rng = np.random.default_rng(0)
    p = rng.uniform(size=n)
    return p, (rng.uniform(size=n) < p).astype(int)


def test_binary_bins(float64):
    p, y = binary_data()
    bins = cj.calibration_bins(cj.Bernoulli(p), y, binning=cj.UniformBinning(4))
    filled = np.asarray(bins.count) > 0
    count, _ = np.histogram(p, 4, (0, 1))
    np.testing.assert_array_equal(bins.count[filled], count)
    for found, x in [(bins.prediction, p), (bins.frequency, y)]:
        np.testing.assert_allclose(found[filled], np.histogram(p, 4, (0, 1), weights=x)[0] / count)
        assert np.isnan(found[~filled]).all()
    np.testing.assert_allclose(bins.error[filled], np.abs(bins.prediction - bins.frequency)[filled])


@pytest.mark.parametrize("binning", [cj.UniformBinning(3), cj.MedianVarianceBinning(20)], ids=str)
def test_ece_is_the_mean_of_the_errors(binning, float64):
    rng = np.random.default_rng(1)
    predictions = cj.Categorical(rng.dirichlet(np.ones(3), 200))
    targets, where = rng.integers(0, 3, 200), np.arange(200) < 150
    bins = cj.calibration_bins(predictions, targets, binning=binning, where=where)
    assert bins.prediction.shape == bins.frequency.shape == (*bins.count.shape, 3)
    assert bins.count.sum() == 150
    found = np.nansum(bins.error * bins.count.astype(float)) / 150
    expected = cj.ece(predictions, targets, binning=binning, where=where)
    assert found == pytest.approx(float(expected), rel=1e-12)
    filled = np.asarray(bins.count) > 0
    gap = np.abs(bins.prediction - bins.frequency)[filled].sum(1) / 2
    np.testing.assert_allclose(bins.error[filled], gap, rtol=1e-12)
    assert jnp.isnan(bins.error[~filled]).all()
