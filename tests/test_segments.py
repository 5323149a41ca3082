"""Segments of rows, tested all at once, against plain loops of NumPy and laws of SciPy."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from instances import depending
from marks import slow

import calibjax as cj
from calibjax._data.data import as_data, clean
from calibjax._numbers.unit_interval import UnitInterval
from calibjax.nulls.draws import draw_pits, draw_targets
from calibjax.nulls.ranks import normal_scores
from calibjax.nulls.sampler import turns
from calibjax.residuals.readable import Coverage, LocationAndSpread, NumberStatistics
from calibjax.segments import _segments, read_columns
from calibjax.segments._effects import effects_of, in_units_of_forecast
from calibjax.segments._effects import in_words as effect_in_words
from calibjax.segments._result import Range
from calibjax.segments._segment_sums import SegmentSums, sums_at

N, R = 120, 99
RNG = np.random.default_rng
KEY = jax.random.key(3)
GROUPS = {
    "region": RNG(0).choice(["north", "south"], N),
    "lead": RNG(1).integers(1, 4, N),
    "age": RNG(2).uniform(20, 60, N),
}
WEIGHTS = RNG(3).uniform(0.2, 2.0, N).astype(np.float32)
PROBS = RNG(4).uniform(0.1, 0.9, N).astype(np.float32)
EVENTS = (RNG(5).uniform(size=N) < PROBS).astype(np.int32)
LOC = RNG(6).normal(size=N).astype(np.float32)
NUMBERS = (LOC + 1.2 * RNG(7).normal(size=N)).astype(np.float32)


# The numbers of the rows, and of groups of draws.
DRAWS = jnp.arange(N), jnp.arange(1)


def events(**options):
    options = {"n_resamples": R, **options}
    return cj.segment_test(KEY, cj.Bernoulli(PROBS), EVENTS, GROUPS, **options)


def numbers(**options):
    options = {"n_resamples": R, **options}
    predictions = cj.Normal(LOC, np.ones(N, np.float32))
    return cj.segment_test(KEY, predictions, NUMBERS, GROUPS, **options)


def members(result):
    """Which rows each segment has, ``[S, n]``, from the names of its levels alone."""
    edges = np.sort(GROUPS["age"])[[0, 30, 60, 90]]
    quarter = np.searchsorted(edges, GROUPS["age"], side="right") - 1
    columns = {name: GROUPS[name].astype(str) for name in ("region", "lead")}
    quarters = [GROUPS["age"][quarter == k] for k in range(4)]
    texts = np.array([f"{x.min():.4g} to {x.max():.4g}" for x in quarters])
    columns["age"] = texts[quarter]
    return np.array(
        [
            np.all([columns[c] == level for c, level in pairs] or [np.ones(N, bool)], axis=0)
            for pairs in result.names.conditions
        ]
    )


def wilson_hilferty(z, skewness):
    g = np.clip(skewness, -0.5, 0.5)
    with np.errstate(all="ignore"):
        found = 6 / g * (np.cbrt(1 + g * z / 2) - 1) + g / 6
    return np.where(np.abs(g) > 1e-6, found, z)


def scores_by_hand(residuals, weights, members, variance, third):
    """``[D, S, J]``, of residuals ``[D, n, J]`` and moments of the model ``[n, J]``."""
    sums = np.einsum("sn,n,dnj->dsj", members, weights, residuals)
    of_squares = np.einsum("sn,n,nj->sj", members, weights**2, variance)
    of_cubes = np.einsum("sn,n,nj->sj", members, weights**3, third)
    return wilson_hilferty(sums / np.sqrt(of_squares), of_cubes / of_squares**1.5)


def drawn_events():
    return np.asarray(draw_targets(KEY, cj.Bernoulli(PROBS), DRAWS[0], jnp.int32(0))).T


def of_rate_and_slope(row, w):
    """What residuals of events are multiplied with in a segment, and their variance."""
    p = PROBS.astype(float)
    v, logits = p * (1 - p), np.log(p / (1 - p))
    # No further from the mean of all rows than two deviations.
    mean = np.average(logits, weights=w * v)
    most = 2 * np.average((logits - mean) ** 2, weights=w * v) ** 0.5
    logits = np.clip(logits, mean - most, mean + most)
    middle = np.sum(row * w**2 * v * logits) / np.sum(row * w**2 * v)
    return np.stack([np.ones(N), logits - middle], axis=1), v


def test_rates_are_those_of_plain_loops():
    result = events(weights=WEIGHTS)
    p, rows, w = PROBS.astype(float), members(result), WEIGHTS.astype(float)
    sets = np.concatenate([EVENTS[None], drawn_events()[:R]])
    found, is_tested = np.zeros((R + 1, rows.shape[0], 2)), []
    for s, row in enumerate(rows):
        of_both, v = of_rate_and_slope(row, w)
        third = v * (1 - 2 * p)
        residuals = (sets - p)[:, :, None] * of_both
        moments = v[:, None] * of_both**2, third[:, None] * of_both**3
        found[:, s] = scores_by_hand(residuals, w, row[None], *moments)[:, 0]
        is_tested.append(np.sum(row * w * v) ** 2 / np.sum(row * w**2 * v) >= 2)
    np.testing.assert_array_equal(result.sums.is_tested, np.stack([is_tested] * 2, axis=1))
    found = np.where(result.sums.is_tested, found, 0.0)
    np.testing.assert_allclose(result.sums.scores, found[0], atol=2e-4)
    maxima = np.abs(found[1:]).max(axis=(1, 2))
    np.testing.assert_allclose(result.null_distribution, maxima, atol=2e-4)
    expected = (1 + np.sum(maxima[:, None, None] >= np.abs(found[0]), axis=0)) / (R + 1)
    np.testing.assert_allclose(result.sums.pvalues, expected, rtol=1e-5)
    np.testing.assert_allclose(result.pvalue, expected.min(), rtol=1e-5)


def normal_residuals(z):
    return np.stack([z, (z**2 - 1) / 2**0.5, (np.abs(z) < 1.6448536) - 0.9], axis=-1)


def moments_of_normal():
    """The second and third moments of the three statistics of a number, by quadrature."""
    found = []
    for power in (2, 3):
        # The coverage jumps at the two quantiles.
        parts = zip([-12, -1.6448536, 1.6448536], [-1.6448536, 1.6448536, 12], strict=True)
        found.append(
            sum(
                scipy.integrate.quad_vec(
                    lambda z, k=power: normal_residuals(z) ** k * scipy.stats.norm.pdf(z), *ends
                )[0]
                for ends in parts
            )
        )
    return found


def test_numbers_are_those_of_plain_loops():
    result = numbers()
    second, third = (np.tile(x, (N, 1)) for x in moments_of_normal())
    u, above = (np.asarray(x, float).T[:R] for x in draw_pits(KEY, *DRAWS, jnp.float32))
    drawn = np.where(u < 0.5, scipy.stats.norm.ppf(u), scipy.stats.norm.isf(above))
    z = np.concatenate([(NUMBERS - LOC)[None], drawn])
    expected = np.zeros((R + 1, *result.sums.scores.shape))
    for s, row in enumerate(members(result)):
        residuals = normal_residuals(z)
        # The sum of squares around the mean of a segment of n rows has the mean n - 1.
        around = z - z[:, row].mean(axis=1, keepdims=True)
        residuals[..., 1] = (around**2 - 1 + 1 / row.sum()) / 2**0.5
        by_hand = scores_by_hand(residuals, np.ones(N), row[None], second, third)
        expected[:, s] = by_hand[:, 0]
    np.testing.assert_allclose(result.sums.scores, expected[0], atol=1e-3)
    maxima = np.abs(expected[1:]).max(axis=(1, 2))
    np.testing.assert_allclose(result.null_distribution, maxima, atol=1e-3)


@pytest.mark.parametrize("unit", ["clusters", "times"])
def test_residuals_of_dependent_rows_are_multiplied(unit):
    numbers = (np.arange(N) // 6).astype(np.int32)
    options = {"clusters": numbers} if unit == "clusters" else {"times": numbers, "horizon": 2}
    data = depending(as_data(cj.Bernoulli(PROBS), EVENTS), **options)
    result = events(**options)
    words = "signs" if unit == "clusters" else "rotations"
    assert result.method == f"segment_test, 99 random {words} of 20 {unit}"
    of_units = turns(clean(data), None, None)
    xi = np.asarray(of_units.values(of_units.rows, of_units.shared(DRAWS[1])), float).T
    p, drawn, w = PROBS.astype(float), drawn_events(), np.ones(N)
    maxima = np.zeros(R)
    for s, row in enumerate(members(result)):
        of_both, v = of_rate_and_slope(row, w)
        observed = row[:, None] * (EVENTS - p)[:, None] * of_both
        redrawn = np.einsum("dn,nj->dj", drawn - p, row[:, None] * of_both)
        variance = np.sum(row[:, None] * v[:, None] * of_both**2, axis=0)
        missing = np.sqrt(np.maximum(1 - np.sum(observed**2, axis=0) / variance, 0))
        sums = np.concatenate([observed.sum(axis=0)[None], (xi @ observed + missing * redrawn)[:R]])
        # Random signs make sums symmetric: no skewness.  All data sets say how much sums vary.
        z = np.abs(sums) / np.sqrt(np.mean(sums**2, axis=0))
        z = np.where(result.sums.is_tested[s], z, 0.0)
        np.testing.assert_allclose(np.abs(result.sums.scores[s]), z[0], atol=2e-3)
        maxima = np.maximum(maxima, z[1:].max(axis=1))
    np.testing.assert_allclose(result.null_distribution, maxima, atol=2e-3)


def test_levels_that_are_too_small_are_named():
    """They were missing from the table without a word."""
    topic = np.where(np.arange(N) < 5, "art", "law")
    groups = {"topic": topic, "copy": topic == "law", "half": np.arange(N) // (N // 2)}
    predictions = cj.Normal(LOC, np.ones(N, np.float32))
    result = cj.segment_test(KEY, predictions, NUMBERS, groups, n_resamples=R)
    assert result.too_small == {"topic": ["art"], "copy": ["False"]}
    assert "not tested (too few rows): topic art" in repr(result).splitlines()
    assert result.to_dict()["too_small"] == result.too_small
    names = result.names._replace(cut=("store", "age"))
    cut = dataclasses.replace(result, names=names).notes()[-1]
    assert cut == "cut at quartiles: store, age, as numbers; if they name things, pass texts"


def test_what_is_printed_and_saved():
    result = numbers()
    worst = result.segments[0]
    assert worst.pvalue == pytest.approx(float(result.pvalue))
    assert abs(worst.score) == pytest.approx(float(result.statistic), rel=1e-5)
    lines = repr(result).splitlines()
    assert lines[0] == result.verdict() and lines[4] == "not significant:"
    assert worst.name in lines[5]
    share = dataclasses.replace(worst, statistic="rate", expected=Range(0.0923, 0.77))
    assert share.expected_text == "9.2 … 77.0 %"
    spread = dataclasses.replace(share, statistic="spread")
    assert spread.expected_text == "0.0923 … 0.77"
    saved = json.loads(json.dumps(result.to_dict()))
    assert saved["segments"][0]["description"] == worst.description and saved["n_segments"] > 10
    assert len(saved["segments"]) == np.sum(result.sums.is_tested)


@pytest.mark.parametrize("result", [events, numbers])
def test_ranges_agree_with_the_test(result):
    result = result(weights=WEIGHTS)
    for x in result.segments:
        level = 1 / (R + 1)
        is_outside = not x.interval.low <= 0 <= x.interval.high
        assert is_outside == (x.pvalue <= 0.05 + level / 2), x
        assert is_outside == (not x.expected.low <= x.observed <= x.expected.high), x
        assert x.interval.low <= x.value <= x.interval.high
        assert x.value == pytest.approx(x.observed - x.predicted)


def test_rows_of_a_segment():
    result = events()
    rows = members(result)
    for x in result.segments[:5]:
        s = result.names.segments.index(x.name)
        np.testing.assert_array_equal(result.rows(x), np.flatnonzero(rows[s]))
        assert x.n == rows[s].sum()
        assert x.n_effective == pytest.approx(x.n)


def test_masked_rows_are_dropped_rows():
    where = np.arange(N) % 8 != 3
    masked = events(where=where)
    groups = {name: column[where] for name, column in GROUPS.items()}
    predictions = cj.Bernoulli(PROBS[where])
    alone = cj.segment_test(KEY, predictions, EVENTS[where], groups, n_resamples=R)
    assert masked.names == alone.names
    np.testing.assert_allclose(masked.sums.scores, alone.sums.scores, atol=1e-5)
    np.testing.assert_allclose(masked.null_distribution, alone.null_distribution, atol=1e-5)
    assert masked.pvalue == alone.pvalue


def test_the_order_of_rows_and_columns_does_not_matter():
    order = RNG(9).permutation(N)
    groups = {name: column[order] for name, column in reversed(GROUPS.items())}
    found = cj.segment_test(KEY, cj.Bernoulli(PROBS[order]), EVENTS[order], groups, n_resamples=R)

    def scores(result):
        return {(frozenset(x.conditions.items()), x.statistic): x.score for x in result.segments}

    assert scores(found) == pytest.approx(scores(events()), abs=1e-4)


def test_scores_of_gamma_variables():
    """Wilson and Hilferty's transformation makes gamma variables normal, and can be undone."""
    shape = 30.0
    quantiles = scipy.stats.gamma(shape).ppf(np.linspace(0.01, 0.99, 15))
    z = (quantiles - shape) / shape**0.5
    for sign in (1, -1):
        skewness = sign * 2 / shape**0.5
        found = normal_scores(jnp.asarray(sign * z, jnp.float32), jnp.float32(skewness))
        expected = sign * scipy.stats.norm.ppf(np.linspace(0.01, 0.99, 15))
        np.testing.assert_allclose(found, expected, atol=0.01)
        for score, value in zip(np.asarray(found), sign * z, strict=True):
            np.testing.assert_allclose(sums_at(score, np.array(skewness)), value, rtol=1e-4)


