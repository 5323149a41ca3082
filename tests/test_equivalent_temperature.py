"""The equivalent temperature, beside bisections in NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from marks import slow
from messages import check_message
from scipy import optimize

import calibjax as cj
from calibjax.discrepancy import normal_form
from calibjax.intervals.temperatures import tempered_sums

KEY = jax.random.key(17)
N = 40
WIDE = cj.EmbeddingDistance(lambda p: p.mean())


def labels(n=N):
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(3, 0.7), n)
    targets = (probs**0.4).cumsum(1) / (probs**0.4).sum(1, keepdims=True)
    targets = np.argmax(rng.uniform(size=(n, 1)) < targets, axis=1)
    return cj.Categorical(jnp.asarray(probs)), jnp.asarray(targets, "int32")


def reals(n=N):
    rng = np.random.default_rng(2)
    loc, scale = rng.normal(size=n), rng.uniform(0.5, 1.5, n)
    targets = loc + 1.8 * scale * rng.normal(size=n)
    return cj.Normal(jnp.asarray(loc), jnp.asarray(scale)), jnp.asarray(targets)


def shown_by_labels(temperature, predictions):
    probs = np.asarray(predictions.probs)
    powers = probs ** (1 / temperature)
    gaps = powers / powers.sum(axis=1, keepdims=True) - probs
    kernel = np.exp(-np.abs(probs[:, None] - probs[None]).sum(-1) / 2 / 0.5)
    return off_diagonal_mean(kernel * (gaps @ gaps.T))


def shown_by_reals(temperature, predictions):
    loc, scale = np.asarray(predictions.loc), np.asarray(predictions.scale)
    gaps = loc[:, None] - loc[None]

    def inner(ours, theirs):
        variance = 1 + ours[:, None] ** 2 + theirs[None] ** 2
        return np.exp(-(gaps**2) / 2 / variance) / np.sqrt(variance)

    hot = scale * np.sqrt(temperature)
    target = inner(hot, hot) - inner(hot, scale) - inner(scale, hot) + inner(scale, scale)
    return off_diagonal_mean(np.exp(-np.abs(gaps) / 2) * target)


def off_diagonal_mean(matrix):
    n = len(matrix)
    return (matrix.sum() - np.trace(matrix)) / (n * (n - 1))


def bisected(shown, predictions, level):
    if level <= 0:
        return 1.0
    if level > shown(1e4, predictions):
        return np.inf
    return optimize.brentq(lambda t: shown(t, predictions) - level, 1, 1e4)


LABEL_KERNEL = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), 0.5), cj.WhiteKernel())
REAL_KERNEL = cj.TensorProduct(cj.DistanceKernel(WIDE, 2.0), cj.GaussianKernel(1.0))
CASES = {
    "labels": (labels, LABEL_KERNEL, shown_by_labels),
    "reals": (reals, REAL_KERNEL, shown_by_reals),
}


@pytest.mark.parametrize("name", slow({"reals"}, CASES))
def test_bisection(name, float64):
    make, kernel, shown = CASES[name]
    predictions, targets = make()
    result = cj.equivalent_temperature(KEY, kernel, predictions, targets)
    interval = cj.skce_confidence_interval(KEY, kernel, predictions, targets)
    levels = cj.skce(kernel, predictions, targets), *interval
    found = result.temperature, *result.confidence_interval
    excess = np.array([bisected(shown, predictions, float(level)) for level in levels]) - 1
    assert 0.1 < excess[0] < 10
    np.testing.assert_allclose(np.array(found) - 1, excess, rtol=0.01)
    if name == "labels":
        assert result.sd_ratio is None
    else:
        np.testing.assert_allclose(result.sd_ratio, result.temperature**-0.5, rtol=1e-9)
        assert "; SDs 0." in repr(result)


@pytest.mark.slow
def test_the_interval_of_clusters(float64):
    predictions, targets = labels()
    data = LABEL_KERNEL, predictions, targets
    clusters = np.arange(N) % 20
    found = cj.equivalent_temperature(KEY, *data, clusters=clusters)
    interval = cj.skce_confidence_interval(KEY, *data, clusters=clusters)
    expected = [bisected(shown_by_labels, predictions, float(level)) for level in interval]
    assert expected[1] > expected[0]
    np.testing.assert_allclose(found.confidence_interval, expected, rtol=0.01)


@pytest.mark.slow
def test_other_kernels_of_labels(float64):
    predictions, _ = labels(6)
    weights = jnp.array([1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    temperatures = jnp.array([1.1, 4.0])
    rows = predictions, weights, temperatures
    kept = predictions[weights > 0]
    expected = [20 * shown_by_labels(t, kept) for t in (1.1, 4.0)]

    def one_hot(p, y):
        return jax.nn.one_hot(y, p.probs.shape[0], dtype=p.probs.dtype)

    def joint(a, b):
        return LABEL_KERNEL(a, b)

    features = cj.FeatureKernel(LABEL_KERNEL.prediction_kernel, one_hot)
    for kernel in (LABEL_KERNEL, 0.25 * features + 0.75 * LABEL_KERNEL):
        np.testing.assert_allclose(tempered_sums(normal_form(kernel), *rows), expected, rtol=1e-9)
    with pytest.raises(NotImplementedError, match="not known for a joint kernel"):
        tempered_sums(normal_form(joint), *rows)


def test_ends_masks_and_bad_values(float64):
    predictions, targets = labels()
    temperature = functools.partial(cj.equivalent_temperature, KEY, LABEL_KERNEL, n_resamples=39)
    jitted = jax.jit(lambda p, y, where: temperature(p, y, where=where))
    every_row = jnp.ones(N, bool)
    # Sure and right, and sure and wrong.
    right = jitted(cj.Categorical(jax.nn.one_hot(targets, 3)), targets, every_row)
    assert right.temperature == 1 and right.confidence_interval.low == 1
    nearly = cj.Categorical(0.97 * jax.nn.one_hot((targets + 1) % 3, 3) + 0.01)
    assert jitted(nearly, targets, every_row).temperature == jnp.inf
    where = jnp.arange(N) % 4 != 1
    garbage = cj.Categorical(jnp.where(where[:, None], predictions.probs, jnp.nan))
    found = jitted(garbage, jnp.where(where, targets, 9), where)
    assert_equal(found, jitted(predictions, targets, where))
    assert 1 < found.temperature < jnp.inf
    for result in (
        jitted(garbage, targets, every_row),
        jitted(predictions, targets, jnp.arange(N) < 1),
    ):
        assert all(map(jnp.isnan, (result.temperature, *result.confidence_interval)))
    assert "nan" in repr(result)


def assert_equal(found, expected):
    close = functools.partial(np.testing.assert_allclose, rtol=1e-9)
    jax.tree.map(close, found, expected)


@pytest.mark.slow
def test_dropped_rows_and_vmap(float64):
    predictions, targets = labels()
    temperature = functools.partial(cj.equivalent_temperature, KEY, LABEL_KERNEL, n_resamples=39)
    where = jnp.arange(N) % 4 != 1
    found = temperature(predictions, targets, where=where)
    expected = temperature(predictions[where], targets[where])
    np.testing.assert_allclose(found.temperature, expected.temperature, rtol=1e-9)
    stacked = jax.tree.map(lambda x: jnp.stack([x, x[::-1]]), (predictions, targets))
    result = jax.vmap(temperature)(*stacked)
    both = temperature(predictions, targets).temperature
    np.testing.assert_allclose(result.temperature, [both, both], rtol=1e-9)
    assert "shape (2,)" in repr(result)


@pytest.mark.slow
def test_more_rows_than_are_looked_at():
    # Rows come in pairs of copies, so that every second row shows what all do, up to pairs.
    predictions, targets = labels(2100)
    twice = jax.tree.map(lambda x: jnp.repeat(x, 2, axis=0), (predictions, targets))
    shown = [shown_by_labels(1.5, p) for p in (predictions, predictions[:2048])]
    np.testing.assert_allclose(*shown, rtol=0.02)
    estimate = float(cj.skce(LABEL_KERNEL, *twice))
    result = cj.equivalent_temperature(KEY, LABEL_KERNEL, *twice, n_resamples=9)
    expected = optimize.brentq(lambda t: shown_by_labels(t, predictions) - estimate, 1, 1e4)
    np.testing.assert_allclose(result.temperature - 1, expected - 1, rtol=0.03)


def test_bad_arguments():
    predictions, targets = labels()
    poisson = cj.Poisson(jnp.ones(N), max_count=64)
    check_message(
        lambda: cj.equivalent_temperature(KEY, cj.default_kernel(poisson), poisson, targets),
        TypeError,
        "to be tempered, got Poisson",
    )
    check_message(
        lambda: cj.equivalent_temperature(0, LABEL_KERNEL, predictions, targets), TypeError, "key"
    )
    for level, words in ((2.0, "in .0, 1., got 2.0"), (np.array([0.9]), "one number.*shape .1.")):
        options = {"confidence_level": level}
        check_message(
            lambda o=options: cj.equivalent_temperature(
                KEY, LABEL_KERNEL, predictions, targets, **o
            ),
            ValueError,
            f"confidence_level must be {words}",
        )


@pytest.mark.slow
def test_sd_ratio_of_laplace_and_mixtures(float64):
    normal, targets = reals()
    laplace = cj.Laplace(normal.loc, normal.scale)
    result = cj.equivalent_temperature(KEY, REAL_KERNEL, laplace, targets, n_resamples=39)
    np.testing.assert_allclose(result.sd_ratio, 1 / result.temperature, rtol=1e-9)
    one = cj.Mixture.ensemble(jax.tree.map(lambda x: x[:, None], normal))
    kernel = cj.default_kernel(one)
    found, expected = (
        cj.equivalent_temperature(KEY, kernel, p, targets, n_resamples=39) for p in (one, normal)
    )
    np.testing.assert_allclose(found.temperature, expected.temperature, rtol=1e-9)
    np.testing.assert_allclose(found.sd_ratio, expected.sd_ratio, rtol=1e-9)


@pytest.mark.slow
def test_rows_on_many_devices(float64):
    predictions, targets = labels()
    where = jnp.arange(N) % 5 > 0
    temperature = functools.partial(cj.equivalent_temperature, KEY, LABEL_KERNEL)
    expected = temperature(predictions, targets, where=where)
    rows = NamedSharding(jax.make_mesh((8,), ("rows",)), PartitionSpec("rows"))
    placed = jax.tree.map(lambda x: jax.device_put(x, rows), (predictions, targets, where))
    found = temperature(*placed[:2], where=placed[2])
    np.testing.assert_allclose(found.temperature, expected.temperature, rtol=1e-9)
    np.testing.assert_allclose(found.confidence_interval, expected.confidence_interval, rtol=1e-9)


N_DATA_SETS = 200


def of_labels(key):
    probs_key, target_key = jax.random.split(key)
    predictions = cj.Categorical(jax.nn.softmax(2 * jax.random.normal(probs_key, (1000, 3))))
    return predictions, cj.apply_temperature(predictions, 1.3).sample(target_key)


def of_normals(key):
    loc_key, scale_key, target_key = jax.random.split(key, 3)
    scale = jax.random.uniform(scale_key, 1000, minval=0.3, maxval=1.5)
    predictions = cj.Normal(jax.random.normal(loc_key, 1000), scale)
    return predictions, cj.Normal(predictions.loc, scale / 0.7).sample(target_key)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "truth"), [(of_labels, 1.3), (of_normals, 1 / 0.49)])
def test_estimates_and_coverage(case, truth):
    def of_data_set(key):
        data_key, key = jax.random.split(key)
        predictions, targets = case(data_key)
        kernel = cj.default_kernel(predictions)
        options = {"n_resamples": 199, "confidence_level": 0.9}
        result = cj.equivalent_temperature(key, kernel, predictions, targets, **options)
        low, high = result.confidence_interval
        return result.temperature, (low <= truth) & (truth <= high)

    keys = jax.random.split(jax.random.key(4), N_DATA_SETS)
    found, covered = jax.jit(lambda keys: jax.lax.map(of_data_set, keys))(keys)
    assert abs(np.median(found) - truth) < 0.03
    assert np.mean(covered) >= 0.9 - 4 * np.sqrt(0.09 / N_DATA_SETS)
