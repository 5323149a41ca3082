"""Comparisons of two and more models: exact facts, enumeration, levels and power."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from marks import fast_in_float64
from messages import check_message

import calibjax as cj

KEY = jax.random.key(17)
N = 24
NUMBERS = "estimates", "difference", "pvalue", "standard_error", "deviations"


def labels(n, seed=0, n_models=2):
    """Binary targets, and models of which each sees less of what decides them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, n_models))
    logits = 1.5 * np.cumsum(x, axis=1)
    targets = rng.uniform(size=n) < 1 / (1 + np.exp(-logits[:, -1]))
    models = [cj.Bernoulli(jnp.asarray(1 / (1 + np.exp(-z)))) for z in logits.T]
    return models, jnp.asarray(targets.astype("int32"))


def kernel_of(*models):
    probs = jnp.concatenate([model.probs for model in models])
    return cj.default_kernel(cj.Bernoulli(probs))


def numbers(result):
    return [getattr(result, name) for name in NUMBERS]


def close(found, expected):
    for a, b in zip(numbers(found), numbers(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_all_resamples_of_three_rows(float64):
    # The definition: n / (n-1) times the centred bootstrap of the difference of two V-statistics.
    n, n_resamples = 3, 2000
    (first, second), targets = labels(n, seed=3)
    kernel = kernel_of(first, second)
    result = cj.compare_calibration(KEY, kernel, first, second, targets, n_resamples=n_resamples)
    h = [np.asarray(cj.h_matrix(kernel, model, targets)) for model in (first, second)]
    difference = h[0] - h[1]
    values = []
    for rows in itertools.product(range(n), repeat=n):
        counts = np.bincount(rows, minlength=n)
        values.append((counts @ difference @ counts - difference.sum()) / n**2 * n / (n - 1))
    values = np.array(values) - np.mean(values)
    off_diagonal = difference.sum() - np.trace(difference)
    np.testing.assert_allclose(result.difference, off_diagonal / (n * (n - 1)), rtol=1e-12)
    draws = np.asarray(result.deviations[0] * result.standard_error)
    np.testing.assert_allclose(result.deviations[1], -result.deviations[0])
    np.testing.assert_allclose(result.standard_error, np.sqrt(np.mean(draws**2)), rtol=1e-12)
    # Each draw is one of the resamples, and each is drawn as often as it should be.
    distances = np.abs(draws[:, None] - np.unique(values.round(12)))
    assert distances.min(axis=1).max() < 1e-11
    shares = np.bincount(distances.argmin(axis=1)) / n_resamples
    expected = np.unique(values.round(12), return_counts=True)[1] / n**n
    np.testing.assert_allclose(shares, expected, atol=4 * np.sqrt(0.25 / n_resamples))
    size = abs(float(result.difference)) - 1e-12
    counts = [np.sum(draws >= size), np.sum(-draws >= size)]
    assert result.pvalue == min(1.0, 2 * (1 + max(counts)) / (n_resamples + 1))


@fast_in_float64
def test_a_model_does_not_differ_from_itself(dtype):
    (model, _), targets = labels(N)
    model = cj.Bernoulli(model.probs.astype(dtype))
    for function in (cj.compare_calibration, jax.jit(cj.compare_calibration)):
        result = function(KEY, None, model, model, targets)
        assert (result.difference, result.pvalue) == (0, 1)
        assert result.confidence_interval() == (0, 0)


@pytest.mark.slow
def test_models_of_a_list_share_the_resamples(float64):
    (first, *others), targets = labels(200, n_models=3)
    others[1] = cj.Bernoulli(others[1].probs ** 0.2)
    kernel = kernel_of(first, *others)
    together = cj.compare_calibration(KEY, kernel, first, others, targets)
    alone = [cj.compare_calibration(KEY, kernel, first, x, targets) for x in others]
    estimates = [cj.skce(kernel, model, targets) for model in (first, *others)]
    np.testing.assert_allclose(together.estimates, estimates, rtol=1e-10)
    np.testing.assert_allclose(together.difference, estimates[0] - np.array(estimates[1:]))
    for k, one in enumerate(alone):
        np.testing.assert_allclose(together.standard_error[k], one.standard_error)
        assert together.pvalue[k] >= one.pvalue
        assert together.confidence_interval().low[k] <= one.confidence_interval().low
        assert one.difference == together.difference[k]
    assert together.pvalue[0] > 0.05 >= together.pvalue[1]
    draws = jnp.stack([one.deviations for one in alone])
    np.testing.assert_allclose(together.deviations, jnp.max(draws, axis=0), rtol=1e-9)
    # A list of one model is that model.
    single = cj.compare_calibration(KEY, kernel, first, others[:1], targets)
    close(jax.tree.map(lambda x: x[0] if x.shape == (1,) else x, single), alone[0])
    # The other way round all signs change.
    turned = cj.compare_calibration(KEY, kernel, others[0], first, targets)
    assert turned.difference == -alone[0].difference and turned.pvalue == alone[0].pvalue
    # An interval contains 0 exactly if the p-value is larger.
    for result in (*alone, together):
        for pvalue in np.unique(result.pvalue):
            for level in (1 - pvalue - 1e-3, 1 - pvalue + 1e-3):
                if 0 < level <= 1 - 2 / 1000:
                    low, high = result.confidence_interval(level)
                    outside = (low > 0) | (high < 0)
                    np.testing.assert_array_equal(outside, result.pvalue <= 1 - level)
    text = repr(together)
    assert "second[1]" in text and "first is better calibrated" in text
    assert "pvalue of shape (2,)" not in text


@pytest.mark.slow
def test_models_with_targets_of_their_own(float64):
    """Answers to the same questions: resamples of questions take both answers along."""
    (first, second), targets = labels(N)
    own = jnp.roll(targets, 5)
    kernel = kernel_of(first, second)
    data = cj.Data(second, own)
    result = cj.compare_calibration(KEY, kernel, first, data, targets, n_resamples=2000)
    h = [np.asarray(cj.h_matrix(kernel, *x)) for x in ((first, targets), (second, own))]
    difference, rng = h[0] - h[1], np.random.default_rng(0)
    sums = difference.sum() - np.trace(difference)
    np.testing.assert_allclose(result.difference, sums / (N * (N - 1)), rtol=1e-9)
    counts = rng.multinomial(N, np.full(N, 1 / N), size=4000)
    draws = np.sum(counts @ difference * counts, axis=1) / N / (N - 1)
    np.testing.assert_allclose(result.standard_error, draws.std(), rtol=0.08)
    # The event is called the other way round: the same model.
    mirrored = cj.Data(cj.Bernoulli(1 - first.probs), 1 - targets)
    assert cj.compare_calibration(KEY, kernel, first, mirrored, targets).pvalue == 1
    (same,) = cj.compare_calibration(KEY, kernel, first, [mirrored], targets).difference
    np.testing.assert_allclose(same, 0, atol=1e-12)


def test_masks_jit_and_vmap(float64):
    models, targets = labels(N)
    kernel = kernel_of(*models)
    where = jnp.arange(N) % 4 != 1
    garbage = [cj.Bernoulli(jnp.where(where, model.probs, jnp.nan)) for model in models]
    kept = [model[where] for model in models]
    # The draws of the kept rows alone: of one seed, as many rows.
    compare = jax.jit(lambda *a, where: cj.compare_calibration(*a, where=where))
    found = compare(KEY, kernel, *garbage, jnp.where(where, targets, 7), where=where)
    expected = cj.compare_calibration(KEY, kernel, *kept, targets[where])
    # Outside of jit, where values are looked at, too.
    eager = cj.compare_calibration(KEY, kernel, *garbage, targets.at[1].set(7), where=where)
    assert eager.pvalue == expected.pvalue
    close(found, expected)
    too_few = compare(KEY, kernel, *models, targets, where=jnp.arange(N) < 1)
    bad = compare(KEY, kernel, models[0], garbage[1], targets, where=jnp.ones(N, bool))
    for result in (too_few, bad):
        assert all(jnp.all(jnp.isnan(x)) for x in (result.difference, result.pvalue))
        assert all(map(jnp.isnan, result.confidence_interval()))
    several = jax.jit(cj.compare_calibration)(
        KEY, kernel, models[0], [models[1], garbage[1]], targets
    )
    assert jnp.all(jnp.isnan(several.pvalue)) and not jnp.isnan(several.difference[0])
    batch = jax.tree.map(lambda *x: jnp.stack(x), *(labels(N, seed)[0] for seed in (0, 1)))
    result = jax.vmap(lambda models: cj.compare_calibration(KEY, kernel, *models, targets))(batch)
    assert result.pvalue.shape == result.confidence_interval().low.shape == (2,)
    assert "pvalue of shape (2,)" in repr(result)
    one = cj.compare_calibration(KEY, kernel, *labels(N, 1)[0], targets)
    np.testing.assert_allclose(result.difference[1], one.difference, rtol=1e-10)
    assert result.pvalue[1] == one.pvalue


@pytest.mark.slow
def test_a_model_that_is_sure_and_right(float64):
    (model, *_), targets = labels(200, n_models=3)
    sure = cj.Bernoulli(targets.astype(float))
    result = cj.compare_calibration(KEY, kernel_of(model, sure), model, sure, targets)
    assert result.estimates[1] == 0 and result.pvalue > 0.01
    assert "rare" not in result.method
    low, high = result.confidence_interval()
    # As wide on both sides: the shorter tail of the resamples bounds nothing.
    np.testing.assert_allclose(result.difference - low, high - result.difference, rtol=1e-9)
    assert low < 0 < high


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3])
def test_few_rows(n):
    (first, second), targets = labels(n)
    sure = cj.Bernoulli(targets.astype("float32"))
    result = cj.compare_calibration(KEY, None, first, [second, sure, first], targets)
    assert "rare events" in result.method
    assert jnp.all((result.pvalue > 0) & (result.pvalue <= 1)) and result.pvalue[2] == 1
    assert jnp.all(jnp.isfinite(jnp.stack(result.confidence_interval())))


