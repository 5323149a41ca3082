"""SteinKernel against differences in 50 digits, and Stein's identity by quadrature."""

from decimal import Decimal, localcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden.recompute import gauss_legendre_panels
from instances import FAMILIES, cast
from marks import slow
from messages import check_message
from rules import fine_rule
from scipy import stats

import calibjax as cj

# S of one pair.  The models have any scores: they are parameters, beside a place x that the kernel
# on predictions compares.


def score_of(parameters, y):
    return parameters["score"]


def place(p):
    return p.parameters["x"]


BETWEEN = cj.DistanceKernel(cj.EmbeddingDistance(place), 0.8)


def inverse_multiquadric(scale, y, z):
    return 1 / jnp.sqrt(1 + jnp.sum(jnp.square(y - z)) / scale**2)


def polynomial(y, z):
    """A kernel that is no function of y - z."""
    return jnp.square(1 + jnp.sum(y * z) / 4)


# The same kernels for lists of decimal numbers.


def square(y, z, scale):
    scales = np.broadcast_to(scale, len(y)).tolist()
    return sum(((a - b) / Decimal(c)) ** 2 for a, b, c in zip(y, z, scales, strict=True))


def exact_gaussian(scale):
    return lambda y, z: (-square(y, z, scale) / 2).exp()


def exact_matern32(scale):
    def kernel(y, z):
        r = (3 * square(y, z, scale)).sqrt()
        return (1 + r) * (-r).exp()

    return kernel


def exact_matern52(scale):
    def kernel(y, z):
        r = (5 * square(y, z, scale)).sqrt()
        return (1 + r + r**2 / 3) * (-r).exp()

    return kernel


def exact_inverse_multiquadric(y, z):
    return 1 / (1 + square(y, z, 0.7)).sqrt()


def exact_polynomial(y, z):
    return (1 + sum(a * b for a, b in zip(y, z, strict=True)) / 4) ** 2


def scales(d):
    return np.array([0.5, 1.5, 0.9])[:d]


IMQ = jax.tree_util.Partial(inverse_multiquadric, 0.7)
# The kernel for d coordinates, and for decimal numbers.
BASES = {
    "gaussian": lambda d: (cj.GaussianKernel(0.8), exact_gaussian(0.8)),
    "gaussian, a lengthscale each": lambda d: (
        cj.GaussianKernel(scales(d)),
        exact_gaussian(scales(d)),
    ),
    "matern32": lambda d: (cj.Matern32Kernel(1.2), exact_matern32(1.2)),
    "matern52": lambda d: (cj.Matern52Kernel(0.9), exact_matern52(0.9)),
    "matern32, a lengthscale each": lambda d: (
        cj.Matern32Kernel(scales(d)),
        exact_matern32(scales(d)),
    ),
    "function": lambda d: (IMQ, exact_inverse_multiquadric),
    "no function of the difference": lambda d: (
        jax.tree_util.Partial(polynomial),
        exact_polynomial,
    ),
    "sum and multiple": lambda d: (
        0.3 * cj.GaussianKernel(0.8) + cj.Matern52Kernel(0.9),
        lambda y, z: Decimal(0.3) * exact_gaussian(0.8)(y, z) + exact_matern52(0.9)(y, z),
    ),
    "product": lambda d: (
        cj.GaussianKernel(0.8) * cj.Matern32Kernel(1.2),
        lambda y, z: exact_gaussian(0.8)(y, z) * exact_matern32(1.2)(y, z),
    ),
}
# With a kernel of one lengthscale for each coordinate, numbers have one as well: a vector of one.
VECTORS_ONLY = {"gaussian, a lengthscale each", "matern32, a lengthscale each"}
CASES = [(name, d) for name in BASES for d in (0, 1, 2, 3) if d > 0 or name not in VECTORS_ONLY]
FAST_CASES = {(name, 2) for name in BASES} | {("gaussian", 0), ("matern32", 0)}