@pytest.mark.parametrize(
    ("statistic", "observed", "is_chance", "words"),
    [
        ("calibration slope", -0.2, False, "strongly over-confident"),
        ("calibration slope", 0.16, False, "strongly over-confident"),
        ("calibration slope", 0.84, False, "over-confident: calibration slope about 0.84"),
        ("calibration slope", 1.2, False, "under-confident: calibration slope about 1.2"),
        ("calibration slope", 1.003, False, "under-confident: calibration slope about 1.003"),
        ("calibration slope", 1.6, False, "strongly under-confident"),
        ("calibration slope", 1.003, True, "calibration slope 1.003 (too moderate)"),
        ("calibration slope", 1.0, True, "calibration slope 1"),
        ("calibration slope", 1 - 1e-9, True, "calibration slope 1"),
        ("calibration slope", 0.84, True, "calibration slope 0.84 (too extreme)"),
        ("spread", 1.25, False, "under-dispersive: predicted spread 20 % too small"),
        ("spread", 1.004, False, "under-dispersive: predicted spread 0.4 % too small"),
    ],
)
def test_a_slope_is_a_factor_where_it_is_near_1_and_no_chance(
    statistic, observed, is_chance, words
):
    assert effect_in_words(statistic, observed, 1.0, is_chance=is_chance) == words


