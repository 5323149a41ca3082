"""Bad predictions of each family, and kernels that do not suit them: what the messages say.

One line for each: a call, the exception, and the parts of its message in their order.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import FAMILIES, cast
from marks import slow
from messages import calls, check_message

import calibjax as cj

N = 6
GAUSSIAN, WHITE = cj.GaussianKernel(1.0), cj.WhiteKernel()


def phi(p):
    return jnp.zeros(())


def skce(predictions, targets=None, target_kernel=GAUSSIAN, distance=None):
    """`skce` with targets that fit."""
    if targets is None:
        integer = predictions.target_kind == "integer"
        shape = (N, 2) if predictions.target_shape == "n d" else N
        targets = jnp.zeros(shape, "int32" if integer else "float32")
    distance = distance or cj.EmbeddingDistance(phi)
    kernel = cj.TensorProduct(cj.DistanceKernel(distance), target_kernel)
    return cj.skce(kernel, predictions, targets)


def family(name):
    return cast(FAMILIES[name](N, 0)[0], "float32")


def ones(*shape):
    return jax.device_put(np.ones((N, *shape), "float32"))


def at(array, row, value):
    changed = np.array(array)
    changed[row] = value
    return jax.device_put(changed)


COVARIANCE = np.tile(np.float32([[2.0, 0.5], [0.5, 1.0]]), (N, 1, 1))
FULL = cj.MultivariateNormalFullCovariance
COMPONENTS = cj.Normal(np.zeros((N, 3), "float32"), np.ones((N, 3), "float32"))
SUM_TO_ONE = r"weights must be nonnegative with rows that sum to one within 0.001; row 4 is \["

BAD = {
    ValueError: {
        "scale must be positive and finite; row 2 is 0": lambda: skce(
            cj.Laplace(ones(), at(ones(), 2, 0.0))
        ),
        "targets must be finite; row 1 is inf": lambda: skce(
            cj.Laplace(ones(), ones()), at(ones(), 1, jnp.inf)
        ),
        r"covariance_matrix must have shape .* with d = 2 .*got shape \[6, 2, 3\]": lambda: skce(
            FULL(ones(2), jnp.ones((N, 2, 3)))
        ),
        r"covariance_matrix must have shape \[n, d, d\], got shape \[6, 2\]": lambda: skce(
            FULL(ones(2), ones(2))
        ),
        "covariance_matrix must be symmetric and positive definite .*; row 3 is": lambda: skce(
            FULL(ones(2), at(COVARIANCE, 3, jnp.array([[1.0, 2.0], [2.0, 1.0]])))
        ),
        "covariance_matrix must be symmetric and positive definite .*; row 0 is": lambda: skce(
            FULL(ones(2), jnp.tril(COVARIANCE))
        ),
        "rate must be nonnegative and finite; row 5 is -0.5": lambda: skce(
            cj.Poisson(at(ones(), 5, -0.5)), target_kernel=WHITE
        ),
        "targets must be counts 0, 1, …, 2147483647; row 0 is -1": lambda: skce(
            cj.Poisson(ones()), jnp.arange(N) - 1, WHITE
        ),
        "max_count must be at least 1, got 0": lambda: cj.Poisson(ones(), max_count=0),
        "max_count must be given for Poisson predictions with a GaussianKernel": lambda: jax.jit(
            lambda rate: skce(cj.Poisson(rate))
        )(ones()),
        "components must be one distribution of calibjax.*got ArrayImpl": lambda: skce(
            cj.Mixture(ones(3) / 3, ones(3)), ones()
        ),
        r"components must be .* of shape \[n, K, …\], got Normal with .*\[6\]\]": lambda: skce(
            cj.Mixture.ensemble(cj.Normal(ones(), ones())), ones()
        ),
        SUM_TO_ONE: lambda: skce(cj.Mixture(at(ones(3) / 3, 4, 0.3), COMPONENTS), ones()),
        r"components.loc must have shape \[n, k\] with k = 2 .*got shape \[6, 3\]": lambda: skce(
            cj.Mixture(ones(2) / 2, COMPONENTS), ones()
        ),
        r"components.scale must be positive and finite; row 2 is \[ 1. -1.  1.\]": lambda: skce(
            cj.Mixture.ensemble(cj.Normal(ones(3), at(ones(3), (2, 1), -1.0))), ones()
        ),
        "targets must be labels in 0 … 3; row 0 is 4": lambda: skce(
            family("ensemble"), jnp.full(N, 4), WHITE
        ),
        r"samples must be finite, or say .* where=~isnan\(samples\); row 1 is": lambda: skce(
            cj.Empirical(at(ones(5), (1, 3), jnp.nan)), ones()
        ),
        r"samples must have shape \[n, s\], got shape \[6\]": lambda: skce(
            cj.Empirical(ones()), ones()
        ),
        r"targets must have shape \[n, d\], got shape \[6\]": lambda: skce(
            cj.Empirical(ones(5, 2)), ones()
        ),
        "lengthscale of GaussianKernel must be positive and finite, got -1": lambda: skce(
            family("normal"), distance=cj.MeanEmbeddingDistance(cj.GaussianKernel(-1.0))
        ),
    },
    TypeError: {
        "targets must hold integer values, got dtype float32": lambda: skce(
            cj.Poisson(ones()), ones(), WHITE
        ),
        "kernel of MeanEmbeddingDistance must be a kernel or a callable, got Wasserstein": lambda: (
            skce(family("normal"), distance=cj.MeanEmbeddingDistance(cj.Wasserstein()))
        ),
        "kernel of MeanEmbeddingDistance must be a kernel on targets, got DistanceKernel": lambda: (
            skce(
                family("normal"),
                distance=cj.MeanEmbeddingDistance(cj.DistanceKernel(cj.Wasserstein())),
            )
        ),
        "Wasserstein is defined for .*MultivariateNormalFullCovariance.*got Poisson": lambda: skce(
            family("poisson"), target_kernel=WHITE, distance=cj.Wasserstein()
        ),
        "Wasserstein is defined for .*MixtureWasserstein for mixtures .* got Mixture": lambda: skce(
            family("mixture"), distance=cj.Wasserstein()
        ),
        "MixtureWasserstein is defined for Mixture predictions, got Normal": lambda: skce(
            family("normal"), distance=cj.MixtureWasserstein()
        ),
        "Wasserstein is defined for .*got Categorical": lambda: skce(
            family("ensemble"), target_kernel=WHITE, distance=cj.MixtureWasserstein()
        ),
        r"predictions must be .*Bernoulli\(probs\), or a Mixture of these, got Poisson": lambda: (
            cj.ece(family("poisson"), jnp.zeros(N, int))
        ),
        "must be a distribution of calibjax.*as_predictions": lambda: skce(object(), ones()),
    },
    NotImplementedError: {
        (
            "no closed form for MultivariateNormalFullCovariance .*LaplacianKernel.*has one for: "
            r"GaussianKernel.*samples stand.*Empirical\(jnp.moveaxis\(predictions.sample"
        ): lambda: skce(family("full"), target_kernel=cj.LaplacianKernel(1.0)),
        "no closed form for Normal predictions with a target kernel of type WhiteKernel": lambda: (
            skce(family("mixture"), target_kernel=WHITE)
        ),
        "inner_product has no closed form for Normal": lambda: skce(
            family("normal"), distance=cj.MeanEmbeddingDistance(WHITE)
        ),
    },
}


@pytest.mark.parametrize("case", calls(BAD))
def test_message(case):
    check_message(*case)


BAD_VALUES = {
    "covariance": (FULL, (ones(2), at(COVARIANCE, 3, -COVARIANCE[3]))),
    "rate": (cj.Poisson, (at(ones(), 1, -1.0),)),
    "weights": (lambda w: cj.Mixture(w, COMPONENTS), (at(ones(3) / 3, 4, 0.3),)),
    "components": (
        lambda scale: cj.Mixture.ensemble(cj.Normal(COMPONENTS.loc, scale)),
        (at(ones(3), (0, 0), 0.0),),
    ),
    "samples": (cj.Empirical, (at(ones(4), (1, 1), jnp.nan),)),
    "scale": (cj.Laplace, (ones(), at(ones(), 2, -1.0))),
}


@pytest.mark.parametrize("name", slow(BAD_VALUES.keys() - {"rate", "weights"}, BAD_VALUES))
def test_bad_values_inside_jit_give_nan(name):
    make, parameters = BAD_VALUES[name]

    @jax.jit
    def value_and_gradient(parameters):
        def loss(parameters):
            kernel = WHITE if name == "rate" else GAUSSIAN
            return skce(make(*parameters), target_kernel=kernel)

        return jax.value_and_grad(loss)(parameters)

    value, gradient = value_and_gradient(parameters)
    assert jnp.isnan(value)
    assert all(jnp.all(jnp.isnan(x)) for x in jax.tree.leaves(gradient))
