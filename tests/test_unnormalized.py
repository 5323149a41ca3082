"""Models known by their score: `skce` with a SteinKernel is a double loop in NumPy, anyhow."""

import copy
import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import SCORED, cast
from jax.flatten_util import ravel_pytree
from marks import slow
from messages import calls, check_message

import calibjax as cj

N = 12
POINTS = np.array([[0.0, 0.5], [1.0, -1.0], [-1.0, 1.0]])


def cubic(p, y):
    """The score of exp(-sum_c (y_c - loc_c)^4 / 4 - w |y - loc|^2 / 2), up to a constant."""
    difference = y - p["loc"]
    return -(difference**3) - p["net"]["w"] * difference


def log_cubic(p, y):
    difference = y - p["loc"]
    squares = jnp.sum(jnp.square(difference))
    return 3.0 - jnp.sum(difference**4) / 4 - p["net"]["w"] * squares / 2


def draw(key, p):
    """Any law will do: this one is normal."""
    return p["loc"] + jax.random.normal(key, p["loc"].shape, p["loc"].dtype)


def batch(n=N, seed=0):
    rng = np.random.default_rng(seed)
    parameters = {"loc": rng.normal(size=(n, 2)), "net": {"w": rng.uniform(0.5, 2.0, n)}}
    return parameters, rng.normal(size=(n, 2))


def kernel_of(lengthscale=0.9, target_kernel=cj.GaussianKernel):
    between = cj.DistanceKernel(cj.FisherDistance(POINTS), 3.0)
    return cj.SteinKernel(between, target_kernel(lengthscale))


def loop_matrix(parameters, targets, lengthscale=0.9):
    """h of all pairs, one by one."""
    n = len(targets)
    loc, w = parameters["loc"], parameters["net"]["w"]

    def score(i, y):
        return -((y - loc[i]) ** 3) - w[i] * (y - loc[i])

    h = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            y, z = targets[i], targets[j]
            s, t = score(i, y), score(j, z)
            u = (y - z) / lengthscale**2
            # The gradient in z is u l, and in y it is -u l.
            terms = s @ t + s @ u - t @ u + 2 / lengthscale**2 - u @ u
            value = np.exp(-np.sum((y - z) ** 2) / (2 * lengthscale**2)) * terms
            squares = [np.sum((score(i, x) - score(j, x)) ** 2) for x in POINTS]
            h[i, j] = np.exp(-np.sqrt(np.mean(squares)) / 3.0) * value
    return h


def mean_of(h, unbiased, keep=None):
    h = h if keep is None else h[np.ix_(keep, keep)]
    return np.mean(h[~np.eye(len(h), dtype=bool)] if unbiased else h)


FORMS = {
    "score": lambda p: cj.Unnormalized(cubic, p),
    "log density": lambda p: cj.Unnormalized.from_log_density(log_cubic, p),
}


