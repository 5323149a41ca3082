"""The laws of the statistics under H0: enumeration, simulation, scipy, published numbers."""

import itertools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import recompute
from instances import sample
from marks import fast_in_float64, slow
from scipy import stats

import calibjax as cj
from calibjax._base.struct import struct
from calibjax._pairwise import tiles
from calibjax._pairwise.tiles import tile_sizes
from calibjax.discrepancy import separate
from calibjax.nulls import bootstrap
from calibjax.residuals.base import TargetResidual

REFERENCE = json.loads(recompute.REFERENCE.read_text())
GOLDEN = REFERENCE["tests"]


@struct
class GivenMatrix(cj.Kernel):
    """Not a kernel, but what gives a matrix as h of labels 0 … n-1."""

    matrix: jax.Array

    domain = "pairs"

    def __call__(self, x, y):
        return self.matrix[x[1], y[1]]


@struct
class GivenProducts(TargetResidual):
    matrix: jax.Array

    def product(self, a, b):
        return self.matrix[a[1], b[1]]

    def deviation(self, a, location):
        return self.product(a, location)


@separate.register
def _given_matrix(kernel: GivenMatrix):
    return cj.DistanceKernel(cj.TotalVariation(), 1e6), GivenProducts(kernel.matrix)


def with_matrix(matrix):
    """kernel, predictions, targets such that h is `matrix`."""
    n = len(matrix)
    return GivenMatrix(jnp.asarray(matrix)), cj.Categorical(jnp.full((n, n), 1 / n)), jnp.arange(n)


def random_matrix(n, rank=3, seed=0):
    factor = np.random.default_rng(seed).normal(size=(n, rank)) / np.arange(1, rank + 1)
    return factor @ factor.T


# The wild bootstrap.


def test_the_distribution_of_all_signs(key, float64):
    n, n_resamples = 7, 20_000
    matrix = random_matrix(n)
    pairs = matrix - np.diag(np.diag(matrix))
    signs = np.array(list(itertools.product((-1, 1), repeat=n)))
    law = np.einsum("ri,ij,rj->r", signs, pairs, signs) / (n - 1)
    options = {"method": "wild", "n_resamples": n_resamples}
    found = cj.asymptotic_skce_test(key, *with_matrix(matrix), **options)
    np.testing.assert_allclose(found.statistic, pairs.sum() / (n - 1), rtol=1e-12)
    # Each sum belongs to a vector and to its negative.
    possible, counts = np.unique(law.round(9), return_counts=True)
    drawn, times = np.unique(np.round(found.null_distribution, 9), return_counts=True)
    np.testing.assert_allclose(drawn, possible, atol=1e-8)
    expected = n_resamples * counts / len(law)
    assert stats.chisquare(times, expected).pvalue > 1e-4
    exact = np.mean(law >= pairs.sum() / (n - 1) - 1e-9)
    error = math.sqrt(exact * (1 - exact) / n_resamples)
    assert abs(found.pvalue - exact) < 4 * error + 1 / n_resamples


# The bootstrap.


def test_the_exact_distribution_of_all_resamples(key, float64):
    bootstrap = REFERENCE["bootstrap"]
    law = recompute.bootstrap_law(np.array(bootstrap["h"]))
    n_resamples = 100_000
    result = cj.asymptotic_skce_test(key, *with_matrix(bootstrap["h"]), n_resamples=n_resamples)
    np.testing.assert_allclose(result.statistic, bootstrap["statistic"], rtol=0, atol=1e-9)
    draws = np.asarray(result.null_distribution)
    # Every draw is one of the law.
    distance = np.abs(np.sort(law)[:, None] - draws[None, :2000]).min(axis=0)
    assert distance.max() < 1e-12
    mean, std = bootstrap["bootstrap_mean"], bootstrap["bootstrap_std"]
    assert abs(draws.mean() - mean) < 4 * std / np.sqrt(n_resamples)
    third, sixth = bootstrap["bootstrap_third"], stats.moment(law, 6)
    fourth = stats.moment(law, 4)
    assert abs(draws.std() - std) < 4 * np.sqrt((fourth - std**4) / n_resamples) / (2 * std)
    of_third = sixth - third**2 + 9 * std**6 - 6 * std**2 * fourth
    assert abs(stats.moment(draws, 3) - third) < 4 * np.sqrt(of_third / n_resamples)
    p = bootstrap["p_value_weak"]
    assert abs(result.pvalue - p) < 4 * np.sqrt(p * (1 - p) / n_resamples)
    # Ours counts the statistic as one more draw.
    at_least = np.sum(draws >= bootstrap["statistic"])
    np.testing.assert_allclose(result.pvalue, (1 + at_least) / (n_resamples + 1))