def one_segment(**given):
    arrays = dict.fromkeys(SegmentSums._fields, np.ones((1, 1)))
    values = {name: np.full((1, 1), value) for name, value in given.items()}
    found = SegmentSums(**{**arrays, **values})
    return found._replace(total=found.total[0], squares=found.squares[0])


def test_intervals_of_frequencies_are_those_of_wilson():
    n, p, events, c = 60, 0.3, 24, 2.5
    sums = one_segment(
        sums=events - n * p, variance=n * p * (1 - p), skewness=0.0, predicted=p, total=n
    )
    found = effects_of("rate", sums, 0, c)
    level = 1 - 2 * scipy.stats.norm.sf(c)
    expected = scipy.stats.binomtest(events, n).proportion_ci(level, method="wilson")
    np.testing.assert_allclose([found.low[0], found.high[0]], expected, rtol=1e-9)
    assert found.observed[0] == pytest.approx(events / n)


def test_the_spread_is_a_ratio_of_deviations():
    z = 1.3 * RNG(0).normal(size=200)
    sums = one_segment(
        sums=np.sum((z**2 - 1) / 2**0.5), variance=200, skewness=0.0, information=200, predicted=1
    )
    found = effects_of("spread", sums, 0, 3.0)
    assert found.observed[0] == pytest.approx(np.sqrt(np.mean(z**2)))
    # With this ratio the sum of squares would be three deviations of chi-squared away.
    for end, sign in ((found.low[0], 1), (found.high[0], -1)):
        of_squares = np.sum(z**2) / end**2
        assert (of_squares - 200) / np.sqrt(400) == pytest.approx(sign * 3.0)