@pytest.mark.parametrize("form", slow({"log density"}, FORMS))
def test_skce_is_a_double_loop(form, float64):
    parameters, targets = batch()
    h = loop_matrix(parameters, targets)
    kernel, p, y = cast((kernel_of(), parameters, targets))
    model = FORMS[form](p)
    found = cj.skce(kernel, model, y)
    np.testing.assert_allclose(found, mean_of(h, True), rtol=1e-12)
    np.testing.assert_allclose(jax.jit(cj.skce)(kernel, model, y), found, rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_every_way_to_sum(form, float64):
    parameters, targets = batch()
    h = loop_matrix(parameters, targets)
    kernel, p, y = cast((kernel_of(), parameters, targets))
    data = FORMS[form](p), y
    np.testing.assert_allclose(cj.h_matrix(kernel, *data), h, rtol=1e-12, atol=1e-13)
    biased = cj.skce(kernel, *data, unbiased=False)
    np.testing.assert_allclose(biased, mean_of(h, False), rtol=1e-12)
    blocks = [h[i : i + 4, i : i + 4] for i in range(0, N, 4)]
    means = np.array([mean_of(block, True) for block in blocks])
    of_blocks = cj.skce(kernel, *data, block_size=4)
    np.testing.assert_allclose(of_blocks, means.mean(), rtol=1e-12)
    state = cj.SKCEState.empty(4)
    state = state.update(kernel, data[0][:8], y[:8]).update(kernel, data[0][8:], y[8:])
    found = state.compute()
    np.testing.assert_allclose(found.estimate, means.mean(), rtol=1e-12)
    error = means.std(ddof=1) / np.sqrt(3)
    np.testing.assert_allclose(found.standard_error, error, rtol=1e-12)
    weights = np.random.default_rng(1).uniform(0, 2, N)
    products = np.outer(weights, weights) * ~np.eye(N, dtype=bool)
    value = cj.skce(kernel, *data, weights=jnp.array(weights))
    np.testing.assert_allclose(value, np.sum(products * h) / np.sum(products), rtol=1e-12)
    witness = cj.witness(kernel, *data, *data)
    np.testing.assert_allclose(witness, h.mean(0), rtol=1e-12, atol=1e-14)
    result = cj.asymptotic_skce_test(jax.random.key(0), kernel, *data, n_resamples=19)
    np.testing.assert_allclose(result.estimate, mean_of(h, True), rtol=1e-12)


def test_masked_rows_may_hold_anything(float64):
    parameters, targets = batch()
    keep = np.arange(N) % 4 > 0
    expected = mean_of(loop_matrix(parameters, targets), True, keep)
    for rows in (parameters["loc"], parameters["net"]["w"], targets):
        rows[~keep] = np.nan
    kernel, p, y = cast((kernel_of(), parameters, targets))

    @jax.jit
    def value_and_gradients(kernel, p):
        model = cj.Unnormalized(cubic, p)
        return cj.skce(kernel, model, y, where=jnp.array(keep))

    value, (of_kernel, of_parameters) = jax.value_and_grad(value_and_gradients, (0, 1))(kernel, p)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    assert np.isfinite(of_kernel.target_kernel.lengthscale)
    for leaf in jax.tree.leaves(of_parameters):
        assert np.all(np.isfinite(leaf)) and np.all(leaf[keep] != 0)
        np.testing.assert_array_equal(leaf[~keep], 0)


@pytest.mark.parametrize(
    "target_kernel", slow({cj.Matern52Kernel}, [cj.GaussianKernel, cj.Matern52Kernel])
)
def test_gradients_against_differences(target_kernel, float64):
    parameters, y = cast(batch())
    lengthscale = jnp.array(0.9)

    @jax.jit
    @jax.value_and_grad
    def loss(arguments):
        lengthscale, points, parameters = arguments
        between = cj.DistanceKernel(cj.FisherDistance(points), 3.0)
        kernel = cj.SteinKernel(between, target_kernel(lengthscale))
        return cj.skce(kernel, cj.Unnormalized(cubic, parameters), y)

    arguments = lengthscale, jnp.array(POINTS), parameters
    flat, rebuild = ravel_pytree(arguments)
    rng = np.random.default_rng(0)
    gradient = ravel_pytree(loss(arguments)[1])[0]
    for direction in (np.eye(flat.size)[0], rng.normal(size=flat.size), rng.normal(size=flat.size)):
        ends = [loss(rebuild(flat + step * direction))[0] for step in (1e-5, -1e-5)]
        slope = (ends[0] - ends[1]) / 2e-5
        np.testing.assert_allclose(gradient @ direction, slope, rtol=1e-7)


@pytest.mark.slow
def test_gradient_in_the_weights_of_a_network(float64):
    # Scores at the targets are parameters, so that the weights are differentiated.
    rng = np.random.default_rng(0)
    inputs, targets, weights = cast((rng.normal(size=N), rng.normal(size=N), rng.normal(size=3)))

    def network(weights, x, y):
        return jnp.tanh(weights[0] * x + weights[1]) - weights[2] * y

    @jax.jit
    def loss(weights):
        scores = jax.vmap(functools.partial(network, weights))(inputs, targets)
        model = cj.Unnormalized(lambda p, y: p["score"], {"score": scores, "x": inputs})
        between = cj.DistanceKernel(cj.EmbeddingDistance(lambda p: p.parameters["x"]))
        return cj.skce(cj.SteinKernel(between, cj.GaussianKernel(0.8)), model, targets)

    def direct(weights):
        """With the network in the closure."""
        model = cj.Unnormalized(lambda p, y: network(weights, p["x"], y), {"x": inputs})
        between = cj.DistanceKernel(cj.EmbeddingDistance(lambda p: p.parameters["x"]))
        return cj.skce(cj.SteinKernel(between, cj.GaussianKernel(0.8)), model, targets)

    np.testing.assert_allclose(loss(weights), direct(weights), rtol=1e-13)
    gradient = jax.grad(loss)(weights)
    for c, step in enumerate(1e-5 * np.eye(3)):
        slope = (direct(weights + step) - direct(weights - step)) / 2e-5
        np.testing.assert_allclose(gradient[c], slope, rtol=1e-7)


@pytest.mark.slow
def test_single_precision():
    parameters, targets = batch()
    expected = mean_of(loop_matrix(parameters, targets), True)
    kernel, p, y = cast((kernel_of(), parameters, targets), "float32")
    value = cj.skce(kernel, cj.Unnormalized(cubic, p), y)
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, expected, rtol=1e-5)


