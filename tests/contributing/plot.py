"""The picture of bins shows their numbers, and no bin without rows."""

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

import calibjax as cj
from calibjax import plot

BINS = cj.calibration_bins(cj.Bernoulli(jnp.array([0.2, 0.2, 0.7])), jnp.array([0, 1, 1]))


def test_numbers():
    ax = Figure().subplots()
    assert plot.calibration_bins(BINS, ax=ax) is ax
    (line,) = [line for line in ax.lines if line.get_label() == "bins"]
    np.testing.assert_allclose(line.get_xydata(), [[0.2, 0.5], [0.7, 1.0]], rtol=1e-6)


def test_other_arguments():
    with pytest.raises(TypeError, match="bins must be CalibrationBins, got float"):
        plot.calibration_bins(0.5)
    three = cj.calibration_bins(cj.Categorical(jnp.full((3, 3), 1 / 3)), jnp.array([0, 1, 1]))
    with pytest.raises(ValueError, match="of an event, got 3 classes"):
        plot.calibration_bins(three)
