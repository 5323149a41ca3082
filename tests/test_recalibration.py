"""Tempering against powers by quadrature, fitted temperatures against SciPy and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow
from messages import calls, check_message
from scipy import stats
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

import calibjax as cj
from calibjax import apply_temperature, fit_temperature

Partial = jax.tree_util.Partial
N = 1500


def _rng(seed=0):
    return np.random.default_rng(seed)


def _probs(n, m=4):
    return np.exp(log_softmax(2 * _rng().normal(size=(n, m)), axis=1))


def _loc(*shape):
    return _rng(1).normal(size=shape)


def _scale(*shape):
    return _rng(2).uniform(0.3, 2.0, shape)


def _covariances(n, d=2):
    factor = _rng(3).normal(size=(n, d, d))
    return factor @ np.swapaxes(factor, 1, 2) + 0.2 * np.eye(d)


# Batches of n predictions, and their log densities at a temperature, in NumPy.
FAMILIES = {
    "categorical": lambda n: cj.Categorical(_probs(n)),
    "bernoulli": lambda n: cj.Bernoulli(_probs(n, 2)[:, 1]),
    "normal": lambda n: cj.Normal(_loc(n), _scale(n)),
    "laplace": lambda n: cj.Laplace(_loc(n), _scale(n)),
    "diag": lambda n: cj.MultivariateNormalDiag(_loc(n, 2), _scale(n, 2)),
    "full": lambda n: cj.MultivariateNormalFullCovariance(_loc(n, 2), _covariances(n)),
}


def _label_log_prob(probs, y, t):
    return log_softmax(np.log(probs) / t, axis=1)[np.arange(len(y)), y]


def _normal_log_prob(loc, covariance, y, t):
    z = np.einsum("nij,nj->ni", np.linalg.inv(np.linalg.cholesky(covariance)), y - loc)
    sign, logdet = np.linalg.slogdet(2 * np.pi * t * covariance)
    return -(np.sum(z**2, axis=1) / t + logdet) / 2


LOG_PROB = {
    "categorical": lambda p, y, t: _label_log_prob(p.probs, y, t),
    "bernoulli": lambda p, y, t: _label_log_prob(np.stack([1 - p.probs, p.probs], 1), y, t),
    "normal": lambda p, y, t: stats.norm.logpdf(y, p.loc, p.scale * np.sqrt(t)),
    "laplace": lambda p, y, t: stats.laplace.logpdf(y, p.loc, p.scale * t),
    "diag": lambda p, y, t: np.sum(stats.norm.logpdf(y, p.loc, p.scale_diag * np.sqrt(t)), axis=1),
    "full": lambda p, y, t: _normal_log_prob(p.loc, p.covariance_matrix, y, t),
}

# The same code for both kinds of labels, and for all families with a location and a scale.
SLOW = {"bernoulli", "laplace", "diag", "full"}
everywhere = pytest.mark.parametrize("family", slow(SLOW, FAMILIES))


def cast(predictions, dtype):
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), predictions)


def assert_close(actual, expected, rtol, atol=0.0):
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(e), rtol=rtol, atol=atol)


# apply_temperature


def _quadrature(family):
    """Points that stand for all targets, and the volume of each."""
    if family in ("categorical", "bernoulli"):
        return np.arange(4 if family == "categorical" else 2), 1.0
    if family in ("normal", "laplace"):
        return np.linspace(-150, 150, 300_001), 1e-3
    axis = np.linspace(-45, 45, 721)
    return np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2), 0.125**2


@pytest.mark.parametrize("temperature", [0.4, 3.0])
@everywhere
def test_is_the_power_of_the_density_normalised_by_quadrature(family, temperature, float64):
    points, volume = _quadrature(family)

    @jax.jit
    def density(prediction):
        repeated = jax.tree.map(lambda x: jnp.repeat(x, len(points), axis=0), prediction)
        return jnp.exp(repeated.log_prob(jnp.asarray(points)))

    prediction = cast(FAMILIES[family](1), "float64")
    power = density(prediction) ** (1 / temperature)
    expected = power / (jnp.sum(power) * volume)
    assert_close(density(apply_temperature(prediction, temperature)), expected, 1e-6, 1e-12)


@everywhere
def test_one_is_the_identity_and_temperatures_multiply(family, dtype):
    predictions = cast(FAMILIES[family](20), dtype)
    rtol = 1e-5 if dtype == "float32" else 1e-13
    assert_close(apply_temperature(predictions, 1), predictions, rtol)
    twice = apply_temperature(apply_temperature(predictions, 2.0), 1.7)
    assert_close(twice, apply_temperature(predictions, jnp.asarray(3.4)), 5 * rtol)
    for old, new in zip(jax.tree.leaves(predictions), jax.tree.leaves(twice), strict=True):
        assert (old.shape, old.dtype) == (new.shape, new.dtype)


def test_keeps_decisions_and_means():
    probs = jnp.asarray(_probs(200), "float32")
    normal, laplace = (cast(FAMILIES[name](9), "float32") for name in ("normal", "laplace"))
    for temperature in 0.05, 30.0:
        tempered = apply_temperature(cj.Categorical(probs), temperature).probs
        assert_close(jnp.argmax(tempered, axis=1), jnp.argmax(probs, axis=1), 0)
        assert_close(apply_temperature(normal, temperature).mean(), normal.mean(), 0)
        assert_close(apply_temperature(laplace, temperature).mean(), laplace.mean(), 0)
        assert_close(
            apply_temperature(normal, temperature).variance(), temperature * normal.variance(), 1e-6
        )


def test_bernoulli_is_categorical():
    p = jnp.array([0.0, 1e-30, 0.3, 0.5, 0.999, 1.0])
    for temperature in 0.2, 5.0:
        both = apply_temperature(cj.Categorical(jnp.stack([1 - p, p], axis=1)), temperature).probs
        assert_close(apply_temperature(cj.Bernoulli(p), temperature).probs, both[:, 1], 0)


def test_mixture_is_tempered_by_components(float64):
    components = cj.Normal(jnp.asarray(_loc(5, 3)), jnp.asarray(_scale(5, 3)))
    weights = jnp.asarray(_rng().dirichlet(np.ones(3), 5))
    for mixture in cj.Mixture(weights, components), cj.Mixture.ensemble(components):
        tempered = apply_temperature(mixture, 4.0)
        assert_close(tempered.mean(), mixture.mean(), 1e-15)
        assert_close(tempered.components.scale, 2 * components.scale, 1e-15)
        assert jax.tree.structure(tempered) == jax.tree.structure(mixture)
    labels = cj.Mixture(weights[:2, :2], cj.Categorical(jnp.asarray(_probs(4)).reshape(2, 2, 4)))
    expected = apply_temperature(cj.Categorical(jnp.asarray(_probs(4))), 0.5).probs.reshape(2, 2, 4)
    assert_close(apply_temperature(labels, 0.5).components.probs, expected, 1e-15)


ROWS = [[0.2, 0.5, 0.3], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [1.0, 1e-30, 0.0], [1.0, 1e-42, 0.0]]


@jax.jit
def tempered_with_derivatives(probs, temperature):
    def tempered(probs, temperature):
        return apply_temperature(cj.Categorical(probs), temperature).probs

    arguments = probs, temperature
    jacobians = (jacobian(tempered, (0, 1))(*arguments) for jacobian in (jax.jacrev, jax.jacfwd))
    return tempered(*arguments), *jacobians


@pytest.mark.parametrize("temperature", [0.01, 1.0, 100.0])
@pytest.mark.slow
def test_derivatives_at_zero_and_in_saturated_rows(temperature):
    with jax.debug_nans(True):
        values, backwards, forwards = tempered_with_derivatives(
            jnp.array(ROWS), jnp.array(temperature)
        )
    assert_close(jnp.sum(values, axis=1), jnp.ones(5), 1e-6)
    assert_close(values[1], jnp.array([1.0, 0.0, 0.0]), 0)
    assert_close(values[2], jnp.array([0.5, 0.5, 0.0]), 1e-6)
    assert_close(backwards, forwards, 1e-5, 1e-6)
    by_probs, by_temperature = backwards
    assert jnp.all(jnp.isfinite(by_probs)) and jnp.all(jnp.isfinite(by_temperature))
    for row, column in zip(*np.nonzero(np.array(ROWS) < 1e-38), strict=True):
        assert values[row, column] == 0 and by_temperature[row, column] == 0
        assert jnp.all(by_probs[row, column] == 0) and jnp.all(by_probs[:, :, row, column] == 0)


def test_derivatives_are_those_of_differences(float64):
    probs, direction = jnp.asarray(_probs(6)), jnp.asarray(_rng(5).normal(size=(6, 4)))

    @jax.jit
    def moved(step):
        tempered = apply_temperature(
            cj.Categorical(probs + step * 1e-2 * probs * direction), 1.6 + step
        )
        return jnp.sum(direction * tempered.probs)

    step = 1e-5
    slope = (moved(step) - moved(-step)) / (2 * step)
    assert_close(jax.grad(moved)(0.0), slope, 1e-7)
    assert_close(jax.jvp(moved, (0.0,), (1.0,))[1], slope, 1e-7)


def test_sixteen_bits():
    probs = jax.nn.softmax(jnp.asarray(_loc(50, 100), "bfloat16"), axis=-1)
    tempered = apply_temperature(cj.Categorical(probs), 2.0).probs
    assert tempered.dtype == jnp.bfloat16
    wide = probs.astype("float32") ** 0.5
    assert_close(tempered.astype("float32"), wide / wide.sum(axis=1, keepdims=True), 5e-3)
    scale = jnp.ones(3, "float16")
    assert apply_temperature(cj.Normal(jnp.zeros(3), scale), 4.0).scale.dtype == jnp.float16


INVALID = {
    "categorical": lambda x: cj.Categorical(jnp.array([[0.2, 0.8], [x, 0.5]])),
    "bernoulli": lambda x: cj.Bernoulli(jnp.array([0.3, x])),
    "normal": lambda x: cj.Normal(jnp.zeros(2), jnp.array([1.0, x])),
    "laplace": lambda x: cj.Laplace(jnp.zeros(2), jnp.array([1.0, x])),
}


@pytest.mark.parametrize("value", slow({np.inf}, [np.nan, np.inf, -1.0]))
@pytest.mark.parametrize("family", INVALID)
def test_invalid_rows_stay_invalid_and_out_of_the_gradient(family, value):
    predictions = INVALID[family](value)

    def first(temperature):
        leaves = jax.tree.leaves(apply_temperature(predictions, temperature))
        return sum(jnp.sum(leaf[0]) ** 2 for leaf in leaves) + 0 * temperature

    assert np.isfinite(jax.jit(jax.grad(first))(2.0))
    tempered = apply_temperature(predictions, 2.0)
    for _, valid in tempered.constraints().values():
        assert valid[0]
    assert not all(valid[1] for _, valid in tempered.constraints().values())


def test_a_temperature_inside_jit_that_is_none():
    @jax.jit
    @jax.vmap
    def tempered(temperature):
        normal, classes = cj.Normal(jnp.zeros(2), jnp.ones(2)), cj.Bernoulli(jnp.array([0.2, 0.7]))
        scale = apply_temperature(normal, temperature).scale
        return scale, apply_temperature(classes, temperature).probs

    for values in tempered(jnp.array([-1.0, 0.0, np.nan, np.inf, 2.0])):
        assert jnp.all(jnp.isnan(values[:4])) and jnp.all(jnp.isfinite(values[4]))


UNIT = cj.Normal(jnp.zeros(2), jnp.ones(2))
FITTED = "Bernoulli, Categorical, Laplace, Mixture, .* to be tempered, got"

BAD = {
    TypeError: {
        "temperature.*got str": lambda: apply_temperature(UNIT, "hot"),
        "temperature.*dtype bool": lambda: apply_temperature(UNIT, True),
        f"{FITTED} Poisson, and a power of a Poisson distribution is not one": lambda: (
            apply_temperature(cj.Poisson(jnp.ones(2)), 2.0)
        ),
        f"{FITTED} Empirical, which has no density": lambda: fit_temperature(
            cj.Empirical(jnp.ones((2, 3))), jnp.ones(2)
        ),
        f"{FITTED} an array": lambda: apply_temperature(jnp.ones(2), 2.0),
        "objective must be a callable or None, got str": lambda: fit_temperature(
            UNIT, jnp.ones(2), objective="nll"
        ),
    },
    ValueError: {
        "positive and finite, got 0.0": lambda: apply_temperature(UNIT, 0.0),
        "positive and finite, got -2": lambda: apply_temperature(UNIT, -2),
        "finite, got inf": lambda: apply_temperature(UNIT, np.inf),
        r"temperature must be a scalar, got shape \[2\]": lambda: jax.jit(apply_temperature)(
            UNIT, jnp.ones(2)
        ),
        r"objective must return a scalar, got shape \[2\]": lambda: fit_temperature(
            UNIT, jnp.ones(2), objective=lambda p, y: p.scale
        ),
        "targets must be finite; row 1 is nan": lambda: fit_temperature(
            UNIT, jnp.array([1.0, np.nan])
        ),
    },
}


@pytest.mark.parametrize("case", calls(BAD))
def test_message(case):
    check_message(*case)


# fit_temperature


@pytest.mark.parametrize(
    ("family", "temperature"),
    [
        pytest.param(family, temperature, marks=[pytest.mark.slow] * (family in SLOW))
        for family, temperature in zip(FAMILIES, [0.4, 2, 5, 0.2, 3, 0.7], strict=True)
    ],
)
def test_recovers_a_temperature_and_agrees_with_scipy(family, temperature, key, float64):
    predictions = FAMILIES[family](N)
    targets = apply_temperature(predictions, temperature).sample(key)
    fitted = np.log(fit_temperature(predictions, targets))

    def nll(log_t):
        return -np.mean(LOG_PROB[family](predictions, np.asarray(targets), np.exp(log_t)))

    best = minimize_scalar(nll, bounds=(-4, 4), method="bounded", options={"xatol": 1e-10}).x
    assert_close(fitted, best, 0, 1e-6)
    step = 1e-3
    information = (nll(fitted + step) - 2 * nll(fitted) + nll(fitted - step)) / step**2
    assert abs(fitted - np.log(temperature)) < 4 / np.sqrt(N * information)


@pytest.mark.parametrize("family", ["normal", "laplace"])
def test_closed_forms(family, dtype, key):
    predictions = cast(FAMILIES[family](N), dtype)
    targets = apply_temperature(predictions, 3.0).sample(key)
    deviations = np.abs(np.asarray(targets, "float64") - predictions.loc) / predictions.scale
    expected = np.mean(deviations ** (2 if family == "normal" else 1))
    fitted = fit_temperature(predictions, targets)
    assert fitted.shape == () and fitted.dtype == dtype
    assert_close(fitted, expected, 1e-3 if dtype == "float32" else 1e-7)


def test_range_and_ties():
    right = jnp.array([[0.9, 0.05, 0.05], [0.2, 0.6, 0.2]])
    one_hot = jnp.eye(3, dtype="float32")[:2]
    labels = jnp.arange(2)
    assert_close(fit_temperature(cj.Categorical(right), labels), 0.01, 1e-6)
    assert_close(fit_temperature(cj.Categorical(right), labels[::-1]), 100.0, 1e-6)
    # Nothing changes them, and targets of probability 0 have it at all temperatures.
    assert fit_temperature(cj.Categorical(jnp.full((2, 3), 1 / 3)), labels) == 1
    assert fit_temperature(cj.Categorical(one_hot), labels) == 1
    assert fit_temperature(cj.Categorical(one_hot), labels[::-1]) == 1


def test_impossible_targets_are_left_out_and_improbable_ones_are_not(key):
    probs = jnp.asarray(_probs(N), "float32")
    labels = apply_temperature(cj.Categorical(probs), 0.5).sample(key)
    impossible = probs.at[:2].set(jnp.array([1.0, 0.0, 0.0, 0.0])), labels.at[:2].set(1)
    kept = jnp.arange(N) >= 2
    expected = fit_temperature(cj.Categorical(probs), labels, where=kept)
    assert_close(fit_temperature(cj.Categorical(impossible[0]), impossible[1]), expected, 1e-6)

    # 1e-25 to the power of 2 is 0 in float32, yet its logarithm is a number.
    probs = probs.at[0].set(jnp.array([1.0, 1e-25, 0.0, 0.0]))
    labels = labels.at[0].set(1)

    def nll(log_t):
        with np.errstate(divide="ignore"):
            return -np.mean(_label_log_prob(np.asarray(probs, "float64"), labels, np.exp(log_t)))

    best = np.exp(minimize_scalar(nll, bounds=(-4, 4), method="bounded").x)
    assert 0.4 < best < 0.6
    assert_close(fit_temperature(cj.Categorical(probs), labels), best, 2e-3)


def _excess(predictions, targets, where=None):
    """How far the mean square is from the mean variance."""
    squares = jnp.square(targets - predictions.loc) - predictions.variance()
    return jnp.square(jnp.mean(squares, where=where))


def test_masked_rows_do_not_exist(key):
    normal = cast(FAMILIES["normal"](20), "float32")
    targets = apply_temperature(normal, 2.0).sample(key)
    where = jnp.arange(20) % 3 > 0
    kept = jax.tree.map(lambda x: x[where], normal)
    padded = cj.Normal(normal.loc, jnp.where(where, normal.scale, jnp.nan))
    garbage = jnp.where(where, targets, jnp.inf)
    for objective in None, _excess:
        fitted = jax.jit(
            lambda *data, f=objective: fit_temperature(*data[:2], objective=f, where=data[2])
        )
        expected = fit_temperature(kept, targets[where], objective=objective)
        assert_close(fitted(padded, garbage, where), expected, 1e-3)
        # Inside jit a bad row that counts cannot be looked at; neither can rows be counted.
        assert jnp.isnan(fitted(padded, targets, where | True))
        assert jnp.isnan(fitted(padded, targets, jnp.arange(20) < 1))


def test_vmap_is_a_loop(key):
    normal = cast(FAMILIES["normal"](20), "float32")
    targets = apply_temperature(normal, 2.0).sample(key, (2,))
    together = jax.vmap(fit_temperature, (None, 0))(normal, targets)
    assert_close(together, jnp.stack([fit_temperature(normal, y) for y in targets]), 1e-3)


def test_calibration_error_as_the_objective(key, float64):
    predictions = cj.Categorical(jnp.asarray(_probs(200)))
    targets = apply_temperature(predictions, 2.5).sample(key)
    kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), 0.5), cj.WhiteKernel())

    @jax.jit
    def error(temperature):
        return cj.skce(kernel, apply_temperature(predictions, temperature), targets, unbiased=False)

    objective = Partial(cj.skce, kernel, unbiased=False)
    fitted = fit_temperature(predictions, targets, objective=objective)
    by_likelihood = fit_temperature(predictions, targets)
    assert error(fitted) < error(by_likelihood) < error(1.0)
    best = minimize_scalar(lambda u: float(error(np.exp(u))), bounds=(-4, 4), method="bounded")
    assert_close(fitted, np.exp(best.x), 1e-4)


def _log_temperature(predictions):
    return jnp.log(predictions.scale[0]) * 2


def _two_wells(tilt, predictions, targets):
    log_t = _log_temperature(predictions)
    return jnp.square(jnp.square(log_t) - 4) + tilt * log_t


def _kink(at, predictions, targets):
    return jnp.where(
        _log_temperature(predictions) > 4, jnp.nan, jnp.abs(_log_temperature(predictions) - at)
    )


def test_objectives_with_two_minima_with_kinks_and_without_values():
    def fitted(function, parameter):
        objective = Partial(function, jnp.asarray(parameter))
        return jnp.log(fit_temperature(UNIT, jnp.ones(2), objective=objective))

    for tilt in -0.5, 0.5:
        stationary = np.roots([4, 0, -16, tilt])
        lowest = stationary[np.argmin((stationary**2 - 4) ** 2 + tilt * stationary)]
        assert_close(fitted(_two_wells, tilt), lowest, 2e-3)
    assert_close(fitted(_kink, 1.2345), 1.2345, 1e-4)
    assert_close(fitted(_kink, 3.99), 3.99, 1e-4)
    assert jnp.isnan(fitted(_kink, np.nan))


def test_no_gradient_flows_through_the_fit():
    def fitted(scale, at):
        predictions = cj.Normal(jnp.zeros(2), scale)
        by_likelihood = fit_temperature(predictions, jnp.ones(2))
        return by_likelihood + fit_temperature(UNIT, jnp.ones(2), objective=Partial(_kink, at))

    value, gradients = jax.value_and_grad(fitted, (0, 1))(jnp.ones(2), 0.5)
    assert_close(value, 1 + np.exp(0.5), 1e-3)
    for gradient in gradients:
        assert jnp.all(gradient == 0)


@pytest.mark.parametrize("dtype", slow({"float64"}, ["float32", "float64"]))
def test_gradient_of_temper_where_it_has_decided(dtype, float64):
    # At T = 0 only the most likely class is left, which no change of T changes.
    probs = jnp.array([[0.7, 0.2, 0.1, 0.0], [0.4, 0.4, 0.2, 0.0]], dtype)

    def tempered(temperature):
        return cj.apply_temperature(cj.Categorical(probs), temperature).probs

    decided = [[1, 0, 0, 0], [0.5, 0.5, 0, 0]]
    derivatives = [jax.jit(kind(tempered)) for kind in (jax.jacfwd, jax.jacrev)]
    for temperature in np.array([1e-30, 1e-4], dtype):
        np.testing.assert_array_equal(tempered(temperature), decided)
        for derivative in derivatives:
            np.testing.assert_array_equal(derivative(temperature), np.zeros((2, 4)))
