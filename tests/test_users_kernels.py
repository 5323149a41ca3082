"""Kernels and distances of users: what they return, override, and must be."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax as cj
from calibjax._base.struct import struct
from calibjax.kernels.base import KernelOfTwo, Scaled, pairwise, upper_bound
from calibjax.kernels.check import check_symmetric, is_symmetric
from calibjax.kernels.predictions import NormDistance

N = 6
RNG = np.random.default_rng(0)
LOC, SCALE = RNG.normal(size=N).astype("float32"), RNG.uniform(0.5, 1.5, N).astype("float32")
NORMAL, REALS = cj.Normal(LOC, SCALE), RNG.normal(size=N).astype("float32")
DIAG = cj.MultivariateNormalDiag(LOC[:, None], SCALE[:, None])
CLASSES = cj.Categorical(RNG.dirichlet(np.ones(3), N).astype("float32"))
LABELS = RNG.integers(0, 3, N).astype("int32")
POISSON = cj.Poisson(SCALE, max_count=16)

GAUSSIAN, WHITE, TV = cj.GaussianKernel(1.0), cj.WhiteKernel(), cj.TotalVariation()


def near(p, q):
    return jnp.exp(-jnp.abs(p.loc - q.loc))


def skce(prediction_kernel, predictions=CLASSES, targets=LABELS, target_kernel=WHITE, **options):
    kernel = cj.TensorProduct(prediction_kernel, target_kernel)
    return cj.skce(kernel, predictions, targets, **options)


def of_distance(distance, *args, **options):
    return skce(cj.DistanceKernel(distance), *args, **options)


def ordinal(y, z):
    return jnp.exp(-jnp.abs(y - z).astype("float32"))


# What a function returns.

SHAPES = {
    "prediction kernel": (
        lambda: skce(near, DIAG, REALS[:, None], GAUSSIAN),
        r"prediction_kernel must return a number, of shape \[\], for one pair, got shape \[1\]",
    ),
    "factor": (
        lambda: skce(jnp.ones(1) * cj.DistanceKernel(cj.Wasserstein()), NORMAL, REALS, GAUSSIAN),
        r"factor of Scaled must be a scalar, got shape \[1\]",
    ),
    "joint kernel": (
        lambda: cj.skce(lambda a, b: jnp.ones(1), CLASSES, LABELS),
        r"kernel must return a number, of shape \[\], for one pair, got shape \[1\]",
    ),
    "distance": (
        lambda: of_distance(lambda p, q: jnp.abs(p.probs - q.probs)),
        r"distance must return a number, of shape \[\], for one pair, got shape \[3\]",
    ),
    "distance in blocks of two": (
        lambda: of_distance(
            lambda p, q: jnp.ones(2), DIAG, REALS[:, None], target_kernel=GAUSSIAN, block_size=2
        ),
        r"distance must return a number, of shape \[\], for one pair, got shape \[2\]",
    ),
    "distance of the median heuristic": (
        lambda: cj.median_heuristic(lambda p, q: jnp.abs(p.loc - q.loc), DIAG),
        r"distance must return a number, of shape \[\], for one pair, got shape \[1\]",
    ),
    "target kernel of counts": (
        lambda: of_distance(
            cj.EmbeddingDistance(lambda p: p.rate),
            POISSON,
            LABELS,
            target_kernel=lambda y, z: ordinal(y, z)[None],
        ),
        r"target_kernel must return a number, of shape \[\], for one pair, got shape \[1\]",
    ),
    "kernel of a mean embedding distance": (
        lambda: of_distance(cj.MeanEmbeddingDistance(lambda y, z: ordinal(y, z)[None])),
        r"kernel of MeanEmbeddingDistance must return a number, .* got shape \[1\]",
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_never_broadcast(name):
    function, message = SHAPES[name]
    with pytest.raises(ValueError, match=message):
        function()
    with pytest.raises(ValueError, match=message):
        jax.jit(function)()


TYPES = {
    "tuple": (lambda p: (p.probs, p.probs), "a scalar or a vector, got tuple"),
    "list": (lambda p: [p.probs[0]], "a scalar or a vector, got list"),
    "none": (lambda p: None, "a scalar or a vector, got NoneType"),
    "complex": (lambda p: jax.lax.complex(p.probs, p.probs), "real numbers, got dtype complex64"),
}


@pytest.mark.parametrize("name", TYPES)
def test_types_of_embeddings(name):
    phi, message = TYPES[name]
    with pytest.raises(TypeError, match=f"phi of EmbeddingDistance must return {message}"):
        of_distance(cj.EmbeddingDistance(phi))


@pytest.mark.slow
def test_embeddings_of_integers_booleans_and_numbers():
    largest = CLASSES.probs.argmax(axis=1)
    differs = np.abs(largest[:, None] - largest[None]).astype("float32")
    distance = cj.EmbeddingDistance(lambda p: jnp.argmax(p.probs))
    np.testing.assert_array_equal(distance.pairwise(CLASSES, CLASSES), differs)
    differs = np.sqrt(np.sum((CLASSES.probs[:, None] > 0.3) != (CLASSES.probs > 0.3), axis=2))
    distance = cj.EmbeddingDistance(lambda p: p.probs > 0.3)
    np.testing.assert_allclose(distance.pairwise(CLASSES, CLASSES), differs, rtol=1e-6)
    np.testing.assert_array_equal(cj.EmbeddingDistance(lambda p: 1.0).pairwise(CLASSES, CLASSES), 0)


def test_embeddings_that_are_infinite_or_nan():
    probs = np.array([[1, 0], [0.5, 0.5], [1, 0], [0, 1]], "float32")
    found = cj.EmbeddingDistance(lambda p: jnp.log(p.probs)).pairwise(*(cj.Categorical(probs),) * 2)
    inf = np.inf
    expected = [[0, inf, 0, inf], [inf, 0, inf, inf], [0, inf, 0, inf], [inf, inf, inf, 0]]
    np.testing.assert_array_equal(found, expected)
    assert np.isnan(of_distance(cj.EmbeddingDistance(lambda p: jnp.nan * p.probs)))


def test_closed_forms_of_users_return_numbers():
    class Mine(cj.Kernel):
        def __call__(self, y, z):
            return jnp.where(y == z, 1.0, 0.0)

    kernel = Mine()
    cj.mean_embedding.register(cj.Normal, Mine)(lambda p, kernel, y: p.loc[None])
    message = r"mean_embedding of Normal and Mine must return an array of 0 axes, got shape \[1\]"
    with pytest.raises(ValueError, match=message):
        cj.mean_embedding(cj.Normal(LOC[0], SCALE[0]), kernel, REALS[0])


# Variants of kernels and distances: classes of their own, without the closed forms.


@struct
class ThreeTimes(cj.Distance):
    distance: cj.Distance

    inner_functions = {"distance": "a distance"}

    def __call__(self, p, q):
        return 3 * self.distance(p, q)


@struct
class NineTimesTheSquare(NormDistance):
    distance: cj.Distance

    inner_functions = {"distance": "a distance"}

    def squared(self, p, q):
        return 9 * self.distance.squared(p, q)


@struct
class Ordinal(cj.Kernel):
    def __call__(self, y, z):
        return ordinal(y, z)


@struct
class Rational(cj.Kernel):
    distance: cj.Distance

    def __call__(self, p, q):
        return 1 / (1 + self.distance(p, q))


VARIANTS = [ThreeTimes(TV), ThreeTimes(cj.Euclidean()), NineTimesTheSquare(cj.Euclidean())]


@pytest.mark.parametrize("exponent", [1.0, 2.0])
@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_of_distances(variant, exponent):
    parent = variant.distance
    np.testing.assert_allclose(
        variant.pairwise(CLASSES, CLASSES), 3 * parent.pairwise(CLASSES, CLASSES), rtol=1e-6
    )
    found = cj.DistanceKernel(variant, 1.0, exponent).pairwise(CLASSES, CLASSES)
    expected = cj.DistanceKernel(parent, 1 / 3, exponent).pairwise(CLASSES, CLASSES)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_variants_of_kernels():
    assert of_distance(TV, target_kernel=Ordinal()) == of_distance(TV, target_kernel=ordinal)
    values = np.array(TV.pairwise(CLASSES, CLASSES))
    found = pairwise(Rational(TV), CLASSES, CLASSES)
    np.testing.assert_allclose(found, 1 / (1 + values), rtol=1e-6)
    for kernel in (Rational(TV), Ordinal()):
        with pytest.raises(ValueError, match="no bound is known for a kernel of type"):
            upper_bound(kernel)
        with pytest.raises(TypeError, match="random features need kernels with known frequencies"):
            kernel.draw_frequencies(jax.random.key(0), 3, jnp.zeros(()), jnp.float32)


def test_closed_forms_stand_for_one_formula():
    class Cauchy(cj.Kernel):
        def __call__(self, y, z):
            return 1 / (1 + jnp.square(y - z))

    class Named(cj.GaussianKernel):
        """The same function."""

    p, y = cj.Normal(LOC[0], SCALE[0]), REALS[0]
    with pytest.raises(NotImplementedError, match="no closed form .* of type Cauchy"):
        cj.mean_embedding(p, Cauchy(), y)
    assert cj.mean_embedding(p, Named(1.0), y) == cj.mean_embedding(p, GAUSSIAN, y)


# Parameters of users' kernels are their own.


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Fields(cj.Kernel):
    exponent: float = 3.0
    factor: float = -1.0
    lengthscale: tuple = (-2.0, 1.0)
    target_kernel: float = 2.0
    frequency: float = 0.0

    def __call__(self, a, b):
        return jnp.exp(-jnp.sum(jnp.abs(a[0].probs - b[0].probs)))


def test_fields_of_users_kernels_are_not_checked_by_their_names():
    assert jnp.isfinite(cj.skce(Fields(), CLASSES, LABELS))


# Symmetry.


def asymmetric(p, q):
    return jnp.exp(-p.probs[0])


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (cj.TensorProduct(asymmetric, WHITE), "prediction_kernel"),
        (cj.TensorProduct(cj.DistanceKernel(TV), lambda y, z: 1.0 * y), "target_kernel"),
        (cj.TensorProduct(cj.DistanceKernel(asymmetric), WHITE), "distance"),
        (lambda a, b: asymmetric(a[0], b[0]), "kernel"),
    ],
)
def test_asymmetric_kernels(kernel, name):
    with jax.numpy_dtype_promotion("standard"):
        with pytest.raises(ValueError, match=f"^{name} must be symmetric"):
            check_symmetric(kernel, CLASSES, LABELS)
        assert not jax.jit(lambda p: is_symmetric(kernel, p, LABELS))(CLASSES)


def test_symmetric_kernels():
    nan = cj.Categorical(CLASSES.probs * np.float32(np.nan))
    for kernel in (
        cj.TensorProduct(cj.DistanceKernel(cj.EmbeddingDistance(lambda p: p.probs[0])), ordinal),
        cj.TensorProduct(lambda p, q: jnp.exp(-TV(p, q) * 1.1), WHITE),
    ):
        check_symmetric(kernel, CLASSES, LABELS)
        assert is_symmetric(kernel, nan, LABELS)


# Invalid and extreme scales.


@pytest.mark.parametrize("kernel", [lambda y, z: cj.GaussianKernel(-1.0)(y, z)])
def test_an_invalid_scale_within_a_function(kernel):
    with pytest.raises(ValueError, match="lengthscale of GaussianKernel must be positive"):
        of_distance(TV, target_kernel=kernel)


@pytest.mark.parametrize(
    "distance", [lambda p, q: jnp.nan, lambda p, q: jnp.sum(p.probs) * 0 + jnp.float32(jnp.nan)]
)
def test_a_distance_that_is_always_nan(distance):
    assert np.isnan(of_distance(distance))


# Precision.


def test_constants_of_another_precision():
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        two = jnp.array(2.0)
        assert two.dtype == jnp.float64

        def of_loc(p, q):
            return two * jnp.abs(p.loc - q.loc)

        values = [
            skce(lambda p, q: jnp.exp(-of_loc(p, q)), NORMAL, REALS, GAUSSIAN),
            of_distance(of_loc, NORMAL, REALS, target_kernel=GAUSSIAN),
            of_distance(
                cj.EmbeddingDistance(lambda p: two * p.loc), NORMAL, REALS, target_kernel=GAUSSIAN
            ),
        ]
        assert all(value.dtype == jnp.float32 for value in values)
        np.testing.assert_allclose(values, values[0], rtol=1e-5)


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
    "sum": (KernelOfTwo, "__call__"),
    "multiple": (Scaled, "__call__"),
    "white": (cj.WhiteKernel, "__call__"),
    "of a distance": (cj.DistanceKernel, "__call__"),
    "total variation": (cj.TotalVariation, "__call__"),
    "euclidean": (cj.Euclidean, "squared"),
    "a user's": (Hits, "__call__"),
    # Ways to compute the same function belong to its formula.
    "tiles": (cj.DistanceKernel, "pairwise"),
    "tiles by default": (Hits, "pairwise"),
    "frequencies": (cj.GaussianKernel, "draw_frequencies"),
    "frequencies by default": (cj.WhiteKernel, "draw_frequencies"),
    "tiles of a distance": (cj.TotalVariation, "pairwise"),
    "tiles of a square": (cj.Euclidean, "pairwise_squared"),
    "frequencies of a distance": (cj.Euclidean, "draw_frequencies"),
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


def test_a_formula_comes_with_its_tiles():
    class Gap(cj.Distance):
        def __call__(self, p, q):
            return jnp.abs(p.loc - q.loc)

        def pairwise(self, ps, qs):
            return jnp.abs(ps.loc[:, None] - qs.loc[None, :])

    assert Gap().pairwise(NORMAL, NORMAL).shape == (len(NORMAL), len(NORMAL))


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