@pytest.mark.parametrize("n", [2, 600])
@pytest.mark.slow
def test_each_draw_is_that_of_its_resample(n, key, float64):
    matrix = random_matrix(n)
    result = cj.asymptotic_skce_test(key, *with_matrix(matrix), n_resamples=7)
    padded = math.prod(tile_sizes(n))
    counts = 1 + np.asarray(bootstrap.centred_counts(key, jnp.arange(7), padded, n, None))[:, :n]
    centre = matrix.mean(axis=1)
    for count, draw in zip(counts, result.null_distribution, strict=True):
        rows = np.repeat(np.arange(n), count)
        assert len(rows) == n
        unbiased = recompute.unbiased(matrix[np.ix_(rows, rows)])
        np.testing.assert_allclose(draw, unbiased - 2 * centre[rows].mean(), rtol=1e-11, atol=1e-13)


def test_draws_bear_the_rounding_of_products(key, float64):
    """An accelerator rounds values of h to 10 binary digits where they are multiplied by counts."""
    matrix = random_matrix(300, rank=20)
    fraction, exponent = np.frexp(matrix)
    rounded = np.ldexp(np.round(fraction * 2**11) / 2**11, exponent)
    assert 0 < np.max(np.abs(rounded / matrix - 1)) <= 2**-11
    exact, close = (
        cj.asymptotic_skce_test(key, *with_matrix(m), n_resamples=400).null_distribution
        for m in (matrix, rounded)
    )
    assert np.std(close - exact) < 1e-3 * np.std(exact)


def test_counts_are_multinomial(key):
    n, n_kept, n_resamples = 50, 30, 4000
    counts = 1 + np.asarray(bootstrap.centred_counts(key, jnp.arange(n_resamples), n, n_kept, None))
    assert np.all(counts[:, :n_kept].sum(axis=1) == n_kept)
    assert np.all(counts[:, n_kept:] == 1)  # centred, 0: masked rows are never drawn
    observed = np.bincount(counts[:, 0], minlength=8)[:8]
    expected = n_resamples * stats.binom.pmf(np.arange(8), n_kept, 1 / n_kept)
    assert (
        stats.chisquare(observed[:5], expected[:5] * observed[:5].sum() / expected[:5].sum())[1]
        > 1e-4
    )
    correlation = np.corrcoef(counts[:, :2].T)[0, 1]
    assert abs(correlation + 1 / (n_kept - 1)) < 4 / np.sqrt(n_resamples)


@pytest.mark.slow
def test_draws_depend_on_the_key_and_their_number_alone(key, float64, monkeypatch):
    arguments = sample("categorical-tv-white", 50)

    def draws(n_resamples, key=key):
        jax.clear_caches()
        return cj.asymptotic_skce_test(key, *arguments, n_resamples=n_resamples).null_distribution

    expected = draws(25)
    assert len(np.unique(expected)) == 25
    np.testing.assert_allclose(draws(10), expected[:10], rtol=1e-11)
    assert not np.any(np.isclose(draws(25, jax.random.key(1)), expected))
    monkeypatch.setattr(bootstrap, "_TOGETHER", 8)  # 4 chunks of 7, the last one of 4
    monkeypatch.setattr(bootstrap, "_DRAWS", 100)
    np.testing.assert_allclose(draws(25), expected, rtol=1e-11)
    monkeypatch.setattr(tiles, "most_tile_rows", lambda: 16)
    np.testing.assert_allclose(draws(25), expected, rtol=1e-11)


