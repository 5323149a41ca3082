"""Recalibrators of labels: fits beside SciPy and scikit-learn, odd data, files, and the choice."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from messages import calls, check_message
from scipy.interpolate import CubicSpline
from scipy.optimize import isotonic_regression, minimize, minimize_scalar
from scipy.special import expit, log_softmax, logsumexp, softmax
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

import calibjax as cj
from calibjax.recalibration import _probability_maps
from calibjax.recalibration._fit_recalibrator import OF_LABELS, candidates
from calibjax.recalibration._label_curves import of_curves, venn_abers
from calibjax.recalibration._penalised_regression import (
    Slopes,
    logistic_regression,
    natural_spline,
    smooth_basis,
)

N, M = 200, 3
BINARY = [name for name in OF_LABELS if name != "auto"]
MANY = [name for name in BINARY if name != "venn_abers"]


def _data(m=M, n=N, seed=0):
    """Logits of a model that is over-confident, and labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, m))
    labels = np.argmax(logits + rng.gumbel(size=(n, m)), axis=1)
    wrong = 2.0 * logits + 0.4 * rng.normal(size=m)
    return softmax(wrong, axis=1).astype(np.float32), labels


PROBS, LABELS = _data()
EVENT_PROBS, EVENTS = _data(2)
EVENT_PROBS = EVENT_PROBS[:, 1]


def fitted(method, **options):
    """What a method makes of the data with three classes."""
    recalibrator = cj.fit_recalibrator(cj.Categorical(PROBS), LABELS, method, **options)
    return np.asarray(recalibrator(cj.Categorical(PROBS)).probs, float)


def fitted_event(method):
    recalibrator = cj.fit_recalibrator(cj.Bernoulli(EVENT_PROBS), EVENTS, method)
    return np.asarray(recalibrator(cj.Bernoulli(EVENT_PROBS)).probs, float)


def mixed(q, n, m):
    """The last step of maps, as the docstring states it."""
    return (1 - 1 / (n + 1)) * q + 1 / ((n + 1) * m)


# Each objective as its formula stands in the docstring, minimised by SciPy without derivatives of
# ours.

LOGS = log_softmax(np.log(np.asarray(PROBS, float)), axis=1)


def _tempered(logs):
    found = minimize(
        lambda s: -np.mean(log_softmax(s * logs, axis=1)[np.arange(N), LABELS]), 1.0, tol=1e-12
    )
    return log_softmax(found.x * logs, axis=1)


def _linear(logs, unpack, size, penalty):
    """Probabilities at the minimum over numbers that `unpack` makes a matrix and biases of."""

    def loss(x):
        w, b = unpack(x)
        z = log_softmax(logs + logs @ w.T + b, axis=1)
        return -np.mean(z[np.arange(N), LABELS]) + penalty(w, b)

    found = minimize(loss, np.zeros(size), method="BFGS", options={"gtol": 1e-7})
    w, b = unpack(found.x)
    return mixed(softmax(logs + logs @ w.T + b, axis=1), N, M)


def _diagonal(x):
    return np.diag(x[:M]), x[M:]


def _full(x):
    return x[: M * M].reshape(M, M), x[M * M :]


def _sms_penalty(w, b):
    d = np.diag(w)
    return (M * (d @ d + b @ b) + M * (M - 1) * (np.sum(w**2) - d @ d)) / N


def _after_temperature():
    return np.log(mixed(np.exp(_tempered(LOGS)), N, M))


OBJECTIVES = {
    "temperature": lambda: mixed(np.exp(_tempered(LOGS)), N, M),
    "vector": lambda: _linear(LOGS, _diagonal, 2 * M, lambda w, b: 0.0),
    "svs": lambda: _linear(
        _after_temperature(), _diagonal, 2 * M, lambda w, b: M / N * (np.sum(w**2) + b @ b)
    ),
    "sms": lambda: _linear(_after_temperature(), _full, M * M + M, _sms_penalty),
}


@pytest.mark.parametrize("method", OBJECTIVES)
def test_scalings_are_at_the_minimum_that_scipy_finds(method):
    np.testing.assert_allclose(fitted(method), OBJECTIVES[method](), atol=2e-3)


