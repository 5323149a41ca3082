"""KCCSD of five normal predictions, beside the numbers of the authors' own program.

`golden/kccsd.json` says how they were made, and what the kernels and distances are.
"""

import json
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

import calibjax as cj

PUBLISHED = json.loads((pathlib.Path(__file__).parent / "golden" / "kccsd.json").read_text())
LENGTHSCALE = 0.8 * 2**0.5  # exp(-D^2 / (2 l^2)) is exp(-(D / (sqrt(2) l))^2).
GAUSSIAN = cj.GaussianKernel(1.1)
WIDER = cj.GaussianKernel(1.2)


def inverse_multiquadric(y, z):
    return (1 + jnp.sum(jnp.square(y - z)) / 1.1**2) ** -0.5


def distances(data):
    """The distance of predictions in each matrix of the file."""
    names = ("points", "matching_points", "base_loc")
    points, matching, base_loc = (jnp.array(data[name]) for name in names)
    return {
        "Wasserstein": cj.Wasserstein(),
        "Wasserstein, inverse multiquadric": cj.Wasserstein(),
        "Fisher under a normal base measure": cj.FisherDistance.under_normal(base_loc, 0.9),
        "Fisher at points": cj.FisherDistance(points),
        "kernelized Fisher under a normal base measure": cj.KernelizedFisherDistance(
            matching, WIDER
        ),
        "kernelized Fisher at points": cj.KernelizedFisherDistance(points, WIDER),
    }


def predictions_and_targets(data):
    loc, scale, targets = (jnp.array(data[name]) for name in ("loc", "scale", "targets"))
    if loc.ndim == 1:
        return cj.Normal(loc, scale), targets
    return cj.MultivariateNormalDiag(loc, jnp.tile(scale[:, None], loc.shape[1])), targets


def kernel(name, distance):
    target_kernel = inverse_multiquadric if name.endswith("multiquadric") else GAUSSIAN
    return cj.SteinKernel(cj.DistanceKernel(distance, LENGTHSCALE, exponent=2.0), target_kernel)


def equal_published(h, published):
    # The file has ten decimals.
    np.testing.assert_allclose(h[np.triu_indices(5)], published, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", PUBLISHED["d = 1"]["H"])
@pytest.mark.parametrize("d", [1, 2])
def test_matrix_of_normal_predictions(d, name, float64):
    data = PUBLISHED[f"d = {d}"]
    h = cj.h_matrix(kernel(name, distances(data)[name]), *predictions_and_targets(data))
    equal_published(h, data["H"][name])


@pytest.mark.parametrize("d", [1, 2])
def test_matrix_of_predictions_known_by_their_score(d, float64):
    data = PUBLISHED[f"d = {d}"]
    parameters = {name: jnp.array(data[name]) for name in ("loc", "scale")}
    predictions = cj.Unnormalized(lambda p, y: (p["loc"] - y) / p["scale"] ** 2, parameters)
    name = "Fisher at points"
    h = cj.h_matrix(kernel(name, distances(data)[name]), predictions, jnp.array(data["targets"]))
    equal_published(h, data["H"][name])