@pytest.mark.parametrize("n_members", [5, 20])
def test_sizes_of_ensembles_are_those_of_their_members(n_members):
    """Ranks of simulated targets among simulated members, with scores of pieces by quantiles."""
    rng = RNG(n_members)
    members = rng.normal(size=(20_000, n_members))
    z = scipy.stats.norm.ppf((np.arange(1000 * (n_members + 1)) + 0.5) / (1000 * (n_members + 1)))
    pieces = z.reshape(n_members + 1, 1000)
    for statistic, shift, factor, size in (("location", 1.5, 1, 1.5), ("spread", 0, 2, 2)):
        targets = shift + factor * rng.normal(size=20_000)
        ranks = np.sum(members < targets[:, None], axis=1)
        scores = (pieces if statistic == "location" else (pieces**2 - 1) / 2**0.5).mean(axis=1)
        step = scores[ranks].mean() / np.mean(scores**2)
        np.testing.assert_allclose(
            in_units_of_forecast(statistic, step, n_members), size, rtol=0.04
        )
    predicted = in_units_of_forecast("spread", np.array([-1.0, 0.0]), n_members)
    np.testing.assert_allclose(predicted, [0, 1], atol=1e-6)


LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9), (0.025, 0.5, 0.975), tuple(np.arange(1, 20) / 20)