def test_beta_is_a_logistic_regression_of_scikit_learn():
    p = np.asarray(EVENT_PROBS, float)
    features = np.stack([np.log(p), -np.log1p(-p)], axis=1)
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(features, EVENTS)
    assert np.all(model.coef_ > 0)
    expected = mixed(model.predict_proba(features)[:, 1], N, 2)
    np.testing.assert_allclose(fitted_event("beta"), expected, atol=2e-4)


def test_isotonic_is_that_of_scikit_learn():
    model = IsotonicRegression(out_of_bounds="clip").fit(EVENT_PROBS, EVENTS)
    expected = mixed(model.predict(EVENT_PROBS), N, 2)
    np.testing.assert_allclose(fitted_event("isotonic"), expected, atol=1e-5)


def test_venn_abers_by_isotonic_regressions_with_the_new_row():
    rng = np.random.default_rng(3)
    count = rng.integers(1, 4, 30)
    events = rng.binomial(count, np.linspace(0.1, 0.9, 30))

    def expected(place, among):
        found = []
        for label in (0, 1):
            e, c = events.astype(float), count.astype(float)
            if among:
                e[place] += label
                c[place] += 1
            else:
                e, c = np.insert(e, place, label), np.insert(c, place, 1.0)
            found.append(isotonic_regression(e / c, weights=c).x[place])
        return found[1] / (1 - found[0] + found[1])

    at, between = venn_abers(events.astype(float), count.astype(float))
    np.testing.assert_allclose(at, [expected(i, True) for i in range(30)], atol=1e-12)
    np.testing.assert_allclose(between, [expected(i, False) for i in range(31)], atol=1e-12)


KNOTS = np.array([-2.0, -1.1, -0.3, 0.2, 0.9, 1.0, 2.5, 3.0])


def test_natural_spline_is_that_of_scipy_and_straight_beyond():
    values, curvatures = smooth_basis(KNOTS)
    inside, beyond = np.linspace(-2, 3, 101), np.array([-4.0, -3.0, 4.0, 7.0])
    spline = CubicSpline(KNOTS, values, bc_type="natural")
    found = natural_spline(np, inside, KNOTS, values, curvatures)
    np.testing.assert_allclose(found, spline(inside), atol=1e-10)
    ends = np.where(beyond < 0, -2.0, 3.0)
    straight = spline(ends) + (beyond - ends)[:, None] * spline(ends, 1)
    found = natural_spline(np, beyond, KNOTS, values, curvatures)
    np.testing.assert_allclose(found, straight, atol=1e-10)


def test_roughness_of_the_basis_by_quadrature():
    values, _ = smooth_basis(KNOTS)
    second = CubicSpline(KNOTS, values, bc_type="natural").derivative(2)
    points, weights = np.polynomial.legendre.leggauss(4)
    total = np.zeros((8, 8))
    for low, high in zip(KNOTS[:-1], KNOTS[1:], strict=True):
        f = second((low + high) / 2 + (high - low) / 2 * points)
        total += (high - low) / 2 * f.T @ (weights[:, None] * f)
    np.testing.assert_allclose(total, np.diag([0, 0, *[1] * 6]), atol=1e-8)


def test_losses_of_rows_left_out_are_near_those_of_refits():
    rng = np.random.default_rng(5)
    features = np.stack([np.ones(60), rng.normal(size=60)], axis=1)
    happened = rng.random(60) < expit(features[:, 1])
    penalty, weights = np.array([0.0, 0.05]), np.ones(60)
    fit = logistic_regression(features, happened, weights, penalty)
    exact = []
    for i in range(60):
        keep = np.arange(60) != i
        t = logistic_regression(features[keep], happened[keep], weights[keep], penalty).numbers
        exact.append(np.logaddexp(0, -(1 if happened[i] else -1) * (features[i] @ t)))
    np.testing.assert_allclose(fit.left_out, exact, rtol=0.02, atol=2e-3)
    # And parts of the rows, by scikit-learn, whose penalty is 1 / (2 C) of the sum of losses.
    part, signs = np.arange(60) % 5, np.where(happened, -1, 1)
    fit = logistic_regression(features, happened, weights, np.full(2, 0.05), part=part)
    exact = np.zeros(60)
    for k in range(5):
        keep = part != k
        model = LogisticRegression(C=1 / (2 * 0.05 * 60), fit_intercept=False, tol=1e-10)
        t = model.fit(features[keep], happened[keep]).coef_[0]
        exact[~keep] = np.logaddexp(0, signs[~keep] * (features[~keep] @ t))
    np.testing.assert_allclose(fit.left_out, exact, rtol=0.02, atol=2e-3)