@pytest.mark.slow
def test_default_kernels(float64):
    rng = np.random.default_rng(0)
    loc, noise = rng.normal(size=(2, N))
    first, second = cj.Normal(jnp.array(loc), 1.0), cj.Normal(jnp.zeros(N), 2.0)
    targets = jnp.array(loc + noise)
    both = jax.tree.map(lambda *x: jnp.concatenate(x), first, second)
    where = jnp.arange(N) > 2
    options = {"n_resamples": 39, "where": where}
    found = cj.compare_calibration(KEY, None, first, second, targets, **options)
    kernel = cj.default_kernel(both, where=jnp.concatenate([where, where]))
    close(found, cj.compare_calibration(KEY, kernel, first, second, targets, **options))
    # Of different families it sees the ranks of locations and spreads among all predictions.
    laplace = cj.Laplace(jnp.array(loc), jnp.full(N, 0.5))
    found = cj.compare_calibration(KEY, None, first, laplace, targets, n_resamples=39)
    in_units = (
        cj.Normal(1e9 * jnp.array(loc), 1e9),
        cj.Laplace(1e9 * jnp.array(loc), jnp.full(N, 5e8)),
        1e9 * targets,
    )
    close(cj.compare_calibration(KEY, None, *in_units, n_resamples=39), found)


