"""What a new user tries first: numbers, labels, rounded probabilities, and to look at it all."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from messages import check_message

import calibjax as cj

N = 6
RNG = np.random.default_rng(20240817)
LOC, TARGETS = RNG.normal(size=(2, N))
DRAWS = RNG.integers(3, size=(N, 5))
LABELS = RNG.integers(3, size=N)


# Draws of labels and counts.


def test_integers_are_no_samples():
    check_message(
        lambda: cj.Empirical(jnp.array(DRAWS)),
        TypeError,
        r"samples must be floating-point.*got dtype int.*counts.*astype\(float\).*labels.*one_hot"
        r".*Categorical\(jax.nn.one_hot\(samples, m\).mean\(axis=1\)\)",
    )
    counts = cj.Empirical(jnp.array(DRAWS).astype(float))
    np.testing.assert_allclose(counts.mean(), DRAWS.mean(1), rtol=1e-6)


def frequencies(p):
    return p.samples.mean(0)


def probabilities(p):
    return p.probs


def test_one_hot_draws_are_labels(float64):
    # |e_y - e_z|^2 is 2 for different labels: the Gaussian kernel is a constant, which no SKCE
    # sees, plus a multiple of the white kernel.
    draws, labels = (jax.nn.one_hot(x, 3) for x in (DRAWS, LABELS))

    def kernel(embedding, target_kernel):
        distance = cj.EmbeddingDistance(embedding)
        return cj.TensorProduct(cj.DistanceKernel(distance), target_kernel)

    found = cj.skce(kernel(frequencies, cj.GaussianKernel(0.8)), cj.Empirical(draws), labels)
    classes = cj.Categorical(draws.mean(axis=1))
    expected = cj.skce(kernel(probabilities, cj.WhiteKernel()), classes, jnp.array(LABELS))
    np.testing.assert_allclose(found, (1 - np.exp(-1 / 0.8**2)) * expected, rtol=1e-12)


# Axes in another order.


@pytest.mark.parametrize(
    ("predictions", "message"),
    {
        "samples": (cj.Empirical(jnp.ones((5, N))), "n = 5 .*; s = 6 in the predictions: if"),
        "vectors": (cj.Empirical(jnp.ones((5, N, 2))), "n = 5 .*; s = 6 in the predictions: if"),
        "components": (
            cj.Mixture.ensemble(cj.Normal(jnp.ones((5, N)), 1.0)),
            r"n = 5 .*; k = 6 in the predictions: .*jnp.moveaxis\(array, 0, 1\)",
        ),
        "probabilities": (
            cj.Categorical(jnp.full((5, N, 2), 0.5)),
            r"probs .* \[n, m\], got .*; K models .*Mixture.ensemble\(Categorical\(…\)\).*moveaxis",
        ),
    }.values(),
)
def test_swapped_axes(predictions, message):
    targets = jnp.ones((N, 2)) if predictions.target_shape == "n d" else jnp.ones(N)
    if predictions.target_kind == "integer":
        targets = targets.astype(int)
    key = jax.random.key(0)
    check_message(lambda: cj.calibration_test(key, predictions, targets), ValueError, message)


def test_no_axis_is_swapped():
    with pytest.raises(ValueError, match="targets") as caught:
        cj.skce(cj.WhiteKernel(), cj.Empirical(jnp.ones((5, 4))), jnp.ones(N))
    assert "swapped" not in str(caught.value)


# Numbers that all predictions share.

FULL = cj.Normal(jnp.array(LOC), jnp.full(N, 2.0))


@pytest.mark.parametrize("number", [2.0, 2, np.float32(2), np.array(2.0), jnp.array(2.0)])
def test_shared_numbers(number, dtype):
    loc = jnp.array(LOC, dtype)
    for p in (cj.Normal(loc, number), dataclasses.replace(FULL, loc=loc, scale=number)):
        np.testing.assert_array_equal(p.scale, np.full(N, 2.0))
        wide = isinstance(number, np.ndarray) and jax.config.jax_enable_x64
        assert p.scale.dtype == ("float64" if wide else dtype)
    components = cj.Normal(number, jnp.ones((N, 3), dtype))
    assert cj.Mixture.ensemble(components).mean().tolist() == [2.0] * N


def test_shared_numbers_of_counts():
    counts = cj.NegativeBinomial(jnp.ones(3), 2.0)
    assert counts.concentration.tolist() == [2.0] * 3 and counts.max_count is not None
    assert cj.ZeroInflated(0.5, counts).gate.tolist() == [0.5] * 3


def test_shared_numbers_beside_integers():
    assert cj.Normal(jnp.arange(3), 1.5).scale.tolist() == [1.5] * 3
    assert cj.Normal(jnp.arange(3), 1).scale.dtype == jnp.int32
    assert cj.Normal(jnp.zeros(3, jnp.bfloat16), 1.5).scale.dtype == jnp.bfloat16


def test_shared_numbers_are_differentiable_inside_jit():
    @jax.jit
    @jax.grad
    def slope(scale, loc):
        return jnp.sum(cj.Normal(loc, scale).log_prob(jnp.array(TARGETS)))

    z = (TARGETS - LOC) / 2
    np.testing.assert_allclose(slope(2.0, jnp.array(LOC)), np.sum(z**2 - 1) / 2, rtol=1e-5)
    several = jax.vmap(lambda scale: cj.Normal(FULL.loc, scale))(jnp.array([1.0, 2.0]))
    assert several.scale.shape == (2, N)


def test_one_prediction_shares_nothing():
    for p in (cj.Normal(0.0, 1.0), cj.Normal(jnp.zeros(()), 1.0)):
        assert jnp.shape(p.loc) == jnp.shape(p.scale) == ()
    found = jax.vmap(lambda loc: cj.Normal(loc, 1.0))(jnp.zeros(3))
    assert found.loc.shape == found.scale.shape == (3,)
    # Not an array at all: axes of vmap, for example.
    assert cj.Normal(0, None).loc == 0


def test_wrong_parameters_beside_numbers_are_errors():
    check_message(
        lambda: cj.default_kernel(cj.Normal([0.0, 1.0], 1.0)), TypeError, "loc must be an array"
    )
    check_message(
        lambda: cj.default_kernel(cj.Normal(jnp.zeros(N), -1.0)), ValueError, "scale must be pos"
    )


# Probabilities that were rounded.


def test_normalize():
    exact = RNG.dirichlet(np.ones(10), 50)
    rounded = jnp.array(exact.round(2))
    check_message(
        lambda: cj.default_kernel(cj.Categorical(rounded)), ValueError, "probs .*normalize=True"
    )
    p = cj.Categorical(rounded, normalize=True)
    cj.default_kernel(p)
    np.testing.assert_allclose(p.probs, rounded / rounded.sum(1, keepdims=True), rtol=1e-6)
    assert jax.tree.structure(p) == jax.tree.structure(cj.Categorical(rounded))
    assert jax.tree.leaves(dataclasses.replace(p, probs=rounded))[0] is rounded
    percents = cj.Categorical(np.array([[25, 75], [0, 3]]), normalize=True)
    assert percents.probs.tolist() == [[0.25, 0.75], [0.0, 1.0]]


def test_normalize_inside_jit_and_grad():
    def second(row):
        return cj.Categorical(row[None], normalize=True).probs[0, 1]

    found = jax.jit(jax.grad(second))(jnp.array([1.0, 2.0, 1.0]))
    np.testing.assert_allclose(found, [-1 / 8, 1 / 8, -1 / 8], rtol=1e-6)


@pytest.mark.parametrize("row", [[-0.5, -0.5], [0.0, 0.0], [-1.0, 2.0], [np.nan, 1], [np.inf, 1]])
def test_normalize_reports_rows_that_are_no_weights(row):
    p = cj.Categorical(jnp.array([[0.5, 0.5], row]), normalize=True)
    check_message(lambda: cj.default_kernel(p), ValueError, "probs must be nonnegative.*row 1 is")


def test_normalize_is_a_flag():
    bad = re.escape("normalize must be a bool, got int")
    check_message(lambda: cj.Categorical(jnp.ones((2, 2)), normalize=1), TypeError, bad)


# Length and words.

BATCHES = {
    "Normal(n=6, float32)": FULL,
    "Categorical(n=6, m=2, float32)": cj.Categorical(jnp.full((N, 2), 0.5)),
    "Mixture(n=6, k=3, Normal, float32)": cj.Mixture(
        jnp.full((N, 3), 1 / 3), cj.Normal(jnp.zeros((N, 3)), 1.0)
    ),
    "Empirical(n=6, s=5, d=2, float16)": cj.Empirical(jnp.ones((N, 5, 2), "float16")),
    "Normal(n=6, float32, int32)": cj.Normal(FULL.loc, jnp.ones(N, "int32")),
}


@pytest.mark.parametrize("words", BATCHES)
def test_words_and_length(words):
    p = BATCHES[words]
    assert repr(p) == words
    assert len(p) == len(list(p)) == N
    assert len(p[:2]) == 2
    assert p and not p[:0]

    @jax.jit
    def traced(p):
        assert repr(p) == words and len(p) == N
        assert "traced" in p._repr_html_()
        return p

    assert repr(traced(p)) == words


def test_words_of_what_is_no_batch():
    one = FULL[0]
    assert repr(one) == "Normal(loc=float32[], scale=float32[])"
    check_message(lambda: len(one), TypeError, "one prediction has no length, got Normal")
    mixture = BATCHES["Mixture(n=6, k=3, Normal, float32)"]
    expected = "Mixture(weights=float32[3], components.loc=float32[3], components.scale=float32[3])"
    assert repr(mixture[0]) == expected
    assert repr(jax.tree.map(lambda x: object(), one)) == "Normal(loc=object, scale=object)"
    assert repr(cj.Normal(0, None)) == "Normal(loc=int)"
    assert "object" in jax.tree.map(lambda x: object(), mixture)._repr_html_()
    words = []
    jax.vmap(lambda p: words.append(repr(p)) or p)(FULL)
    assert words == [repr(one)]


def test_words_of_a_subclass():
    class Shifted(cj.Normal):
        pass

    assert repr(Shifted(FULL.loc, 1.0)) == "Shifted(n=6, float32)"


def test_table():
    table = cj.Normal(jnp.array([-1.5, 4.0]), 0.25)._repr_html_()
    assert table.startswith("<b>Normal(n=2, float32)</b><table>")
    assert "<td>loc</td><td>float32[2]</td><td>-1.5 … 4</td>" in table
    assert "<td>scale</td><td>float32[2]</td><td>0.25 … 0.25</td>" in table
    # Looked at inside jit, too, where arrays may be concrete; and without any row.
    jax.jit(lambda: cj.Normal(np.zeros(2), np.ones(2))._repr_html_() and 0)()
    assert "float32[0]" in FULL[:0]._repr_html_()
