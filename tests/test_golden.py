"""The numbers of golden/reference.json, which come from quadrature."""

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import recompute
from marks import DTYPES, slow

import calibjax as cj

REFERENCE = json.loads(recompute.REFERENCE.read_text())

FAMILIES = {
    "categorical": lambda p: cj.Categorical(p["probs"]),
    "normal": lambda p: cj.Normal(p["loc"], p["scale"]),
    "multivariate_normal_diag": lambda p: cj.MultivariateNormalDiag(p["loc"], p["scale_diag"]),
    "multivariate_normal_full": lambda p: cj.MultivariateNormalFullCovariance(
        p["loc"], p["covariance"]
    ),
    "laplace": lambda p: cj.Laplace(p["loc"], p["scale"]),
    "normal_mixture": lambda p: cj.Mixture(p["weights"], cj.Normal(p["loc"], p["scale"])),
    "poisson": lambda p: cj.Poisson(p["rate"]),
}

DISTANCES = {
    "total_variation": cj.TotalVariation(),
    "euclidean": cj.Euclidean(),
    "wasserstein": cj.Wasserstein(),
    "mixture_wasserstein": cj.MixtureWasserstein(),
    "sqrt_rate": cj.EmbeddingDistance(lambda p: jnp.sqrt(p.rate)),
}
# Of a distance and a lengthscale; "gaussian" is exp(-d^2 / (2 l^2)).
PREDICTION_KERNELS = {
    "exponential": lambda distance, scale: cj.DistanceKernel(distance, scale),
    "gaussian": lambda distance, scale: cj.DistanceKernel(distance, np.sqrt(2) * scale, 2.0),
}
TARGET_KERNELS = {
    "white": cj.WhiteKernel,
    "gaussian": cj.GaussianKernel,
    "laplacian": cj.LaplacianKernel,
    "matern32": cj.Matern32Kernel,
    "matern52": cj.Matern52Kernel,
}

cases = pytest.mark.parametrize("case", REFERENCE["cases"], ids=lambda case: case["name"])

# Half of float64's digits are enough to tell a right formula; float32 is held to its rounding.
ATOL = {"float64": 1e-10, "float32": 2e-6}


def as_kernel(kernel):
    prediction, target = kernel["prediction"], dict(kernel["target"])
    return cj.TensorProduct(
        PREDICTION_KERNELS[prediction["kind"]](
            DISTANCES[prediction["metric"]], prediction["lengthscale"]
        ),
        TARGET_KERNELS[target.pop("kind")](**target),
    )


def as_arguments(case, dtype):
    """kernel, predictions and targets of a case."""
    parameters = dict(case["predictions"])
    kind = parameters.pop("kind")
    parameters = {
        name: jax.device_put(np.asarray(values, dtype)) for name, values in parameters.items()
    }
    predictions = FAMILIES[kind](parameters)
    real = predictions.target_kind == "real"
    return (
        as_kernel(case["kernel"]),
        predictions,
        jax.device_put(np.asarray(case["targets"], dtype if real else "int32")),
    )


# In single precision every family and every kernel of targets is there once.
SLOW_IN_FLOAT32 = {
    "categorical_gaussian_ordinal_laplacian",
    "laplace_w2_exponential_laplacian",
    "poisson_sqrtrate_exponential_gaussian",
}
SLOW = [(case, "float32") for case in REFERENCE["cases"] if case["name"] in SLOW_IN_FLOAT32]
CASES = [*itertools.product(REFERENCE["cases"], DTYPES)]


def in_both_precisions(these):
    """All cases in both precisions, `these` among the slow tests."""
    return pytest.mark.parametrize(
        ("case", "dtype"),
        slow(these, CASES),
        ids=lambda value: value if isinstance(value, str) else value["name"],
        indirect=["dtype"],
    )


@in_both_precisions(SLOW)
def test_h_matrix(case, dtype):
    h = jax.jit(cj.h_matrix)(*as_arguments(case, dtype))
    assert h.dtype == dtype
    np.testing.assert_allclose(h, case["h"], rtol=0, atol=ATOL[dtype])


# Estimates are means of h; two of them are fast tests below.
@in_both_precisions(CASES)
def test_estimate(case, dtype):
    estimate = jax.jit(cj.skce)(*as_arguments(case, dtype))
    assert estimate.dtype == dtype
    np.testing.assert_allclose(estimate, case["estimates"]["unbiased"], rtol=0, atol=ATOL[dtype])


@pytest.mark.parametrize(
    "name", ["categorical_tv_exponential_white", "normal_w2_exponential_gaussian"]
)
def test_outside_of_jit(name, float64):
    (case,) = (case for case in REFERENCE["cases"] if case["name"] == name)
    arguments = as_arguments(case, "float64")
    h, estimate = cj.h_matrix(*arguments), cj.skce(*arguments)
    np.testing.assert_allclose(h, case["h"], rtol=0, atol=ATOL["float64"])
    np.testing.assert_allclose(
        estimate, case["estimates"]["unbiased"], rtol=0, atol=ATOL["float64"]
    )


@pytest.mark.slow
@cases
def test_estimates_in_blocks(case, dtype):
    block_sizes = {"": None, **{f"block{b}_": b for b in (2, 3, 5)}}
    compare_estimates(case, dtype, block_sizes, {"unbiased": True, "biased": False})


def compare_estimates(case, dtype, block_sizes, kinds):
    arguments = as_arguments(case, dtype)
    for prefix, block_size in block_sizes.items():
        for suffix, unbiased in kinds.items():
            estimate = cj.skce(*arguments, unbiased=unbiased, block_size=block_size)
            expected = case["estimates"][prefix + suffix]
            assert estimate.dtype == dtype
            np.testing.assert_allclose(estimate, expected, 0, ATOL[dtype], err_msg=prefix + suffix)


@pytest.mark.slow
@cases
def test_quadrature_gives_the_stored_numbers(case):
    h, estimates = recompute.recompute_case(case)
    stored = {"h": case["h"], "estimates": case["estimates"]}
    difference = recompute.largest_difference(stored, {"h": h, "estimates": estimates})
    assert difference <= recompute.TOLERANCE


def test_the_committed_file_is_the_reference(reference_folder):
    assert json.loads((reference_folder / "golden" / "reference.json").read_text()) == REFERENCE