def test_losses_of_rows_of_several_events_that_are_left_out():
    rng = np.random.default_rng(5)
    features, x = (rng.random((60, 3)) < 0.5) * 1.0, rng.normal(size=(60, 4))
    happened, penalty = (rng.random((60, 4)) < expit(x)) * 1.0, np.full(6, 0.02)

    def fit(rows):
        slopes = Slopes(features[rows], x[rows])
        return logistic_regression(
            features[rows], happened[rows], np.ones(len(x[rows])), penalty, slopes=slopes
        )

    exact = []
    for i in range(60):
        t = fit(np.arange(60) != i).numbers
        logits = features[i] @ t[:3] + x[i] * (features[i] @ t[3:])
        exact.append(np.mean(np.logaddexp(0, logits) - happened[i] * logits))
    np.testing.assert_allclose(fit(slice(None)).left_out, exact, rtol=0.02, atol=2e-3)


def test_cells_of_many_rows_fit_the_maps_of_the_rows(monkeypatch):
    rng = np.random.default_rng(8)
    n = 6000
    logits = np.where(rng.random(n) < 0.1, np.inf, rng.normal(-2, 3, n))
    logits[:600] = np.repeat(logits[:6], 100)
    events = (rng.random(n) < np.minimum(expit(0.7 * logits + 0.4), 0.97)).astype(int)
    predictions = cj.Bernoulli(expit(logits).astype(np.float32))
    of_cells = cj.fit_recalibrator(predictions, events)
    monkeypatch.setattr(_probability_maps, "MOST_ROWS", n)
    of_rows = cj.fit_recalibrator(predictions, events)
    np.testing.assert_allclose(of_cells(predictions).probs, of_rows(predictions).probs, atol=2e-3)
    a, b = dict(of_cells.fit.losses), dict(of_rows.fit.losses)
    assert a.keys() == b.keys() and all(abs(a[name] - b[name]) < 1e-5 for name in a)
    assert of_cells.fit.description[-20:] == of_rows.fit.description[-20:]


def test_cells_keep_the_sums_of_their_rows():
    rng = np.random.default_rng(9)
    logits, weights, part = rng.normal(size=5000), rng.random(5000), rng.integers(0, 3, 5000)
    events = rng.integers(0, 2, 5000)
    cells = _probability_maps.cells_of(logits, events, weights, np.ones(5000), part)
    assert len(cells.logits) < 3000 and np.ptp(logits - cells.logits[cells.number]) < 0.02
    assert np.all(cells.part[cells.number] == part) and np.all(cells.events[cells.number] == events)
    for x, y in ((cells.logits, logits), (1 + cells.events, 1 + events)):
        assert cells.weights @ x == pytest.approx(weights @ y, rel=1e-12)
    assert np.sum(cells.weights**2 / cells.counts) == pytest.approx(weights @ weights, rel=1e-12)


def test_spline_finds_a_wave_that_no_line_has():
    rng = np.random.default_rng(6)
    logits = rng.uniform(-3, 3, 4000).astype(np.float32)
    truth = expit(logits + 1.5 * np.sin(2 * logits))
    events = (rng.random(4000) < truth).astype(int)
    predictions = cj.Bernoulli(expit(logits))
    spline = cj.fit_recalibrator(predictions, events, "spline")
    found = np.asarray(spline(predictions).probs)
    assert np.mean(np.abs(found - truth)) < 0.02  # a line is off by 0.1


def test_other_classes_keep_small_probabilities():
    probs = np.array([[1.0, 1e-12, 2e-12], [0.25, 0.25, 0.5]])
    np.testing.assert_allclose(
        of_curves(np, probs)[1], [[3e-12, 1 + 2e-12, 1 + 1e-12], [0.75, 0.75, 0.5]], rtol=1e-12
    )


# What may be wrong with data


