"""Binary problems in problems of several classes, and the calibration error of confidences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import fast_in_float32
from messages import calls, check_message

import calibjax as cj
from calibjax import mmce, one_vs_rest, top_label

PROBS = np.array(
    [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6], [0.5, 0.3, 0.2], [0.05, 0.9, 0.05]]
    + [[0.3, 0.3, 0.4]]
)
TARGETS = np.array([0, 1, 2, 1, 1, 0], "int32")


def definition(confidences, hits, lengthscale=0.4):
    """All pairs, one by one."""
    terms = [
        (c - r) * (d - s) * np.exp(-abs(r - s) / lengthscale)
        for r, c in zip(confidences, hits, strict=True)
        for s, d in zip(confidences, hits, strict=True)
    ]
    return np.sqrt(np.mean(terms))


def data(n=30, m=4, seed=0):
    rng = np.random.default_rng(seed)
    return 0.02 + (1 - 0.02 * m) * rng.dirichlet(np.ones(m), n), rng.integers(m, size=n)


# Confidences.


def test_top_label(dtype):
    probs, targets = data()
    confidences, hits = top_label(cj.Categorical(jnp.asarray(probs, dtype)), jnp.array(targets))
    assert isinstance(confidences, cj.Bernoulli) and confidences.probs.dtype == dtype
    assert hits.dtype == jnp.int32
    np.testing.assert_array_equal(confidences.probs, probs.max(axis=1).astype(dtype))
    np.testing.assert_array_equal(hits, probs.argmax(axis=1) == targets)


def test_the_first_of_equal_labels():
    probs = jnp.array([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4]])
    assert top_label(cj.Categorical(probs), jnp.array([0, 2]))[1].tolist() == [1, 0]
    confidences, hits = top_label(cj.Bernoulli(jnp.array([0.5, 0.75])), jnp.array([False, True]))
    assert confidences.probs.tolist() == [0.5, 0.75] and hits.tolist() == [1, 1]


def test_one_vs_rest(float64):
    probs, targets = data()
    for label in range(4):
        binary, came = one_vs_rest(cj.Categorical(probs), targets, label)
        np.testing.assert_array_equal(binary.probs, probs[:, label])
        np.testing.assert_array_equal(came, targets == label)
        assert came.dtype == jnp.int32
    p, labels = jnp.array([0.25, 0.5]), jnp.array([0, 1])
    for label, expected in ((0, [0.75, 0.5]), (1, [0.25, 0.5])):
        binary, came = one_vs_rest(cj.Bernoulli(p), labels, label)
        assert binary.probs.tolist() == expected
        assert came.tolist() == [label == 0, label == 1]


@pytest.mark.parametrize("function", [top_label, lambda *data: one_vs_rest(*data, 1)])
def test_bernoulli_is_two_classes(function, dtype):
    p, targets = jnp.asarray(data()[0][:, 0], dtype), jnp.array(data(m=2)[1])
    one = function(cj.Bernoulli(p), targets)
    other = function(cj.Categorical(jnp.stack([1 - p, p], axis=1)), targets)
    assert jax.tree.all(jax.tree.map(lambda x, y: jnp.array_equal(x, y), one, other))


def test_confidences_are_at_most_1(float64):
    # Rows need to sum to one within 0.001 only; at 1 the gradient is whole.
    targets = jnp.array([0, 0])

    def confidences(x):
        return top_label(cj.Categorical(jnp.stack([x, jnp.zeros(2)], axis=1)), targets)[0].probs

    x = jnp.array([1.0005, 1.0])
    assert confidences(x).tolist() == [1, 1]
    assert jnp.diag(jax.jacobian(confidences)(x)).tolist() == [0, 1]
    assert cj.skce(kernel(), *top_label(cj.Categorical(jnp.ones((2, 1))), targets)) == 0


def kernel(lengthscale=0.4):
    return cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), lengthscale), cj.WhiteKernel())


def test_invalid_rows_stay_invalid():
    probs = jnp.asarray(PROBS, "float32")
    bad = cj.Categorical(probs.at[1].set(jnp.nan).at[2].set(0.5)), jnp.array(TARGETS).at[3].set(3)
    for confidences, hits in (top_label(*bad), one_vs_rest(*bad, 0)):
        assert (confidences.probs == -1).tolist() == [False, True, True] + 3 * [False]
        assert hits[3] == -1 and jnp.all(jnp.delete(hits, 3) >= 0)
    with pytest.raises(ValueError, match=r"probs must be in \[0, 1\]; row 1 is -1"):
        cj.skce(kernel(), *top_label(*bad))
    kept = jnp.array([True, False, False, False, True, True])
    masked = cj.skce(kernel(), *top_label(*bad), where=kept)
    rows = cj.Categorical(probs[kept]), jnp.array(TARGETS)[kept]
    np.testing.assert_allclose(masked, cj.skce(kernel(), *top_label(*rows)), rtol=1e-6)


# The MMCE.


def test_published(float64):
    # netcal 1.3.6, netcal.metrics.MMCE().
    value = mmce(cj.Categorical(PROBS), TARGETS)
    np.testing.assert_allclose(value, 0.1270454239, rtol=1e-9)


@pytest.mark.parametrize("lengthscale", [0.4, 0.1])
def test_definition(lengthscale, dtype):
    probs, targets = data()
    expected = definition(probs.max(axis=1), probs.argmax(axis=1) == targets, lengthscale)
    predictions = cj.Categorical(jnp.asarray(probs, dtype))
    value = mmce(predictions, jnp.array(targets), lengthscale=lengthscale)
    assert value.dtype == dtype
    np.testing.assert_allclose(value, expected, rtol={"float32": 2e-6, "float64": 1e-13}[dtype])


def test_derivatives(float64):
    probs, targets = data()

    @jax.jit
    def loss(probs, lengthscale):
        return mmce(cj.Categorical(probs), targets, lengthscale=lengthscale)

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1)))(probs, 0.4)
    direction, step = np.random.default_rng(1).normal(size=probs.shape), 1e-6
    ahead, behind = (loss(probs + s * direction, 0.4) for s in (step, -step))
    np.testing.assert_allclose(np.sum(gradient[0] * direction), (ahead - behind) / (2 * step), 1e-7)
    ahead, behind = (loss(probs, 0.4 + s) for s in (step, -step))
    np.testing.assert_allclose(gradient[1], (ahead - behind) / (2 * step), 1e-7)


@fast_in_float32
def test_gradient_without_an_error(dtype):
    # netcal's is NaN: all confidences are 1, and all are right.
    def loss(logits):
        return mmce(cj.Categorical.from_logits(logits), jnp.array([0, 1, 0]))

    logits = jnp.array([[800.0, 0], [0, 800], [900, 0]], dtype)
    value, gradient = jax.jit(jax.value_and_grad(loss))(logits)
    assert value == 0 and jnp.all(gradient == 0)


@pytest.mark.slow
def test_masked_rows_are_absent(float64):
    probs, targets = data()
    where = np.arange(30) % 4 != 1
    holes = np.where(where[:, None], probs, np.nan), np.where(where, targets, -1), where

    @jax.jit
    @jax.value_and_grad
    def loss(probs, targets, where=None):
        return mmce(cj.Categorical(probs), targets, where=where)

    expected, gradient = loss(probs[where], targets[where])
    value, masked = loss(*holes)
    np.testing.assert_allclose(value, expected, rtol=1e-13)
    np.testing.assert_allclose(masked[where], gradient, rtol=1e-11, atol=1e-16)
    assert np.all(masked[~where] == 0)
    np.testing.assert_allclose(
        mmce(cj.Categorical(holes[0]), holes[1], where=where), expected, rtol=1e-13
    )


def test_transformations(float64):
    batches = [data(8, 3, seed) for seed in range(3)]

    def estimate(probs, targets):
        return mmce(cj.Categorical(probs), targets)

    stacked = [jnp.stack(x) for x in zip(*batches, strict=True)]
    loop = [estimate(*batch) for batch in batches]
    np.testing.assert_allclose(jax.jit(jax.vmap(estimate))(*stacked), loop, rtol=1e-12)


def test_bad_values_inside_jit_give_nan():
    probs, targets = jnp.asarray(PROBS, "float32"), jnp.array(TARGETS)
    jitted = jax.jit(lambda probs, targets: mmce(cj.Categorical(probs), targets))
    assert jnp.isfinite(jitted(probs, targets))
    for bad in ((probs.at[2].set(0.5), targets), (probs, targets.at[2].set(3))):
        assert jnp.isnan(jitted(*bad))


CLASSES = cj.Categorical(PROBS.astype("float32"))
NORMAL = cj.Normal(jnp.ones(6), jnp.ones(6))

BAD = {
    TypeError: {
        r"predictions must be .*Bernoulli\(probs\), or a Mixture of these, got an array": lambda: (
            top_label(CLASSES.probs, TARGETS)
        ),
        "predictions must be .*got Normal": lambda: mmce(NORMAL, TARGETS),
        "targets must hold integer values, got dtype float": lambda: top_label(
            CLASSES, TARGETS / 1
        ),
        "label must be an integer, got float": lambda: one_vs_rest(CLASSES, TARGETS, 1.0),
    },
    ValueError: {
        r"probs must have shape \[n\], got shape \[6, 2\]": lambda: one_vs_rest(
            cj.Bernoulli(np.ones((6, 2))), TARGETS, 0
        ),
        r"targets must have shape \[n\] with n = 6 .*got shape \[5\]": lambda: top_label(
            CLASSES, TARGETS[1:]
        ),
        "label must be between 0 and m - 1 = 2, got 3": lambda: one_vs_rest(CLASSES, TARGETS, 3),
        "label must be between 0 and m - 1 = 1, got 2": lambda: one_vs_rest(
            cj.Bernoulli(np.ones(6)), TARGETS, 2
        ),
        "targets must be labels in 0 … 2; row 2 is 3": lambda: mmce(CLASSES, TARGETS + 1),
        "lengthscale of DistanceKernel must be positive and finite, got 0.0": lambda: mmce(
            CLASSES, TARGETS, lengthscale=0.0
        ),
        "must keep at least 2 rows, got 1": lambda: mmce(CLASSES, TARGETS, where=np.arange(6) < 1),
    },
}


@pytest.mark.parametrize("case", calls(BAD))
def test_message(case):
    check_message(*case)


@fast_in_float32
def test_no_nan_of_masked_rows(dtype):
    p = cj.Categorical(jnp.asarray([[0.2, 0.8], [jnp.nan, 0.0], [0.6, 0.4]], dtype))
    where = jnp.array([True, False, True])
    masked = jnp.array([1, -1, 0])
    with jax.debug_nans(True):
        value = cj.mmce(p, masked, where=where)
    np.testing.assert_allclose(value, cj.mmce(p[where], masked[where]), rtol=1e-6)
