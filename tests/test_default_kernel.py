"""The median heuristic, and the default kernel of each family."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import FAMILIES, cast
from marks import fast_in_float32, slow
from scipy.spatial.distance import pdist

import calibjax as cj
from calibjax._data.data import Rows
from calibjax.discrepancy import normal_form
from calibjax.expectations.defaults import default_kernels, default_prediction_kernels

TV = cj.TotalVariation()


def dirichlet(n, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(3), n)


def median_of(probs):
    """The median over i < j, by SciPy."""
    return np.median(pdist(probs, "cityblock") / 2)


@pytest.mark.parametrize("n", [2, 3, 4, 17])
def test_median_over_pairs(n, float64):
    value = cj.median_heuristic(TV, cj.Categorical(jnp.array(dirichlet(n))))
    np.testing.assert_allclose(value, median_of(dirichlet(n)), rtol=1e-13)


@pytest.mark.parametrize("n", [1024, 1500, 2048, 2500])
def test_a_strided_subsample_above_1024(n, float64):
    probs = dirichlet(n)
    value = cj.median_heuristic(TV, cj.Categorical(jnp.array(probs)))
    expected = median_of(probs[:: n // 1024][:1024])
    np.testing.assert_allclose(value, expected, rtol=1e-13)


@pytest.mark.parametrize("n", slow({2500}, [12, 2500]))
def test_where_is_dropping_rows(n, float64):
    probs = dirichlet(n)
    where = np.random.default_rng(1).random(n) < 0.9
    kept = cj.median_heuristic(TV, cj.Categorical(jnp.array(probs[where])))
    for garbage in (np.nan, np.inf, -1.0, 0.0):
        dirty = np.where(where[:, None], probs, garbage)
        value = cj.median_heuristic(TV, cj.Categorical(jnp.array(dirty)), where=jnp.array(where))
        assert value == kept


def test_inside_jit_and_vmap(float64):
    batches = jnp.array(np.stack([dirichlet(9, seed) for seed in range(3)]))
    masks = jnp.array(np.random.default_rng(1).random((3, 9)) < 0.7)

    def heuristic(probs, where):
        return cj.median_heuristic(TV, cj.Categorical(probs), where=where)

    values = jax.jit(jax.vmap(heuristic))(batches, masks)
    expected = [median_of(p[w]) for p, w in zip(np.array(batches), np.array(masks), strict=True)]
    np.testing.assert_allclose(values, expected, rtol=1e-13)


def test_no_pair_is_kept(dtype):
    heuristic = jax.jit(lambda p, where: cj.median_heuristic(TV, cj.Categorical(p), where=where))
    for n_kept in (0, 1):
        where = np.arange(5) < n_kept
        probs = np.where(where[:, None], 1 / 3, np.nan) * np.ones(3)
        assert heuristic(jnp.asarray(probs.astype(dtype)), where) == 1


def test_ties(float64):
    # 1 of 5 rows differs: 4 of 10 pairs are at distance 1, the median is 0, the mean is 0.4.
    confidences = jnp.array([1.0, 1, 1, 1, 0])
    assert cj.median_heuristic(TV, cj.Bernoulli(confidences)) == 0.4
    where = jnp.arange(5) < 4
    assert cj.median_heuristic(TV, cj.Bernoulli(confidences), where=where) == 1
    assert cj.median_heuristic(TV, cj.Bernoulli(confidences[:4])) == 1


# Long to compile; of their like are the categorical, the normal and the ensemble.
SLOW = {"full", "diag", "laplace", "poisson", "mixture"}
SLOW |= {"empirical", "empirical_vectors", "empirical_draws", "log_normal", "gamma"}
SLOW |= {"weibull", "recalibrated", "quantiles", "negative_binomial"}


@pytest.mark.parametrize("family", slow(SLOW, FAMILIES))
def test_gradient_is_stopped(family, float64):
    predictions = cast(FAMILIES[family](7, 0)[0])

    def total(predictions):
        return sum(jnp.sum(x) for x in jax.tree.leaves(cj.default_kernel(predictions)))

    value, gradient = jax.jit(jax.value_and_grad(total, allow_int=True))(predictions)
    # Locations of ranks may be negative.
    assert np.isfinite(value) and value != 0
    for leaf in jax.tree.leaves(gradient):
        if leaf.dtype != jax.dtypes.float0:  # of a mask
            np.testing.assert_array_equal(leaf, 0)


@pytest.mark.parametrize("values", ["nan", "not normalised"])
def test_bad_values_inside_jit_give_nan(values):
    probs = jnp.ones((4, 2)) * (jnp.nan if values == "nan" else 0.4)
    assert jnp.isnan(jax.jit(cj.median_heuristic)(TV, cj.Categorical(probs)))


# The kernels of the papers.


@pytest.mark.parametrize("family", ["categorical", "bernoulli"])
def test_product_kernel_of_classes(family, float64):
    predictions = cast(FAMILIES[family](9, 0)[0])
    kernel = cj.product_kernel(predictions)
    assert isinstance(kernel.target_kernel, cj.WhiteKernel)
    assert isinstance(kernel.prediction_kernel.distance, cj.TotalVariation)
    assert kernel.prediction_kernel.exponent == 1
    probs = np.array(predictions.probs)
    if family == "bernoulli":
        probs = np.stack([probs, 1 - probs], axis=1)
    scale = kernel.prediction_kernel.lengthscale
    np.testing.assert_allclose(scale, median_of(probs), rtol=1e-13)


@pytest.mark.parametrize("family", ["normal", "diag"])
@pytest.mark.parametrize("masked", slow({False}, [False, True]))
def test_product_kernel_of_reals(family, masked, float64):
    predictions = cast(FAMILIES[family](9, 0)[0])
    where = np.arange(9) != 4 if masked else np.ones(9, bool)
    loc, scale = (np.array(x) for x in jax.tree.leaves(predictions))
    dirty = jax.tree.map(lambda x: jnp.array(x).at[~where].set(jnp.nan), predictions)
    kernel = cj.product_kernel(dirty, where=jnp.array(where) if masked else None)
    assert isinstance(kernel.target_kernel, cj.GaussianKernel)
    assert isinstance(kernel.prediction_kernel.distance, cj.Wasserstein)
    assert kernel.prediction_kernel.exponent == 1
    # W2 of normals with diagonal covariances is the distance of (loc, scale).
    points = np.concatenate([loc.reshape(9, -1), scale.reshape(9, -1)], axis=1)[where]
    np.testing.assert_allclose(
        kernel.prediction_kernel.lengthscale, np.median(pdist(points)), rtol=1e-13
    )
    deviation = np.median(scale[where], axis=0)
    np.testing.assert_allclose(kernel.target_kernel.lengthscale, np.sqrt(2) * deviation, rtol=1e-13)


def test_product_kernel_of_laplace_predictions(float64):
    predictions = cast(FAMILIES["laplace"](9, 0)[0])
    kernel = cj.product_kernel(predictions)
    loc, scale = np.array(predictions.loc), np.array(predictions.scale)
    # W2 of Laplace distributions is the distance of (loc, sqrt(2) scale).
    points = np.stack([loc, np.sqrt(2) * scale], axis=1)
    distances = np.median(pdist(points))
    np.testing.assert_allclose(kernel.prediction_kernel.lengthscale, distances, rtol=1e-13)
    deviation = np.sqrt(2) * np.median(scale)
    np.testing.assert_allclose(kernel.target_kernel.lengthscale, np.sqrt(2) * deviation, rtol=1e-13)


def test_product_kernel_of_counts(float64):
    rates = np.random.default_rng(0).uniform(0, 9, 9)
    kernel = cj.product_kernel(cj.Poisson(jnp.array(rates)))
    assert isinstance(kernel.target_kernel, cj.WhiteKernel)
    expected = np.median(pdist(np.sqrt(rates)[:, None]))
    np.testing.assert_allclose(kernel.prediction_kernel.lengthscale, expected, rtol=1e-13)


NO_WASSERSTEIN = ["full", "mixture", "ensemble", "empirical_vectors"]


@pytest.mark.parametrize("family", slow({"full", "ensemble", "empirical_vectors"}, NO_WASSERSTEIN))
def test_product_kernel_where_wasserstein_gives_none(family, float64):
    predictions = cast(FAMILIES[family](9, 0)[0])
    kernel = cj.product_kernel(predictions)
    distance = kernel.prediction_kernel.distance
    assert isinstance(distance, cj.MeanEmbeddingDistance)
    if family == "ensemble":
        assert isinstance(kernel.target_kernel, cj.WhiteKernel)
    else:
        deviation = np.median(np.sqrt(predictions.variance()), axis=0)
        for of in (kernel.target_kernel, distance.kernel):
            np.testing.assert_allclose(of.lengthscale, np.sqrt(2) * deviation, rtol=1e-13)
    distances = np.array(jax.jit(distance.pairwise)(predictions, predictions))
    expected = np.median(distances[np.triu_indices(9, 1)])
    np.testing.assert_allclose(kernel.prediction_kernel.lengthscale, expected, rtol=1e-9)


def test_product_kernel_of_certain_predictions():
    # Most of these samples have no spread; then none has.
    samples = np.arange(5.0)[:, None] + np.zeros((5, 3))
    samples[0] += [-1, 0, 1]
    kernel = cj.product_kernel(cj.Empirical(jnp.array(samples)))
    expected = np.sqrt(2) * np.sqrt(2 / 3) / 5
    np.testing.assert_allclose(kernel.target_kernel.lengthscale, expected, rtol=1e-6)
    kernel = cj.product_kernel(cj.Empirical(jnp.array(samples[1:])))
    np.testing.assert_allclose(kernel.target_kernel.lengthscale, np.sqrt(2), rtol=1e-6)


# The default kernels.


@pytest.mark.parametrize("family", slow(SLOW, FAMILIES))
@fast_in_float32
def test_default_kernel_is_ready_to_use(family, dtype):
    predictions, targets = cast(FAMILIES[family](9, 0), dtype)

    @jax.jit
    def estimate(predictions, where):
        kernel = cj.default_kernel(predictions, where=where)
        return cj.skce(kernel, predictions, targets, where=where)

    value = estimate(predictions, jnp.ones(9, bool))
    assert value.dtype == dtype
    if family in ("categorical", "normal", "poisson", "mixture", "empirical"):  # and outside of jit
        kernel = cj.default_kernel(predictions)
        np.testing.assert_allclose(value, cj.skce(kernel, predictions, targets), rtol=1e-5)
    assert estimate(predictions, jnp.zeros(9, bool)) == 0


@pytest.mark.parametrize(("family", "n_different"), [("categorical", 5), ("normal", 3)])
def test_default_kernels_share_their_kernels_of_predictions(family, n_different):
    """Tests and monitors compute each of them once: a part that is shared stays one object."""
    predictions = FAMILIES[family](9, 0)[0]
    assert len(default_prediction_kernels(Rows(predictions))) == n_different
    assert n_different < len(default_kernels(predictions))


def test_features_of_targets_that_are_far_away():
    """Their squares and angles are no 32-bit numbers, and a p-value must not be NaN for this."""
    loc, scale = np.zeros((4, 1, 2), "float32"), np.ones((4, 1, 2), "float32")
    narrow = np.arange(4)[:, None, None] == 1
    diag = cj.MultivariateNormalDiag(loc, np.where(narrow, 1e-3 * scale, scale))
    p = cj.Mixture.ensemble(diag)
    of_places = default_kernels(jax.tree.map(lambda x: x[:, 0], diag))
    terms = [term for kernel in of_places for term in normal_form(kernel).terms]
    functions = [kernel.feature for kernel in default_kernels(p)]

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(None, 0))
    def features(one, target):
        normal = jax.tree.map(lambda x: x[0], one.components)
        of_vectors = [term.residual.feature(normal, target) for term in terms]
        return [*(function(one, target) for function in functions), *of_vectors]

    for values in features(p[0], np.array([[1e38, 0], [0, -3e38]], "float32")):
        values = np.concatenate([np.ravel(x) for x in values]).astype(float)
        assert np.isfinite(values).all() and np.abs(values).max() < 1e13


def in_units(unit, n=6):
    """Families of real numbers, times a unit, and targets for them."""
    rng = np.random.default_rng(2)
    loc, scale = rng.normal(size=n), rng.uniform(0.5, 1.5, n)
    y, positive = loc + 1.3 * scale * rng.normal(size=n), rng.gamma(2.0, 1.0, n)
    vectors, widths = rng.normal(size=(n, 2)), rng.uniform(0.5, 1.5, (n, 2))
    samples = loc[:, None] + scale[:, None] * rng.normal(size=(n, 5))

    def times(x):
        return np.float32(np.asarray(x) * unit)

    shapes = np.full(n, 5.0, "float32")
    of_samples = cj.Normal(times(samples), times(np.tile(scale[:, None], 5)))
    predictions = {
        "normal": (cj.Normal(times(loc), times(scale)), y),
        "laplace": (cj.Laplace(times(loc), times(scale)), y),
        "student_t": (cj.StudentT(shapes, times(loc), times(scale)), y),
        "diag": (cj.MultivariateNormalDiag(times(vectors), times(widths)), vectors + widths),
        "empirical": (cj.Empirical(times(samples)), y),
        "quantiles": (cj.Quantiles(times(np.sort(samples)), (0.1, 0.3, 0.5, 0.7, 0.9)), y),
        "mixture": (cj.Mixture.ensemble(of_samples), y),
        "gamma": (cj.Gamma(shapes, np.float32(1 / (scale * unit))), positive),
        "log_normal": (
            cj.LogNormal(np.asarray(np.log(scale * unit), "float32"), shapes / 10),
            positive,
        ),
        "weibull": (cj.Weibull(shapes, times(scale)), positive),
    }
    return {name: (p, times(targets)) for name, (p, targets) in predictions.items()}


FAST = "normal", "log_normal"


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in FAST)) for name in in_units(1.0)],
)
def test_default_kernels_do_not_depend_on_units(name):
    @jax.jit
    def estimates(p, targets):
        terms = [normal_form(kernel).terms[0] for kernel in cj.default_kernels(p)[:2]]
        tiles = [term.prediction_kernel.pairwise(p, p) for term in terms]
        return cj.skce(cj.default_kernel(p), p, targets, unbiased=False), *tiles

    expected = estimates(*in_units(1.0)[name])
    assert expected[0] > 1e-3
    for unit in 1e-30, 1e-13, 1e18, 1e30:
        for found, value in zip(estimates(*in_units(unit)[name]), expected, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-3, atol=1e-5)


def test_masked_rows_have_no_part_in_units():
    (predictions, _), kept = in_units(1e-25)["log_normal"], np.arange(6) < 4
    distance = predictions.default_distance()
    found = cj.median_heuristic(distance, predictions, where=kept)
    expected = cj.median_heuristic(distance, predictions[:4])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", in_units(1.0))
def test_pvalues_and_measures_do_not_depend_on_units(name):
    def numbers(unit):
        p, targets = in_units(unit, 40)[name]
        found = cj.evaluate(p, targets)
        crps = [m.value / unit for key, m in found.measures.items() if key == "CRPS"]
        return found.pvalue, found.skce.interval[1], *crps

    expected = numbers(1.0)
    for unit in 1e-30, 1e30:
        # A p-value of 999 resamples may move by a tie.
        np.testing.assert_allclose(numbers(unit), expected, rtol=1e-3, atol=3e-3)


@pytest.mark.parametrize("unit", [1e-25, 1e25])
def test_units_that_have_to_be_rescaled(unit):
    rng, unit = np.random.default_rng(0), np.float32(unit)
    loc = rng.normal(size=(6, 2)).astype("float32") * unit
    with np.errstate(over="ignore", under="ignore"):
        factor = np.tile(np.eye(2, dtype="float32") * unit, (6, 1, 1))
        correlated = cj.MultivariateNormalFullCovariance.from_scale_tril(loc, factor)
    scored = cj.Unnormalized(
        lambda p, y: (p - y) / unit / unit,
        loc,
        lambda key, p: p + unit * jax.random.normal(key, (2,)),
    )
    for predictions in correlated, scored:
        with pytest.raises(ValueError, match="rescale"):
            cj.default_kernel(predictions)


@pytest.mark.parametrize("family", slow(FAMILIES.keys() - {"poisson"}, FAMILIES))
def test_no_nan_on_the_way(family):
    predictions, targets = cast(FAMILIES[family](6, 0), "float32")
    where = jnp.arange(6) < 5
    with jax.debug_nans(True):
        kernel = cj.default_kernel(predictions, where=where)

        def loss(predictions):
            return cj.skce(kernel, predictions, targets, where=where)

        assert jnp.isfinite(jax.jit(loss)(predictions))
        jax.block_until_ready(jax.jit(jax.grad(loss, allow_int=True))(predictions))


N = 6
RNG = np.random.default_rng(1)
LOC, SCALE = RNG.normal(size=N).astype("float32"), RNG.uniform(0.5, 1.5, N).astype("float32")
SPREAD = np.array([-1.0, 0.25, 1.0], "float32")
SAMPLES = LOC[:, None] + SCALE[:, None] * SPREAD

OF_COLUMNS = {
    "diag": lambda unit: cj.MultivariateNormalDiag(
        np.outer(LOC, [1, unit]).astype("float32"), np.outer(SCALE, [1, unit]).astype("float32")
    ),
    "empirical": lambda unit: cj.Empirical(
        np.stack([SAMPLES, SAMPLES * np.float32(unit)], axis=-1), np.full((N, 3), 1 / 3, "float32")
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


def test_large_covariances_of_predictions_that_differ():
    # The distance of mean embeddings has no units, covariances of 1e18 have.
    def kernel(unit):
        covariances = (unit * SCALE[:, None, None]) ** 2
        return cj.default_kernel(
            cj.MultivariateNormalFullCovariance(unit * LOC[:, None], covariances)
        )

    found, expected = (k.prediction_kernel.lengthscale for k in (kernel(2.0**30), kernel(1.0)))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_predictions_that_coincide_have_no_units():
    same = cj.Normal(jnp.zeros(4), jnp.full(4, 1e-20))
    assert cj.median_heuristic(cj.Wasserstein(), same) == 1


def test_few_rows_have_coordinates_without_steps():
    """Two programs round a location differently: that may not change a kernel by more."""
    loc = np.random.default_rng(0).normal(size=7).astype("float32")
    scale = np.exp(loc[::-1])
    nudged = [loc * np.float32(1 + step) for step in (-1e-6, 0, 1e-6)]
    kernel = cj.default_kernel(cj.Normal(loc, scale)).prediction_kernel
    below, at, above = (kernel.distance.pairwise(*[cj.Normal(x, scale)] * 2) for x in nudged)
    np.testing.assert_allclose(below, at, atol=1e-4)
    np.testing.assert_allclose(above, at, atol=1e-4)