def test_default_kernels_of_labels_and_counts(float64):
    (first, _), targets = labels(N)
    categorical = cj.Categorical(jnp.stack([1 - first.probs, first.probs], axis=1))
    found = cj.compare_calibration(KEY, None, first, categorical, targets, n_resamples=39)
    kernel = kernel_of(first)
    np.testing.assert_allclose(found.estimates, cj.skce(kernel, first, targets), rtol=1e-9)
    assert found.pvalue == 1
    # Counts, as numbers if the other model takes them for numbers.
    rate = jnp.linspace(0.5, 3.0, N)
    poisson = cj.Poisson(rate, max_count=64)
    counts = poisson.sample(jax.random.key(0))
    others = cj.NegativeBinomial(rate, jnp.full(N, 5.0), max_count=128), cj.Normal(rate, rate)
    for other in others:
        result = cj.compare_calibration(KEY, None, poisson, other, counts, n_resamples=39)
        assert jnp.all(jnp.isfinite(result.estimates))


def test_bad_arguments(float64):
    (first, second), targets = labels(N)

    def compare(*models, **options):
        return lambda: cj.compare_calibration(KEY, None, *models, targets, **options)

    check_message(compare(first, []), ValueError, "second must hold at least one model")
    check_message(compare(first, targets), TypeError, "second must be predictions or a list")
    check_message(compare(first, [second, 3]), TypeError, r"second\[1\] must be a distribution")
    check_message(compare(first, second[:5]), ValueError, "second must hold n = 24 rows.*got 5")
    check_message(compare(cj.Bernoulli(first.probs + 1), second), ValueError, "probs of first")
    check_message(compare(first, second, n_resamples=0), ValueError, "n_resamples must be at least")
    result = compare(first, first)()
    check_message(lambda: result.confidence_interval(1.5), ValueError, "confidence_level must be")
    check_message(lambda: result.confidence_interval(0.9985), ValueError, "999 resamples")