def stein_by_differences(kernel, y, s, z, t):
    """The four terms of S with central differences of 50 digits, an error of order step^2.

    A kernel of Matern has an error of order step where y = z.
    """
    with localcontext(prec=50):
        step = Decimal("1e-14")
        y, z, s, t = (list(map(Decimal, np.ravel(x).tolist())) for x in (y, z, s, t))

        def moved(point, c, k):
            return [x + k * step if i == c else x for i, x in enumerate(point)]

        total = sum(a * b for a, b in zip(s, t, strict=True)) * kernel(y, z)
        for c in range(len(y)):
            in_z = (kernel(y, moved(z, c, 1)) - kernel(y, moved(z, c, -1))) / (2 * step)
            in_y = (kernel(moved(y, c, 1), z) - kernel(moved(y, c, -1), z)) / (2 * step)
            mixed = (
                sum(
                    i * j * kernel(moved(y, c, i), moved(z, c, j)) for i in (1, -1) for j in (1, -1)
                )
                / (2 * step) ** 2
            )
            total += s[c] * in_z + t[c] * in_y + mixed
        return float(total)


N = 5


def rows(d, n=N, seed=0):
    """Parameters and targets of n rows, two of which have the same target."""
    rng = np.random.default_rng(seed)
    shape = (n, d) if d else (n,)
    targets, scores = rng.normal(size=shape), rng.normal(size=shape)
    targets[1] = targets[0]
    return {"score": scores, "x": rng.normal(size=(n, 2))}, targets


def matrix_by_differences(base, parameters, targets):
    scores, x = parameters["score"], parameters["x"]
    n = len(targets)
    matrix = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            between = np.exp(-np.linalg.norm(x[i] - x[j]) / 0.8)
            of_targets = stein_by_differences(base, targets[i], scores[i], targets[j], scores[j])
            matrix[i, j] = between * of_targets
    return matrix


@pytest.mark.parametrize(("name", "d"), slow(set(CASES) - FAST_CASES, CASES))
def test_one_pair_against_differences(name, d, float64):
    base, exact = BASES[name](d)
    parameters, targets = rows(d)
    expected = matrix_by_differences(exact, parameters, targets)
    kernel, p, y = cast((cj.SteinKernel(BETWEEN, base), parameters, targets))
    found = cj.h_matrix(kernel, cj.Unnormalized(score_of, p), y)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("name", "d"), slow(set(CASES) - {("matern32", 2)}, CASES))