@pytest.mark.parametrize("levels", slow([(x,) for x in LEVELS[1:]], [(x,) for x in LEVELS]))
@pytest.mark.parametrize("shift, factor", [(0.8, 1.0), (0.0, 1 / 0.6), (0.0, 0.5)])
def test_errors_of_quantiles_are_those_of_their_distribution(levels, shift, factor):
    """Quantiles of a standard normal law, and targets that are those of another normal law."""
    n = 4000
    targets = scipy.stats.norm.ppf((np.arange(n) + 0.5) / n, shift, factor)
    values = np.broadcast_to(scipy.stats.norm.ppf(levels), (n, len(levels)))
    forecasts, parity = cj.Quantiles(values, levels), {"parity": np.arange(n) % 2 == 0}
    result = cj.segment_test(KEY, forecasts, targets, parity, order=1, n_resamples=99)
    found = {x.statistic: x for x in result.segments if not x.conditions}
    low, high = values[0, 0], values[0, -1]
    assert found["coverage"].predicted == pytest.approx(levels[-1] - levels[0], rel=1e-5)
    covered = np.mean((targets > low) & (targets <= high))
    assert found["coverage"].observed == pytest.approx(covered, abs=1e-3)
    if factor == 1:
        assert found["location"].observed == pytest.approx(shift, rel=0.02)
    else:
        assert found["spread"].observed == pytest.approx(factor, rel=0.02)