@pytest.mark.slow
def test_rows_on_many_devices(float64):
    models, targets = labels(48)
    kernel, where = kernel_of(*models), jnp.arange(48) % 5 > 0
    mesh = jax.make_mesh((8,), ("rows",))
    rows = NamedSharding(mesh, PartitionSpec("rows"))
    options = {"n_resamples": 39}
    expected = cj.compare_calibration(KEY, kernel, *models, targets, where=where, **options)
    *models, targets, where = jax.tree.map(
        lambda x: jax.device_put(x, rows), (*models, targets, where)
    )
    with jax.set_mesh(mesh):
        close(
            cj.compare_calibration(KEY, kernel, *models, targets, where=where, **options), expected
        )


LEVEL, N_DATA_SETS = 0.05, 1000


def both_calibrated(key, n):
    x_key, y_key = jax.random.split(key)
    x = jax.random.normal(x_key, (2, n))
    sharp = jax.nn.sigmoid(x[0] + 1.5 * x[1])
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    blunt = jax.nn.sigmoid(x[0][:, None] + jnp.asarray(1.5 * nodes, "float32")[None, :])
    blunt = blunt @ jnp.asarray(weights / weights.sum(), "float32")
    return cj.Bernoulli(blunt), cj.Bernoulli(sharp), jax.random.bernoulli(y_key, sharp)


def equally_wrong(key, n):
    x_key, y_key = jax.random.split(key)
    x = jax.random.normal(x_key, n)
    models = [cj.Bernoulli(jax.nn.sigmoid(x + shift)) for shift in (0.8, -0.8)]
    return *models, jax.random.bernoulli(y_key, jax.nn.sigmoid(x))


def equally_wide(key, n):
    x_key, y_key = jax.random.split(key)
    x = jax.random.normal(x_key, n)
    models = cj.Normal(x + 0.5, jnp.ones(n)), cj.Normal(x - 0.5, jnp.ones(n))
    return *models, x + jax.random.normal(y_key, n)


CASES = {f.__name__: f for f in (both_calibrated, equally_wrong, equally_wide)}


def pvalues(case, n, n_data_sets=N_DATA_SETS):
    def pvalue(key):
        data_key, key = jax.random.split(key)
        return cj.compare_calibration(key, None, *case(data_key, n), n_resamples=199).pvalue

    keys = jax.random.split(jax.random.key(1), n_data_sets)
    return np.asarray(jax.jit(lambda keys: jax.lax.map(pvalue, keys, batch_size=50))(keys))