# As a container.


def test_rows_and_words():
    parameters, _ = cast(batch(), "float32")
    model = cj.Unnormalized(cubic, parameters, draw)
    assert len(model) == N
    some = model[3:7]
    assert len(some) == 4 and type(some) is cj.Unnormalized
    np.testing.assert_array_equal(some.parameters["net"]["w"], parameters["net"]["w"][3:7])
    np.testing.assert_array_equal(model[-1].parameters["loc"], parameters["loc"][-1])
    with pytest.raises(IndexError, match="between -12 and 11, got 12"):
        model[12]
    for words in (repr(model), model._repr_html_()):
        assert "Unnormalized" in words and "12" in words and "float32" in words
    # One prediction, and one inside of a trace, have words as well.
    assert "Unnormalized" in repr(model[0])
    jax.eval_shape(lambda p: [repr(p), jnp.zeros(())][1], model)
    leaves, structure = jax.tree.flatten(model)
    again = jax.tree.unflatten(structure, leaves)
    assert again.parameters.keys() == parameters.keys() and again.sampler.func is draw
    assert jax.tree.structure(again) == structure == copy.deepcopy(structure)
    y = jnp.zeros((N, 2))
    np.testing.assert_array_equal(again.score(y), model.score(y))
    assert jax.tree.map(lambda x: x, model).score_function.func is cubic


def test_draws(key):
    parameters, _ = cast(batch(), "float32")
    model = cj.Unnormalized(cubic, parameters, draw)
    draws = np.array(model.sample(key, (400,)))
    assert draws.shape == (400, N, 2) and model.sample(key).shape == (N, 2)
    errors = (draws.mean(0) - parameters["loc"]) * 20
    assert np.max(np.abs(errors)) < 5
    # Each draw has a key of its own.
    assert len(np.unique(draws - np.array(parameters["loc"]))) > 0.99 * draws.size
    without = cj.Unnormalized(cubic, parameters)
    for what in (without.sample, lambda key: without.mean(), lambda key: without.variance()):
        check_message(lambda what=what: what(key), TypeError, "sampler")


# What shares a compilation.


def made_with(weights):
    return lambda theta, y: weights * (theta - y)


LOCS = jnp.linspace(-1.0, 1.0, N)


def locations(p):
    return p.parameters


def test_a_function_is_compiled_once(caplog):
    between = cj.DistanceKernel(cj.EmbeddingDistance(locations))
    kernel = cj.SteinKernel(between, cj.GaussianKernel(1.0))

    def skce_with(function):
        return cj.skce(kernel, cj.Unnormalized(function, LOCS), jnp.cos(LOCS))

    function = made_with(jnp.array(2.0))
    first = skce_with(function)
    with jax.log_compiles(), warnings.catch_warnings():
        again = skce_with(function)
        assert "Compiling" not in caplog.text
        # What another closure holds is seen: it is another function.
        other = skce_with(made_with(jnp.array(3.0)))
        assert "Compiling" in caplog.text
    assert again == first != other


def test_a_log_density_is_one_function():
    def structure():
        model = cj.Unnormalized.from_log_density(log_cubic, LOCS)
        return jax.tree.structure(model)

    assert structure() == structure()


# Mistakes.

Y = jnp.zeros((3, 2))
LOC = jnp.ones((3, 2))
ALWAYS = cj.DistanceKernel(cj.EmbeddingDistance(lambda p: jnp.zeros(())))
STEIN = cj.SteinKernel(ALWAYS, cj.GaussianKernel(1.0))


def linear(loc, y):
    return loc - y


def skce_of(score_function, parameters=LOC, targets=Y, kernel=STEIN, **options):
    return cj.skce(kernel, cj.Unnormalized(score_function, parameters, **options), targets)


class Network:
    def __init__(self):
        self.weights = 2.0

    def __call__(self, loc, y):
        return self.weights * (loc - y)


