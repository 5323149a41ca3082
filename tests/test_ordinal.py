"""Ordinal predictions: scores of ordered classes against direct sums, and what keeps the order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scoringrules
from compiled import call

import calibjax as cj
from calibjax._data.interval_censored import unit_interval

PROBS = np.random.default_rng(0).dirichlet(np.full(5, 0.6), 12)
LABELS = np.random.default_rng(1).integers(5, size=12)


def ranked_scores(probs, labels):
    return np.sum((np.cumsum(probs, 1) - (np.arange(probs.shape[1]) >= labels[:, None])) ** 2, 1)


def test_the_crps_is_the_ranked_probability_score(float64):
    p, y = cj.Ordinal(jnp.asarray(PROBS)), jnp.asarray(LABELS)
    expected = ranked_scores(PROBS, LABELS)
    np.testing.assert_allclose(cj.crps(p, y), expected, rtol=1e-12)
    np.testing.assert_allclose(scoringrules.rps_score(LABELS + 1, PROBS), expected, rtol=1e-12)
    # It is proper: the mean under the prediction is smallest for the prediction itself.
    own, other = PROBS[0], PROBS[1]
    means = [
        sum(own[c] * ranked_scores(q[None], np.array([c]))[0] for c in range(5))
        for q in (own, other)
    ]
    assert means[0] < means[1]


def test_positions_in_the_distribution():
    p, y = cj.Ordinal(jnp.asarray(PROBS, jnp.float32)), jnp.asarray(LABELS)
    before, after, *_ = jax.jit(unit_interval)(p, y)
    np.testing.assert_allclose(after - before, PROBS[np.arange(12), LABELS], atol=1e-6)
    np.testing.assert_allclose(1 - after, call(p, "survival", y), atol=1e-6)
    places = cj.pit(jax.random.key(0), p, y)
    assert np.all((places >= before) & (places <= after))
    numbers = np.arange(5)
    mean = PROBS @ numbers
    np.testing.assert_allclose(p.mean(), mean, rtol=1e-5)
    np.testing.assert_allclose(p.variance(), PROBS @ numbers**2 - mean**2, rtol=1e-4, atol=1e-6)


def test_other_predictions_made_of_it_are_ordered():
    p = cj.Ordinal.from_logits(jnp.log(jnp.asarray(PROBS, jnp.float32)))
    np.testing.assert_allclose(p.probs, PROBS, rtol=1e-5)
    assert type(p) is cj.Ordinal
    assert type(cj.apply_temperature(p, 2.0)) is cj.Ordinal
    assert (
        type(p[2:4]) is cj.Ordinal and type(cj.Ordinal(100 * PROBS, normalize=True)) is cj.Ordinal
    )
    with pytest.raises(ValueError, match=r"calibjax.Bernoulli\(probs\[:, 0\]\)"):
        cj.crps(cj.Ordinal(jnp.ones((3, 1)) / 2), jnp.zeros(3, int))


def test_what_does_not_see_the_order_is_that_of_categorical_predictions(float64):
    y = jnp.asarray(LABELS)
    ordered, plain = (family(jnp.asarray(PROBS)) for family in (cj.Ordinal, cj.Categorical))
    for number in (
        lambda p: cj.skce(cj.product_kernel(p), p, y),
        lambda p: cj.ece(p, y),
        lambda p: cj.fit_temperature(p, y),
    ):
        np.testing.assert_array_equal(number(ordered), number(plain))


def wrong(key, shift, surplus):
    """Predictions of 150 rows from a logistic law, and labels from the law made wrong.

    The logits are shifted, and the class in the middle is more frequent by a factor 1 + surplus.
    """
    loc, noise = jax.random.split(key)
    x = 1.5 * jax.random.normal(loc, (150,))
    cuts = jnp.linspace(-3.0, 3.0, 4)[None]

    def probs(x):
        ends = jnp.zeros((150, 1)), jax.nn.sigmoid(cuts - x[:, None]), jnp.ones((150, 1))
        return jnp.diff(jnp.concatenate(ends, axis=1), axis=1)

    truth = probs(x + shift) * (1 + surplus * (jnp.arange(5) == 2).astype(x.dtype))[None]
    return probs(x), cj.Ordinal(truth, normalize=True).sample(noise)


@pytest.mark.slow
@pytest.mark.parametrize("shift, surplus", [(0.5, 0.0), (0.0, 1.0)])
def test_the_test_sees_the_order_and_the_classes(shift, surplus):
    rejected = {}
    for family in (cj.Ordinal, cj.Categorical):

        @jax.jit
        def pvalue(key, family=family):
            data, draws = jax.random.split(key)
            probs, labels = wrong(data, shift, surplus)
            return cj.calibration_test(draws, family(probs), labels, n_resamples=199).pvalue

        keys = jax.random.split(jax.random.key(0), 100)
        rejected[family] = sum(float(pvalue(key)) <= 0.05 for key in keys)
    # Kernels of U alone hardly see a class that is too rare.
    assert rejected[cj.Ordinal] > 60
    assert rejected[cj.Ordinal] > rejected[cj.Categorical] + (25 if shift else -10)


def test_default_kernels_test_the_order_too():
    p = cj.Ordinal(jnp.asarray(PROBS, jnp.float32))
    names = [
        [type(k).__name__ for k in cj.default_kernels(x)] for x in (p, cj.Categorical(p.probs))
    ]
    assert names[0] == [*names[1], "PITKernel"]
    assert type(cj.default_kernel(p)) is cj.PITKernel
    assert cj.Mixture.ensemble(cj.Ordinal(jnp.ones((3, 2, 4)) / 4)).is_ordered


@pytest.mark.slow
@pytest.mark.parametrize("mixed", [False, True])
def test_evaluation_shows_the_order(mixed):
    rng = np.random.default_rng(2)
    probs = rng.dirichlet(np.ones(4), 200)
    labels = np.array([rng.choice(4, p=row) for row in probs])
    ordered, plain = cj.Ordinal(probs), cj.Categorical(probs)
    if mixed:
        ordered, plain = (
            cj.Mixture.ensemble(family(np.stack([probs, probs], 1)))
            for family in (cj.Ordinal, cj.Categorical)
        )
    found, other = cj.evaluate(ordered, labels), cj.evaluate(plain, labels)
    assert found.pvalue > 0.05 and "pit" not in other.curves
    assert set(found.measures) - set(other.measures) == {"RPS"}
    score = found.measures["RPS"]
    assert score.value == pytest.approx(np.mean(ranked_scores(probs, labels)), rel=1e-5)
    # On average under the prediction it is sum_k F_k (1 - F_k).
    sums = np.cumsum(probs, 1)
    assert score.if_calibrated[0] < np.mean(np.sum(sums * (1 - sums), 1)) < score.if_calibrated[1]
    assert score.interval[0] < score.value < score.interval[1]
    assert np.sum(found.curves["pit"].count) == 200
    assert "ranked probability score" in found.to_html()
    assert found.to_dict()["family"] == ("Mixture" if mixed else "Ordinal")