@pytest.mark.slow
@pytest.mark.parametrize("n", [20, 100])
@pytest.mark.parametrize("name", CASES)
def test_level(name, n):
    rate = np.mean(pvalues(CASES[name], n) <= LEVEL)
    assert rate <= LEVEL + 4 * np.sqrt(LEVEL * (1 - LEVEL) / N_DATA_SETS)
    if name != "both_calibrated":
        assert rate > 0.01  # nor does it never reject


@pytest.mark.slow
def test_power():
    def one_of_two_wrong(key, n):
        first, second, targets = both_calibrated(key, n)
        return first, cj.apply_temperature(second, 0.5), targets

    assert np.mean(pvalues(one_of_two_wrong, 1000, 50) <= LEVEL) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_all_intervals_hold_at_once(level):
    # Three models whose SKCE are known: rows come in four cells, and the kernel tells them apart.
    n, n_data_sets = 200, 600
    truth = jnp.array([0.2, 0.4, 0.6, 0.8])
    said = [truth + jnp.array(shift) for shift in ([0.0] * 4, [0.1] * 4, [0.15, 0, 0, -0.15])]
    distance = cj.EmbeddingDistance(lambda p: jnp.round(p.probs * 0))
    kernel = cj.TensorProduct(cj.DistanceKernel(distance), cj.WhiteKernel())
    # This kernel on predictions is 1: the SKCE is 2 (mean error)^2.
    errors = [2 * float(jnp.mean(p - truth)) ** 2 for p in said]
    expected = errors[0] - np.array(errors[1:])

    def holds(key):
        cell_key, target_key, key = jax.random.split(key, 3)
        cells = jax.random.randint(cell_key, (n,), 0, 4)
        targets = jax.random.bernoulli(target_key, truth[cells])
        first, *others = (cj.Bernoulli(p[cells]) for p in said)
        result = cj.compare_calibration(key, kernel, first, others, targets, n_resamples=199)
        low, high = result.confidence_interval(level)
        return jnp.all((low <= expected) & (expected <= high))

    keys = jax.random.split(jax.random.key(2), n_data_sets)
    rate = np.mean(jax.jit(lambda keys: jax.lax.map(holds, keys, batch_size=50))(keys))
    assert rate >= level - 4 * np.sqrt(level * (1 - level) / n_data_sets)


NETWORKS = "densenet121", "resnet18", "mobilenet_v2"


@pytest.mark.slow
def test_cifar10(reference_folder):
    with np.load(reference_folder / "data" / "cifar10_predictions.npz") as data:
        models = [cj.Categorical(data[name]) for name in NETWORKS]
        targets = data["labels"]
    first, *others = models
    result = cj.compare_calibration(KEY, None, first, others, targets, n_resamples=199)
    # By the kernel of all three, resnet18 has the largest error.
    assert result.estimates[0] < result.estimates[2] < result.estimates[1]
    assert result.pvalue[0] <= 0.01 and result.confidence_interval().high[0] < 0


def grouped(n=60, seed=5):
    """Binary predictions, targets, and a model that is right in group a alone, of three groups."""
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b", "c"], n)
    logits = rng.normal(size=n)
    targets = rng.uniform(size=n) < 1 / (1 + np.exp(-logits))
    sure = np.where(group == "a", 1.0, 4.0)
    return cj.Bernoulli(1 / (1 + np.exp(-sure * logits))), targets.astype(np.int32), group