def test_zeros_become_half_of_the_smallest_and_are_counted():
    probs = np.array([[0.0, 1.0], [0.2, 0.8], [0.9, 0.1], [1.0, 0.0]] * 10, np.float32)
    labels = np.array([0, 1, 0, 0] * 10)
    recalibrator = cj.fit_recalibrator(cj.Categorical(probs), labels, "identity")
    assert recalibrator.fit.n_zero_probability == 10
    found = np.asarray(recalibrator(cj.Categorical(probs)).probs)
    np.testing.assert_allclose(found[0], [0.05 / 1.05, 1 / 1.05], rtol=1e-6)
    np.testing.assert_allclose(found[1], [0.2, 0.8], rtol=1e-6)
    assert "10 targets had predicted probability 0" in str(recalibrator)


def test_zeros_of_ragged_rows_stay_zeros():
    """The temperature is that of the options of each row, and the others get nothing."""
    rng, n = np.random.default_rng(5), len(LABELS)
    logits = rng.normal(size=(n, M))
    logits[np.arange(M) >= rng.integers(2, M + 1, n)[:, None]] = -np.inf
    labels = np.array([rng.choice(M, p=p) for p in softmax(logits, axis=1)])
    probs = softmax(8 * logits, axis=1).astype(np.float32)
    logs = [np.log(row[row > 0].astype(float)) for row in probs]

    def loss(s):
        return sum(logsumexp(s * x) - s * x[y] for x, y in zip(logs, labels, strict=True))

    best = minimize_scalar(loss, bounds=(0.01, 1), options={"xatol": 1e-9}, method="bounded").x
    predictions, plain = cj.Categorical(probs, ragged=True), cj.Categorical(probs)
    recalibrator = cj.fit_recalibrator(predictions, labels, "temperature")
    found = recalibrator(predictions)
    assert found.ragged
    np.testing.assert_array_equal(np.asarray(found.probs) == 0, probs == 0)
    expected = np.asarray(cj.apply_temperature(predictions, 1 / best).probs)
    np.testing.assert_allclose(found.probs, expected, atol=4 / n)
    assert recalibrator.fit.description == f"T = {1 / best:.3g}"
    # Where nothing is said, zeros are small, whatever the order of the classes.
    last = cj.fit_recalibrator(plain, labels, "temperature")
    first = cj.fit_recalibrator(cj.Categorical(probs[:, ::-1]), M - 1 - labels, "temperature")
    recalibrated = np.asarray(last(plain).probs)
    assert np.all(recalibrated > 0) and np.all(np.asarray(recalibrator(plain).probs) > 0)
    turned = np.asarray(first(cj.Categorical(probs[:, ::-1])).probs)[:, ::-1]
    np.testing.assert_allclose(recalibrated, turned, atol=1e-5)