def test_a_shift_is_no_spread():
    """Targets of one region that are only shifted, or only wider, than a model says."""
    is_north = GROUPS["region"] == "north"
    # Nearly the quantiles of a standard normal law, in each region.
    ranks = np.where(is_north, np.cumsum(is_north), np.cumsum(~is_north)) - 0.5
    noise = scipy.stats.norm.ppf(ranks / np.where(is_north, is_north.sum(), (~is_north).sum()))
    predictions = cj.Normal(LOC, np.ones(N, np.float32))

    def found_of(errors):
        targets = (LOC + errors).astype(np.float32)
        result = cj.segment_test(KEY, predictions, targets, GROUPS, n_resamples=R)
        of_north = {x.statistic: x for x in result.segments if x.name == "north"}
        return result.segments[0], of_north["location"], of_north["spread"]

    first, location, spread = found_of(noise + 1.5 * is_north)
    assert (first.name, first.statistic) == ("north", "location")
    assert location.pvalue <= 0.05 < spread.pvalue
    assert location.observed == pytest.approx(1.5, abs=0.01)
    assert spread.observed == pytest.approx(1.0, abs=0.05)

    first, location, spread = found_of(np.where(is_north, 2, 1) * noise + 0.2 * is_north)
    assert (first.name, first.statistic) == ("north", "spread")
    assert spread.pvalue <= 0.05 < location.pvalue
    assert spread.observed == pytest.approx(2.0, abs=0.05)


def test_exact_for_few_rows(monkeypatch):
    """The probability of each p-value, over all targets of four events, and many keys."""
    monkeypatch.setattr(_segments, "LEAST_ROWS", 1)
    monkeypatch.setattr(_segments, "LEAST_VARIANCE", 0.05)
    p = np.array([0.1, 0.3, 0.5, 0.8], np.float32)
    every = (np.arange(16)[:, None] >> np.arange(4)) & 1
    chance = np.prod(np.where(every == 1, p, 1 - p), axis=1)
    groups = {"a": np.array(list("xxyy")), "b": np.array(list("uvuv"))}

    def pvalue(key, targets):
        test = cj.segment_test(key, cj.Bernoulli(p), targets, groups, n_resamples=9)
        assert len(test.names.segments) == 9
        return test.pvalue

    of_keys = jax.jit(jax.vmap(jax.vmap(pvalue, (None, 0)), (0, None)))
    keys = jax.random.split(KEY, 400)
    pvalues = np.asarray(of_keys(keys, every.astype(np.int32)))
    assert np.ptp(pvalues) > 0.5
    for level in np.arange(1, 10) / 10:
        of_key = np.sum(chance * (pvalues <= level + 1e-6), axis=1)
        assert of_key.mean() <= level + 3 * of_key.std() / 20


def columns_of(groups, kept=None):
    values = list(groups.values())[0]
    kept = np.ones(len(values), bool) if kept is None else kept
    return read_columns(groups, kept)


def test_categories():
    values = np.array(["b", "a", "b", None, float("nan"), "a"], object)
    ((column,), left_out) = columns_of({"kind": values})
    assert column.levels == ("a", "b", "missing") and not left_out
    assert column.phrases == ("a", "b", "kind missing")
    np.testing.assert_array_equal(column.codes, [1, 0, 1, 2, 2, 0])
    kept = np.array([True, True, True, False, False, True])
    ((column,), _) = columns_of({"kind": values}, kept)
    assert column.levels == ("a", "b")
    np.testing.assert_array_equal(column.codes, [1, 0, 1, -1, -1, 0])


def test_phrases():
    columns, _ = columns_of(
        {
            "smoker": np.array([True, False, True, False]),
            "left": ["yes", "no", "yes", "no"],
            "right": ["no", "yes", "no", "yes"],
            "code": ["1", "2", "1", "2"],
            "month": np.array([1, 1, 2, 2]),
            "day": np.array(["2026-03-01", "2026-03-01", "2026-03-02", "2026-03-02"], "M8[D]"),
            "lead": np.array([24, 24, 36, 36], "m8[h]").astype("m8[ns]"),
        }
    )
    assert [column.phrases for column in columns] == [
        ("not smoker", "smoker"),
        ("left no", "left yes"),
        ("right no", "right yes"),
        ("code 1", "code 2"),
        ("month 1", "month 2"),
        ("day 2026-03-01", "day 2026-03-02"),
        ("lead 24 h", "lead 36 h"),
    ]


