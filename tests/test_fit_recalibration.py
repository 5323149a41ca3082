"""Fitted recalibrations against SciPy, scikit-learn and regression; transforms against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax
from sklearn.linear_model import LogisticRegression

import calibjax as cj
from calibjax._rows import as_data
from calibjax.recalibration import fit_recalibration_of_data

M = 3


def classes(n, seed):
    """Probabilities, and labels that another slope and other intercepts would predict."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, M))
    truth = softmax(logits * [0.5, 1.0, 0.7] + [1.0, -1.0, 0.0], axis=1)
    labels = (rng.uniform(size=(n, 1)) > np.cumsum(truth, axis=1)[:, :-1]).sum(axis=1)
    return softmax(logits, axis=1).astype(np.float32), labels


def vector_scaling_by_scipy(probs, labels):
    logs = np.log(probs.astype(float))

    def loss(x):
        return -log_softmax(x[:M] * logs + x[M:], axis=1)[np.arange(len(labels)), labels].mean()

    return minimize(loss, np.r_[np.ones(M), np.zeros(M)], method="BFGS", options={"gtol": 1e-8}).x


START = (jnp.ones(M), jnp.zeros(M))


def test_vector_scaling_by_scipy():
    probs, labels = classes(400, 0)
    expected = vector_scaling_by_scipy(probs, labels)
    slope, intercept = cj.fit_recalibration(
        cj.vector_scaling, START, cj.Categorical(jnp.array(probs)), labels
    )
    np.testing.assert_allclose(slope, expected[:M], atol=2e-4)
    np.testing.assert_allclose(
        intercept - intercept.mean(), expected[M:] - expected[M:].mean(), atol=2e-4
    )


def test_impossible_targets_are_left_out():
    """Probabilities of 0, and below float32's smallest normal number, have no part in the fit."""
    probs, labels = classes(400, 0)
    probs[0], labels[0] = [1, 0, 0], 2
    probs[1], labels[1] = [1, 0, 1e-40], 2
    probs[2], labels[2] = [1, 1e-40, 0], 0  # possible, and another class nearly is not
    expected = vector_scaling_by_scipy(np.maximum(probs[2:], 1e-30), labels[2:])
    predictions = cj.Categorical(jnp.array(probs))
    slope, intercept = cj.fit_recalibration(cj.vector_scaling, START, predictions, labels)
    np.testing.assert_allclose(slope, expected[:M], atol=2e-3)
    np.testing.assert_allclose(
        intercept - intercept.mean(), expected[M:] - expected[M:].mean(), atol=2e-3
    )
    scaled = cj.vector_scaling((slope, intercept), predictions)
    assert bool(jnp.all(scaled.constraints()["probs"][1]))


def test_rows_that_16_bits_rounded_count():
    """Their sums are not 1 within the tolerance of 32 bits, in which everything is computed."""
    probs, labels = classes(100, 0)
    rounded = jnp.asarray(probs, jnp.bfloat16)
    exact = np.asarray(rounded.astype(jnp.float32))
    assert np.abs(exact.sum(axis=1) - 1).max() > 1e-3
    assert bool(jnp.all(cj.Categorical(exact).constraints()["probs"][1]))
    assert not bool(jnp.any(cj.Categorical(probs * 1.003).constraints()["probs"][1]))
    predictions = cj.Categorical(rounded)
    slope, intercept = cj.fit_recalibration(cj.vector_scaling, START, predictions, labels)
    expected = vector_scaling_by_scipy(exact, labels)
    np.testing.assert_allclose(slope, expected[:M], atol=2e-3)
    np.testing.assert_allclose(
        intercept - intercept.mean(), expected[M:] - expected[M:].mean(), atol=2e-3
    )
    assert bool(jnp.isfinite(cj.fit_temperature(predictions, labels, objective=cj.mmce)))


def test_a_row_that_a_transform_makes_nan_is_not_left_out():
    predictions = cj.Normal(jnp.arange(4.0), jnp.ones(4))

    def shifted(shift, p):
        return cj.Normal(p.loc + shift + jnp.where(p.loc == 1, jnp.nan, 0.0), p.scale)

    assert np.isnan(cj.fit_recalibration(shifted, 0.0, predictions, jnp.arange(4.0) + 1))


def test_a_search_that_goes_on_for_ever_found_no_minimum():
    probs = jnp.array([0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9])
    found = [
        fit_recalibration_of_data(
            cj.vector_scaling, (1.0, 0.0), as_data(cj.Bernoulli(probs), jnp.array(labels))
        )[1]
        for labels in ([0, 0, 1, 0, 1, 0, 1, 1], [0, 0, 0, 0, 1, 1, 1, 1], [0] * 8)
    ]
    assert list(map(bool, found)) == [True, False, False]


