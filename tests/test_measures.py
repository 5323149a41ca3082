"""Measures of groups, beside the same measures of their rows alone, and formulas by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow
from scipy import stats

import calibjax as cj
from calibjax._data.data import as_data
from calibjax._data.padding import padded
from calibjax.measures.families import measures, ratio_of_means
from calibjax.measures.measure import Measure, Subset
from calibjax.measures.sampling import Sampling

N = 96
RNG = np.random.default_rng(0)
X = RNG.normal(size=N)
Y = X + 1.3 * RNG.normal(size=N)
PROBS = RNG.dirichlet(np.ones(3), N)
SITES = RNG.permutation(np.repeat([0, 1, 1, 2, 2, 2], N // 6))
LEVELS = np.array([0.1, 0.5, 0.9])
QUANTILES = X[:, None] + stats.norm.ppf(LEVELS)
TIMES = np.linspace(0.2, 2.0, 8)
SEEN = np.minimum(RNG.exponential(size=N), RNG.uniform(0.5, 2, N))
CURVES = np.exp(-TIMES * np.exp(0.3 * X)[:, None])
CASES = {
    "events": (cj.Bernoulli, [PROBS[:, 0]], RNG.integers(0, 2, N)),
    "labels": (cj.Categorical, [PROBS], RNG.integers(0, 3, N)),
    "ordered labels": (cj.Ordinal, [PROBS], RNG.integers(0, 3, N)),
    "normal": (cj.Normal, [X, np.ones(N)], Y),
    "draws": (cj.Empirical, [X[:, None] + RNG.normal(size=(N, 5))], Y),
    "quantiles": (lambda q: cj.Quantiles(q, LEVELS), [QUANTILES], Y),
    "ties": (lambda q: cj.Quantiles(q, LEVELS), [np.round(QUANTILES)], np.round(Y)),
    "lifetimes": (
        lambda s: cj.SurvivalCurve(jnp.broadcast_to(TIMES, s.shape), s),
        [CURVES],
        (SEEN, RNG.random(N) < 0.7),
    ),
}
ROWS = {
    "plain": {},
    "weighted clusters": {
        "weights": RNG.integers(0, 3, N).astype(float),
        "clusters": np.arange(N) // 3,
    },
    "times": {"times": np.sort(RNG.integers(0, 60, N)).astype(float), "horizon": 2.0},
}


def data_of(case, rows, some):
    family, parameters, targets = CASES[case]
    targets = jax.tree.map(lambda x: jnp.asarray(x[some]), targets)
    if case == "lifetimes":
        targets = cj.IntervalCensored.right_censored(*targets)
    predictions = family(*(jnp.asarray(x[some]) for x in parameters))
    given = {name: x if name == "horizon" else x[some] for name, x in ROWS[rows].items()}
    return padded(as_data(predictions, targets, intervals=True, **given))


def assert_near(ours, expected, name, atol=0.0):
    assert (ours is None) == (expected is None), name
    if expected is not None:
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=atol + 1e-7, err_msg=name)


@pytest.mark.parametrize("case", slow(CASES.keys() - {"events", "normal"}, CASES))
@pytest.mark.parametrize("rows", slow({"times"}, ROWS))
def test_measures_of_a_group_are_those_of_its_rows_alone(case, rows):
    key, every = jax.random.key(0), np.arange(N)
    groups = [np.flatnonzero(SITES == k) for k in range(3)]
    found = measures(key, data_of(case, rows, every), 0.9, 99, groups=groups)
    for some, of_group in zip(groups, found, strict=True):
        (alone,) = measures(key, data_of(case, rows, some), 0.9, 99)
        # By times that nobody of a group has reached, the whole may have a line.
        assert of_group.keys() <= alone.keys() or case == "lifetimes"
        for name in of_group.keys() & alone.keys():
            if case == "draws" and name.startswith("coverage"):
                continue  # Ranks among draws are random, by the number of the row.
            ours, expected = of_group[name], alone[name]
            assert ours.note == expected.note
            assert_near(ours.value, expected.value, name)
            assert_near(ours.interval, expected.interval, name)
            if name in ("expected events", "calibration-in-the-large", "calibration slope"):
                continue  # Numbers of events are whole; only all rows have draws of the others.
            if name in ("ICI", "E50", "E90"):
                continue
            is_drawn = case in ("events", "labels", "ordered labels")
            assert_near(ours.if_calibrated, expected.if_calibrated, name, 0.3 if is_drawn else 0)


def test_rows_of_weight_0_are_not_rows():
    """Ten rows of a hundred count: all numbers but ranges of draws are those of ten rows."""
    counts = np.arange(N) < 10
    predictions, targets = cj.Normal(jnp.asarray(X), 1.0), jnp.asarray(Y)
    for clusters in (None, np.arange(N) // 2):
        given = {"weights": 3.0 * counts, "clusters": clusters}
        data = padded(as_data(predictions, targets, **given))
        (ours,) = measures(jax.random.key(0), data, 0.95, 19)
        given = {} if clusters is None else {"clusters": clusters[:10]}
        alone = padded(as_data(predictions[:10], targets[:10], **given))
        (expected,) = measures(jax.random.key(0), alone, 0.95, 19)
        for name, x in expected.items():
            assert_near(ours[name].value, x.value, name)
            assert_near(ours[name].interval, x.interval, name)
            assert_near(ours[name].if_calibrated, x.if_calibrated, name)


def test_ratios_by_the_delta_method():
    """The interval of a ratio is that of its linear expansion; on the log scale it is positive."""
    events, expected = RNG.integers(0, 2, 40).astype(float), RNG.uniform(0.2, 0.6, 40)
    weights = RNG.uniform(0.5, 2, 40)
    rows = Subset(np.arange(40), Sampling(40, weights), 0.95, np.arange(40))
    columns, shares = np.stack([events, expected], axis=1), weights / weights.sum()
    ratio = shares @ events / (shares @ expected)
    linear = ratio + (events - ratio * expected) / (shares @ expected)
    by_hand = Measure(linear)(rows)
    found = Measure(columns, ratio_of_means)(rows)
    assert found.value == pytest.approx(ratio)
    assert found.interval == pytest.approx(by_hand.interval, rel=1e-8)
    measure = Measure(columns, ratio_of_means, is_ratio=True, expected=(1.0, 1.0))
    low, high = measure(rows).interval
    of_logs = Measure(linear / ratio)(rows).interval
    assert np.log([low, high]) == pytest.approx(np.log(ratio) + np.array(of_logs) - 1)
    assert measure(rows).if_calibrated == (1.0, 1.0)
    nothing = dataclasses.replace(measure, columns=columns * [0.0, 1.0])(rows)
    assert nothing.value == 0 and nothing.interval is None


def test_one_cluster_has_no_interval():
    rows = Subset(np.arange(4), Sampling(4, clusters=np.zeros(4, int)), 0.95, np.arange(4))
    for measure in (Measure(np.arange(4.0)), Measure(np.arange(4) > 1, is_share=True)):
        assert measure(rows).interval is None


def test_intervals_of_ratios_contain_them():
    """400 sets of 40 rows, whose two columns depend on each other."""
    rng, hits = np.random.default_rng(1), 0
    rows = Subset(np.arange(40), Sampling(40), 0.95, np.arange(40))
    for _ in range(400):
        expected = rng.uniform(0.05, 0.6, 40)
        columns = np.stack([rng.random(40) < 1.5 * expected, expected], axis=1)
        low, high = Measure(columns, ratio_of_means, is_ratio=True)(rows).interval
        hits += low <= 1.5 <= high
    assert 0.92 <= hits / 400 <= 0.98  # 0.95 but for three standard errors


LEVELS_OF_SCORES = {
    "with a median": (0.05, 0.25, 0.5, 0.75, 0.95),
    "without a median": (0.05, 0.25, 0.75, 0.95),
    "not in pairs": (0.05, 0.25, 0.4, 0.75, 0.9),
}


@pytest.mark.parametrize("case", LEVELS_OF_SCORES)
def test_scores_of_quantiles_by_loops(case):
    """The formulas of Bracher et al. (2021) and scoringutils, row by row; targets may tie."""
    levels = np.array(LEVELS_OF_SCORES[case])
    values = np.round(5 + 3 * X[:, None] + 4 * stats.norm.ppf(levels))
    targets = np.round(6 + 3 * X + 5 * RNG.normal(size=N))
    data = as_data(cj.Quantiles(jnp.asarray(values), levels), jnp.asarray(targets))
    (found,) = measures(jax.random.key(0), data, 0.95, 9)
    expected = {}
    for q, y in zip(values, targets, strict=True):
        of_levels = zip(levels, q, strict=True)
        losses = [u * (y - x) if y >= x else (1 - u) * (x - y) for u, x in of_levels]
        row = {"pinball loss": np.mean(losses)}
        median = np.interp(0.5, levels, q)
        if case != "not in pairs":
            m = median if case == "with a median" else y
            n_levels, score = len(levels), abs(y - m) / 2
            parts = {
                "dispersion": 0,
                "overprediction": max(m - y, 0) / 2,
                "underprediction": max(y - m, 0) / 2,
            }
            for u, low, high in zip(levels[:2], q[:2], q[:-3:-1], strict=True):
                outside = max(low - y, 0) + max(y - high, 0)
                score += u * (high - low + 2 / (2 * u) * outside)
                parts["dispersion"] += u * (high - low)
                parts["overprediction"] += max(low - y, 0)
                parts["underprediction"] += max(y - high, 0)
            row["weighted interval score"] = score / (n_levels / 2)
            row |= {name: x / (n_levels / 2) for name, x in parts.items()}
        row["bias"] = 0.0
        if y < median:
            row["bias"] = 1 - 2 * max(levels[q <= y], default=0)
        elif y > median:
            row["bias"] = 1 - 2 * min(levels[q >= y], default=1)
        for low in levels[levels < 0.5]:
            if 1 - low in levels:
                a, b = q[levels == low], q[levels == 1 - low]
                row[f"coverage of {100 - 200 * low:.0f} % intervals"] = (a <= y <= b).item()
        for name, x in row.items():
            expected.setdefault(name, []).append(x)
    assert {name for name in found if not name.startswith("observed ")} == expected.keys() | {
        "CRPS"
    }
    for name, rows in expected.items():
        assert_near(found[name].value, np.mean(rows), name)
    assert ("weighted interval score" in found) == (case != "not in pairs")


def test_the_bias_of_calibrated_quantiles():
    """Its mean over uniform PITs, by a sum over the cells between levels that are not symmetric."""
    levels, u = (0.1, 0.5, 0.6), np.arange(0.0005, 1, 0.001)
    values = jnp.broadcast_to(stats.norm.ppf(levels), (1000, 3))
    data = as_data(cj.Quantiles(values, levels), jnp.asarray(stats.norm.ppf(u)))
    (found,) = measures(jax.random.key(0), data, 0.95, 9)
    assert_near(found["bias"].if_calibrated, [found["bias"].value] * 2, "bias")
    assert found["bias"].value == pytest.approx(0.1 + 0.4 * 0.8 - 0.1 * 0.2 - 0.4)


def test_bias_coverage_and_spread_of_members():
    """By loops over ten members with ties, of which some rows have fewer."""
    members = np.round(3 * (X[:, None] + RNG.normal(size=(N, 10))))
    where, targets = np.arange(10) < RNG.integers(2, 11, N)[:, None], np.round(4 * Y)
    predictions = cj.Empirical(jnp.asarray(members), where=jnp.asarray(where))
    data = padded(as_data(predictions, jnp.asarray(targets)))
    (found,) = measures(jax.random.key(0), data, 0.95, 9)
    rows = [x[exists] for x, exists in zip(members, where, strict=True)]
    bias = [1 - np.mean(x <= y) - np.mean(x < y) for x, y in zip(rows, targets, strict=True)]
    assert_near(found["bias"].value, np.mean(bias), "bias")
    assert found["bias"].if_calibrated == (0.0, 0.0)
    spread = np.sqrt(np.mean([np.var(x, ddof=1) * (1 + 1 / x.size) for x in rows]))
    errors = [np.square(x.mean() - y) for x, y in zip(rows, targets, strict=True)]
    assert_near(found["spread"].value, spread, "spread")
    assert_near(found["RMSE of the mean"].value, np.mean(errors) ** 0.5, "RMSE of the mean")
    # A target is anywhere among those that it ties with, and its rank in a cell of the unit line.
    u = np.concatenate(
        [
            (np.sum(x < y) + (np.arange(1000) + 0.5) / 1000 * (1 + np.sum(x == y))) / (1 + x.size)
            for x, y in zip(rows, targets, strict=True)
        ]
    )
    size = u.mean() * (1 - u.mean()) / u.var() - 1  # of the beta distribution with these moments
    expected = 1 / np.sqrt(size * u.mean() * size * (1 - u.mean()))
    assert_near(found["rank dispersion"].value, expected, "rank dispersion", atol=1e-4)
    u = np.asarray(cj.pit(jax.random.key(0), data))[:N]
    for share in (0.5, 0.9):
        inside = (u >= (1 - share) / 2) & (u <= (1 + share) / 2)
        assert found[f"coverage of {100 * share:.0f} % intervals"].value == inside.mean()


def test_the_bias_of_counts():
    rates, counts = np.exp(X), RNG.poisson(np.exp(X))
    predictions = cj.Poisson(jnp.asarray(rates))
    (found,) = measures(jax.random.key(0), as_data(predictions, jnp.asarray(counts)), 0.95, 9)
    cdf = stats.poisson(rates).cdf
    assert_near(found["bias"].value, np.mean(1 - cdf(counts) - cdf(counts - 1)), "bias", 1e-5)