ODD = {
    "one row": (np.full(1, 0.3), [1]),
    "constant": (np.full(20, 0.3), [0, 1] * 10),
    "perfect": (np.repeat([0.2, 0.7], 10), [0] * 10 + [1] * 10),
    "always wrong": (np.repeat([0.0, 1.0], 10), [1] * 10 + [0] * 10),
    "one event": (np.linspace(0.1, 0.9, 20), [1] + [0] * 19),
    "one class": (np.linspace(0.1, 0.9, 20), [0] * 20),
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_events_have_a_map(odd):
    probs, events = ODD[odd]
    predictions, events = cj.Bernoulli(probs.astype(np.float32)), np.array(events)
    before = np.mean(np.log(np.maximum(np.where(events == 1, probs, 1 - probs), 1e-6)))
    for method in BINARY:
        recalibrator = cj.fit_recalibrator(predictions, events, method)
        q = np.asarray(recalibrator(predictions).probs, float)
        assert np.all((q > 0) & (q < 1)), method
        # Venn-Abers and one row more of any label may cost a little on the rows of the fit.
        after = np.mean(np.log(np.where(events == 1, q, 1 - q)))
        assert after > min(before, -0.7) - 0.1, (method, before, after)


# Nearly all of what naive Bayes says is 0 or 1, and one class is impossible.
SURE = np.eye(M, dtype=np.float32)[np.argmax(PROBS, axis=1)]
WITHOUT = PROBS[:, [0, 1, 1]] * np.array([1, 1, 0], np.float32)
WITHOUT /= WITHOUT.sum(axis=1, keepdims=True)


def test_labels_without_a_class_and_alone_have_a_map():
    odd = (LABELS % 2, PROBS), (LABELS[:1], PROBS[:1]), (LABELS, SURE), (LABELS, WITHOUT)
    for labels, probs in (*odd, (LABELS % 2, WITHOUT), (np.argmax(SURE, axis=1), SURE)):
        for method in MANY:
            recalibrator = cj.fit_recalibrator(cj.Categorical(probs), labels, method)
            q = np.asarray(recalibrator(cj.Categorical(PROBS)).probs)
            assert np.all(np.isfinite(q)), method
            np.testing.assert_allclose(q.sum(axis=1), 1, atol=1e-5)


def test_a_search_without_a_minimum_says_so():
    probs = np.repeat(np.array([[0.9, 0.1], [0.2, 0.8]], np.float32), 100, axis=0)
    labels = np.repeat([0, 1], 100)
    for method in ("temperature", "vector", "beta"):
        recalibrator = cj.fit_recalibrator(cj.Categorical(probs), labels, method)
        assert not recalibrator.fit.converged, method
        assert "not converged" in str(recalibrator)
    assert cj.fit_recalibrator(cj.Categorical(probs), labels, "svs").fit.converged


def test_thousand_classes():
    rng = np.random.default_rng(7)
    logits = rng.normal(size=(64, 1000)) * 3
    labels = np.argmax(logits / 3 + rng.gumbel(size=logits.shape), axis=1)
    predictions = cj.Categorical(softmax(logits, axis=1).astype(np.float32))
    for method in ("temperature", "svs"):
        recalibrator = cj.fit_recalibrator(predictions, labels, method)
        scores = cj.log_score(recalibrator(predictions), labels)
        assert np.mean(scores) < np.mean(cj.log_score(predictions, labels)), method
    assert candidates(1000) == ("temperature", "svs")
    assert set(candidates(30)) - set(candidates(31)) == {"beta", "spline", "isotonic"}


# Arguments


def test_weights_are_repetitions_and_masked_rows_do_not_count():
    weights = np.where(np.arange(N) < 100, 2.0, 0.0)
    twice = cj.fit_recalibrator(
        cj.Categorical(PROBS), LABELS, "vector", weights=weights.astype(np.float32)
    )
    first = cj.fit_recalibrator(cj.Categorical(PROBS), LABELS, "vector", where=weights > 0)
    alone = cj.fit_recalibrator(cj.Categorical(PROBS[:100]), LABELS[:100], "vector")
    expected = np.asarray(alone(cj.Categorical(PROBS)).probs)
    for recalibrator in (twice, first):
        assert recalibrator.fit.n_rows == 100
        found = np.asarray(recalibrator(cj.Categorical(PROBS)).probs)
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_families_stay_what_they_are():
    ordinal = cj.Ordinal(PROBS)
    assert type(cj.fit_recalibrator(ordinal, LABELS, "svs")(ordinal)) is cj.Ordinal
    event = cj.Bernoulli(EVENT_PROBS)
    recalibrator = cj.fit_recalibrator(event, EVENTS, "svs")
    assert type(recalibrator(event)) is cj.Bernoulli
    both = cj.Categorical(np.stack([1 - EVENT_PROBS, EVENT_PROBS], axis=1))
    found = np.asarray(recalibrator(both).probs[:, 1])
    np.testing.assert_allclose(found, recalibrator(event).probs, atol=1e-6)


def test_is_a_function_of_jax():
    recalibrator = cj.fit_recalibrator(cj.Categorical(PROBS), LABELS, "sms")

    @jax.jit
    def loss(logits):
        predictions = recalibrator(cj.Categorical.from_logits(logits))
        return -jnp.mean(predictions.log_prob(LABELS))

    logits = np.log(PROBS)
    gradient = np.asarray(jax.grad(loss)(logits))
    step = np.float32(1e-2) * np.random.default_rng(8).normal(size=logits.shape).astype(np.float32)
    difference = (loss(logits + step) - loss(logits - step)) / 2
    np.testing.assert_allclose(np.sum(gradient * step), difference, rtol=1e-2)
    leaves, structure = jax.tree.flatten(recalibrator)
    again = jax.tree.unflatten(structure, leaves)
    assert again.fit == recalibrator.fit
    invalid = PROBS.copy()
    invalid[3] = np.nan
    q = np.asarray(jax.jit(lambda p: recalibrator(cj.Categorical(p)).probs)(invalid))
    assert np.all(np.isnan(q[3])) and np.isfinite(np.delete(q, 3, axis=0)).all()


def test_float64(float64):
    probs = softmax(np.log(np.asarray(PROBS, float)), axis=1)
    recalibrator = cj.fit_recalibrator(cj.Categorical(probs), LABELS, "svs")
    assert recalibrator(cj.Categorical(probs)).probs.dtype == np.float64
    q = recalibrator(cj.Categorical(jnp.asarray(PROBS))).probs
    assert q.dtype == np.float32
    np.testing.assert_allclose(q, fitted("svs"), atol=1e-4)


# The choice


def test_auto_says_what_it_chose_and_is_better_on_new_rows():
    probs, labels = _data(M, 1000, seed=0)
    recalibrator = cj.fit_recalibrator(cj.Categorical(probs[:N]), labels[:N])
    losses = dict(recalibrator.fit.losses)
    assert set(losses) == {"identity", *"temperature svs sms beta spline isotonic".split()}
    assert min(losses, key=losses.get) != "identity"
    new = cj.Categorical(probs[N:])
    before, after = (np.mean(cj.log_score(p, labels[N:])) for p in (new, recalibrator(new)))
    assert after < before - 0.05
    assert "held-out log loss" in str(recalibrator)


def test_auto_leaves_a_calibrated_model_nearly_alone():
    rng = np.random.default_rng(9)
    probs = rng.uniform(0.02, 0.98, 4000).astype(np.float32)
    events = (rng.random(4000) < probs).astype(int)
    predictions = cj.Bernoulli(probs)
    recalibrator = cj.fit_recalibrator(predictions, events)
    assert np.mean(np.abs(recalibrator(predictions).probs - probs)) < 0.02


# Files


@pytest.mark.parametrize("method", ["sms", "spline", "isotonic", "auto"])
def test_a_file_has_the_same_map(method, tmp_path):
    recalibrator = cj.fit_recalibrator(cj.Categorical(PROBS), LABELS, method)
    recalibrator.save(tmp_path / "map.json")
    loaded = cj.load_recalibrator(tmp_path / "map.json")
    assert loaded.fit == recalibrator.fit and str(loaded) == str(recalibrator)
    a, b = (np.asarray(r(cj.Categorical(PROBS)).probs) for r in (loaded, recalibrator))
    assert a.tobytes() == b.tobytes()


# Fits maps of all kinds and keeps them, or reads them; and then writes what they predict.
PREDICT = """
import sys
import jax, numpy as np, calibjax as cj

rng, n = np.random.default_rng(0), 150
x = rng.normal(size=n).astype(np.float32)
events = (rng.random(n) < 1 / (1 + np.exp(-x))).astype(int)
targets = (x + rng.normal(size=n) ** 3).astype(np.float32)
counts = rng.poisson(np.exp(x / 2))
probs = rng.dirichlet(np.ones(3), n).astype(np.float32)
groups = {"site": np.arange(n) % 3, "age": x}
wind = {"wind": rng.normal(size=n).astype(np.float32)}
normal = cj.Normal(x, np.ones(n, np.float32))
quantiles = cj.Quantiles(x[:, None] + np.array([-1, 0, 1], np.float32), (0.1, 0.5, 0.9))
samples = cj.Empirical(x[:, None] + rng.normal(size=(n, 9)).astype(np.float32))
hidden = cj.IntervalCensored(targets, np.where(targets > 1, np.inf, targets))
event = cj.Bernoulli(1 / (1 + np.exp(-3 * x)))
kinds = [
    (cj.Categorical(probs), rng.integers(0, 3, n), "auto", None, None),
    (cj.Categorical(probs), rng.integers(0, 3, n), "sms", groups, None),
    (event, events, "venn_abers", None, None),
    (event, events, "spline", groups, None),
    (normal, targets, "pit_spline", None, None),
    (normal, hidden, "pit_isotonic", groups, None),
    (quantiles, targets + np.sign(wind["wind"]), "conditional", groups, wind),
    (samples, targets, "conformal", None, None),
    (cj.Poisson(np.exp(x / 2), max_count=64), counts, "pit_beta", groups, None),
]
for k, (predictions, targets, method, groups, covariates) in enumerate(kinds):
    path = f"{sys.argv[2]}/{k}.json"
    if sys.argv[1] == "fit":
        beside = {"groups": groups, "covariates": covariates}
        recalibrator = cj.fit_recalibrator(predictions, targets, method, **beside)
        recalibrator.save(path)
    else:
        recalibrator = cj.load_recalibrator(path)
    recalibrated = recalibrator(predictions, groups, covariates)
    for leaf in jax.tree.leaves(recalibrated):
        sys.stdout.buffer.write(np.asarray(leaf).tobytes())
    sys.stdout.buffer.write(str(recalibrator).encode())
"""


@pytest.mark.slow
def test_another_process_makes_the_same_bytes(tmp_path):
    def written(what):
        folder = Path(cj.__file__).parent.parent
        command = [sys.executable, "-c", PREDICT, what, str(tmp_path)]
        return subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=folder).stdout

    kept = written("fit")
    assert len(kept) > 10_000 and written("load") == kept