# The limit law.


def test_spectrum_draws_the_limit_distribution(key, float64):
    n, n_resamples = 60, 20_000
    arguments = golden_arguments()
    draws = cj.asymptotic_skce_test(
        key, *arguments, n_resamples=n_resamples, method="spectrum"
    ).null_distribution
    eigenvalues = np.linalg.eigvalsh(np.asarray(cj.h_matrix(*arguments)) / n)
    top = np.sort(eigenvalues)[:-6:-1]
    np.testing.assert_allclose(top, GOLDEN["eigenvalues_h_over_n_top5"], rtol=0, atol=1e-9)
    normal = np.random.default_rng(0).normal(size=(n_resamples, n))
    expected = (normal**2 - 1) @ eigenvalues
    assert stats.ks_2samp(draws, expected).pvalue > 1e-4
    t2, t3 = GOLDEN["trace_h2_over_n2"], GOLDEN["trace_h3_over_n3"]
    t4 = np.sum(eigenvalues**4)
    fourth = 48 * t4 + 12 * t2**2
    spread = np.sqrt((fourth - (2 * t2) ** 2) / n_resamples)
    assert abs(draws.mean()) < 4 * np.sqrt(2 * t2 / n_resamples)
    assert abs(draws.var() - 2 * t2) < 4 * spread
    assert abs(stats.skew(draws) - 8 * t3 / (2 * t2) ** 1.5) < 0.3


def golden_arguments(dtype="float64"):
    kernel = cj.TensorProduct(
        cj.DistanceKernel(
            cj.TotalVariation(), GOLDEN["kernel"]["prediction"]["lengthscale"], exponent=1.0
        ),
        cj.WhiteKernel(),
    )
    return kernel, cj.Categorical(jnp.asarray(GOLDEN["probs"], dtype)), jnp.array(GOLDEN["targets"])


def golden_moments():
    n = len(GOLDEN["targets"])
    t1 = GOLDEN["biased"] * n - GOLDEN["unbiased"] * (n - 1)  # the mean of h_ii
    return n * GOLDEN["unbiased"], t1, GOLDEN["trace_h2_over_n2"], GOLDEN["trace_h3_over_n3"]


@fast_in_float64
def test_gamma_and_pearson_are_scipys(key, dtype):
    statistic, t1, t2, t3 = golden_moments()
    expected = {
        # Laws of two and of three given moments: mean t1, variance 2 t2, third moment 8 t3.
        "gamma": stats.gamma.sf(statistic + t1, t1**2 / (2 * t2), scale=2 * t2 / t1),
        "pearson": stats.pearson3.sf(
            statistic, skew=8 * t3 / (2 * t2) ** 1.5, loc=0, scale=np.sqrt(2 * t2)
        ),
    }
    for method, pvalue in expected.items():
        result = cj.asymptotic_skce_test(key, *golden_arguments(dtype), method=method)
        tolerance = {"float64": 1e-9, "float32": 2e-5}[dtype]
        np.testing.assert_allclose(result.statistic, statistic, rtol=tolerance)
        np.testing.assert_allclose(result.pvalue, pvalue, rtol=tolerance)
        assert result.null_distribution is None


@pytest.mark.slow
def test_all_methods_agree_on_much_data(key):
    # Their laws have the same limit; the level of each is tested elsewhere.
    predictions = cj.Bernoulli(jax.random.uniform(key, 500))
    targets = jax.random.bernoulli(jax.random.key(3), predictions.probs * 0.93 + 0.04)
    kernel = cj.default_kernel(predictions)
    pvalues = [
        cj.asymptotic_skce_test(key, kernel, predictions, targets, method=method).pvalue
        for method in ("bootstrap", "spectrum", "gamma", "pearson")
    ]
    standard_error = np.sqrt(pvalues[0] * (1 - pvalues[0]) / 1000)
    np.testing.assert_allclose(pvalues, pvalues[0], atol=float(6 * standard_error))