@pytest.mark.slow
def test_vector_scaling_mends_what_a_temperature_cannot():
    predictions, labels = (lambda p, y: (cj.Categorical(jnp.array(p)), y))(*classes(400, 1))
    held_out, new_labels = (lambda p, y: (cj.Categorical(jnp.array(p)), y))(*classes(400, 2))
    temperature = cj.fit_temperature(predictions, labels)
    fitted = cj.fit_recalibration(cj.vector_scaling, START, predictions, labels)
    tempered = cj.temper(held_out, temperature)
    scaled = cj.vector_scaling(fitted, held_out)

    def nll(p):
        return float(jnp.mean(cj.log_score(p, new_labels)))

    assert nll(scaled) < nll(tempered) - 0.1
    frequencies = np.bincount(new_labels) / len(new_labels)
    errors = [np.abs(p.probs.mean(axis=0) - frequencies).max() for p in (scaled, tempered)]
    assert errors[0] < 0.05 < 0.1 < errors[1]


def events(n, seed):
    rng = np.random.default_rng(seed)
    logits = 3 * rng.normal(size=n)
    return logits, (rng.uniform(size=n) < expit(0.4 * logits - 1)).astype(int)


def test_platt_scaling_by_scikit_learn():
    logits, labels = events(500, 3)
    model = LogisticRegression(C=np.inf, tol=1e-10).fit(logits[:, None], labels)
    predictions = cj.Bernoulli(jnp.asarray(expit(logits), jnp.float32))
    slope, intercept = cj.fit_recalibration(cj.vector_scaling, (1.0, 0.0), predictions, labels)
    assert slope.dtype == jnp.float32
    np.testing.assert_allclose([slope, intercept], [model.coef_[0, 0], model.intercept_[0]], 1e-4)


# Units of the targets, and where the locations are in these units.
UNITS = np.array([[1.0, 0.0], [1e4, 0.0], [1e-4, 0.0], [1e3, 20.0]])


@pytest.mark.slow
def test_affine_scaling_of_a_normal_is_a_regression_in_any_units():
    rng = np.random.default_rng(4)
    unit, shift = UNITS.T[:, :, None]
    locs = (shift + rng.normal(size=(len(UNITS), 300))) * unit
    targets = unit + 0.5 * locs + 2 * unit * rng.normal(size=locs.shape)

    @jax.vmap
    def fit(loc, unit, targets):
        start = {"a": 0.0, "b": 1.0, "c": 0.0}
        predictions = cj.Normal(loc, jnp.broadcast_to(unit, loc.shape))
        return cj.fit_recalibration(
            lambda x, p: cj.affine_scaling((x["a"], x["b"], x["c"]), p), start, predictions, targets
        )

    as_float32 = (jnp.asarray(x, jnp.float32) for x in (locs, unit, targets))
    fitted = jax.tree.map(np.asarray, fit(*as_float32))
    for k, (u, _) in enumerate(UNITS):
        design = np.stack([np.ones(300), locs[k]], axis=1)
        (a, b), (squares,), *_ = np.linalg.lstsq(design, targets[k], rcond=None)
        expected = a / u, b, np.log(np.sqrt(squares / 300) / u)
        found = fitted["a"][k] / u, fitted["b"][k], fitted["c"][k]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_the_objective_decides_and_bad_rows_inside_jit_give_nan():
    rng = np.random.default_rng(5)
    loc = rng.normal(size=60).astype(np.float32)
    targets = 1 + 2 * loc + rng.standard_t(3, size=60).astype(np.float32)

    @jax.jit
    def fit(loc, targets, where):
        def objective(predictions, targets, where):
            return jnp.mean(jnp.square(predictions.mean() - targets), where=where)

        def shifted(parameters, predictions):
            return cj.affine_scaling((parameters[0], parameters[1], 0.0), predictions)

        predictions = cj.Laplace(loc, jnp.ones(60))
        start = jnp.array([0.0, 1.0])
        return cj.fit_recalibration(
            shifted, start, predictions, targets, objective=objective, where=where
        )

    kept = np.arange(60) < 50
    loc[55], targets[57] = np.nan, np.inf
    expected = np.polynomial.Polynomial.fit(loc[:50], targets[:50], 1).convert().coef
    np.testing.assert_allclose(fit(loc, targets, kept), expected, rtol=1e-4)
    assert np.all(np.isnan(fit(np.where(loc == loc[0], np.inf, loc), targets, kept)))
    assert np.all(np.isnan(fit(loc, targets, np.arange(60) < 1)))


@pytest.mark.slow
def test_certain_and_separable_rows():
    probs = jnp.array([0.0, 0.0, 1.0, 1.0, 0.3, 0.4, 0.6, 0.7])
    labels = jnp.array([0, 1, 1, 0, 0, 0, 1, 1])
    # Two certain predictions are wrong and left out, and the other decisions are all right.
    fitted = cj.fit_recalibration(cj.vector_scaling, (1.0, 0.0), cj.Bernoulli(probs), labels)
    assert np.all(np.isfinite(fitted)) and fitted[0] > 5
    scaled = cj.vector_scaling(fitted, cj.Bernoulli(probs)).probs
    np.testing.assert_array_equal(scaled[:4], probs[:4])
    assert np.all(np.where(labels[4:], scaled[4:], 1 - scaled[4:]) > 0.95)
    gradient = jax.grad(
        lambda x, p: jnp.sum(cj.vector_scaling(x, cj.Bernoulli(p)).probs ** 2), (0, 1)
    )((1.5, 0.5), probs)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(gradient))