def test_numbers_are_cut_at_quartiles():
    age = np.concatenate([np.arange(20, 100), [np.nan]])
    ((column,), _) = columns_of({"age": age})
    assert column.levels == ("20 to 39", "40 to 59", "60 to 79", "80 to 99", "missing")
    np.testing.assert_array_equal(np.bincount(column.codes), [20, 20, 20, 20, 1])
    mostly = np.concatenate([np.zeros(70), np.arange(1, 31)])
    ((column,), _) = columns_of({"rain": mostly})
    assert column.phrases == ("rain 0 to 5", "rain 6 to 30")


def test_whole_numbers_that_name_things():
    """Those whose column says so are categories, and others that may be are told."""
    whole = np.repeat(np.arange(101, 121), 8)
    ids = ["id", "store_id", "storeId", "shop-ID", "ZIP", "zipcode", "county.fips", "ICD code"]
    numbers = ["age", "paid", "episode", "PAID", "idle", "storey", "months"]
    columns, _ = columns_of({x: whole for x in ids} | {x: whole for x in numbers})
    assert [x.name for x in columns if len(x.levels) == 20] == ids
    assert columns[1].phrases[0] == "store_id 101"
    assert [x.name for x in columns if x.is_cut] == numbers
    lacking = np.where(np.arange(160) < 8, np.nan, whole)  # a float beside missing values
    columns, _ = columns_of({"store_id": lacking, "id": whole + 0.5, "y": np.arange(160)})
    assert columns[0].levels[:2] == ("102", "103") and columns[0].levels[-1] == "missing"
    assert [len(x.levels) for x in columns[1:]] == [4, 4] and not any(x.is_cut for x in columns)


def test_columns_that_make_no_segments():
    n = 300
    groups = {"a": np.arange(n) % 2, "one": np.zeros(n), "id": np.arange(n).astype(str)}
    groups["many"] = [f"x{i % 290}" for i in range(n)]
    columns, left_out = columns_of(groups)
    assert [column.name for column in columns] == ["a"]
    assert left_out == {
        "one": "has one level in all rows",
        "id": "is different in all rows",
        "many": "has 290 levels, more than 256",
    }
    with pytest.raises(ValueError, match="groups must hold a column .* got one has one level"):
        columns_of({"one": np.zeros(n)})


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames(library):
    module = pytest.importorskip(library)
    frame = module.DataFrame({"region": ["a", "b"] * 3, "lead": [1, 1, 1, 2, 2, 2]})
    columns, _ = read_columns(frame, np.ones(6, bool))
    assert [column.phrases for column in columns] == [("a", "b"), ("lead 1", "lead 2")]


def test_segments_with_the_same_rows_are_one():
    a = np.repeat([0, 1], 20)
    columns, _ = columns_of({"a": a, "b": np.where(a, "x", "y")})
    found = _segments.segments_of(columns, np.ones(40, bool), 2)
    assert found == {(): 40, ((0, 0),): 20, ((0, 1),): 20}


@pytest.mark.slow
def test_censored_targets():
    """A region where deaths come twice as early, seen through a censoring that hides a third."""
    rng, n = RNG(10), 400
    region, scale = rng.choice(["north", "south"], n), rng.uniform(1, 3, n)
    deaths = scale * rng.exponential(size=n)
    limits = rng.uniform(1, 6, n)
    predictions = cj.Weibull(np.ones(n, np.float32), scale.astype(np.float32))

    def test(times):
        seen = np.minimum(times, limits).astype(np.float32)
        known = cj.IntervalCensored.right_censored(seen, times <= limits)
        return cj.segment_test(KEY, predictions, known, {"region": region}, n_resamples=R)

    assert test(deaths).pvalue > 0.05
    found = test(np.where(region == "north", deaths / 2, deaths))
    first = found.segments[0]
    assert first.conditions == {"region": "north"} and first.pvalue <= 0.01 + 1e-6
    assert first.statistic == "location" and first.observed < 0
    assert first.n == np.sum(region == "north")