def test_hajek_standard_error(key, float64):
    # A miscalibrated model: the standard deviation of the estimate over data sets.
    @jax.jit
    @jax.vmap
    def estimates(key):
        predictions = cj.Bernoulli(jax.random.uniform(key, 200))
        targets = jax.random.bernoulli(jax.random.fold_in(key, 1), predictions.probs**3)
        kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), 0.5), cj.WhiteKernel())
        result = cj.asymptotic_skce_test(key, kernel, predictions, targets, method="gamma")
        return result.estimate, result.standard_error

    found, errors = estimates(jax.random.split(key, 400))
    # The spread of a standard deviation is sqrt(1 / 2N); the jackknife bias is of order 1/n.
    np.testing.assert_allclose(np.std(found), np.mean(errors), rtol=4 * np.sqrt(1 / 800) + 1 / 200)


# Blocks.


@pytest.mark.parametrize("size", [2, 7])
@pytest.mark.parametrize("variance", ["blocks", "null"])
def test_block_test(size, variance, float64):
    arguments = golden_arguments()
    result = cj.asymptotic_block_skce_test(*arguments, block_size=size, variance=variance)
    golden = GOLDEN["block"][str(size)]
    np.testing.assert_allclose(result.estimate, golden["estimate"], rtol=0, atol=1e-9)
    if variance == "blocks":
        np.testing.assert_allclose(result.statistic, golden["statistic"], rtol=0, atol=1e-9)
        np.testing.assert_allclose(result.pvalue, golden["pvalue"], rtol=0, atol=1e-9)
    matrix = np.asarray(cj.h_matrix(*arguments))
    blocks = [matrix[s : s + size, s : s + size] for s in range(0, 60 - size + 1, size)]
    standard_error = stats.sem([recompute.unbiased(block) for block in blocks])
    np.testing.assert_allclose(result.standard_error, standard_error, rtol=1e-12)
    if variance == "null":
        square = np.mean([recompute.unbiased(block**2) for block in blocks])
        z = result.estimate / np.sqrt(2 * square / (size * (size - 1)) / len(blocks))
        np.testing.assert_allclose(result.statistic, z, rtol=1e-12)
        np.testing.assert_allclose(result.pvalue, stats.norm.sf(z), rtol=1e-12)


@pytest.mark.slow
def test_blocks_with_a_masked_row_do_not_count(float64):
    kernel, predictions, targets = sample("normal-w2-gaussian", 20)
    where = jnp.ones(20, bool).at[jnp.array([4, 12, 14])].set(False)
    kept = np.repeat([True, False, True, False, True], 4)  # blocks of 4
    dropped = jax.tree.map(lambda x: x[kept], (predictions, targets))
    expected = cj.asymptotic_block_skce_test(kernel, *dropped, block_size=4)
    found = cj.asymptotic_block_skce_test(kernel, predictions, targets, block_size=4, where=where)
    np.testing.assert_allclose(found.statistic, expected.statistic, rtol=1e-12)
    for target in ("asymptotic_block", "distribution_free"):
        test = getattr(cj, f"{target}_skce_test")
        with pytest.raises(ValueError, match="where must leave at least . complete blocks of 4"):
            test(kernel, predictions, targets, block_size=4, where=jnp.arange(20) % 4 < 2)


# Test locations.


def golden_locations(dtype="float64"):
    probs = jnp.asarray(GOLDEN["test_probs"], dtype)
    return cj.Categorical(probs), jnp.array(GOLDEN["test_targets"])


