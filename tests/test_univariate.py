"""Families known by quantiles or a cdf: expectations by quadrature, against SciPy's laws."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import call
from jax.test_util import check_grads
from marks import slow
from rules import fine_rule
from scipy import special, stats

import calibjax as cj
from calibjax.distributions import _fourier_rows
from calibjax.expectations.dispatch import prepare_rows, residual_product_tile

# The laws of a table, in the families and in SciPy.
LAWS = {
    "t5": (cj.StudentT, (5.0, 0.0, 1.0), stats.t(5)),
    "t3": (cj.StudentT, (3.0, 0.0, 1.0), stats.t(3)),
    "t1": (cj.StudentT, (1.0, 0.0, 1.0), stats.t(1)),
    "log_normal_half": (cj.LogNormal, (0.0, 0.5), stats.lognorm(0.5)),
    "log_normal": (cj.LogNormal, (0.0, 1.0), stats.lognorm(1.0)),
}
KERNELS = {
    "gaussian": (cj.GaussianKernel, lambda d: np.exp(-np.square(d) / 2)),
    "matern32": (cj.Matern32Kernel, lambda d: (1 + 3**0.5 * d) * np.exp(-(3**0.5) * d)),
    "laplacian": (cj.LaplacianKernel, lambda d: np.exp(-d)),
}
LENGTHSCALES = (1.4, 0.5, 0.2)
# What the docstring of Univariate says, to one digit.
ERRORS = {
    "t5": {"gaussian": (2e-7, 1e-6, 2e-4), "matern32": (8e-6, 2e-4, 2e-3)},
    "t3": {"gaussian": (5e-7, 3e-4, 2e-3), "matern32": (3e-5, 4e-4, 3e-3)},
    "t1": {"gaussian": (6e-3, 8e-3, 5e-3), "matern32": (3e-3, 7e-3, 2e-2)},
    "log_normal_half": {"gaussian": (1e-7, 4e-6, 2e-3), "matern32": (2e-5, 4e-4, 5e-3)},
    "log_normal": {"gaussian": (4e-5, 2e-3, 8e-3), "matern32": (2e-4, 2e-3, 8e-3)},
}
ERRORS["t5"]["laplacian"] = (6e-5, 2e-4, 1e-3)
ERRORS["t3"]["laplacian"] = (1e-4, 3e-4, 1e-3)
ERRORS["t1"]["laplacian"] = (1e-3, 2e-3, 2e-3)
ERRORS["log_normal_half"]["laplacian"] = (1e-4, 3e-4, 3e-3)
ERRORS["log_normal"]["laplacian"] = (2e-4, 3e-3, 2e-3)


@jax.jit
def embeddings(p, kernels, ys):
    return [jax.vmap(lambda y, k=k: cj.mean_embedding(p, k, y))(ys) for k in kernels]


@pytest.mark.parametrize("dtype", slow({"float32"}, ["float32", "float64"]))
@pytest.mark.parametrize("name", slow({"t3", "log_normal_half"}, LAWS))
def test_errors_of_the_quadrature_are_those_of_the_table(name, dtype, float64):
    family, parameters, law = LAWS[name]
    p = family(*(jnp.asarray(x, dtype) for x in parameters))
    spread = (law.ppf(special.ndtr(1.0)) - law.ppf(special.ndtr(-1.0))) / 2
    ys, (points, weights) = law.ppf(np.linspace(0.003, 0.997, 41)), fine_rule(law)
    cases = [
        (kernel, scale * spread, error)
        for kernel in KERNELS
        for scale, error in zip(LENGTHSCALES, ERRORS[name][kernel], strict=True)
    ]
    kernels = [KERNELS[kernel][0](jnp.asarray(scale, dtype)) for kernel, scale, _ in cases]
    found = embeddings(p, kernels, jnp.asarray(ys, dtype))
    for (kernel, lengthscale, error), values in zip(cases, found, strict=True):
        exact = KERNELS[kernel][1](np.abs(points - ys[:, None]) / lengthscale) @ weights
        assert np.abs(np.asarray(values) - exact).max() <= 1.5 * error, (kernel, lengthscale)


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian"])
def test_kernels_that_are_narrower_than_the_gaps(kernel, float64):
    # E k(Y, y) is nearly the density times the integral of the kernel.
    p, law = cj.StudentT(*map(jnp.float64, (5.0, 0.0, 1.0))), stats.t(5)
    ys = np.linspace(-3, 3, 40)
    for lengthscale in (1e-2, 1e-4, 1e-8):
        k = KERNELS[kernel][0](jnp.float64(lengthscale))
        (values,) = embeddings(p, [k], jnp.asarray(ys))
        integral = {"gaussian": np.sqrt(2 * np.pi), "laplacian": 2.0}[kernel]
        exact = law.pdf(ys) * lengthscale * integral
        np.testing.assert_allclose(values, exact, rtol=0, atol=0.1 * exact.max())


def rows(n, seed=0, dtype="float64"):
    rng = np.random.default_rng(seed)
    arrays = rng.uniform(6, 9, n), rng.normal(size=n), rng.uniform(0.5, 1.5, n)
    targets = arrays[1] + arrays[2] * rng.standard_t(5, n)
    return cj.StudentT(*(jnp.asarray(x, dtype) for x in arrays)), jnp.asarray(targets, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.slow
def test_waves_are_sums_over_points(dtype, float64):
    ps, ys = rows(70, dtype=dtype)
    ys = ys.at[3].set(1e6).at[4].set(1e6 + 0.5)  # targets that no wave holds
    far = ps.loc.at[5].set(-300.0)
    kernel = cj.GaussianKernel(jnp.asarray(1.3, dtype))
    tile = jax.jit(residual_product_tile)
    atol = 1e-5 if dtype == "float32" else 1e-11
    # One law is far away, and some are so wide that their points stand for distributions.
    wide = ps.scale.at[8:20].set(40.0)
    laws = ps, cj.StudentT(ps.df, far, ps.scale), cj.StudentT(ps.df, far, wide)
    for law in laws:
        made = prepare_rows(law, kernel, ys, None)
        assert isinstance(made, _fourier_rows.FourierRows)
        assert bool(jnp.all(made.prediction_is_near)) == (law is ps)
        sums = tile(law, kernel, ys, law, ys)
        np.testing.assert_allclose(tile(made, kernel, ys, made, ys), sums, rtol=0, atol=atol)
        # So do blocks that are vmapped.
        two = jax.tree.map(lambda x: x.reshape(2, 35, *x.shape[1:]), (made, ys))
        blocks = jax.jit(jax.vmap(lambda p, y: tile(p, kernel, y, p, y)))(*two)
        wanted = [sums[:35, :35], sums[35:, 35:]]
        np.testing.assert_allclose(blocks, np.stack(wanted), rtol=0, atol=atol)
    # The two targets far away see each other, in both ways.
    assert sums[3, 4] > 0.8


def test_derivatives_of_waves(float64):
    rng = np.random.default_rng(3)
    x, a, u, v = (jnp.asarray(rng.normal(size=(3, 2))) for _ in range(4))
    step, amplitudes, *_ = _fourier_rows._frequencies(x.dtype)
    w = jnp.asarray(step * (np.arange(amplitudes.size) + 0.5))
    c = jnp.asarray(rng.normal(size=(2, w.size, 2)))

    def plain(x, a):
        angles, each = w[:, None, None] * x[None], amplitudes[:, None, None] * a[None]
        return jnp.sum(c[:, :, None] * each[None] * jnp.stack([jnp.cos(angles), jnp.sin(angles)]))

    def ours(x, a):
        return jnp.sum(c * jnp.stack(_fourier_rows._waves(x, a)))

    for of, by in ((jax.grad, (0, 1)), (jax.grad, 0), (jax.grad, 1), (jax.hessian, 0)):
        found, wanted = (jax.jit(of(f, by))(x, a) for f in (ours, plain))
        jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, rtol=1e-9), found, wanted)
    found, wanted = (jax.jvp(f, (x, a), (u, v))[1] for f in (ours, plain))
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_derivatives_of_waves_on_devices():
    x, rows = jnp.array([[0.3, -1.0], [2.0, 0.1]]), jax.sharding.PartitionSpec("rows")
    of_all = jax.grad(lambda x: sum(map(jnp.sum, _fourier_rows._waves(x, jnp.ones_like(x)))))
    mesh = jax.make_mesh((2,), ("rows",), (jax.sharding.AxisType.Auto,))
    of_each = jax.shard_map(of_all, mesh=mesh, in_specs=rows, out_specs=rows)
    np.testing.assert_allclose(jax.jit(of_each)(x), jax.jit(of_all)(x), rtol=1e-6)


@pytest.mark.parametrize("are_same", [True, False])
def test_sums_of_far_rows_have_their_derivatives(are_same, float64):
    # Of rows with themselves too, where a derivative of one side alone is asked for.
    rng = np.random.default_rng(0)
    left, right = (
        ((rng.normal(size=r), rng.uniform(0, 2, r)), rng.normal(size=r)) for r in ((6, 4), (3, 4))
    )
    right = left if are_same else right
    c = rng.normal(size=(6, right[1].shape[0]))

    def plain(left, right):
        ours, theirs = ([x[:, :, None, None] for x in left[0]], [x[None, None] for x in right[0]])
        spread = 1 + ours[1] + theirs[1]
        values = jnp.exp(-jnp.square(ours[0] - theirs[0]) / spread / 2) / jnp.sqrt(spread)
        return jnp.sum(c * jnp.einsum("is,isjt,jt->ij", left[1], values, right[1]))

    def ours(left, right):
        both = ((rows, jnp.ones(rows[1].shape[0], bool)) for rows in (left, right))
        return jnp.sum(c * _fourier_rows.sums_of_far_rows(*both))

    found, wanted = (jax.jit(jax.value_and_grad(f, (0, 1)))(left, right) for f in (ours, plain))
    jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, rtol=1e-9), found, wanted)


def test_distributions_that_are_wide_have_no_waves(float64):
    # Their points are further from each other than the kernel can see.
    ps, ys = rows(8)
    kernel = cj.GaussianKernel(jnp.float64(0.01))
    assert not jnp.any(prepare_rows(ps, kernel, ys, None).prediction_is_near)


def test_a_closed_form_of_a_subclass_goes_first():
    class Mine(cj.StudentT):
        pass

    @cj.mean_embedding.register(Mine, cj.GaussianKernel)
    def mean(p, kernel, y):
        return jnp.zeros(())

    @cj.inner_product.register(Mine, cj.GaussianKernel)
    def inner(p, kernel, q):
        return jnp.zeros(())

    ps, ys = rows(6, dtype="float32")
    mine, kernel = Mine(ps.df, ps.loc, ps.scale), cj.GaussianKernel(1.0)
    constant = cj.DistanceKernel(cj.EmbeddingDistance(lambda p: 0 * p.loc[None]))
    found = cj.skce(cj.TensorProduct(constant, kernel), mine, ys)
    k = np.exp(-np.square(np.subtract.outer(ys, ys)) / 2)
    np.testing.assert_allclose(found, (k.sum() - 6) / 30, rtol=1e-5)


@pytest.mark.slow
def test_estimates_are_means_of_h(float64):
    ps, ys = rows(90)
    kernel = cj.default_kernel(ps)
    h = cj.h_matrix(kernel, ps, ys)
    mean = (h.sum() - jnp.trace(h)) / (90 * 89)
    np.testing.assert_allclose(cj.skce(kernel, ps, ys), mean, rtol=0, atol=1e-12)
    where = jnp.arange(90) < 60
    kept = cj.skce(kernel, ps[:60], ys[:60])
    masked = cj.skce(kernel, ps, ys.at[60:].set(jnp.nan), where=where)
    np.testing.assert_allclose(masked, kept, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_gradients(float64):
    ps, ys = rows(12)
    # Ranks, as in default kernels, are no functions for differences.
    near = cj.DistanceKernel(cj.EmbeddingDistance(lambda p: jnp.stack([p.loc, p.scale, p.df])))

    def loss(df, loc, scale, ys, lengthscale):
        k = cj.TensorProduct(near, cj.GaussianKernel(lengthscale))
        return cj.skce(k, cj.StudentT(df, loc, scale), ys, unbiased=False)

    arguments = ps.df, ps.loc, ps.scale, ys, jnp.float64(1.3)
    check_grads(loss, arguments, order=1, modes=["rev"], atol=1e-6, rtol=1e-5)


@pytest.mark.slow
def test_parameters_over_ten_orders_of_magnitude():
    grid = jnp.asarray(np.logspace(-5, 5, 12), "float32")
    df, scale = (x.ravel() for x in jnp.meshgrid(grid, grid))
    ps = cj.StudentT(df, jnp.zeros_like(df), scale)
    ys = ps.location() + ps.spread()
    assert jnp.all(jnp.isfinite(ys))
    kernel = cj.default_kernel(ps)
    value, gradient = jax.jit(jax.value_and_grad(lambda p: cj.skce(kernel, p, ys)))(ps)
    assert all(jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves((value, gradient)))
    ps = cj.LogNormal(jnp.log(scale), jnp.clip(df, 1e-5, 5.0))
    assert jnp.isfinite(cj.skce(cj.default_kernel(ps), ps, ps.quantile(0.7)))


class OfQuantile(cj.Univariate):
    """Logistic predictions by their quantiles."""

    loc: jax.Array

    def quantile(self, level):
        return self.loc + jnp.log(level) - jnp.log1p(-level)


class OfCdf(cj.Univariate):
    """Logistic predictions by their cdf and density."""

    loc: jax.Array

    def cdf(self, targets):
        return jax.nn.sigmoid(targets - self.loc)

    def log_prob(self, targets):
        x = targets - self.loc
        return jax.nn.log_sigmoid(x) + jax.nn.log_sigmoid(-x)


class Neither(cj.Univariate):
    """Nothing but a parameter."""

    loc: jax.Array


@pytest.mark.slow
def test_families_of_the_users_own(float64):
    loc = jnp.linspace(-1.0, 1.0, 40)
    ys = loc + stats.logistic.rvs(size=40, random_state=0)
    # Ranks, as in default kernels, may step where numbers differ by their rounding.
    near = cj.DistanceKernel(cj.EmbeddingDistance(lambda p: p.loc[None]))
    kernel = cj.PITKernel(near)
    estimates = []
    for family in (OfQuantile, OfCdf):
        p, law = family(loc), stats.logistic(np.asarray(loc))
        np.testing.assert_allclose(p.cdf(ys), law.cdf(ys), rtol=1e-12)
        np.testing.assert_allclose(p.quantile(0.2), law.ppf(0.2), rtol=1e-12)
        np.testing.assert_allclose(p.mean(), loc, atol=1e-9)
        np.testing.assert_allclose(p.variance(), np.pi**2 / 3, rtol=1e-6)
        draws = p.sample(jax.random.key(0), (50,))
        assert draws.shape == (50, 40)
        assert stats.kstest(np.ravel(draws - loc[None]), stats.logistic.cdf).pvalue > 0.01
        estimates.append(cj.skce(kernel, p, ys))
    np.testing.assert_allclose(*estimates, rtol=1e-9)
    gradients = [
        jax.grad(lambda x, f=f: cj.skce(kernel, f(x), ys))(loc) for f in (OfQuantile, OfCdf)
    ]
    np.testing.assert_allclose(*gradients, rtol=1e-6, atol=1e-12)
    with pytest.raises(TypeError, match="Neither must have quantile, or cdf and log_prob"):
        Neither(loc).quantile(0.5)


# Quantile forecasts.

VALUES = np.array([[-1.0, 0.5, 1.0, 4.0], [0.0, 0.0, 2.0, 2.5], [1.0, 1.1, 1.2, 1.3]])
LEVELS = (0.1, 0.4, 0.5, 0.95)


def quantile_function(values, u):
    """F^{-1} of one prediction, from the definition."""
    slopes = np.diff(values) / np.diff(LEVELS)
    if u < LEVELS[0]:
        return values[0] + slopes[0] * LEVELS[0] * np.log(u / LEVELS[0])
    if u > LEVELS[-1]:
        return values[-1] - slopes[-1] * (1 - LEVELS[-1]) * np.log((1 - u) / (1 - LEVELS[-1]))
    return np.interp(u, LEVELS, values)


def test_quantiles_and_cdf_of_quantile_forecasts(float64):
    p = cj.Quantiles(VALUES, LEVELS)
    for u in (1e-6, 0.1, 0.2, 0.45, 0.7, 0.95, 0.999):
        exact = [quantile_function(values, u) for values in VALUES]
        np.testing.assert_allclose(call(p, "quantile", u), exact, rtol=1e-12)
    for u in (1e-6, 0.2, 0.41, 0.95, 0.999):
        np.testing.assert_allclose(call(p, "cdf", call(p, "quantile", u))[::2], u, rtol=1e-9)
    # The mass of two equal values lies on them.
    assert call(p, "cdf", np.array([0.0, 0.0, 0.0])).tolist()[1] == pytest.approx(0.4)
    assert call(p, "cdf", np.array([0.0, -1e-9, 0.0])).tolist()[1] == 0.0


def test_the_density_of_quantile_forecasts_integrates_to_one(float64):
    edges = np.concatenate([[-20.0], VALUES[0], [20.0]])
    middle = np.concatenate(
        [
            (i + 0.5) / 4000 * (b - a) + a
            for a, b in itertools.pairwise(edges)
            for i in [np.arange(4000)]
        ]
    )
    widths = np.repeat(np.diff(edges) / 4000, 4000)
    p = cj.Quantiles(np.broadcast_to(VALUES[0], (middle.size, 4)), LEVELS)
    total = np.exp(call(p, "log_prob", middle)) @ widths
    assert total == pytest.approx(1.0, abs=1e-5)


def test_errors_of_quantile_forecasts():
    crossed = VALUES[:, [0, 2, 1, 3]]
    with pytest.raises(ValueError, match=r"values must be finite and nondecreasing.*row 0"):
        cj.skce(
            cj.default_kernel(cj.Quantiles(VALUES, LEVELS)),
            cj.Quantiles(crossed, LEVELS),
            VALUES[:, 1],
        )
    np.testing.assert_array_equal(
        cj.Quantiles(crossed, LEVELS, sort=True).values, np.float32(VALUES)
    )
    for levels in ((0.5,), (0.1, 0.1, 0.2, 0.3), (0.0, 0.2, 0.4, 0.5), (0.1, 0.2, 0.3, 1.0)):
        with pytest.raises(ValueError, match="levels must be at least 2 increasing numbers"):
            cj.Quantiles(VALUES, levels)
    with pytest.raises(ValueError, match="values must have one column for each of 2 levels"):
        cj.Quantiles(VALUES, (0.1, 0.9))


def quantile_forecasts(n, seed, levels=(0.1, 0.5, 0.9), shift=0.0, stretch=1.0):
    """Quantiles of normal laws, and targets from these: the law between them is not uniform."""
    rng = np.random.default_rng(seed)
    loc, scale = rng.normal(size=n), rng.uniform(0.5, 2.0, n)
    z = special.ndtri(levels)
    values = loc[:, None] + scale[:, None] * (shift + stretch * z)
    targets = loc + scale * rng.normal(size=n)
    return cj.Quantiles(jnp.asarray(values, "float32"), levels), jnp.asarray(targets, "float32")


@pytest.mark.slow
def test_the_test_of_quantile_forecasts_uses_quantiles_only():
    test = jax.jit(lambda key, p, y: cj.calibration_test(key, p, y, n_resamples=99).pvalue)
    keys = jax.random.split(jax.random.key(0), 60)
    pvalues = np.array([test(keys[i], *quantile_forecasts(200, i)) for i in range(60)])
    # Uniform on 0.01, …, 1: the mean has a standard error of 0.29 / sqrt(60).
    assert abs(pvalues.mean() - 0.505) < 3.5 * 0.29 / 60**0.5
    assert (pvalues <= 0.05).mean() < 0.05 + 3.5 * (0.05 * 0.95 / 60) ** 0.5
    for wrong in ({"shift": 0.4}, {"stretch": 0.6}, {"stretch": 1.6}):
        found = [test(keys[i], *quantile_forecasts(200, i, **wrong)) for i in range(10)]
        assert np.mean(np.array(found) <= 0.05) >= 0.8, wrong


def test_an_interval_is_two_quantiles():
    p = cj.Quantiles.from_interval(jnp.zeros(4), jnp.ones(4), 0.8)
    assert p.levels == pytest.approx((0.1, 0.9)) and p.values.shape == (4, 2)
    np.testing.assert_allclose(
        p.cdf(jnp.array([0.0, 0.5, 1.0, 1e9])), [0.1, 0.5, 0.9, 1.0], rtol=1e-6
    )


class Power(cj.Univariate):
    """On (0, 1); in float32 its largest draws round to 1."""

    power: jax.Array

    def quantile(self, level):
        return level ** (1 / self.power)


def test_density_where_the_cdf_rounds_to_one():
    predictions = Power(np.full(3, 0.5, np.float32))
    found = call(predictions, "log_prob", np.array([0.25, 1 - 1e-7, 1.0], np.float32))
    np.testing.assert_allclose(found, np.log([1.0, 0.5, 0.5]), atol=1e-5)
    slopes = jax.jit(jax.grad(lambda p: jnp.sum(p.log_prob(jnp.ones(3)))))(predictions)
    assert np.isfinite(slopes.power).all()
    # Q'(u) = 1 / (1 - u): the slope has no value at 1.
    far = call(Exponential(np.zeros(2, np.float32)), "log_prob", np.array([3.0, 60.0], np.float32))
    np.testing.assert_allclose(far, [-3.0, -24 * np.log(2)], rtol=1e-5)


class Exponential(cj.Univariate):
    """Exponential, by its quantiles."""

    loc: jax.Array

    def quantile(self, level):
        return self.loc - jnp.log1p(-level)


@pytest.mark.parametrize("dtype", slow({"float64"}, ["float32", "float64"]))
@pytest.mark.slow
def test_targets_outside_of_the_waves_beside_distributions_inside(dtype, float64):
    # Rows come ever nearer to the radius of the waves; two targets are outside, in reach of laws.
    edge = 66.3 if dtype == "float32" else 105.8
    offsets = jnp.asarray([0.0, 0.1, -0.1, 0.0, edge - 10, edge - 5, edge - 1], dtype)
    scale, df = jnp.full(7, 0.1, dtype), jnp.full(7, 50.0, dtype)
    targets = offsets + jnp.asarray([0.0, 0.0, 0.0, 0.0, 10.2, 0.1, 1.4], dtype)
    kernel = cj.GaussianKernel(jnp.asarray(1.0, dtype))
    p = cj.StudentT(df, offsets, scale)
    made = prepare_rows(p, kernel, targets, None)
    assert made.target_is_near.tolist() == [True] * 4 + [False, True, False]
    found = residual_product_tile(made, kernel, targets, made, targets)
    exact = residual_product_tile(p, kernel, targets, p, targets)
    atol = 1e-5 if dtype == "float32" else 1e-11
    np.testing.assert_allclose(found, exact, rtol=0, atol=atol)
    # Without the last two rows all laws have waves, but the fifth target has none.
    assert made.prediction_is_near.tolist() == [True] * 5 + [False] * 2


@pytest.mark.slow
def test_levels_that_are_equal_in_float32():
    levels = (0.25, 0.5, 0.5 + 1e-9)
    p = cj.Quantiles(jnp.array([[0.0, 1.0, 1.0 + 1e-6]] * 3), levels)
    assert p.cdf(jnp.array([0.5, 1.0, 0.0])).tolist() == pytest.approx([0.375, 0.5, 0.25])
    assert np.all(np.isfinite(cj.crps(p, jnp.array([0.5, 1.0, 0.0]))))
    assert np.isfinite(p.quantile(jnp.array([0.3, 0.5, 0.9]))).all()


def student_t(n, df=5.0):
    rng = np.random.default_rng(0)
    loc = jnp.asarray(rng.normal(size=n), jnp.float32)
    p = cj.StudentT(jnp.full(n, df), loc, jnp.ones(n))
    return p, loc + jnp.asarray(rng.standard_t(df, n), jnp.float32)


@pytest.mark.slow
def test_random_features_of_univariate_predictions(key):
    p, y = student_t(9, df=1e6)
    of_normal = cj.Normal(p.loc, p.scale)
    kernel = cj.TensorProduct(
        cj.DistanceKernel(cj.EmbeddingDistance(lambda p: jnp.stack([p.loc, p.scale])), 1.0),
        cj.GaussianKernel(1.5),
    )
    found, exact = (cj.random_feature_skce(key, kernel, q, y, n_features=8) for q in (p, of_normal))
    np.testing.assert_allclose(found.estimate, exact.estimate, rtol=0, atol=1e-5)


def test_squares_that_overflow_have_no_gradient():
    def pairs(scale):
        gaps = scale * jnp.linspace(0.1, 2, 5)
        measure = (gaps, _fourier_rows.variances(gaps, jnp.mean(gaps))), jnp.full(5, 0.2)
        near = (jnp.zeros((1, 5)), jnp.zeros((1, 5))), jnp.full((1, 5), 0.2)
        row = jax.tree.map(lambda x: x[None], measure)
        return jnp.sum(_fourier_rows._sums_over_points((row, row), (near, near)))

    found = jax.vmap(jax.grad(pairs))(10 ** jnp.arange(15, 38, dtype=jnp.float32))
    np.testing.assert_allclose(found, 0, atol=1e-12)