@pytest.mark.slow
def test_affine_scaling_of_every_family_by_its_draws():
    """The cdf at a + b loc + exp(c) (y - loc) is the cdf at y before."""
    loc, scale = jnp.array([1.0, -2.0]), jnp.array([0.5, 3.0])
    parameters = 0.5, 2.0, 0.7
    targets = jnp.array([1.3, -4.0])
    moved = 0.5 + 2 * loc + np.exp(0.7) * (targets - loc)
    for family in (
        cj.Normal(loc, scale),
        cj.Laplace(loc, scale),
        cj.StudentT(jnp.array([3.0, 4.0]), loc, scale),
        cj.Mixture.ensemble(cj.Normal(loc[:, None], scale[:, None])),
    ):
        scaled = cj.affine_scaling(parameters, family)
        assert type(scaled) is type(family)
        np.testing.assert_allclose(scaled.cdf(moved), family.cdf(targets), rtol=1e-5)


def test_affine_scaling_of_vectors():
    loc = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    a, b, c = np.array([1.0, 2.0]), np.array([0.5, 3.0]), np.log([2.0, 3.0])
    covariance = np.array([[[2.0, 0.5], [0.5, 1.0]]] * 2)
    full = cj.MultivariateNormalFullCovariance(loc, covariance)
    full = cj.affine_scaling((a, b, c), full)
    diagonal = cj.affine_scaling((a, b, c), cj.MultivariateNormalDiag(loc, jnp.ones((2, 2))))
    np.testing.assert_allclose(full.loc, a + b * np.asarray(loc), rtol=1e-6)
    np.testing.assert_allclose(diagonal.loc, a + b * np.asarray(loc), rtol=1e-6)
    stretch = np.diag([2.0, 3.0])
    np.testing.assert_allclose(full.covariance_matrix[0], stretch @ covariance[0] @ stretch, 1e-6)
    np.testing.assert_allclose(diagonal.scale_diag[0], [2.0, 3.0], 1e-6)


UNIT = cj.Normal(jnp.zeros(3), jnp.ones(3))
WRONG = {
    "transform": (
        lambda: cj.fit_recalibration(None, 1.0, UNIT, jnp.ones(3)),
        "transform must be a callable, got NoneType",
    ),
    "result of transform": (
        lambda: cj.fit_recalibration(lambda x, p: x, 1.0, UNIT, jnp.ones(3)),
        "transform must return predictions, got",
    ),
    "objective": (
        lambda: cj.fit_recalibration(cj.affine_scaling, 1.0, UNIT, jnp.ones(3), objective="nll"),
        "objective must be a callable or None, got str",
    ),
    "parameters": (
        lambda: cj.fit_recalibration(cj.affine_scaling, ("a", 1.0, 0.0), UNIT, jnp.ones(3)),
        "parameters must hold numbers, got str",
    ),
    "no labels": (
        lambda: cj.vector_scaling((1.0, 0.0), UNIT),
        "predictions of labels, such as Categorical, got Normal",
    ),
    "no location": (
        lambda: cj.affine_scaling((0.0, 1.0, 0.0), cj.Poisson(jnp.ones(3))),
        "one of Laplace, Mixture, .*, which have a location and a scale, got Poisson",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_argument(case):
    call, words = WRONG[case]
    with pytest.raises(TypeError, match=words):
        call()


START_OF = {
    "vector scaling, a number": (cj.vector_scaling, 1.0, r"a pair .* \(1.0, jnp.zeros\(3\)\)"),
    "vector scaling, sizes": (cj.vector_scaling, (1.0, jnp.zeros(4)), r"got numbers .*\[4\]"),
    "Platt scaling": (cj.vector_scaling, (1.0, 0.0, 0.0), r"a pair .* \(1.0, 0.0\)"),
    "affine scaling": (cj.affine_scaling, (0.0, 1.0), r"three numbers .*\(0.0, 1.0, 0.0\)"),
}


@pytest.mark.parametrize("case", START_OF)
def test_errors_say_where_a_search_starts(case):
    transform, start, words = START_OF[case]
    predictions: object = cj.Categorical(jnp.full((6, M), 1 / M))
    if "Platt" in case:
        predictions = cj.Bernoulli(jnp.full(6, 0.5))
    if "affine" in case:
        predictions = cj.Normal(jnp.zeros(6), 1.0)
    with pytest.raises(ValueError, match="parameters must be .*" + words):
        cj.fit_recalibration(transform, start, predictions, jnp.zeros(6, jnp.int32))


def test_no_slope_at_the_start_is_no_fit():
    """A point from which no step leads anywhere is not given back as the best one."""
    predictions, targets = cj.Normal(jnp.zeros(8), 1.0), jnp.ones(8)

    def objective(predictions, targets):
        return jnp.sqrt(jnp.abs(predictions.loc[0] - 1e-3))

    found = cj.fit_recalibration(
        cj.affine_scaling, (1e-3, 1.0, 0.0), predictions, targets, objective=objective
    )
    assert jnp.isnan(found[0])
