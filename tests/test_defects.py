"""Small things that once went wrong: overridden parts, units, transfers, states of numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax as cj
from calibjax.kernels import Scaled, Sum

N = 6
RNG = np.random.default_rng(1)
LOC, SCALE = RNG.normal(size=N).astype("float32"), RNG.uniform(0.5, 1.5, N).astype("float32")
NORMAL, REALS = cj.Normal(LOC, SCALE), RNG.normal(size=N).astype("float32")
CLASSES = cj.Categorical(RNG.dirichlet(np.ones(3), N).astype("float32"))
LABELS = RNG.integers(0, 3, N).astype("int32")

OF_CLASSES = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation()), cj.WhiteKernel())
OF_REALS = cj.TensorProduct(cj.DistanceKernel(cj.Wasserstein()), cj.GaussianKernel(1.0))


# Formulas are final.  A variant is a class of its own, which holds the other one.


class Hits(cj.Kernel):
    domain = "pairs"

    def __call__(self, a, b):
        return hits(a, b)


def hits(a, b):
    return jnp.where(a[1] == b[1], 1.0, 0.0)


FORMULAS = {
    "product": (cj.TensorProduct, "__call__"),
    "sum": (Sum, "__call__"),
    "multiple": (Scaled, "__call__"),
    "white": (cj.WhiteKernel, "__call__"),
    "of a distance": (cj.DistanceKernel, "__call__"),
    "total variation": (cj.TotalVariation, "__call__"),
    "euclidean": (cj.Euclidean, "squared"),
    "a user's": (Hits, "__call__"),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_are_final(name):
    parent, formula = FORMULAS[name]
    message = rf"{formula} of {parent.__name__} is final, and Mine must not override it"
    with pytest.raises(TypeError, match=message):
        type("Mine", (parent,), {formula: lambda self, a, b: hits(a, b)})
    with pytest.raises(TypeError, match=message):
        type("Mine", (type("Mixin", (), {formula: lambda self, a, b: hits(a, b)}), parent), {})


def test_the_root_of_a_square_is_final():
    with pytest.raises(TypeError, match="__call__ of NormDistance is final"):
        type("Mine", (cj.Euclidean,), {"__call__": lambda self, p, q: 0.0})


def test_a_class_is_the_same_kernel_as_its_function():
    kernel, locations = jax.tree_util.register_static(Hits)(), (CLASSES[:2], LABELS[:2])
    for estimate in (cj.h_matrix, lambda *data: cj.ucme(*data, *locations)):
        found, expected = (estimate(k, CLASSES, LABELS) for k in (kernel, hits))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(NotImplementedError, match="h with a joint kernel of type Hits"):
        cj.skce(kernel, NORMAL, REALS)
    with pytest.raises(TypeError, match="random features need a TensorProduct.*Hits"):
        cj.random_feature_skce(jax.random.key(0), kernel, NORMAL, REALS, n_features=2)


def test_a_subclass_that_only_has_a_name_is_the_same_kernel():
    class Named(cj.TensorProduct):
        pass

    kernel = Named(OF_REALS.prediction_kernel, OF_REALS.target_kernel)
    assert cj.skce(kernel, NORMAL, REALS) == cj.skce(OF_REALS, NORMAL, REALS)


# Units.

SPREAD = np.array([-1.0, 0.25, 1.0], "float32")
SAMPLES = LOC[:, None] + SCALE[:, None] * SPREAD
OF_COLUMNS = {
    "diag": lambda unit: cj.MultivariateNormalDiag(
        np.outer(LOC, [1, unit]).astype("float32"), np.outer(SCALE, [1, unit]).astype("float32")
    ),
    "empirical": lambda unit: cj.Empirical(
        np.stack([SAMPLES, SAMPLES * np.float32(unit)], axis=-1),
        np.full((N, 3), 1 / 3, "float32"),
    ),
    "mixture": lambda unit: cj.Mixture.ensemble(
        cj.MultivariateNormalDiag(
            np.stack([SAMPLES, SAMPLES * np.float32(unit)], axis=-1),
            np.tile(np.array([0.5, 0.5 * unit], "float32"), (N, 3, 1)),
        )
    ),
}


@pytest.mark.parametrize("unit", [1e-25, 1e-15, 1e15, 1e25])
@pytest.mark.parametrize("family", OF_COLUMNS)
def test_deviations_whose_squares_the_dtype_cannot_hold(family, unit):
    # The second coordinate is the first one in other units.
    predictions = OF_COLUMNS[family](unit)
    exact = np.sqrt(OF_COLUMNS[family](1.0).variance())
    np.testing.assert_allclose(predictions.standard_deviation(), exact * [1, unit], rtol=1e-5)
    if unit < 1:
        found = cj.default_kernel(predictions).target_kernel.lengthscale
        expected = np.sqrt(2) * np.median(exact, axis=0)
        np.testing.assert_allclose(found, expected * [1, unit], rtol=1e-5)


@pytest.mark.parametrize("unit", [1e-25, 1e25])
def test_deviations_of_numbers(unit):
    scale = SCALE * np.float32(unit)
    np.testing.assert_array_equal(cj.Normal(LOC, scale).standard_deviation(), scale)
    np.testing.assert_allclose(
        cj.Laplace(LOC, scale).standard_deviation(), np.sqrt(2) * scale, rtol=1e-6
    )


def test_large_covariances_of_predictions_that_differ():
    # The distance of mean embeddings has no units, covariances of 1e18 have.
    def kernel(unit):
        covariances = (unit * SCALE[:, None, None]) ** 2
        return cj.default_kernel(
            cj.MultivariateNormalFullCovariance(unit * LOC[:, None], covariances)
        )

    found, expected = (k.prediction_kernel.lengthscale for k in (kernel(2.0**30), kernel(1.0)))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_gradients_of_weights_of_which_one_dominates():
    # Of w = (1, e, e, …) the derivative in w_1 is of the order of e, in the others of 1 / e.
    def estimate(weights):
        return cj.skce(OF_CLASSES, CLASSES, LABELS, weights=weights)

    found = jax.grad(estimate)(jnp.array([1.0] + [1e-20] * (N - 1)))
    h = np.array(cj.h_matrix(OF_CLASSES, CLASSES, LABELS), "float64")[0, 1:]
    expected = (h - h.mean()) / (1e-20 * h.size)
    np.testing.assert_allclose(found[1:], expected, rtol=1e-4, atol=1e-5 * abs(expected).max())
    assert abs(found[0]) < 1e-5


# Transfers.


def test_a_training_step_transfers_nothing():
    def loss(loc, log_scale, targets):
        predictions = cj.Normal(loc, jnp.exp(log_scale))
        penalty = cj.skce(OF_REALS, predictions, targets)
        return penalty - jnp.mean(predictions.log_prob(targets))

    arguments = jnp.array(LOC), jnp.array(SCALE), jnp.array(REALS)
    step = jax.jit(jax.value_and_grad(loss, (0, 1)))
    with jax.transfer_guard("disallow"):
        first, later = step(*arguments), step(*arguments)
    assert all(map(np.array_equal, jax.tree.leaves(first), jax.tree.leaves(later)))
    assert np.isfinite(first[0])


@pytest.mark.parametrize("options", [{}, {"where": True}, {"weights": 1.0}])
def test_checks_of_values_transfer_nothing(options):
    options = {name: jnp.ones(N, type(value)) for name, value in options.items()}
    kernel = jax.tree.map(jnp.asarray, OF_REALS)
    predictions, targets = cj.Normal(jnp.array(LOC), jnp.array(SCALE)), jnp.array(REALS)
    with jax.transfer_guard("disallow"):
        cj.skce(kernel, predictions, targets, **options)


def test_eager_shard_map_without_tracking():
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("i")

    def estimate(probs, labels):
        return cj.skce(OF_CLASSES, cj.Categorical(probs), labels)[None]

    found = jax.shard_map(estimate, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(
        CLASSES.probs, LABELS
    )
    np.testing.assert_allclose(found[0], cj.skce(OF_CLASSES, CLASSES, LABELS), rtol=1e-5)


# States.


def test_states_of_numbers():
    numbers = cj.SKCEState(4, 0.25, 0.5), cj.SKCEState(2, 0.75, 0.125)
    arrays = [jax.tree.map(jnp.asarray, state) for state in numbers]
    for method in (lambda a, b: a.merge(b), lambda a, b: a.compute()):
        found, expected = (jax.tree.leaves(method(*states)) for states in (numbers, arrays))
        assert all(map(np.array_equal, found, expected))