MISTAKES = {
    TypeError: {
        "score_function must be .*got float": lambda: skce_of(3.0),
        "score_function.*Network": lambda: skce_of(Network()),
        "sampler must be .*got int": lambda: skce_of(linear, sampler=2),
        "score_function returns must hold real": lambda: skce_of(
            lambda loc, y: jax.lax.complex(y, y)
        ),
        "score_function": lambda: skce_of(lambda loc, y: None),
        r"parameters\['b'\].*got str": lambda: skce_of(
            lambda p, y: p["a"] - y, {"a": LOC, "b": "name"}
        ),
        "sampler": lambda: cj.aggregated_skce_test(
            jax.random.key(0), [STEIN], cj.Unnormalized(linear, LOC), Y
        ),
        "what sampler returns must hold real values": lambda: skce_of(
            linear, sampler=lambda key, loc: jax.random.bernoulli(key, shape=(2,))
        ),
        "no log_prob": lambda: cj.Unnormalized(linear, LOC).log_prob(Y),
    },
    ValueError: {
        r"score_function must return .*shape of one target, \[2\], got shape \[\]": lambda: skce_of(
            lambda loc, y: jnp.sum(loc - y)
        ),
        r"score_function must return .*\[2\], got shape \[2, 2\]": lambda: skce_of(
            lambda loc, y: jnp.ones((2, 2))
        ),
        r"log_density must return a number.*\[2\]": lambda: cj.skce(
            STEIN, cj.Unnormalized.from_log_density(linear, LOC), Y
        ),
        "parameters must hold arrays": lambda: skce_of(linear, {}),
        r"parameters\['b'\] must have shape \[n, ...\] with n = 3.*\[4\]": lambda: skce_of(
            lambda p, y: p["a"] - y, {"a": LOC, "b": jnp.ones(4)}
        ),
        r"parameters\['b'\].*got shape \[\]": lambda: skce_of(
            lambda p, y: p["a"] - y, {"a": LOC, "b": jnp.array(1.0)}
        ),
        "parameters must be finite.*row 1": lambda: skce_of(linear, LOC.at[1, 0].set(jnp.nan)),
        "targets .*n = 3.*4": lambda: skce_of(linear, targets=jnp.zeros((4, 2))),
        r"a target must be a number or a vector, got shape \[2, 2\]": lambda: skce_of(
            lambda loc, y: -y, targets=jnp.zeros((3, 2, 2))
        ),
        r"sampler must return .*shape of one target, \[2\], got shape \[\]": lambda: (
            cj.aggregated_skce_test(
                jax.random.key(0),
                [STEIN],
                cj.Unnormalized(linear, LOC, lambda key, loc: jax.random.normal(key)),
                Y,
            )
        ),
    },
    NotImplementedError: {
        "Unnormalized": lambda: skce_of(
            linear, kernel=cj.TensorProduct(ALWAYS, cj.GaussianKernel(1.0))
        )
    },
}


@pytest.mark.parametrize("case", calls(MISTAKES))
def test_mistakes_are_named(case):
    check_message(*case)


def test_a_score_that_is_not_finite_gives_nan_inside_jit():
    model = cj.Unnormalized(lambda loc, y: jnp.log(y), LOC)
    y = jnp.array([[1.0, 1.0], [1.0, -1.0], [2.0, 3.0]])
    assert jnp.isnan(jax.jit(cj.skce)(STEIN, model, y))


@pytest.mark.slow
def test_draws_of_the_instance_have_its_density(key):
    # Stein's identity for three functions g: E (s(Y) g(Y) + g'(Y)) = 0.
    model, _ = cast(SCORED["unnormalized"](3, 0), "float32")
    draws = model.sample(key, (40_000,))
    scores = np.array(jax.vmap(model.score)(draws))
    centred = np.array(draws) - np.array(model.parameters["loc"])
    for values in (scores, scores * centred + 1, scores * centred**3 + 3 * centred**2):
        errors = np.mean(values, 0) / (np.std(values, 0) / 200)
        assert np.all(np.abs(errors) < 5)


@pytest.mark.slow
def test_default_kernels_and_masked_rows(key):
    model, targets = cast(SCORED["unnormalized"](20, 0), "float32")
    where = np.arange(20) % 4 > 0
    dirty = jax.tree.map(lambda x: x.at[~where].set(jnp.nan), (model, targets))
    kernel = cj.default_kernel(dirty[0], where=where)
    assert type(kernel) is cj.SteinKernel and len(cj.default_kernels(dirty[0], where=where)) == 8
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(kernel))
    kept = jax.tree.map(lambda x: x[where], (model, targets))
    found = cj.skce(kernel, *dirty, where=where)
    np.testing.assert_allclose(found, cj.skce(kernel, *kept), rtol=1e-5)
    result = cj.calibration_test(key, *dirty, where=where, n_resamples=19)
    assert 0.05 <= result.pvalue <= 1 and np.all(np.isfinite(result.null_distribution))
