"""What every batch of predictions can say of itself: its length, its words, its table."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from messages import check_message

import calibjax as cj
from calibjax._base.struct import struct

N = 6
RNG = np.random.default_rng(20240817)
LOC, TARGETS = RNG.normal(size=(2, N))
FULL = cj.Normal(jnp.array(LOC), jnp.asarray(np.full(N, 2.0, "float32")))

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


@pytest.mark.parametrize("row", [10, np.int64(10), np.int8(-7)])
def test_rows_out_of_range(row):
    with pytest.raises(IndexError, match=f"rows must be between -6 and 5, got {row}"):
        cj.Bernoulli(jnp.ones(6))[row]


def test_numpy_integers_are_rows():
    assert cj.Bernoulli(jnp.arange(6) / 8)[np.int64(-1)].probs == 5 / 8


def test_a_new_cdf_has_no_tails_of_its_parent():
    class Half(cj.Normal):
        def cdf(self, targets):
            return jnp.full(targets.shape, 0.5)

    class Quarter(cj.Univariate):
        loc: jax.Array

        def tails(self, targets):
            return jnp.full(targets.shape, 0.25), jnp.full(targets.shape, 0.75)

    zeros = jnp.zeros(3)
    assert [x.tolist() for x in Half(zeros, 1.0).tails(zeros)] == [[0.5] * 3] * 2
    quarter = Quarter(zeros)
    assert quarter.cdf(zeros).tolist() == [0.25] * 3
    assert quarter.survival(zeros).tolist() == [0.75] * 3
    assert quarter[0].survival(zeros[0]) == 0.75


def test_moments_need_one_of_two():
    @struct
    class Nothing(cj.Distribution):
        x: jax.Array

        shapes = {"x": "n"}

        def mean(self):
            return self.x

        def sample(self, key, shape=()):
            return self.x

    with pytest.raises(TypeError, match="Nothing must have variance or standard_deviation"):
        Nothing(jnp.zeros(3)).standard_deviation()