def test_groups_are_compared_as_their_rows_alone_are(float64):
    predictions, targets, group = grouped()
    kernel = cj.default_kernel(predictions)
    where = np.arange(60) % 7 != 0
    result = cj.compare_groups(
        KEY, kernel, predictions, targets, group, n_resamples=4000, where=where
    )
    assert result.names == ("a", "b", "c")
    alone = [np.asarray(where & (group == name)) for name in result.names]
    h = np.asarray(cj.h_matrix(kernel, predictions, targets))
    errors = []
    for k, rows in enumerate(alone):
        h_of_group, n = h[np.ix_(rows, rows)], rows.sum()
        off_diagonal = h_of_group.sum() - np.trace(h_of_group)
        np.testing.assert_allclose(result.estimates[k], off_diagonal / (n * (n - 1)), rtol=1e-9)
        # The centred bootstrap of one group, with NumPy's random numbers.
        counts = np.random.default_rng(k).multinomial(n, np.full(n, 1 / n), 20_000)
        values = np.einsum("ri,ij,rj->r", counts, h_of_group, counts) / (n * (n - 1))
        errors.append(np.var(values))
    np.testing.assert_allclose(result.difference, result.estimates[0] - result.estimates[1:])
    # Groups vary independently: variances add up.  Both sides are means of that many draws.
    expected = np.sqrt([errors[0] + errors[1], errors[0] + errors[2]])
    np.testing.assert_allclose(result.standard_error, expected, rtol=5 / np.sqrt(4000))


def test_what_groups_share_cancels():
    # Each person has one row in each group, with the same prediction and target.
    predictions, targets, _ = grouped(30)
    twice = jax.tree.map(lambda x: np.concatenate([x, x]), predictions)
    both, group = np.concatenate([targets, targets]), np.repeat(["first", "second"], 30)
    paired = cj.compare_groups(KEY, None, twice, both, group, clusters=np.tile(np.arange(30), 2))
    assert paired.difference == 0 and paired.standard_error < 1e-6 and paired.pvalue == 1
    alone = cj.compare_groups(KEY, None, twice, both, {"visit": group})
    assert alone.names == ("first", "second")
    assert alone.difference == 0 and alone.standard_error > 1e-4


def test_errors_of_groups():
    predictions, targets, group = grouped(30)
    check_message(
        lambda: cj.compare_groups(KEY, None, predictions, targets, group[:9]),
        ValueError,
        r"groups must have shape \[n\] with n = 30 .* got shape \[9\]",
    )
    check_message(
        lambda: cj.compare_groups(KEY, None, predictions, targets, np.full(30, "a")),
        ValueError,
        "groups must hold at least two groups, got 1.",
    )
    check_message(
        lambda: cj.compare_groups(KEY, None, predictions, targets, {"x": group, "y": group}),
        ValueError,
        "groups must be one column, got x, y.",
    )
    check_message(
        lambda: cj.compare_groups(KEY, None, predictions, targets, 1j * np.ones(30)),
        TypeError,
        "groups must hold real numbers, times or categories, got complex128.",
    )
    one = np.where(np.arange(30) == 3, "b", "a")
    check_message(
        lambda: cj.compare_groups(KEY, None, predictions, targets, one),
        ValueError,
        "groups must have at least 2 rows each, got 1 of b.",
    )


@pytest.mark.slow
@pytest.mark.parametrize("sure", [1.0, 2.0])
def test_level_of_groups(sure):
    # Both groups are equally wrong, or both right; the groups have 150 and 100 rows.
    n, n_sets = 250, 300
    group, rejected = np.where(np.arange(n) < 150, "a", "b"), 0
    rng = np.random.default_rng(int(sure))
    for seed in range(n_sets):
        logits = rng.normal(size=n)
        targets = (rng.uniform(size=n) < 1 / (1 + np.exp(-logits))).astype(np.int32)
        predictions = cj.Bernoulli(np.float32(1 / (1 + np.exp(-sure * logits))))
        key = jax.random.key(seed)
        result = cj.compare_groups(key, None, predictions, targets, group, n_resamples=199)
        rejected += bool(result.pvalue <= 0.05)
    error = np.sqrt(0.05 * 0.95 / n_sets)
    assert rejected / n_sets <= 0.05 + 3 * error, rejected / n_sets