def test_a_foreign_or_damaged_file_is_refused(tmp_path):
    path = tmp_path / "map.json"
    cj.fit_recalibrator(cj.Categorical(PROBS), LABELS, "svs").save(path)
    whole = json.loads(path.read_text())

    def changed(*keys, value):
        content = json.loads(path.read_text())
        node = content
        for key in keys[:-1]:
            node = node[key]
        node[keys[-1]] = value
        return json.dumps(content)

    for text, message in {
        json.dumps(whole)[:-30]: "map.json: expected a file that Recalibrator.save has written",
        "[]": "expected a file that Recalibrator.save has written",
        json.dumps({"schema": "other", "version": 1}): "with schema .*, got other",
        changed("version", value=1): "version 9, got 1",
        changed("fit", "n_classes", value=4): "damaged",
        changed("steps", 0, "step", value="Other"): "damaged",
        changed("steps", 1, "weight", "values", value=[float("nan")]): "damaged",
        changed("digest", value=None): "the map in the file is damaged, fit it again",
    }.items():
        path.write_text(text)
        check_message(lambda: cj.load_recalibrator(path), ValueError, message)
    with pytest.raises(FileNotFoundError):
        cj.load_recalibrator(tmp_path / "none.json")


CATEGORICAL = cj.Categorical(PROBS)
ERRORS = {
    ValueError: {
        "method must be one of auto, identity, temperature.*got 'platt'": lambda: (
            cj.fit_recalibrator(CATEGORICAL, LABELS, "platt")
        ),
        "targets must be classes that their rows have.*got 1 in row 2": lambda: cj.fit_recalibrator(
            cj.Categorical(np.eye(3), ragged=True), np.array([0, 1, 1]), "svs"
        ),
        "method 'venn_abers' is for two classes, got predictions of 3": lambda: cj.fit_recalibrator(
            CATEGORICAL, LABELS, "venn_abers"
        ),
        "predictions must have at least 2 classes, got 1; one column .* is Bernoulli": lambda: (
            cj.fit_recalibrator(cj.Categorical(np.ones((5, 1))), np.zeros(5, int))
        ),
        "method for labels must be one of auto, identity, temperature.*got 'pit_beta'": lambda: (
            cj.fit_recalibrator(CATEGORICAL, LABELS, "pit_beta")
        ),
        "targets must be labels in 0 … 2": lambda: cj.fit_recalibrator(
            CATEGORICAL, LABELS + 1, "svs"
        ),
        "predictions must have the 3 classes of the fit, got 2": lambda: cj.fit_recalibrator(
            CATEGORICAL, LABELS, "svs"
        )(cj.Bernoulli(EVENT_PROBS)),
    },
    TypeError: {
        r"predictions must be a distribution of calibjax, .* got an array of shape": lambda: (
            cj.fit_recalibrator(PROBS, LABELS)
        ),
        "fit_recalibrator must be called outside of jit": lambda: jax.jit(
            lambda p: cj.fit_recalibrator(cj.Categorical(p), LABELS).steps
        )(PROBS),
    },
}


@pytest.mark.parametrize("case", calls(ERRORS))
def test_errors(case):
    check_message(*case)
