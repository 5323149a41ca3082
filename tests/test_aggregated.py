"""The aggregated test beside plain loops over its draws, and where it could break."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import FAMILIES, cast
from marks import slow
from messages import check_message
from scipy import special, stats

import calibjax as cj
from calibjax._base.struct import as_pytree
from calibjax._data.capabilities import is_exchangeable
from calibjax._data.data import as_data, clean
from calibjax._data.distribution import Labels
from calibjax.discrepancy import normal_form
from calibjax.hypothesis_tests._kernel_terms import terms_of
from calibjax.hypothesis_tests._redrawn_skce import redrawn_skce
from calibjax.kernels.base import describe
from calibjax.nulls import ranks
from calibjax.nulls.draws import (
    DRAWS_PER_BATCH,
    _increasing_order,
    draw_targets,
    increasing_sums,
    row_numbers,
)
from calibjax.nulls.sampler import NullSampler

N, B = 8, 19
RNG = np.random.default_rng


def log_probability(p, y):
    return jnp.log(p.label_probabilities()[y])


def confidence_product(p, q):
    return 1 + jnp.max(p.label_probabilities()) * jnp.max(q.label_probabilities())


def minus_distance(y, z):
    """No kernel, but one of labels up to functions of one label: h is positive definite."""
    return -jnp.abs(y - z).astype(jnp.float32)


WHITE = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), 0.3), cj.WhiteKernel())
ORDINAL = cj.TensorProduct(
    cj.DistanceKernel(cj.TotalVariation(), 0.5, exponent=0.5), cj.GaussianKernel(1.3)
)
LABEL_KERNELS = [
    WHITE,
    ORDINAL,
    0.5 * WHITE + 2.0 * ORDINAL,
    cj.FeatureKernel(confidence_product, log_probability),
    cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), 0.3), minus_distance),
]


def label_forms(probs, labels):
    """n^2 times the biased SKCE of each of LABEL_KERNELS, by NumPy."""
    n, m = probs.shape
    distance = np.abs(probs[:, None] - probs[None]).sum(2) / 2
    top = probs.max(1)
    difference = np.arange(m)[:, None] - np.arange(m)[None]
    residuals = np.eye(m)[labels] - probs
    logs = np.log(probs)
    of_logs = logs[np.arange(n), labels] - np.sum(probs * logs, axis=1)
    white = np.exp(-distance / 0.3) * (residuals @ residuals.T)
    gaussian = np.exp(-(difference**2) / (2 * 1.3**2))
    ordinal = np.exp(-np.sqrt(distance / 0.5)) * (residuals @ gaussian @ residuals.T)
    absolute = np.exp(-distance / 0.3) * (residuals @ -np.abs(difference) @ residuals.T)
    confidence = (1 + top[:, None] * top[None]) * of_logs[:, None] * of_logs[None]
    hs = [white, ordinal, 0.5 * white + 2 * ordinal, confidence, absolute]
    return np.array([h.sum() for h in hs])


def _bernoulli(rng):
    p = rng.uniform(0.1, 0.9, N)
    return cj.Bernoulli(p), np.stack([1 - p, p], 1)


def _categorical(m):
    def of(rng):
        probs = 0.1 / m + 0.9 * rng.dirichlet(np.ones(m), N)
        return cj.Categorical(probs), probs

    return of


def _ensemble(rng):
    probs = 0.05 + 0.85 * rng.dirichlet(np.ones(3), (N, 2))
    weights = rng.dirichlet(np.ones(2), N)
    return cj.Mixture(weights, cj.Categorical(probs)), np.einsum("nk,nkm->nm", weights, probs)


LABELS = {
    "bernoulli": _bernoulli,
    "2 classes": _categorical(2),
    "3 classes": _categorical(3),
    "40 classes": _categorical(40),
    "ensemble": _ensemble,
}


@functools.partial(jax.jit, static_argnames=("n_resamples", "n_cells"))
def forms(key, terms, data, n_resamples, n_cells=256):
    return redrawn_skce(key, terms, clean(data), n_resamples, n_cells, None, NullSampler())[0]


@functools.partial(jax.jit, static_argnames="n_draws")
def all_targets(key, data, n_draws):
    """The targets, and those that `redrawn_skce` draws, an array of 1 + n_draws."""
    draw_key, _ = jax.random.split(key)
    data = clean(data)
    batches = jnp.arange(-(-n_draws // DRAWS_PER_BATCH), dtype=jnp.int32)
    rows = row_numbers(data.weights)
    drawn = jax.vmap(lambda g: draw_targets(draw_key, data.predictions, rows, g), out_axes=1)(
        batches
    )
    drawn = drawn.reshape(data.n, -1, *data.targets.shape[1:])[:, :n_draws]
    return jnp.concatenate([data.targets[None], jnp.moveaxis(drawn, 1, 0)])


@pytest.mark.parametrize("name", slow(LABELS.keys() - {"40 classes"}, LABELS))
def test_every_draw_of_labels_is_a_plain_sum_over_pairs(name, key, float64):
    predictions, probs = LABELS[name](RNG(0))
    labels = RNG(1).integers(probs.shape[1], size=N)
    data = as_data(cast(predictions), jnp.asarray(labels))
    # More than one group of draws, and not a whole number of them.
    found = forms(key, terms_of(list(map(normal_form, as_pytree(LABEL_KERNELS)))), data, 130)
    targets = np.asarray(all_targets(key, data, 130))
    assert found.shape == (len(LABEL_KERNELS), 131)
    expected = np.stack([label_forms(probs, y) for y in targets], axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_estimates_are_those_of_skce(key, float64):
    predictions, probs = LABELS["3 classes"](RNG(0))
    predictions, labels = cast(predictions), jnp.asarray(RNG(1).integers(3, size=N))
    result = cj.aggregated_skce_test(key, LABEL_KERNELS, predictions, labels, n_resamples=B)
    expected = [cj.skce(kernel, predictions, labels) for kernel in LABEL_KERNELS]
    np.testing.assert_allclose(result.kernels.estimates, expected, rtol=1e-9)
    np.testing.assert_allclose(result.estimate, expected[int(result.kernels.best)], rtol=1e-9)


@pytest.mark.slow
def test_many_pieces_and_draws_of_more_than_one_pass(key, float64, monkeypatch):
    predictions, probs = LABELS["3 classes"](RNG(0))
    data = as_data(cast(predictions), jnp.asarray(RNG(1).integers(3, size=N)))
    terms = terms_of(list(map(normal_form, as_pytree(LABEL_KERNELS[:2]))))
    expected = jax.jit(
        lambda: redrawn_skce(key, terms, clean(data), 130, 3, None, NullSampler())[0]
    )()
    monkeypatch.setattr("calibjax.nulls.engine._SUMS", 1)
    monkeypatch.setattr("calibjax.nulls.engine._NUMBERS", 1)
    small = jax.jit(lambda: redrawn_skce(key, terms, clean(data), 130, 3, None, NullSampler())[0])()
    np.testing.assert_allclose(small, expected, rtol=1e-9, atol=1e-9)


def _normal_data():
    loc, scale = RNG(0).normal(size=N), RNG(1).uniform(0.3, 1.5, N)
    return cj.Normal(loc, scale), RNG(2).normal(size=N), np.stack([loc, scale], 1)


def _diag_data():
    loc, scale = RNG(0).normal(size=(N, 2)), RNG(1).uniform(0.3, 1.5, (N, 2))
    return (
        cj.MultivariateNormalDiag(loc, scale),
        RNG(2).normal(size=(N, 2)),
        np.concatenate([loc, scale], 1),
    )


@pytest.mark.slow
@pytest.mark.parametrize("data_of", [_normal_data, _diag_data])
def test_every_draw_of_reals_is_a_plain_sum_over_pairs(data_of, key, float64):
    predictions, targets, points = data_of()
    kernel = cj.TensorProduct(
        cj.DistanceKernel(cj.Wasserstein(), 0.7),
        cj.GaussianKernel(0.8) + 0.5 * cj.LaplacianKernel(1.2),
    )
    data = as_data(cast(predictions), jnp.asarray(targets))
    terms = terms_of([normal_form(as_pytree(kernel))])
    found = forms(key, terms, data, B)[0]
    # The same waves.
    draw_key, feature_key = jax.random.split(key)
    one = jax.tree.map(lambda x: x[0], data.samples)
    (feature_key,) = jax.random.split(feature_key, 1)
    waves = terms.residuals[0].finite(feature_key, *one).feature
    frequencies, amplitudes = np.asarray(waves.frequencies), np.asarray(waves.amplitudes)
    # Their squares sum to k(y, y).
    np.testing.assert_allclose(np.sum(amplitudes**2), 1.5)

    def features(y):
        angles = y.reshape(*y.shape[:1], -1) @ frequencies.T
        return np.concatenate([amplitudes * np.cos(angles), amplitudes * np.sin(angles)], 1)

    rows = jnp.arange(N, dtype=jnp.int32)
    others = draw_targets(draw_key, data.predictions, rows, jnp.int32(2**31 - 1))
    means = np.stack([features(np.asarray(z)).mean(0) for z in others])
    k = np.exp(-np.linalg.norm(points[:, None] - points[None], axis=2) / 0.7)
    expected = []
    for y in np.asarray(all_targets(key, data, B)):
        h = k * ((features(y) - means) @ (features(y) - means).T)
        expected.append(h.sum())
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_estimates_of_reals_are_near_skce(key, float64):
    # 8 frequencies, and an expectation that is the mean of 100 draws.
    loc, scale = RNG(0).normal(size=60), RNG(1).uniform(0.3, 1.5, 60)
    predictions = cj.Normal(jnp.asarray(loc), jnp.asarray(scale))
    kernel = cj.TensorProduct(cj.DistanceKernel(cj.Wasserstein()), cj.GaussianKernel(1.0))
    targets = jnp.asarray(loc + 1.5 * scale + 0.5 * RNG(2).normal(size=60))
    estimate = cj.aggregated_skce_test(key, [kernel], predictions, targets, n_resamples=1).estimate
    np.testing.assert_allclose(estimate, cj.skce(kernel, predictions, targets), rtol=0.05)


# The p-value from numbers.

aggregate = jax.jit(ranks.aggregate)


def plain_aggregate(values):
    """M of each data set, by NumPy, without a thought for ties."""
    mean, deviation = values.mean(1, keepdims=True), values.std(1, keepdims=True)
    x = (values - mean) / deviation
    g = np.clip((x**3).mean(1, keepdims=True), 0.05, 2.83)
    z = 6 / g * (np.cbrt(np.maximum(1 + g * x / 2, 0.01)) - 1) + g / 6
    return z.max(0), z[:, 0]


VALUES = RNG(3).chisquare([[1.0], [3.0], [30.0]], (3, 1 + B))


def test_the_pvalue_is_a_rank(float64):
    largest, scores = plain_aggregate(VALUES)
    for observed in (0, int(np.argmax(largest)), int(np.argmin(largest))):
        order = [observed, *np.delete(np.arange(1 + B), observed)]
        found = aggregate(jnp.asarray(VALUES[:, order]))
        np.testing.assert_allclose(found.statistic, largest[observed], rtol=1e-10)
        # Whichever data set is the observed one, the others are those that it is compared with.
        np.testing.assert_allclose(found.draws, np.delete(largest, observed), rtol=1e-10)
        np.testing.assert_allclose(found.pvalue, np.mean(largest >= largest[observed]))
        np.testing.assert_allclose(
            found.pvalues, np.mean(VALUES >= VALUES[:, [observed]], axis=1), rtol=1e-12
        )
    np.testing.assert_allclose(aggregate(jnp.asarray(VALUES)).scores, scores, rtol=1e-9)


def plain_step_down(values):
    """Adjusted p-values of ``[G, K, 1 + B]`` in loops.

    Scores count in units of the mean excess of the largest hundredth of all groups and data sets;
    of the groups that are left, the largest one is compared with their maxima.
    """
    largest = np.full(values[:, 0].shape, -np.inf)
    for k in range(values.shape[1]):
        scores = np.stack([plain_aggregate(row[None])[0] for row in values[:, k]])
        end = np.sort(scores.ravel())[int(0.99 * (scores.size - 1))]
        unit = np.sum(scores[scores > end] - end) / (0.01 * scores.size)
        largest = np.maximum(largest, (scores - end) / unit)
    left, found, last = set(range(len(values))), np.zeros(len(values)), 0.0
    while left:
        first = max(left, key=lambda g: largest[g, 0])
        maxima = largest[sorted(left)].max(axis=0)
        found[first] = last = max(last, np.mean(maxima >= largest[first, 0]))
        left.remove(first)
    return found


GROUPS = RNG(4).gumbel(size=(12, 3, 1 + B)) * RNG(5).uniform(0.1, 10, (12, 3, 1))
step_down = jax.jit(ranks.step_down)


def test_step_down_is_that_of_loops(float64):
    values = GROUPS.copy()
    values[[3, 7], [1, 2], 0] = values.max() * np.array([2, 3])
    values[5, 0, 0] = np.sort(values[5, 0])[-3]
    found = step_down(jnp.asarray(values))
    np.testing.assert_allclose(found, plain_step_down(values), rtol=1e-9)
    # Many groups do not raise the least p-value.
    assert found[3] == found[7] == 1 / (1 + B)
    # With one statistic of each group, all others are ranked as they are without those found.
    found = step_down(jnp.asarray(values[:, 1:2]))
    without = plain_step_down(np.delete(values[:, 1:2], 3, axis=0))
    assert found[3] == 1 / (1 + B)
    np.testing.assert_allclose(np.delete(found, 3), without, rtol=1e-9)


def test_the_least_pvalue_of_a_step_down_is_exact(float64):
    """Whichever data set is observed, the least of p is the rank of its maximum, by enumeration."""
    orders = (np.arange(1 + B)[:, None] + np.arange(1 + B)) % (1 + B)
    found = jax.lax.map(step_down, jnp.asarray(np.moveaxis(GROUPS[:, :, orders], 2, 0)))
    least = np.sort(np.min(found, axis=1))
    np.testing.assert_allclose(least, np.arange(1, 2 + B) / (1 + B), rtol=1e-6)
    alone = aggregate(jnp.asarray(GROUPS[0, :1])).pvalue
    np.testing.assert_allclose(step_down(jnp.asarray(GROUPS[:1, :1])), [alone], rtol=1e-6)


def test_statistics_with_heavy_tails_hide_no_others(float64):
    """Of many groups with one exact statistic and a heavy one, an error of the first is found."""
    heavy = RNG(6).standard_t(2, size=(60, 1 + B)) ** 2
    normal = RNG(7).normal(size=(60, 1 + B))
    normal[:4, 0] = 5.5
    values = np.stack([normal, heavy], axis=1)
    assert np.all(step_down(jnp.asarray(values))[:4] <= 0.05)
    largest = np.stack([plain_aggregate(x)[0] for x in values])
    assert np.all(step_down(jnp.asarray(largest[:, None]))[:4] > 0.05)


def test_ties_up_to_rounding_count():
    few = np.array([[2.0, 2, 5, 1, 2, 0, 1, 2, 1, 0], [1.0, 1, 3, 2, 1, 1, 0, 1, 2, 0]])
    noise = 1 + 1e-6 * RNG(0).uniform(-1, 1, few.shape)
    found = aggregate(jnp.asarray(few * noise, jnp.float32))
    largest, _ = plain_aggregate(few)
    assert np.sum(np.isclose(largest, largest[0])) == 4
    np.testing.assert_allclose(found.pvalue, np.mean(largest >= largest[0] - 1e-9), rtol=1e-6)
    np.testing.assert_allclose(found.pvalues, [0.5, 0.8], rtol=1e-6)


def test_a_kernel_whose_numbers_are_rounding_errors_is_ignored(float64):
    alone = aggregate(jnp.asarray(VALUES))
    for noise in (0.0, 1e-15):
        constant = 4 + noise * RNG(0).normal(size=(1, 1 + B))
        both = aggregate(jnp.asarray(np.concatenate([constant, VALUES])))
        np.testing.assert_array_equal(both.draws, alone.draws)
        assert both.statistic == alone.statistic and both.pvalue == alone.pvalue
        assert both.scores[0] == -np.inf and both.pvalues[0] == 1
        nothing = aggregate(jnp.asarray(constant))
        assert nothing.pvalue == 1 and nothing.statistic == 0


def test_a_noisy_kernel_makes_no_ties_for_others():
    # Its numbers are no more than 20 times its rounding errors.
    precise = np.arange(1.0 + B)[::-1]
    noisy = 6 + 1e-3 * RNG(0).normal(size=1 + B)
    values = jnp.asarray(np.stack([precise, noisy]), jnp.float32)
    found = aggregate(values)
    largest, _ = plain_aggregate(np.stack([precise, noisy]))
    np.testing.assert_allclose(found.pvalue, np.mean(largest >= largest[0]), rtol=1e-6)


def test_a_kernel_that_sees_rare_events_does_not_hide_others(float64):
    rare = np.where(np.arange(1000) == 7, 100.0, 0.0)
    often = RNG(0).chisquare(1.0, 1000)
    often[0] = often.max() + 1
    found = aggregate(jnp.asarray(np.stack([rare, often])))
    assert found.pvalue <= 2 / 1000


def test_nan_is_never_a_number(float64):
    for row, column in [(0, 0), (2, 0), (1, 5)]:
        values = VALUES.copy()
        values[row, column] = np.nan
        found = aggregate(jnp.asarray(values))
        assert np.isnan(found.pvalue) and np.isnan(found.statistic)


# What every test must do.

DEFAULT = functools.partial(cj.aggregated_skce_test, n_resamples=B)


def numbers(result):
    return result.statistic, result.pvalue, result.estimate, result.null_distribution


def test_masked_rows_are_as_if_they_were_dropped(key, float64):
    # Fewer kept rows than landmarks, and more rows.
    predictions, _ = LABELS["3 classes"](RNG(0))
    predictions, labels = cast(predictions), jnp.asarray(RNG(1).integers(3, size=N))
    where = jnp.arange(N) % 4 > 0
    garbage = cj.Categorical(jnp.where(where[:, None], predictions.probs, jnp.nan))
    bad_labels = jnp.where(where, labels, jnp.full_like(labels, -7))
    kernels = [WHITE, LABEL_KERNELS[3]]
    found = DEFAULT(key, kernels, garbage, bad_labels, n_cells=7, where=where)
    expected = DEFAULT(key, kernels, predictions[where], labels[where])
    chex.assert_trees_all_close(numbers(found), numbers(expected), rtol=1e-8)
    chex.assert_trees_all_close(found.kernels.pvalues, expected.kernels.pvalues)
    # Inside jit too, of whichever rows are kept, and a bad value in a kept row is NaN.
    jitted = jax.jit(lambda *data, where: DEFAULT(key, kernels, *data, n_cells=7, where=where))
    again = jitted(garbage, bad_labels, where=where)
    chex.assert_trees_all_close(numbers(again), numbers(found), rtol=1e-8)
    assert jax.tree.structure(again) == jax.tree.structure(found)
    assert again.method == found.method
    for rows in (~where, where & (jnp.arange(N) < 2), where & False):
        bad = jitted(garbage, bad_labels, where=rows)
        assert all(np.all(np.isnan(x)) for x in numbers(bad))
        assert np.all(np.isnan(bad.kernels.pvalues))


def _empirical(rng):
    return cj.Empirical(rng.normal(size=(N, 3))), rng.normal(size=N)


def _quantiles(rng):
    """Half of the targets are at a value."""
    values = np.sort(rng.integers(0, 3, (N, 3)), axis=1) + 0.0
    return cj.Quantiles(values, (0.2, 0.5, 0.8)), values[:, 1] + (np.arange(N) % 2) / 2


def _classes(rng):
    return LABELS["3 classes"](rng)[0], rng.integers(3, size=N)


@pytest.mark.slow
def test_kernels_of_any_dtype(key):
    with jax.enable_x64(True):
        kernels = [
            WHITE,
            np.float64(0.5) * WHITE,
            cj.TensorProduct(
                cj.DistanceKernel(cj.TotalVariation(), jnp.bfloat16(0.25)),
                cj.GaussianKernel(np.float64(1.0)),
            ),
        ]
        data = cast(_classes(RNG(0)), "float32")
        result = DEFAULT(key, kernels, *data)
        assert {x.dtype for x in numbers(result)} == {jnp.dtype("float32")}
        estimates = [cj.skce(kernel, *data) for kernel in kernels]
        np.testing.assert_allclose(result.kernels.estimates, estimates, rtol=1e-5)


def scaled_product(scale, p, q):
    return scale * (1 + p.loc * q.loc)


def deviation(p, y):
    return y - p.loc


@pytest.mark.slow
def test_a_kernel_on_predictions_has_any_scale(key):
    # Landmarks stand for rows, and powers of two change no digit.
    predictions, targets, _ = cast(_normal_data(), "float32")
    found = []
    for scale in (1.0, 2.0**-40, 2.0**40):
        product = jax.tree_util.Partial(scaled_product, scale)
        kernel = cj.FeatureKernel(product, deviation)
        result = DEFAULT(key, [kernel], predictions, targets, n_cells=4)
        found.append((result.estimate / scale, result.statistic, result.pvalue))
    chex.assert_trees_all_close(found[1], found[0], rtol=1e-6)
    chex.assert_trees_all_close(found[2], found[0], rtol=1e-6)


def test_the_result_says_which_kernel_decides(key):
    predictions, labels = cast(_classes(RNG(0)), "float32")
    result = DEFAULT(key, [WHITE, LABEL_KERNELS[3]], predictions, labels)
    names = [
        "TensorProduct(DistanceKernel(TotalVariation(), 0.3), WhiteKernel())",
        "FeatureKernel(confidence_product, log_probability)",
    ]
    assert f"largest score: {names[int(result.kernels.best)]})" in repr(result)
    lines = repr(result.kernels).splitlines()
    assert [line.partition("  ")[2] != "" for line in lines] == [True] * 3
    assert all(line.endswith(name) for line, name in zip(lines[1:], names, strict=True))
    leaves, structure = jax.tree.flatten(result)
    assert repr(jax.tree.unflatten(structure, leaves)) == repr(result)


def test_bad_arguments(key):
    predictions, labels = cast(_classes(RNG(0)), "float32")
    normal = cj.Normal(jnp.zeros(N), jnp.ones(N))
    own = cj.TensorProduct(cj.DistanceKernel(cj.Wasserstein()), minus_distance)
    feature = cj.FeatureKernel(cj.WhiteKernel(), log_probability)
    text = cj.FeatureKernel(cj.DistanceKernel(cj.TotalVariation()), lambda p, y: "no number")
    test = functools.partial(cj.aggregated_skce_test, key)
    kernels_are = "kernels must be TensorProducts, FeatureKernels or SteinKernels.*got <lambda>"
    for rows, kernels, exception, message in [
        ((predictions, labels), [], ValueError, "kernels must hold at least one"),
        ((predictions, labels), WHITE, TypeError, "kernels must be a list .*got TensorProduct"),
        ((predictions, labels), [cj.WhiteKernel()], TypeError, "kernel on pairs, got WhiteKernel"),
        ((predictions, labels), [lambda a, b: 1.0], TypeError, kernels_are),
        ((normal, jnp.zeros(N)), [own], TypeError, "such as Gaussian.*got minus_distance"),
        ((predictions, labels), [feature], TypeError, "prediction_kernel must be"),
        ((predictions, labels), [text], TypeError, "feature must return a scalar"),
    ]:
        check_message(lambda k=kernels, r=rows: test(k, *r), exception, message)
    check_message(lambda: test(None, predictions, labels, n_cells=0), ValueError, "n_cells must be")


# Rare events and other degenerate data.


@pytest.mark.slow
@pytest.mark.parametrize("expected_events", slow({3.0}, [0.3, 3.0]))
def test_equal_data_are_equal_where_events_are_rare(expected_events, key):
    # More rows than landmarks.  All predictions are equal, so that only the number of events
    # matters.
    n, n_draws = 300, 299
    predictions = cj.Bernoulli(jnp.full(n, expected_events / n))
    for events in (0, 1, 2):
        labels = jnp.asarray(np.arange(n) < events)
        result = cj.aggregated_skce_test(key, None, predictions, labels, n_resamples=n_draws)
        data = as_data(predictions, labels)
        counts = np.array([y.sum() for y in np.asarray(all_targets(key, data, n_draws))[1:]])
        m = np.asarray(result.null_distribution)
        # The exact ranks of numbers of events, from medians of what rounding leaves apart.
        of_count = {count: np.median(m[counts == count]) for count in set(counts)}
        at_least = [of_count[c] > of_count[events] - 1e-3 for c in counts]
        assert len(of_count) > 1 and np.sum(counts == events) >= 8
        np.testing.assert_allclose(result.pvalue, (1 + np.sum(at_least)) / (n_draws + 1), rtol=1e-6)
    if expected_events < 1:
        # P(Y >= 2) = 0.037 for a Poisson variable with mean 0.3.
        assert result.pvalue < 0.08


def certain(wrong):
    labels = np.arange(N) % 2
    return cj.Bernoulli(jnp.asarray(labels, jnp.float32)), jnp.asarray(
        np.where(np.arange(N) < wrong, 1 - labels, labels)
    )


@pytest.mark.slow
def test_predictions_that_are_certain(key):
    for wrong, pvalue in [(0, 1.0), (1, 1 / (B + 1)), (2, 1 / (B + 1))]:
        result = DEFAULT(key, None, *certain(wrong))
        np.testing.assert_allclose(result.pvalue, pvalue, rtol=1e-6)
        assert np.isfinite(result.statistic)


@pytest.mark.slow
def test_a_single_target_that_the_predictions_rule_out(key):
    # Sums over pairs of different rows would not see it: its partners have random signs.
    n_draws = 99
    test = functools.partial(cj.aggregated_skce_test, n_resamples=n_draws)
    loc, noise = jnp.asarray(RNG(0).normal(size=(2, 100)))
    outlier = test(key, None, cj.Normal(loc, jnp.ones(100)), (loc + noise).at[7].add(12.0))
    probs = jnp.asarray(RNG(1).uniform(0.2, 0.8, 100)).at[7].set(0.0)
    labels = cj.Bernoulli(probs).sample(key)
    right = test(key, None, cj.Bernoulli(probs), labels)
    impossible = test(key, None, cj.Bernoulli(probs), labels.at[7].set(1))
    np.testing.assert_allclose([outlier.pvalue, impossible.pvalue], 1 / (n_draws + 1), rtol=1e-6)
    assert right.pvalue > 0.05


def _few():
    normal = cj.Normal(np.arange(8.0), np.ones(8))
    spread = RNG(0).normal(size=(N, 3))
    weights = RNG(0).dirichlet(np.ones(3), N)
    many = 0.3 * np.ones((N, 1))
    sums = np.tile([0.5009, 0.3, 0.2], (N, 1))
    return {
        "all equal": (cj.Bernoulli(np.full(N, 0.3)), np.arange(N) % 2),
        "two rows": (cj.Bernoulli(np.array([0.3, 0.4])), np.array([0, 1])),
        "one-hot": (cj.Categorical(np.eye(3)[np.arange(N) % 3]), np.arange(N) % 3),
        "sums off by 9e-4": (cj.Categorical(sums), np.arange(N) % 3),
        "one sample": (cj.Empirical(many), np.arange(N) * 1.0),
        "equal samples": (cj.Empirical(np.zeros((N, 3))), np.zeros(N)),
        "weighted": (cj.Empirical(spread, weights), np.zeros(N)),
        "mixture of samples": (
            cj.Mixture.ensemble(cj.Empirical(np.stack([spread, spread + 1], 1))),
            np.zeros(N),
        ),
        "rate 0": (cj.Poisson(np.arange(N) % 3 * 1.0, max_count=64), np.arange(N) % 3),
        "one coordinate": (cj.MultivariateNormalDiag(many, many), many),
        "narrow": (cj.Normal(normal.loc + 1, 1e-20 * normal.scale), normal.loc + 1),
    }


FAST = {"one-hot"}


@pytest.mark.parametrize("name", slow(_few().keys() - FAST, _few()))
def test_degenerate_data(name, key):
    predictions, targets = cast(_few()[name], "float32")
    result = DEFAULT(key, None, predictions, targets)
    assert np.all(np.isfinite(result.null_distribution)) and np.isfinite(result.statistic)
    above = np.sum(np.asarray(result.null_distribution) >= np.asarray(result.statistic))
    assert (1 + above) / (B + 1) <= result.pvalue + 1e-6
    if name in ("one-hot", "equal samples"):
        assert result.pvalue == 1
    if name == "narrow":
        # A kernel on targets sees draws that are rounded to the location, as the targets are; at 0
        # they would not be.  Of the default kernels the draws of U are uniform, while each target
        # is exactly a median.
        kernel = cj.product_kernel(predictions)
        assert DEFAULT(key, [kernel], predictions, targets).pvalue == 1
        np.testing.assert_allclose(result.pvalue, 1 / (B + 1), rtol=1e-6)


@pytest.mark.parametrize("d", [0, 2])
def test_which_of_the_values_is_the_target_cannot_be_seen(d, float64):
    # A kernel may look at the places of samples.
    shape = (d,) if d else ()
    pool = RNG(0).integers(3, size=(N, 4, *shape)) * 1.0
    pools = []
    for chosen in range(4):
        samples = jnp.asarray(np.delete(pool, chosen, axis=1))
        predictions, targets = cj.Empirical(samples).exchangeable_pool(jnp.asarray(pool[:, chosen]))
        np.testing.assert_array_equal(targets, pool[:, chosen])
        pools.append(np.asarray(predictions.samples))
    for row in range(N):
        assert sorted(map(repr, pools[0][row].tolist())) == sorted(map(repr, pool[row].tolist()))
    for other in pools[1:]:
        np.testing.assert_array_equal(other, pools[0])


# Kernels.


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_default_kernels(family, key):
    predictions, targets = cast(FAMILIES[family](N, 0), "float32")
    where = jnp.arange(N) % 4 > 0
    kernels = cj.default_kernels(predictions, where=where)
    # Numbers have three kernels on predictions, labels and vectors fewer.  Ordered classes have
    # those of labels, and one of U.  Of samples one kernel sees the shape, with all else.
    is_number = predictions.is_ordered and not isinstance(predictions, Labels)
    n_kernels = 9 if is_number else 7 if family == "ordinal" else 6
    if is_exchangeable(predictions):
        n_kernels = 7 if is_number else 5
    assert len(kernels) == n_kernels
    dropped = cj.default_kernels(predictions[where])
    inside = jax.jit(lambda p, where: cj.default_kernels(p, where=where))(predictions, where)
    for others in (dropped, inside):
        # A correlation is a sum that cancels.
        chex.assert_trees_all_close(others, kernels, rtol=1e-6, atol=1e-6)
    result = DEFAULT(key, None, predictions, targets, where=where)
    assert 1 / (B + 1) - 1e-6 <= result.pvalue <= 1 and np.isfinite(result.statistic)


@pytest.mark.slow
def test_the_features_of_default_kernels_see_what_they_say(float64):
    loc, scale = jnp.arange(3.0)[:, None], jnp.ones((3, 1))

    def mixture(loc, scale):  # of one component: vectors whose places are not known
        return cj.Mixture.ensemble(cj.MultivariateNormalDiag(loc[:, None], scale[:, None]))

    of_location, of_shape, of_score = cj.default_kernels(mixture(loc, scale))[::2]
    p, y = mixture(jnp.array([[1.0]]), jnp.array([[2.0]]))[0], jnp.array([2.0])
    np.testing.assert_allclose(of_score.feature(p, y), stats.norm.logpdf([2], 1, 2))
    # The mean of cos(v u - v w) over frequencies is the kernel, for near points.
    for kernel, lengthscale in [(of_location, 4.0), (of_shape, 0.5)]:
        a, b = kernel.feature(p, y), kernel.feature(p, jnp.array([2.5]))
        np.testing.assert_allclose(np.mean(a * a) * 2, 1)
        np.testing.assert_allclose(
            2 * np.mean(a * b), np.exp(-((0.25 / lengthscale) ** 2) / 2), rtol=0.02
        )


def test_describe():
    assert describe(0.25 * WHITE) == (
        "Scaled(0.25, TensorProduct(DistanceKernel(TotalVariation(), 0.3), WhiteKernel()))"
    )
    exponent = cj.DistanceKernel(cj.TotalVariation(), exponent=0.5)
    assert describe(exponent) == "DistanceKernel(TotalVariation(), 0.5)"
    partial = cj.EmbeddingDistance(jax.tree_util.Partial(scaled_product, 2.0))
    assert describe(partial) == "EmbeddingDistance(scaled_product)"
    assert describe(cj.GaussianKernel(jnp.ones(2))) == "GaussianKernel(array of shape [2])"
    assert jax.eval_shape(lambda x: describe(x) and x, 1.0).shape == ()


def test_feature_kernels_are_finite_sums(float64):
    predictions, probs = LABELS["3 classes"](RNG(0))
    predictions, labels = cast(predictions), jnp.asarray(RNG(1).integers(3, size=N))
    found = cj.h_matrix(LABEL_KERNELS[3], predictions, labels)
    logs, top = np.log(probs), probs.max(1)
    residuals = logs[np.arange(N), labels] + special.entr(probs).sum(1)
    expected = (1 + np.outer(top, top)) * np.outer(residuals, residuals)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    normal = cj.Normal(jnp.zeros(N), jnp.ones(N))
    kernel = cj.FeatureKernel(cj.DistanceKernel(cj.Wasserstein()), deviation)
    check_message(
        lambda: cj.skce(kernel, normal, jnp.zeros(N)), NotImplementedError, "FeatureKernel.*Normal"
    )


# Draws.


def test_labels_are_drawn_with_their_probabilities(key):
    probs = np.array([[0.0, 0.3, 0.0, 0.5, 0.2, 0.0], [0.9, 0.0, 0.0999, 0.0, 0.0, 0.0001]])
    predictions = cj.Categorical(jnp.asarray(np.repeat(probs, 2000, axis=0), jnp.float32))
    draws = np.asarray(jax.jit(draw_targets)(key, predictions, jnp.arange(4000), jnp.int32(0)))
    for row, labels in zip(probs, np.split(draws, 2), strict=True):
        counts = np.bincount(labels.ravel(), minlength=6)
        assert np.all(counts[row == 0] == 0)
        expected = labels.size * row[row > 0]
        assert (
            stats.chisquare(counts[row > 0], expected / expected.sum() * labels.size).pvalue > 1e-3
        )
    # Draws of one row, or of one group, are like those of others.
    assert np.std(np.mean(draws[:2000] == 3, axis=1)) < 2 * np.sqrt(0.25 / DRAWS_PER_BATCH)
    assert np.std(np.mean(draws[:2000] == 3, axis=0)) < 2 * np.sqrt(0.25 / 2000)


@pytest.mark.slow
def test_probabilities_of_1e_8_are_not_rounded(key):
    # Most of these labels would never be drawn by uniform numbers in steps of 2^-23.
    m, n_batches = 1001, 5000
    probs = jnp.full((8, m), 1e-8).at[:, 500].set(1 - 1e-5)
    batches = jnp.arange(n_batches, dtype=jnp.int32)

    @jax.jit
    def counts(key):
        def of_batch(batch):
            labels = draw_targets(key, cj.Categorical(probs), jnp.arange(8), batch)
            return jnp.sort(jnp.where(labels == 500, -1, labels).ravel())[-3:]

        return jax.lax.map(of_batch, batches, batch_size=50)

    rare = np.asarray(counts(key))
    rare = rare[rare >= 0]
    expected = 8 * n_batches * DRAWS_PER_BATCH * 1e-5
    assert abs(len(rare) - expected) < 4 * np.sqrt(expected)
    assert stats.kstest(rare / m, "uniform").pvalue > 1e-3
    assert len(set(rare)) > 0.9 * len(rare)


def test_labels_of_probability_0_never_occur_among_many(key):
    # Sums of a thousand numbers are made in parallel, and do not always increase.
    rng = RNG(0)
    probs = rng.dirichlet(np.full(1000, 0.3), 50) * (rng.uniform(size=(50, 1000)) < 0.5)
    probs = np.sort(probs / probs.sum(1, keepdims=True), axis=1).astype(np.float32)
    sums = np.asarray(jax.jit(jax.vmap(increasing_sums))(probs))
    steps = np.diff(sums, axis=1, prepend=0)
    assert np.all(steps[probs == 0] == 0) and np.all(steps >= 0)
    np.testing.assert_allclose(sums, np.cumsum(probs.astype(float), axis=1), rtol=1e-6)


@pytest.mark.parametrize("n_labels", [64, 65, 1000])
def test_order_of_many_labels_is_that_of_their_probabilities(n_labels):
    probs = np.random.default_rng(0).random(n_labels).astype(np.float32) ** 6
    probs[3], probs[5] = 0.0, 1.0
    order = np.asarray(jax.jit(_increasing_order)(probs))
    assert set(order) == set(range(n_labels)) and order[0] == 3 and order[-1] == 5
    assert np.all(probs[order][1:] >= probs[order][:-1] * (1 - 2.0**-12))


def test_small_probabilities_beside_large_ones_are_drawn():
    # In the order of the labels, float32 sums would lose the second one.
    sums = np.asarray(increasing_sums(jnp.sort(jnp.array([0.3, 1e-8, 0.5, 0.2], jnp.float32))))
    np.testing.assert_allclose(np.diff(sums, prepend=0), [1e-8, 0.2, 0.3, 0.5], rtol=1e-6)


@pytest.mark.parametrize("family", slow({"poisson", "diag"}, ["categorical", "normal", "poisson"]))
def test_draws_of_a_row_do_not_depend_on_others(family, key):
    predictions, _ = cast(FAMILIES[family](N, 0), "float32")
    draw = jax.jit(draw_targets)
    rows, group = jnp.arange(N), jnp.int32(3)
    expected = draw(key, predictions, rows, group)
    order = np.array([5, 2, 7])
    found = draw(key, predictions[order], rows[order], group)
    chex.assert_trees_all_close(found, expected[order], rtol=1e-6)
    assert not np.array_equal(draw(key, predictions, rows, jnp.int32(4)), expected)
