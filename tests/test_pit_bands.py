"""Bands of the curves of the PIT and of coverage: their law, and what they depend on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from own_counts import Geometric
from scipy import stats

import calibjax as cj
from calibjax._base.struct import struct
from calibjax.nulls.bands import redrawn_uniform_counts

KEY = jax.random.key(0)
# The same for all tests: bands are compiled once.
FEW = {"n_resamples": 99}


def normal(n, factor=1.0):
    predictions = cj.Normal(jnp.linspace(-1.0, 1.0, n), jnp.linspace(0.5, 2.0, n))
    noise = predictions.sample(jax.random.key(1)) - predictions.loc
    return predictions, predictions.loc + factor * noise


@pytest.mark.slow
def test_an_invalid_row_in_jit_makes_curves_nan():
    predictions, targets = normal(10)

    def curves(targets):
        return [c(KEY, predictions, targets, **FEW) for c in (cj.pit_curve, cj.coverage_curve)]

    histogram, coverage = jax.jit(curves)(targets.at[3].set(jnp.nan))
    for values in (
        *(histogram.density, histogram.pointwise_low, histogram.density_high),
        *(histogram.difference, histogram.difference_low, histogram.confidence_level),
        *(coverage.coverage, coverage.low, coverage.high, coverage.width),
    ):
        assert np.isnan(values).all()


@pytest.mark.slow
def test_a_row_without_a_cdf_is_in_no_bin():
    """max_count, which suits all other rows, is too small for the sums of row 4."""
    predictions = Geometric(jnp.full(60, 0.75).at[4].set(0.9998))
    targets = jnp.full(60, 3).at[4].set(5000)
    curve = cj.pit_curve(jax.random.key(0), predictions, targets, n_bins=8)
    assert curve.count.sum() == 59 and bool(jnp.all(jnp.isnan(curve.density)))
    coverage = cj.coverage_curve(jax.random.key(0), predictions, targets, n_levels=3)
    for numbers in (coverage.coverage, coverage.low, coverage.width):
        assert bool(jnp.all(jnp.isnan(numbers)))
    where = jnp.arange(60) != 4
    kept = cj.coverage_curve(jax.random.key(0), predictions, targets, n_levels=3, where=where)
    assert bool(jnp.all(jnp.isfinite(kept.coverage) & jnp.isfinite(kept.width)))


def test_the_ends_of_bands_are_inside():
    # Compared as pictures do it, and as whole numbers: k / 20 is rounded in more than one way.
    n = 20
    predictions = cj.Normal(jnp.zeros(n), jnp.ones(n))

    @jax.jit
    def curves(keys):
        def of_one(key):
            sample_key, key = jax.random.split(key)
            targets = predictions.sample(sample_key)
            histogram = cj.pit_curve(key, predictions, targets, n_resamples=19)
            coverage = cj.coverage_curve(key, predictions, targets, n_resamples=19)
            return (
                (histogram.density, histogram.density_low, histogram.density_high),
                (histogram.density, histogram.pointwise_low, histogram.pointwise_high),
                (histogram.difference, histogram.difference_low, histogram.difference_high),
                (coverage.coverage, coverage.low, coverage.high),
            )

        return jax.lax.map(of_one, keys)

    for values, low, high in curves(jax.random.split(jax.random.key(2), 100)):
        outside = (values < low) | (values > high)
        np.testing.assert_array_equal(outside, (values < low - 1e-3) | (values > high + 1e-3))
        on_end = (values == low) | (values == high)
        assert (on_end & ~outside).sum() > 10 and outside.any()


@pytest.mark.slow
def test_bands_hold_as_often_as_they_say():
    n, level, rng = 200, 0.9, np.random.default_rng(0)
    curve = cj.pit_curve(KEY, *normal(n), confidence_level=level)
    counts = rng.multinomial(n, np.full(100, 0.01), 20_000)

    def inside(k, low, high):
        low, high = np.asarray(low, float) * n, np.asarray(high, float) * n
        return ((k > low - 1e-3) & (k < high + 1e-3)).all(1).mean()

    bins = counts.reshape(-1, 20, 5).sum(2)
    # 999 draws make the coverage of a band random, with this deviation; 20 000 add little.
    error = np.sqrt(level * (1 - level) * (1 / 999 + 1 / 20_000))
    found = inside(bins, curve.density_low / 20, curve.density_high / 20)
    assert level - 4 * error < found < level + 4 * error + 0.03  # ties
    low, high = curve.difference_low + curve.grid, curve.difference_high + curve.grid
    sums = np.pad(counts.cumsum(1), ((0, 0), (1, 0)))
    assert level - 4 * error < inside(sums, low, high) < level + 4 * error
    # The pointwise band: P(outside) of the binomial law is at most 0.1, and no narrower one does.
    k = np.round(np.asarray([curve.pointwise_low[0], curve.pointwise_high[0]], float) * n / 20)
    law = stats.binom(n, 0.05)
    assert law.cdf(k[1]) - law.cdf(k[0] - 1) >= level
    assert min(law.cdf(k[1] - 1) - law.cdf(k[0] - 1), law.cdf(k[1]) - law.cdf(k[0])) < level


@pytest.mark.slow
def test_bands_depend_on_nothing_but_n_and_the_key():
    predictions, targets = normal(50)
    rates = jnp.full(50, 3.0)
    counts = cj.Poisson(rates, max_count=64), jnp.arange(50) % 7
    labels = cj.Bernoulli(jnp.full(50, 0.3)), jnp.arange(50) % 2
    bands = [cj.pit_curve(KEY, *data, **FEW) for data in ((predictions, targets), counts, labels)]
    for band in bands[1:]:
        np.testing.assert_array_equal(band.difference_low, bands[0].difference_low)
        np.testing.assert_array_equal(band.density_high, bands[0].density_high)


def test_redrawn_counts_are_multinomial():
    n, n_cells, n_draws = 10**6, 10, 2000
    draw = jax.jit(redrawn_uniform_counts, static_argnums=(3, 4, 5))
    # As many cells as there may be, and fewer.
    counts = np.asarray(draw(KEY, jnp.int32(n), n_cells, n_cells + 2, n_draws, jnp.float32))
    assert (counts[:, n_cells:] == 0).all()
    counts = counts[:, :n_cells]
    assert (counts.sum(1) == n).all() and (counts >= 0).all()
    law = stats.binom(n, 1 / n_cells)
    pvalues = [stats.kstest(counts[:, j], law.cdf).pvalue for j in range(n_cells)]
    assert min(pvalues) > 1e-3 / n_cells
    # Two cells of a multinomial law have the correlation -1 / (n_cells - 1).
    correlations = np.corrcoef(counts.T)[np.triu_indices(n_cells, 1)]
    np.testing.assert_allclose(correlations, -1 / (n_cells - 1), atol=5 / np.sqrt(n_draws))


@struct
class WithoutQuantiles(cj.Distribution):
    """A family that has a cdf only."""

    loc: jax.Array
    shapes = {"loc": "n"}

    def mean(self):
        return self.loc

    sample = mean

    def cdf(self, targets):
        return jax.scipy.stats.norm.cdf(targets - self.loc)


@pytest.mark.slow
def test_widths_of_other_families():
    predictions, targets = normal(20)
    unknown = WithoutQuantiles(predictions.loc)
    curve = cj.coverage_curve(KEY, unknown, targets, **FEW)
    assert np.isnan(curve.width).all() and not np.isnan(curve.low).any()

    rates = np.linspace(1.0, 9.0, 20)
    counts = cj.Poisson(jnp.asarray(rates), max_count=64)
    curve = cj.coverage_curve(KEY, counts, jnp.arange(20) % 5, **FEW)
    ends = [stats.poisson.ppf(q, rates[:, None]) for q in (np.r_[21:40] / 40, np.r_[19:0:-1] / 40)]
    np.testing.assert_allclose(curve.width, np.median(ends[0] - ends[1], 0))


def test_errors_name_the_argument():
    predictions, targets = normal(5)
    with pytest.raises(TypeError, match="labels have no central intervals"):
        cj.coverage_curve(KEY, cj.Bernoulli(jnp.full(5, 0.5)), jnp.arange(5) % 2)
    vectors = cj.MultivariateNormalDiag(jnp.zeros((5, 2)), jnp.ones((5, 2)))
    for curve in cj.pit_curve, cj.coverage_curve:
        with pytest.raises(TypeError, match="predictions of vectors"):
            curve(KEY, vectors, jnp.zeros((5, 2)))
        with pytest.raises(ValueError, match="confidence_level must be at most 9 / 10"):
            curve(KEY, predictions, targets, n_resamples=9)
        with pytest.raises(TypeError, match="key must be a typed key"):
            curve(0, predictions, targets)
    with pytest.raises(ValueError, match="n_bins must be between 1"):
        cj.pit_curve(KEY, predictions, targets, n_bins=0)
    with pytest.raises(ValueError, match="n_levels must be between 1"):
        cj.coverage_curve(KEY, predictions, targets, n_levels=0)
