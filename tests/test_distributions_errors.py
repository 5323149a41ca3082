"""Bad predictions of each family, and kernels that do not suit them: what the messages say.

One line for each: a call, the exception, and the parts of its message in their order.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import FAMILIES, cast
from marks import slow
from messages import check_message

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
    "Laplace, scale": (
        lambda: skce(cj.Laplace(ones(), at(ones(), 2, 0.0))),
        ValueError,
        "scale must be positive and finite; row 2 is 0",
    ),
    "Laplace, target": (
        lambda: skce(cj.Laplace(ones(), ones()), at(ones(), 1, jnp.inf)),
        ValueError,
        "targets must be finite; row 1 is inf",
    ),
    "covariance, shape": (
        lambda: skce(FULL(ones(2), jnp.ones((N, 2, 3)))),
        ValueError,
        r"covariance_matrix must have shape \[n, d, d\] with d = 2 .*got shape \[6, 2, 3\]",
    ),
    "covariance, of scales": (
        lambda: skce(FULL(ones(2), ones(2))),
        ValueError,
        r"covariance_matrix must have shape \[n, d, d\], got shape \[6, 2\]",
    ),
    "covariance, indefinite": (
        lambda: skce(FULL(ones(2), at(COVARIANCE, 3, jnp.array([[1.0, 2.0], [2.0, 1.0]])))),
        ValueError,
        "covariance_matrix must be symmetric and positive definite .*; row 3 is",
    ),
    "covariance, a triangle": (
        lambda: skce(FULL(ones(2), jnp.tril(COVARIANCE))),
        ValueError,
        "covariance_matrix must be symmetric and positive definite .*; row 0 is",
    ),
    "Poisson, rate": (
        lambda: skce(cj.Poisson(at(ones(), 5, -0.5)), target_kernel=WHITE),
        ValueError,
        "rate must be nonnegative and finite; row 5 is -0.5",
    ),
    "Poisson, target": (
        lambda: skce(cj.Poisson(ones()), jnp.arange(N) - 1, WHITE),
        ValueError,
        "targets must be counts 0, 1, …, 2147483647; row 0 is -1",
    ),
    "Poisson, real target": (
        lambda: skce(cj.Poisson(ones()), ones(), WHITE),
        TypeError,
        "targets must hold integer values, got dtype float32",
    ),
    "Poisson, max_count": (
        lambda: cj.Poisson(ones(), max_count=0),
        ValueError,
        "max_count must be at least 1, got 0",
    ),
    "Poisson, rates inside jit": (
        lambda: jax.jit(lambda rate: skce(cj.Poisson(rate)))(ones()),
        ValueError,
        "max_count must be given for Poisson predictions with a GaussianKernel",
    ),
    "Mixture, no components": (
        lambda: skce(cj.Mixture(ones(3) / 3, ones(3)), ones()),
        ValueError,
        "components must be one distribution of calibjax.*got ArrayImpl",
    ),
    "Mixture, components without their axis": (
        lambda: skce(cj.Mixture.ensemble(cj.Normal(ones(), ones())), ones()),
        ValueError,
        r"components must be .* of shape \[n, K, …\], got Normal with shapes \[\[6\], \[6\]\]",
    ),
    "Mixture, weights": (
        lambda: skce(cj.Mixture(at(ones(3) / 3, 4, 0.3), COMPONENTS), ones()),
        ValueError,
        SUM_TO_ONE,
    ),
    "Mixture, number of weights": (
        lambda: skce(cj.Mixture(ones(2) / 2, COMPONENTS), ones()),
        ValueError,
        r"components.loc must have shape \[n, k\] with k = 2 .*got shape \[6, 3\]",
    ),
    "Mixture, a component": (
        lambda: skce(cj.Mixture.ensemble(cj.Normal(ones(3), at(ones(3), (2, 1), -1.0))), ones()),
        ValueError,
        r"components.scale must be positive and finite; row 2 is \[ 1. -1.  1.\]",
    ),
    "Mixture, target": (
        lambda: skce(family("ensemble"), jnp.full(N, 4), WHITE),
        ValueError,
        "targets must be labels in 0 … 3; row 0 is 4",
    ),
    "Empirical, samples": (
        lambda: skce(cj.Empirical(at(ones(5), (1, 3), jnp.nan)), ones()),
        ValueError,
        "samples must be finite; row 1 is",
    ),
    "Empirical, one axis": (
        lambda: skce(cj.Empirical(ones()), ones()),
        ValueError,
        r"samples must have shape \[n, s\], got shape \[6\]",
    ),
    "Empirical, weights": (
        lambda: skce(cj.Empirical(ones(5), at(ones(5) / 5, (4, 0), -0.2)), ones()),
        ValueError,
        SUM_TO_ONE,
    ),
    "Empirical, targets": (
        lambda: skce(cj.Empirical(ones(5, 2)), ones()),
        ValueError,
        r"targets must have shape \[n, d\], got shape \[6\]",
    ),
    # Kernels and distances that do not suit them.
    "no closed form": (
        lambda: skce(family("full"), target_kernel=cj.LaplacianKernel(1.0)),
        NotImplementedError,
        "no closed form for MultivariateNormalFullCovariance .*LaplacianKernel.*has one for: "
        r"GaussianKernel.*samples stand.*Empirical\(jnp.moveaxis\(predictions.sample",
    ),
    "of components": (
        lambda: skce(family("mixture"), target_kernel=WHITE),
        NotImplementedError,
        "no closed form for Normal predictions with a target kernel of type WhiteKernel",
    ),
    "MeanEmbeddingDistance, closed form": (
        lambda: skce(family("normal"), distance=cj.MeanEmbeddingDistance(WHITE)),
        NotImplementedError,
        "inner_product has no closed form for Normal",
    ),
    "MeanEmbeddingDistance, kernel": (
        lambda: skce(family("normal"), distance=cj.MeanEmbeddingDistance(cj.Wasserstein())),
        TypeError,
        "kernel of MeanEmbeddingDistance must be a kernel or a callable, got Wasserstein",
    ),
    "MeanEmbeddingDistance, domain": (
        lambda: skce(
            family("normal"),
            distance=cj.MeanEmbeddingDistance(cj.DistanceKernel(cj.Wasserstein())),
        ),
        TypeError,
        "kernel of MeanEmbeddingDistance must be a kernel on targets, got DistanceKernel",
    ),
    "MeanEmbeddingDistance, lengthscale": (
        lambda: skce(family("normal"), distance=cj.MeanEmbeddingDistance(cj.GaussianKernel(-1.0))),
        ValueError,
        "lengthscale of GaussianKernel must be positive and finite, got -1",
    ),
    "Wasserstein of counts": (
        lambda: skce(family("poisson"), target_kernel=WHITE, distance=cj.Wasserstein()),
        TypeError,
        "Wasserstein is defined for .*MultivariateNormalFullCovariance.*got Poisson",
    ),
    "Wasserstein of mixtures": (
        lambda: skce(family("mixture"), distance=cj.Wasserstein()),
        TypeError,
        "Wasserstein is defined for .*MixtureWasserstein for mixtures of these, got Mixture",
    ),
    "MixtureWasserstein of normals": (
        lambda: skce(family("normal"), distance=cj.MixtureWasserstein()),
        TypeError,
        "MixtureWasserstein is defined for Mixture predictions, got Normal",
    ),
    "MixtureWasserstein of classes": (
        lambda: skce(family("ensemble"), target_kernel=WHITE, distance=cj.MixtureWasserstein()),
        TypeError,
        "Wasserstein is defined for .*got Categorical",
    ),
    "ece of counts": (
        lambda: cj.ece(family("poisson"), jnp.zeros(N, int)),
        TypeError,
        r"predictions must be .*Bernoulli\(probs\), or a Mixture of these, got Poisson",
    ),
    "a foreign distribution": (
        lambda: skce(object(), ones()),
        TypeError,
        "must be a distribution of calibjax.*as_predictions",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_message(name):
    check_message(*BAD[name])


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