@fast_in_float64
def test_cme_test(dtype):
    arguments = *golden_arguments(dtype), *golden_locations(dtype)
    atol = {"float64": 1e-9, "float32": 1e-5}[dtype]
    np.testing.assert_allclose(cj.ucme(*arguments), GOLDEN["ucme"], rtol=0, atol=atol)
    result = cj.asymptotic_cme_test(*arguments)
    np.testing.assert_allclose(result.estimate, GOLDEN["ucme"], rtol=0, atol=atol)
    for number, expected in GOLDEN["cme"].items():
        np.testing.assert_allclose(getattr(result, number), expected, rtol=0, atol=atol)


def test_test_locations(key):
    predictions = cj.Bernoulli(jnp.linspace(0, 1, 40))
    where = jnp.arange(40) % 4 != 1
    (locations, targets), again, other = (
        cj.sample_test_locations(k, predictions, 30, where=where)
        for k in (key, key, jax.random.key(7))
    )
    np.testing.assert_array_equal(np.sort(locations.probs), predictions.probs[where])
    np.testing.assert_array_equal(locations.probs, again[0].probs)
    assert not np.array_equal(locations.probs, other[0].probs)
    # Targets are drawn from the predictions of the locations.
    np.testing.assert_array_equal(targets[(locations.probs == 0)], 0)
    np.testing.assert_array_equal(targets[(locations.probs == 1)], 1)


def test_the_cme_test_sees_only_its_locations(key):
    # Wrong for predictions below one half; locations above it see nothing of that.
    predictions = cj.Bernoulli(jnp.linspace(0.05, 0.95, 2000))
    probs = jnp.where(predictions.probs < 0.5, 1 - predictions.probs, predictions.probs)
    targets = jax.random.bernoulli(key, probs)
    kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), 0.02), cj.WhiteKernel())
    blind = cj.Bernoulli(jnp.array([0.7, 0.8, 0.9])), jnp.ones(3, int)
    seeing = cj.Bernoulli(jnp.array([0.1, 0.2, 0.3])), jnp.ones(3, int)
    assert cj.asymptotic_cme_test(kernel, predictions, targets, *blind).pvalue > 0.01
    assert cj.asymptotic_cme_test(kernel, predictions, targets, *seeing).pvalue < 1e-6
    assert jnp.all(cj.witness(kernel, predictions, targets, *seeing) > 0)


# Bounds.


def test_distribution_free_test(float64):
    for estimate, pvalue in GOLDEN["distribution_free"].items():
        unbiased = estimate == "unbiased"
        result = cj.distribution_free_skce_test(*golden_arguments(), unbiased=unbiased)
        np.testing.assert_allclose(result.pvalue, pvalue, rtol=0, atol=1e-9)
        np.testing.assert_allclose(result.estimate, GOLDEN[estimate], rtol=0, atol=1e-9)


# (n, block_size), number of independent pairs: floor(n / B) floor(B / 2).
PAIRS = [
    ((21, None), 10),
    ((20, None), 10),
    ((21, 2), 10),
    ((21, 3), 7),
    ((21, 4), 10),
    ((9, 5), 2),
]


@pytest.mark.parametrize(("sizes", "pairs"), slow([PAIRS[1], PAIRS[2], PAIRS[4]], PAIRS))
def test_exponents_of_the_bound(sizes, pairs, float64):
    n, block_size = sizes
    predictions, targets = cj.Bernoulli(jnp.full(n, 0.3)), jnp.ones(n, int)
    kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation()), 3.0 * cj.WhiteKernel())
    result = cj.distribution_free_skce_test(kernel, predictions, targets, block_size=block_size)
    # h = 3 * 2 * 0.7^2 for all pairs, |h| <= 6.
    np.testing.assert_allclose(result.estimate, 2.94, rtol=1e-12)
    np.testing.assert_allclose(result.pvalue, np.exp(-pairs * 0.49**2 / 2), rtol=1e-12)


