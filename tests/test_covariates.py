"""Tests with covariates: each kernel beside plain sums over pairs, and what must not matter."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import cast
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from marks import slow
from messages import check_message
from scipy import stats
from test_aggregated import all_targets, forms

import calibjax as cj
from benchmarks.works import covariates as benchmark
from calibjax._data.data import as_data
from calibjax.discrepancy import normal_form
from calibjax.expectations.defaults import default_kernels, target_feature_kernels
from calibjax.hypothesis_tests._kernel_terms import terms_of, with_columns
from calibjax.hypothesis_tests._result import KernelResults, named_kernels
from calibjax.nulls.ranks import aggregate

RNG = np.random.default_rng
# With one masked row more, they stay on their bucket.
N = 13
AGE = np.array([30, 41, 30, 22, 57, 38, 41, 19, 63, 30, 25, 47, 33])
FEE = RNG(7).normal(size=N)
RACE = np.array(list("babcabbbacabb"))
COLUMNS = {"age": AGE, "race": RACE, "fee": FEE}
PROBS = 0.05 + 0.85 * RNG(0).dirichlet(np.ones(3), N)
LABELS = RNG(1).integers(3, size=N)
LOC, SCALE = RNG(2).normal(size=N), RNG(3).uniform(0.5, 2.0, N)
TARGETS = LOC + RNG(4).normal(size=N)
WEIGHTS = RNG(5).uniform(0.1, 1.0, N)
WEIGHTS[0], WEIGHTS[5] = 1.0, 0.0


def with_terms(data):
    """The terms of all kernels, and the names of those of covariates."""
    normal_forms = list(map(normal_form, default_kernels(data)))
    judging = target_feature_kernels(data)
    of_columns = [normal_forms[place] for place in judging.values()]
    names = named_kernels(data.covariates.names, list(judging))
    terms = with_columns(terms_of(normal_forms), data, of_columns)
    return terms, [kernel.description for kernel in names]


# The kernels, by their definitions.


def plain_kernel(column, weights, n_cosines, decay, n_categories):
    """The centred kernel of a column, of mean 1 on its diagonal."""
    if column.dtype.kind == "U":
        names, counts = np.unique(column, return_counts=True)
        names = names[np.argsort(-counts, kind="stable")][:n_categories]
        features = (column[:, None] == names[None]).astype(float)
    else:
        u = np.zeros(column.size)
        u[weights > 0] = (stats.rankdata(column[weights > 0]) - 0.5) / np.sum(weights > 0)
        k = np.arange(1, n_cosines + 1)
        features = np.sqrt(2 / k**decay) * np.cos(np.pi * k * u[:, None])
    features = features - np.average(features, axis=0, weights=weights)
    kernel = features @ features.T
    return kernel / np.average(np.diag(kernel), weights=weights)


def centred(kernel, weights):
    """The kernel of the same features less their weighted means."""
    w = weights / weights.sum()
    return kernel - (kernel @ w)[:, None] - (w @ kernel)[None] + w @ kernel @ w


def plain_kernels(columns, coordinates, weights):
    """All kernels of columns by their names, with two columns by the square of a sum."""
    alone = {a: plain_kernel(x, weights, 4, 1, 64) for a, x in columns.items()}
    few = {a: plain_kernel(x, weights, 2, 2, 8) for a, x in columns.items()}
    predicted = np.mean([plain_kernel(x, weights, 2, 2, 8) for x in coordinates], axis=0)
    found = {f"column {a}": kernel for a, kernel in alone.items()}
    found["all columns"] = sum(alone.values()) / len(alone)
    pairs = list(itertools.combinations(few, 2))
    found |= {f"{a} x {b}": centred(few[a] * few[b], weights) for a, b in pairs}
    total = sum(few.values())
    squares = sum(kernel**2 for kernel in few.values())
    found["all pairs"] = centred((total**2 - squares) / 2 / len(pairs), weights)
    found |= {f"predictions x {a}": centred(predicted * k, weights) for a, k in few.items()}
    found["predictions x all columns"] = centred(predicted * total / len(few), weights)
    return found


def check_sums(found, names, kernels, residuals, weights):
    """Rows of `found` are sum_ij w_i w_j k_ij <r_i, r_j> for residuals ``[n, D, M]`` by feature."""
    for name, values in zip(names, found, strict=True):
        kernel, feature = name.rsplit(", ", 1)
        weighted = weights[:, None, None] * residuals[feature]
        expected = np.einsum("ij,idm,jdm->d", kernels[kernel], weighted, weighted)
        np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-9, err_msg=name)


def test_every_draw_of_labels_is_a_plain_sum_over_pairs(key, float64):
    data = as_data(*cast((cj.Categorical(PROBS), LABELS)), weights=WEIGHTS, covariates=COLUMNS)
    terms, names = with_terms(data)
    found = forms(key, terms, data, 19)
    assert found.shape == (6 + 3 * (3 + 1 + 3 + 1 + 3 + 1), 20)
    targets = np.asarray(all_targets(key, data, 19)).T
    indicators = np.eye(3)[targets]
    logs, top = np.log(PROBS), PROBS.argmax(1)
    of_logs = logs[np.arange(N)[:, None], targets] - np.sum(PROBS * logs, axis=1)[:, None]
    residuals = {
        "frequencies": indicators - PROBS[:, None],
        "most likely class": ((targets == top[:, None]) - PROBS.max(1)[:, None])[..., None],
        "log probability": of_logs[..., None],
    }
    kernels = plain_kernels(COLUMNS, [PROBS.max(1)], WEIGHTS)
    check_sums(np.asarray(found)[6:], names, kernels, residuals, WEIGHTS)


def test_sums_of_numbers_are_plain_sums_over_pairs(key, float64):
    data = as_data(*cast((cj.Normal(LOC, SCALE), TARGETS)), covariates=COLUMNS)
    terms, names = with_terms(data)
    found = np.asarray(forms(key, terms, data, 1))[9:, :1]
    z = ((TARGETS - LOC) / SCALE)[:, None, None]
    residuals = {"location": z, "spread": (z**2 - 1) / np.sqrt(2)}
    kernels = plain_kernels(COLUMNS, [LOC, SCALE], np.ones(N))
    check_sums(found, names, kernels, residuals, np.ones(N))


# Families of kernels.


def plain_score(values):
    mean, deviation = values.mean(1, keepdims=True), values.std(1, keepdims=True)
    x = (values - mean) / deviation
    g = np.clip((x**3).mean(1, keepdims=True), 0.05, 2.83)
    return 6 / g * (np.cbrt(np.maximum(1 + g * x / 2, 0.01)) - 1) + g / 6


def test_families_have_the_same_chance(float64):
    values = RNG(3).chisquare([[1.0], [3.0], [30.0], [2.0]], (4, 1000))
    values[1, 0] = 15.0
    found = jax.jit(lambda x: aggregate(x, (0, 1, 1, 1)))(values)
    z = plain_score(values)
    of_families = plain_score(np.stack([z[0], z[1:].max(0)]))
    largest = of_families.max(0)
    np.testing.assert_allclose(found.draws, largest[1:], rtol=1e-9)
    np.testing.assert_allclose(found.pvalue, np.mean(largest >= largest[0]))
    assert found.adjusted_pvalues.min() == found.pvalue < 0.05 < found.adjusted_pvalues.max()
    # The draw of rank 950 is the threshold of all kernels, back on the scale of each of them.
    threshold = np.sort(largest[1:])[949]
    limits = np.asarray(found.errors.quantile(jnp.float64(0.95)))
    exceeds = (values[:, 1:] > limits[:, None]).any(0)
    np.testing.assert_array_equal(exceeds, largest[1:] > threshold)


# What must not matter.

PREDICTIONS = cj.Bernoulli(RNG(8).uniform(0.1, 0.9, N).astype(np.float32))
EVENTS = RNG(9).integers(2, size=N)
TEST = functools.partial(cj.calibration_test, n_resamples=19)


def numbers_of(result):
    return result.null_distribution, result.kernels.scores, result.kernels.adjusted_pvalues


def assert_same(a, b):
    for x, y in zip(numbers_of(a), numbers_of(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-3)


OTHERS = {
    "age": AGE.astype("datetime64[D]"),
    "race": np.array([{"a": "Z", "b": "Y", "c": "X"}[x] for x in RACE], object),
    "fee": np.exp(FEE / 3) - 5,
}


@pytest.mark.parametrize("first_column", slow({"fee"}, ["age", "fee"]))
def test_units_names_and_the_order_of_columns_do_not_matter(first_column, key):
    first = TEST(key, PREDICTIONS, EVENTS, covariates=COLUMNS)
    assert len(first.kernels.kernels) == 6 + 3 * 12
    other = {first_column: OTHERS[first_column], **OTHERS}
    second = TEST(key, PREDICTIONS, EVENTS, covariates=other)
    np.testing.assert_allclose(second.null_distribution, first.null_distribution, rtol=2e-3)
    np.testing.assert_allclose(second.pvalue, first.pvalue)
    ours, theirs = ({e.name: e for e in result.columns} for result in (first, second))
    assert set(ours) == set(theirs) == set(COLUMNS)
    for name, evidence in ours.items():
        np.testing.assert_allclose(theirs[name][1:3], evidence[1:3], rtol=2e-3)
        assert name in evidence.kernel


def test_masked_rows_are_as_if_they_were_dropped(key):
    first = TEST(key, PREDICTIONS, EVENTS, covariates=COLUMNS)
    predictions = cj.Bernoulli(np.append(np.float32(0.5), PREDICTIONS.probs))
    columns = {"age": [np.nan], "race": np.array([None]), "fee": [np.inf]}
    columns = {name: np.concatenate([columns[name], COLUMNS[name]]) for name in COLUMNS}
    masked = TEST(
        key, predictions, np.append(1, EVENTS), covariates=columns, where=np.arange(N + 1) > 0
    )
    assert_same(masked, first)


def test_a_constant_column_says_nothing(key):
    columns = {"age": np.full(N, 7.5), "race": RACE, "fee": FEE}
    evidence = {e.name: e for e in TEST(key, PREDICTIONS, EVENTS, covariates=columns).columns}
    assert evidence["age"].pvalue == 1 and evidence["age"].score == -np.inf
    assert evidence["race"].score > -np.inf and evidence["fee"].score > -np.inf


def test_pvalue_without_covariates_is_that_of_the_test_without_them(key):
    differ = []
    for targets in map(PREDICTIONS.sample, jax.random.split(key, 4)):
        given, without = (TEST(key, PREDICTIONS, targets, covariates=c) for c in (COLUMNS, None))
        assert given.pvalue_without_covariates == without.pvalue
        assert without.pvalue_without_covariates is None
        differ.append(bool(given.pvalue != without.pvalue))
    assert any(differ)


def test_columns_in_words(key):
    result = TEST(key, PREDICTIONS, EVENTS, covariates=COLUMNS)
    words = repr(result.kernels)
    assert "and 22 kernels with smaller scores" in words
    assert {"column age, frequencies", "age x race, log probability"} <= {
        kernel.description for kernel in result.kernels.kernels[6:]
    }
    first, *others = result.columns
    assert first.score >= max(evidence.score for evidence in others)
    assert first.pvalue >= result.pvalue
    no_numbers = [np.zeros(0)] * 4
    with pytest.raises(ValueError, match="columns are those of covariates"):
        _ = dataclasses.replace(result, kernels=KernelResults([], *no_numbers, None)).columns


def test_an_error_of_all_rows_names_no_column():
    """Columns in random order beside a model whose probabilities are those of the other class."""
    events, named, of_kernels = np.asarray(PREDICTIONS.probs) < 0.5, [], []
    for seed in range(60):
        order = RNG(seed).permutation(N)
        columns = {name: values[order] for name, values in COLUMNS.items()}
        key = jax.random.key(seed)
        result = TEST(key, PREDICTIONS, events.astype(int), covariates=columns)
        assert result.pvalue == np.float32(0.05)
        named.append(min(evidence.pvalue for evidence in result.columns) <= 0.051)
        of_kernels.append(result.kernels.adjusted_pvalues[6:].min() <= 0.051)
    # Three standard errors above 0.05; kernels whose residuals vary more than predicted exceed it.
    assert np.mean(named) <= 0.135 < np.mean(of_kernels)


@pytest.mark.slow
def test_inside_jit_and_on_several_devices(key):
    numbers = np.stack([AGE, FEE], axis=1).astype(np.float32)
    outside = TEST(key, PREDICTIONS, EVENTS, covariates=numbers)
    inside = jax.jit(lambda x: TEST(key, PREDICTIONS, EVENTS, covariates=x))
    assert_same(inside(numbers), outside)
    named = jax.jit(lambda x: TEST(key, PREDICTIONS, EVENTS, covariates={"a": x[:, 0], "b": FEE}))
    assert_same(named(numbers), outside)
    numbers[3, 1] = np.nan
    assert np.isnan(inside(numbers).pvalue)
    numbers[3, 1] = FEE[3]
    first = jax.tree.map(lambda x: jnp.asarray(x)[:12], (PREDICTIONS, EVENTS, numbers))
    devices = NamedSharding(Mesh(np.array(jax.devices()[:4]), "rows"), PartitionSpec("rows"))
    on_one, on_four = (
        TEST(key, *rows[:2], covariates=rows[2]) for rows in (first, jax.device_put(first, devices))
    )
    assert_same(on_four, on_one)


class Table:
    """A frame, as pandas and Polars have them."""

    def __init__(self, columns):
        self._columns = columns
        self.columns = list(columns)

    def __getitem__(self, name):
        return self._columns[name]


def test_frames_are_columns():
    given = COLUMNS, Table(COLUMNS)
    ours, theirs = (as_data(PREDICTIONS, EVENTS, covariates=x).covariates for x in given)
    assert ours.names == theirs.names == ("age", "race", "fee")
    assert ours.sizes == theirs.sizes == (0, 3, 0)
    np.testing.assert_array_equal(ours.values, theirs.values)
    np.testing.assert_array_equal(np.asarray(ours.values)[:, 2], stats.rankdata(FEE) - 1)
    # The most frequent category comes first: b, a, c.
    np.testing.assert_array_equal(np.asarray(ours.values)[:6, 1], [0, 1, 0, 2, 1, 0])


def test_more_categories_than_codes():
    n = 400
    names = np.concatenate([np.repeat("often", 100), np.arange(300).astype(str)])
    predictions = cj.Bernoulli(np.full(n, 0.5, np.float32))
    found = as_data(predictions, np.zeros(n, int), covariates={"zip": names}).covariates
    assert found.sizes == (64,)
    codes, counts = np.unique(np.asarray(found.values), return_counts=True)
    np.testing.assert_array_equal(codes, np.arange(64))
    assert counts[0] == 100 and counts[-1] == 300 - 62


ERRORS = {
    "no columns": ({}, ValueError, "covariates must have at least one column, got none"),
    "rows": ({"age": AGE[:5]}, ValueError, "column age of covariates must have shape .n. with n"),
    "NaN": (
        {"fee": np.where(np.arange(N) == 4, np.nan, FEE)},
        ValueError,
        "column fee of covariates must be known in every row; row 4 is nan",
    ),
    "None": (
        {"race": np.where(np.arange(N) == 2, None, RACE)},
        ValueError,
        "column race of covariates must be known in every row; row 2 is None",
    ),
    "array with NaN": (
        np.where(np.arange(N) == 4, np.nan, FEE)[:, None],
        ValueError,
        "column 0 of covariates must be known in every row; row 4 is nan",
    ),
    "one column": (FEE, ValueError, "covariates must have shape .n, d., got shape .13.; array"),
    "list": ([AGE], TypeError, "covariates must be a mapping of names to arrays, such as"),
    "complex": ({"a": FEE * 1j}, TypeError, "column a of covariates must hold real numbers, times"),
    "strings": (RACE[:, None], TypeError, "covariates must hold real values"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name, key):
    covariates, exception, message = ERRORS[name]
    check_message(lambda: TEST(key, PREDICTIONS, EVENTS, covariates=covariates), exception, message)


# The level, and what only covariates show.


@pytest.mark.slow
def test_the_level_by_enumeration_of_all_targets():
    probs = np.array([0.2, 0.5, 0.7, 0.9], np.float32)
    columns = np.array([[0, 1], [2, 0], [1, 1], [1, 2]], np.float32)
    every = np.array(list(itertools.product([0, 1], repeat=4)))
    chances = np.prod(np.where(every == 1, probs, 1 - probs), axis=1)

    @jax.jit
    def pvalues(keys):
        def one(key, targets):
            data = cj.Bernoulli(jnp.asarray(probs)), targets
            return cj.calibration_test(key, *data, n_resamples=9, covariates=columns).pvalue

        of_key = jax.vmap(one, (None, 0))
        return jax.lax.map(lambda key: of_key(key, jnp.asarray(every)), keys)

    # Given the key, the chance of a rejection is a sum over all targets.
    found = np.asarray(pvalues(jax.random.split(jax.random.key(0), 400)))
    for level in (0.1, 0.2, 0.5):
        rates = (found <= level + 1e-6) @ chances
        assert rates.mean() <= level + 3 * rates.std() / np.sqrt(rates.size)
    assert ((found <= 0.1 + 1e-6) @ chances).mean() > 0.02


def rejections(model, n_data_sets, **options):
    """How often the p-value of ``model(key)`` (predictions, targets, columns) is at most 0.05."""

    def one(key):
        of_data, of_test = jax.random.split(key)
        predictions, targets, columns = model(of_data)
        test = functools.partial(cj.calibration_test, n_resamples=99, **options)
        return test(of_test, predictions, targets, covariates=columns).pvalue

    keys = jax.random.split(jax.random.key(1), n_data_sets)
    return float(np.mean(np.asarray(jax.jit(lambda k: jax.lax.map(one, k))(keys)) <= 0.05 + 1e-6))


# What `benchmarks/COVARIATES.md` has, of other data sets, with five columns or the observation.
POWERS = {
    **{
        name: (benchmark.normal(benchmark.ERRORS[name], 5), rate)
        for name, rate in {
            "bias 0.25 sin(1.5 x1)": 0.57,
            "spread exp(0.2 sin(1.5 x1))": 0.645,
            "bias 0.3 sign(x1 x2)": 0.935,
            "bias 0.25 sign(predicted mean) x1": 0.87,
        }.items()
    },
    "the prior for the posterior": (benchmark.simulation("prior"), 0.955),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", POWERS)
def test_power(name):
    model, expected = POWERS[name]
    n_data_sets, n_others = 100, 200
    error = np.sqrt(expected * (1 - expected) * (1 / n_data_sets + 1 / n_others))
    assert rejections(model, n_data_sets) >= expected - 3 * error


@pytest.mark.slow
def test_columns_that_carry_an_error_are_named_first():
    found = [columns_of_300_rows(seed, 0.5, 1.0) for seed in range(20)]
    assert sum({e.name for e in columns[:2]} == {"1", "3"} for columns in found) >= 17
    assert sum(columns[0].pvalue <= 0.051 for columns in found) >= 17


def columns_of_300_rows(seed, effect, spread):
    """The evidence of five columns, of which two together have an effect, beside a wrong spread."""
    x, loc, z = RNG(seed).normal(size=(300, 5)), *RNG(seed + 100).normal(size=(2, 300))
    targets = loc + spread * z + effect * np.sign(x[:, 1] * x[:, 3])
    predictions, targets = cast((cj.Normal(loc, np.ones(300)), targets), "float32")
    key = jax.random.key(seed)
    return cj.calibration_test(key, predictions, targets, n_resamples=99, covariates=x).columns


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.67, 1.5])
def test_noise_beside_a_wrong_spread_is_named_in_one_of_twenty(spread):
    found = [columns_of_300_rows(seed, 0.0, spread) for seed in range(100)]
    named = np.mean([min(e.pvalue for e in columns) <= 0.051 for columns in found])
    assert named <= 0.05 + 3 * 0.022