def test_call_and_tile_are_the_pair(name, d, float64):
    base, _ = BASES[name](d)
    kernel, p, y = cast((cj.SteinKernel(BETWEEN, base), *rows(d)))
    samples = cj.Unnormalized(score_of, p), y
    pairs = jax.jit(lambda a: jax.vmap(lambda x: jax.vmap(lambda z: kernel(x, z))(a))(a))
    found = np.array(pairs(samples))
    np.testing.assert_allclose(found, cj.h_matrix(kernel, *samples), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(found, found.T, rtol=1e-13, atol=1e-14)
    assert np.linalg.eigvalsh(found)[0] > -1e-12
    # `skce` sums over tiles.
    np.testing.assert_allclose(cj.skce(kernel, *samples, unbiased=False), found.mean(), rtol=1e-12)


# Where y = z the mixed derivatives of a kernel f(|y - z|^2 / l^2) are -2 f'(0) / l^2.
AT_TIES = {cj.GaussianKernel: 1.0, cj.Matern32Kernel: 3.0, cj.Matern52Kernel: 5 / 3}


@pytest.mark.parametrize("kernel", slow(AT_TIES.keys() - {cj.Matern32Kernel}, AT_TIES))
def test_value_and_gradient_at_ties(kernel, float64):
    lengthscale = np.array([0.5, 2.0])
    parameters, targets = cast(rows(2))

    def diagonal(lengthscale, scores):
        model = cj.Unnormalized(score_of, {**parameters, "score": scores})
        stein = cj.SteinKernel(BETWEEN, kernel(lengthscale))
        return jnp.trace(cj.h_matrix(stein, model, targets))

    value, gradients = jax.jit(jax.value_and_grad(diagonal, (0, 1)))(
        jnp.array(lengthscale), parameters["score"]
    )
    factor = AT_TIES[kernel]
    squares = np.sum(np.square(parameters["score"]))
    np.testing.assert_allclose(value, squares + N * factor * np.sum(lengthscale**-2), rtol=1e-13)
    np.testing.assert_allclose(gradients[0], -2 * N * factor * lengthscale**-3, rtol=1e-13)
    np.testing.assert_allclose(gradients[1], 2 * parameters["score"], rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"], indirect=True)
@pytest.mark.parametrize("kernel", AT_TIES)
def test_near_ties(kernel, dtype):
    # From far below the roundoff of a distance to above it, values change little.
    gaps = jnp.array([0.0, 1e-30, 1e-20, 1e-12, 1e-8, 1e-6, 1e-5], dtype)
    parameters = {"score": jnp.full(7, 0.5, dtype), "x": jnp.zeros(7, dtype)}
    model = cj.Unnormalized(score_of, parameters)
    value, gradients = jax.value_and_grad(
        lambda kernel, y: cj.skce(cj.SteinKernel(BETWEEN, kernel), model, y), (0, 1)
    )(kernel(jnp.array(1.0, dtype)), gaps)
    np.testing.assert_allclose(value, 0.25 + AT_TIES[kernel], rtol=1e-4)
    np.testing.assert_allclose(gradients[0].lengthscale, -2 * AT_TIES[kernel], rtol=1e-4)
    # The third derivatives of Matern 3/2 jump at a tie, within +-6 sqrt(3) for each pair.
    assert np.all(np.isfinite(gradients[1])) and np.max(np.abs(gradients[1])) < 20


# Stein's identity.


def quartic(theta, y):
    return theta - 4 * y**3


def bent(theta, y):
    """log p(y) = -(y_1 - theta)^2 / 2 - (y_2 - y_1^2)^2, up to a constant."""
    return -jnp.square(y[0] - theta) / 2 - jnp.square(y[1] - jnp.square(y[0]))


def quartic_rule(theta):
    nodes = np.linspace(-6, 6, 601)
    weights = np.exp(-(nodes**4) + theta * nodes)
    return nodes, weights / weights.sum()


def bent_rule(theta):
    # y_1 and y_2 - y_1^2 are independent normal variables.
    x, u = np.linspace(-8, 8, 401), np.linspace(-8, 8, 161)
    first, second = np.meshgrid(theta + x, u / np.sqrt(2), indexing="ij")
    weights = np.exp(-np.add.outer(x**2, u**2) / 2).ravel()
    return np.stack([first, second + first**2], -1).reshape(-1, 2), weights / weights.sum()


def product_rule(loc, factor):
    x, weights = np.polynomial.hermite_e.hermegauss(60)
    weights /= weights.sum()
    nodes = np.stack(np.meshgrid(x, x, indexing="ij"), -1).reshape(-1, 2)
    return loc + nodes @ factor.T, np.outer(weights, weights).ravel()


def laplace_rule(loc, scale):
    # The score jumps at loc.
    nodes, weights = gauss_legendre_panels(loc + scale * np.linspace(-40, 40, 81), np.zeros(0))
    return nodes, weights * stats.laplace(loc, scale).pdf(nodes)


def of_law(law):
    return fine_rule(law, 2001)


def mixture_rule():
    rules = [of_law(stats.norm(-1.0, 0.5)), of_law(stats.norm(1.5, 1.0))]
    nodes = np.concatenate([nodes for nodes, _ in rules])
    return nodes, np.concatenate([w * v for w, (_, v) in zip((0.3, 0.7), rules, strict=True)])


def nowhere(p):
    return jnp.zeros(())


ALWAYS = cj.DistanceKernel(cj.EmbeddingDistance(nowhere))


def each(*parameters):
    return [np.array([x]) for x in parameters]


FACTOR = np.array([[1.0, 0.0], [0.6, 0.5]])
LAWS = {
    "normal": lambda: (cj.Normal(*each(0.5, 1.3)), of_law(stats.norm(0.5, 1.3))),
    "laplace": lambda: (cj.Laplace(*each(0.5, 1.3)), laplace_rule(0.5, 1.3)),
    "student_t": lambda: (cj.StudentT(*each(2.5, 0.5, 1.3)), of_law(stats.t(2.5, 0.5, 1.3))),
    "gamma": lambda: (cj.Gamma(*each(3.0, 2.0)), of_law(stats.gamma(3.0, scale=0.5))),
    "weibull": lambda: (cj.Weibull(*each(2.5, 2.0)), of_law(stats.weibull_min(2.5, scale=2.0))),
    "log_normal": lambda: (
        cj.LogNormal(*each(0.3, 0.6)),
        of_law(stats.lognorm(0.6, scale=np.exp(0.3))),
    ),
    "mixture": lambda: (
        cj.Mixture(
            np.array([[0.3, 0.7]]), cj.Normal(np.array([[-1.0, 1.5]]), np.array([[0.5, 1.0]]))
        ),
        mixture_rule(),
    ),
    "full": lambda: (
        cj.MultivariateNormalFullCovariance(np.array([[0.3, -0.2]]), (FACTOR @ FACTOR.T)[None]),
        product_rule(np.array([0.3, -0.2]), FACTOR),
    ),
    "quartic": lambda: (cj.Unnormalized(quartic, np.array([0.7])), quartic_rule(0.7)),
    "bent": lambda: (cj.Unnormalized.from_log_density(bent, np.array([0.4])), bent_rule(0.4)),
}


@pytest.mark.parametrize(
    ("name", "base"),
    [
        *((name, "gaussian") for name in LAWS),
        pytest.param("student_t", "function", marks=pytest.mark.slow),
        pytest.param("full", "no function of the difference", marks=pytest.mark.slow),
    ],
)
def test_stein_identity(name, base, float64):
    """E S((p, Y), (p, z)) = 0 for Y ~ p, at any z."""
    predictions, (nodes, weights) = LAWS[name]()
    kernel, p = cast((cj.SteinKernel(ALWAYS, BASES[base](2)[0]), predictions))
    mean = weights @ nodes
    deviation = np.sqrt(weights @ (nodes - mean) ** 2)
    others = jnp.array([mean - 0.6 * deviation, mean + 0.7 * deviation])

    @jax.jit
    def values(nodes):
        return jax.vmap(lambda y: jax.vmap(lambda z: kernel((p[0], y), (p[0], z)))(others))(nodes)

    found = np.array(values(jnp.array(nodes)))
    size = weights @ np.abs(found)
    assert np.all(size > 0.05)
    np.testing.assert_allclose(weights @ found / size, 0, atol=1e-10)
    # If Y is closer to 0 than p says, then the mean is not 0.
    assert np.max(np.abs(weights @ np.array(values(jnp.array(0.9 * nodes)))) / size) > 0.01


# What has no Stein identity is refused, and the identity is indeed wrong there.

ROUGH = {
    "laplacian": (cj.LaplacianKernel(1.0), "LaplacianKernel"),
    "white": (cj.WhiteKernel(), "WhiteKernel"),
    "in a sum": (cj.GaussianKernel(1.0) + cj.LaplacianKernel(1.0), "LaplacianKernel"),
    "in a product": (cj.WhiteKernel() * cj.GaussianKernel(1.0), "WhiteKernel"),
    "in a multiple of a sum": (
        2.0 * (cj.GaussianKernel(1.0) + 0.5 * cj.WhiteKernel()),
        "WhiteKernel",
    ),
}


@pytest.mark.parametrize("case", ROUGH)
def test_rough_target_kernels_are_refused(case):
    base, name = ROUGH[case]
    message = f"target_kernel of SteinKernel must be twice differentiable.*got {name}"
    check_message(lambda: cj.SteinKernel(ALWAYS, base), TypeError, message)


STEIN = cj.SteinKernel(ALWAYS, cj.GaussianKernel(1.0))
FAMILIES_WITHOUT = {
    "bernoulli": (TypeError, "Bernoulli predictions have no score: their targets are not real"),
    "categorical": (TypeError, "Categorical predictions have no score"),
    "poisson": (TypeError, "Poisson predictions have no score"),
    "ensemble": (TypeError, "Mixture predictions have no score"),
    "empirical": (TypeError, "Empirical predictions have no"),
    "empirical_vectors": (TypeError, "Empirical predictions have no"),
    "quantiles": (ValueError, "predictions must have a continuous density.*row 0"),
}


@pytest.mark.parametrize("family", FAMILIES_WITHOUT)
def test_families_without_a_stein_identity_are_refused(family):
    predictions, targets = cast(FAMILIES[family](4, 0), "float32")
    check_message(lambda: cj.skce(STEIN, predictions, targets), *FAMILIES_WITHOUT[family])


def numbers(*values):
    return jnp.array(values)


# Row 1 of each has a density that is not 0 at an end of its support, or a score whose square has no
# mean.
ENDS = {
    "gamma": lambda: cj.Gamma(numbers(2.1, 1.0, 3.0), jnp.ones(3)),
    "gamma, no variance": lambda: cj.Gamma(numbers(2.1, 2.0, 3.0), jnp.ones(3)),
    "weibull": lambda: cj.Weibull(numbers(3.0, 0.7, 3.0), jnp.ones(3)),
    "weibull, no variance": lambda: cj.Weibull(numbers(3.0, 2.0, 3.0), jnp.ones(3)),
    "mixture": lambda: cj.Mixture(
        jnp.full((3, 2), 0.5),
        cj.Gamma(numbers(2.1, 3.0, 4.0, 1.0, 2.1, 2.1).reshape(3, 2), jnp.ones((3, 2))),
    ),
}


@pytest.mark.parametrize("case", slow(ENDS.keys() - {"gamma"}, ENDS))
def test_densities_that_do_not_vanish_at_an_end(case):
    predictions, targets = ENDS[case](), numbers(0.2, 0.4, 0.6)
    rows = predictions, targets
    message = "predictions must have .* for a SteinKernel; row 1 does not"
    skce = jax.jit(cj.skce)
    check_message(lambda: cj.skce(2.0 * STEIN + STEIN, *rows), ValueError, message)
    check_message(lambda: cj.h_matrix(STEIN, *rows), ValueError, message)
    assert jnp.isnan(skce(STEIN, *rows, where=jnp.ones(3, bool)))
    # A masked row may be anything.
    where = numbers(True, False, True)
    value = skce(STEIN, *rows, where=where)
    assert jnp.isfinite(value)
    np.testing.assert_allclose(cj.skce(STEIN, *rows, where=where), value, rtol=1e-6)


def test_the_identity_is_wrong_if_the_density_does_not_vanish(float64):
    # For an exponential law, whose density is 1 at 0, E (s(Y) + d/dY) l(Y, z) = -l(0, z).
    nodes, weights = of_law(stats.gamma(1.0))
    model = cj.Unnormalized(lambda theta, y: -theta, jnp.ones(1))
    z, base = 0.8, cj.GaussianKernel(1.0)
    kernel = cj.SteinKernel(ALWAYS, base)
    of_first = jax.vmap(lambda y: kernel((model[0], y), (model[0], jnp.array(z))))
    values = jax.jit(of_first)(jnp.array(nodes))
    # (s(z) + d/dz) of this.
    expected = -np.exp(-(z**2) / 2) * (-1 - z)
    np.testing.assert_allclose(weights @ np.array(values), expected, rtol=1e-6)


def test_a_far_target_counts_for_its_own_row_alone():
    kernel = cj.SteinKernel(cj.DistanceKernel(cj.Wasserstein()), cj.GaussianKernel(1.0))
    predictions = cj.Normal(jnp.zeros(4), jnp.ones(4))
    value = cj.skce(kernel, predictions, jnp.array([0.0, 1.0, -1.0, 1e25]))
    near = cj.skce(kernel, predictions[:3], jnp.array([0.0, 1.0, -1.0]))
    np.testing.assert_allclose(value, near / 2, rtol=1e-6)