@pytest.mark.slow
@pytest.mark.parametrize("n_impossible", [0, 4])
def test_impossible_events_hide_no_others(n_impossible):
    """All die early; some so early that their curves, flat at first, give them probability 0."""
    rng, n = RNG(10), 400
    region, scale = rng.choice(["north", "south"], n), rng.uniform(1, 3, n)
    deaths, limits = 0.6 * (scale * rng.exponential(size=n) + 0.5), rng.uniform(1, 6, n)
    deaths[:n_impossible] = 0.05
    grid = np.linspace(0.1, 6, 60)
    curves = np.exp(-np.maximum(grid - 0.3, 0) / scale[:, None])
    predictions = cj.SurvivalCurve(grid.astype(np.float32), curves.astype(np.float32))
    seen = np.minimum(deaths, limits).astype(np.float32)
    known = cj.IntervalCensored.right_censored(seen, deaths <= limits)
    found = cj.segment_test(KEY, predictions, known, {"region": region}, n_resamples=R)
    early = next(x for x in found.rejected() if not x.conditions and x.statistic == "location")
    assert -0.8 < early.observed < -0.6
    assert found.critical(0.95) < 4.5


@pytest.mark.parametrize("n_classes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_one_wrong_label_at_probability_1_hides_no_segments(n_classes):
    """A third of the rows never has the event; of six rows with p = 1 one is wrong."""
    p, labels = PROBS.copy(), np.where(GROUPS["lead"] == 1, 0, EVENTS).astype(np.int32)
    p[:6], labels[:6], labels[3] = 1.0, 1, 0
    probs = np.stack([1 - p, p] + [0 * p] * (n_classes - 2), axis=1)
    predictions = cj.Bernoulli(p) if n_classes == 2 else cj.Categorical(probs)
    clusters = (np.arange(N) // 3).astype(np.int32)
    found = cj.segment_test(KEY, predictions, labels, GROUPS, n_resamples=R, clusters=clusters)
    assert found.critical(0.95) < 6
    assert {"lead": "1"} in [x.conditions for x in found.rejected()]
    assert all(abs(x.observed) < 9 for x in found.segments)


def test_residuals_at_the_ends_of_the_unit_line():
    """Targets of probability 0 count as those of 1e-5; others near the ends as what they are."""
    u = np.array([0.0, 1e-30, 1e-5, 0.5, 1.0], np.float32)
    above = np.array([1.0, 1.0, 1.0, 0.5, 0.0], np.float32)
    statistics = NumberStatistics(False, [LocationAndSpread(), Coverage()])
    found = jax.jit(statistics.values)(cj.Normal(LOC, LOC), UnitInterval(u, u, above, above))
    z = scipy.stats.norm.ppf([1e-5, 1e-30, 1e-5, 0.5, 1 - 1e-5])
    expected = normal_residuals(z)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_errors():
    predictions, targets = cj.Bernoulli(PROBS), EVENTS
    with pytest.raises(TypeError, match='groups must be a mapping of names .*"region"'):
        cj.segment_test(KEY, predictions, targets, GROUPS["lead"])
    with pytest.raises(ValueError, match=r"lead of groups must have shape \[n\] with n = 120"):
        cj.segment_test(KEY, predictions, targets, {"lead": [1, 2]})
    with pytest.raises(TypeError, match="lead of groups must hold real numbers, times or cat"):
        cj.segment_test(KEY, predictions, targets, {"lead": 1j * np.arange(N)})
    with pytest.raises(
        TypeError, match="column x of groups must be an array of NumPy outside of jit"
    ):
        jax.jit(lambda x: cj.segment_test(KEY, predictions, targets, {"x": x}))(np.arange(N))
    with pytest.raises(ValueError, match="order must be at least 1"):
        cj.segment_test(KEY, predictions, targets, GROUPS, order=0)
    with pytest.raises(TypeError, match="targets of labels must be an array, got IntervalCensored"):
        cj.segment_test(KEY, predictions, cj.IntervalCensored(targets - 1, targets), GROUPS)
    with pytest.raises(ValueError, match="must keep at least 8 rows, got 5"):
        cj.segment_test(KEY, predictions, targets, GROUPS, where=np.arange(N) < 5)
    vectors = cj.MultivariateNormalDiag(np.zeros((N, 2)), np.ones((N, 2)))
    with pytest.raises(TypeError, match="one coordinate"):
        cj.segment_test(KEY, vectors, np.zeros((N, 2)), GROUPS)