@pytest.mark.slow
def test_no_estimate_below_zero_counts_against_a_model(float64):
    # Alternating targets: pairs of neighbours have a negative h, and the bound has none of it.
    predictions, targets = cj.Bernoulli(jnp.full(1000, 0.5)), jnp.arange(1000) % 2
    kernel = cj.default_kernel(predictions)
    result = cj.distribution_free_skce_test(kernel, predictions, targets, block_size=2)
    assert result.estimate == -0.5 and result.pvalue == 1
    # A biased estimate that rounding makes negative does not become NaN.
    result = cj.distribution_free_skce_test(kernel, predictions, targets, unbiased=False)
    assert result.pvalue == 1


# Simulation.


@pytest.mark.slow
def test_consistency_test_of_a_count(key):
    # The sum of n fair coins is binomial, whatever is resampled.
    n, n_resamples = 30, 5000

    def count(predictions, targets):
        return jnp.sum(targets)

    targets = jnp.arange(n) < 19
    predictions = cj.Bernoulli(jnp.full(n, 0.5))
    result = cj.consistency_test(key, count, predictions, targets, n_resamples=n_resamples)
    p = stats.binom.sf(18, n, 0.5)
    assert result.statistic == 19
    assert abs(result.pvalue - p) < 4 * np.sqrt(p * (1 - p) / n_resamples)
    observed = np.bincount(np.asarray(result.null_distribution, int), minlength=31)[10:21]
    expected = stats.binom.pmf(np.arange(10, 21), n, 0.5)
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-4
    fewer = cj.consistency_test(key, count, predictions, targets, n_resamples=100)
    np.testing.assert_array_equal(fewer.null_distribution, result.null_distribution[:100])


def test_consistency_test_resamples_predictions_too(key):
    # 10 predictions, 5000 resamples: each comes in every tenth draw, its target with its law.
    probs = jnp.linspace(0.05, 0.95, 10)

    def of_first(predictions, targets):
        return jnp.mean(jnp.where(predictions.probs == probs[2], 1 + targets, 0))

    predictions = cj.Bernoulli(probs)
    options = {"n_resamples": 5000, "null": "consistency"}
    result = cj.consistency_test(key, of_first, predictions, jnp.zeros(10, int), **options)
    draws = np.asarray(result.null_distribution)
    expected = 0.1 * (1 + probs[2])
    assert abs(draws.mean() - expected) < 4 * draws.std() / np.sqrt(5000)


def test_consistency_test_with_parameters_compiles_once(key):
    predictions, targets = cj.Bernoulli(jnp.linspace(0, 1, 20)), jnp.arange(20) % 2
    # No list: a function whose closure has changed is another function.
    traces, counts = itertools.count(), []

    def power(exponent, predictions, targets):
        next(traces)
        return jnp.mean(jnp.abs(targets.astype("float32") - predictions.probs) ** exponent)

    for exponent in (1.0, 2.0):
        estimator = jax.tree_util.Partial(power, exponent)
        result = cj.consistency_test(key, estimator, predictions, targets, n_resamples=50)
        expected = np.mean(np.abs(np.asarray(targets) - np.linspace(0, 1, 20)) ** exponent)
        np.testing.assert_allclose(result.statistic, expected, rtol=1e-6)
        counts.append(next(traces))
    assert counts[0] + 1 == counts[1]


@pytest.mark.slow
def test_consistency_test_in_a_batch_or_one_by_one(key, monkeypatch):
    from calibjax.hypothesis_tests import _consistency

    kernel, predictions, targets = sample("categorical-tv-white", 20, dtype="float32")
    estimator = jax.tree_util.Partial(cj.skce, kernel)
    expected = cj.consistency_test(key, estimator, predictions, targets, n_resamples=10)
    jax.clear_caches()
    monkeypatch.setattr(_consistency, "ROWS_OF_SETS", 60)
    found = cj.consistency_test(key, estimator, predictions, targets, n_resamples=10)
    np.testing.assert_allclose(found.null_distribution, expected.null_distribution, atol=1e-7)
