"""Posteriors of simulators: right ones, wrong ones, and the prior in their place."""

import itertools
import json
import re
import types

import numpy as np
import pytest
from scipy import stats
from test_aggregated import plain_step_down

import calibjax as cj
from calibjax._base.text import plain
from calibjax.evaluation import ParameterCheck
from calibjax.evaluation._posterior import _check_posterior
from calibjax.evaluation._posterior._draws import (
    chance_in_column,
    chance_of,
    dependence,
    effective_draws,
    factor_of,
    normal_scores,
    shift_and_spread,
)

N, S = 250, 20


def simulated(case, seed=0):
    """theta ~ N(0, I_2) with x = theta + noise, and draws of a posterior N(x / 2, I_2 / 2)."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(N, 2))
    x = theta + rng.normal(size=(N, 2))
    noise = rng.normal(size=(N, S, 2))
    if case == "prior":
        return theta, noise, x
    if case == "narrow":
        noise[..., 1] *= 0.6
    if case == "shifted":
        noise[..., 0] += 0.5
    if case == "depends on x":  # and so much that ranks vary more
        noise[..., 0] += np.sign(x[:, :1])
    if case == "correlated":
        noise[..., 1] = 0.9 * noise[..., 0] + np.sqrt(1 - 0.9**2) * noise[..., 1]
    return theta, x[:, None] / 2 + np.sqrt(0.5) * noise, x


WORDS = {
    "right": "No miscalibration detected",
    "narrow": r"^Not calibrated \(p [=≤] [.0-9]+ adjusted for 5 tests, .*\)\.\ntheta\[1\]: over-co",
    "shifted": r"\ntheta\[0\]: biased high by 0.[3-7]",
    "correlated": "Joint posterior miscalibrated; no single parameter rejected",
    "prior": r"theta\[1\]: miscalibrated given the observations, clearest with x\[1\]",
    "depends on x": r"\ntheta\[0\]: miscalibrated given the observations, clearest with x\[0\]\.",
}


@pytest.mark.slow
@pytest.mark.parametrize("case", WORDS)
def test_verdicts(case):
    theta, draws, x = simulated(case)
    check = cj.check_posterior(theta, draws, x)
    assert re.search(WORDS[case], str(check)), str(check)
    assert check.rejected == (case != "right")


@pytest.mark.slow
def test_offsets_and_units_do_not_matter():
    theta, draws, x = simulated("shifted")
    moved = theta * [0.1, 1e-30] + [2460000.5, 0.0], draws * [0.1, 1e-30] + [2460000.5, 0.0]
    check, of_moved = cj.check_posterior(theta, draws, x), cj.check_posterior(*moved, x)
    for a, b in zip(check.parameters, of_moved.parameters, strict=True):
        assert abs(a.shift - b.shift) < 0.01 and abs(a.spread - b.spread) < 0.01
        assert abs(a.pvalue - b.pvalue) < 0.02 and abs(a.pvalue_given_x - b.pvalue_given_x) < 0.02
    assert abs(check.joint_pvalue - of_moved.joint_pvalue) < 0.02


def scores_of_rank(k):
    """A statistic and 999 draws, of which 2 k - 1 are as large."""
    draws = np.random.default_rng(k).gumbel(size=999)
    return np.append(np.sort(draws)[-2 * k + 1], draws).astype(np.float32)


def rank_of(scores):
    return np.mean(scores >= scores[0])


@pytest.fixture
def calls(monkeypatch):
    """The arguments of the tests, which take long to compile, and p-values that ascend."""
    found, scores = [], map(scores_of_rank, itertools.count(1))

    def calibration_test(key, predictions, targets, **options):
        found.append((predictions, targets, options))
        given = {} if options["covariates"] is None else {"scores_without_covariates": next(scores)}
        given |= {"pvalue_without_covariates": rank_of(*given.values())} if given else {}
        own, column = next(scores), types.SimpleNamespace(name="x", pvalue=0.01)
        given |= {"statistic": own[0], "null_distribution": own[1:], "pvalue": rank_of(own)}
        return types.SimpleNamespace(
            **{"estimate": 0.0, "columns": [column], "kernels": None} | given
        )

    monkeypatch.setattr(_check_posterior, "calibration_test", calibration_test)
    return found


def test_each_parameter_is_tested_alone_given_x_and_with_the_others(calls):
    theta, draws, x = simulated("narrow")
    named = {"a": theta[:, 0], "b": theta[:, 1]}, {"a": draws[..., 0], "b": draws[..., 1]}
    check = cj.check_posterior(*named, {"x": x[:, 0]})
    given = [options["covariates"] for _, _, options in calls]
    assert [columns is None for columns in given] == [0, 0, 1]
    np.testing.assert_array_equal(given[0]["x"], x[:, 0])
    scale = np.median(np.abs(draws), axis=(0, 1))
    np.testing.assert_allclose(calls[2][0].samples, draws / scale, rtol=1e-12)
    np.testing.assert_allclose(calls[2][1], theta / scale, rtol=1e-12)
    adjusted = plain_step_down(np.stack([scores_of_rank(k)[None] for k in range(1, 6)]))
    assert check.pvalue == pytest.approx(adjusted[0])
    assert check.joint_pvalue == pytest.approx(adjusted[4])
    assert 0.002 < check.pvalue < 5 * 0.002
    a, b = check.parameters
    # The deviation of the true posterior is 1 / 0.6 of that of the draws; of 250 rows the error
    # is some 5 %.
    assert abs(a.spread - 1) < 0.15 and abs(b.spread - 1 / 0.6) < 0.25
    assert abs(a.shift) < 0.2 and [a.name, b.name, a.column] == ["a", "b", "x"]
    found = json.loads(json.dumps(check.to_dict()))
    assert found["rejected"] is True and "rows" not in found
    # Each parameter is tested alone, then given x.
    pvalues = [p[name] for p in found["parameters"] for name in ("pvalue", "pvalue_given_x")]
    np.testing.assert_allclose([*pvalues, found["joint_pvalue"]], adjusted, atol=1e-9)


def test_large_offsets_are_taken_off_before_float32(calls):
    theta, draws, _ = simulated("right")
    days = 2460000.5
    cj.check_posterior(days + 0.1 * theta[:, 0], days + 0.1 * draws[..., 0])
    predictions, targets, _ = calls[0]
    ranks = np.sum(draws[..., 0] < theta[:, :1], axis=1)
    rounded = np.float32(predictions.samples) < np.float32(targets)[:, None]
    np.testing.assert_array_equal(np.sum(rounded, axis=1), ranks)


def test_ranks_of_a_right_posterior_have_shift_0_and_spread_1():
    true = np.arange(21.0)[:, None].repeat(3, 1).ravel() - 0.5
    drawn = np.tile(np.arange(20.0), (len(true), 1))
    shift, spread = shift_and_spread(normal_scores(true, drawn), 20)
    assert abs(shift) < 1e-12 and spread == pytest.approx(1.0)


@pytest.mark.parametrize("n_draws", [5, 50, 400])
@pytest.mark.parametrize("factor", [0.25, 0.5, 1.0, 2.0, 4.0])
def test_factors_of_spreads(factor, n_draws):
    """Of normal posteriors whose draws lie so much closer together than true values do."""
    rng = np.random.default_rng(4)
    found = []
    for _ in range(16):
        true, drawn = factor * rng.normal(size=1000), rng.normal(size=(1000, n_draws))
        found.append(factor_of(shift_and_spread(normal_scores(true, drawn), n_draws)[1], n_draws))
    assert abs(np.mean(found) - factor) < 4 * np.std(found) / 15**0.5 + 0.01 * factor


def with_atoms(kind, rng, n=200, n_draws=20, sharper=1.0):
    """True values and draws of right posteriors, or of such that are so strongly over-confident."""
    odds = rng.beta(1, 1, n)
    odds = odds / (1 - odds)
    p = odds / (1 + odds)
    q = (odds**sharper / (1 + odds**sharper))[:, None]
    uniform, uniforms = rng.random(n), rng.random((n, n_draws))
    if kind == "binary":
        return (uniform < p) * 1.0, (uniforms < q) * 1.0
    if kind == "counts":
        mean, drawn = 8 * p[:, None], stats.binom.ppf(uniforms, 8, p[:, None])
        return stats.binom.ppf(uniform, 8, p), np.round(mean + (drawn - mean) / sharper)
    if kind == "mixed":  # 0, or a number
        amounts, drawn = rng.gamma(2, size=n), rng.gamma(2, size=(n, n_draws))
        return np.where(uniform < p, 0.0, amounts), np.where(uniforms < q, 0.0, drawn)
    return np.full(n, 3.0), np.full((n, n_draws), 3.0)


ATOMS = ["binary", "counts", "mixed", "constant"]


@pytest.mark.parametrize("kind", ATOMS)
def test_ranks_of_right_posteriors_with_ties(kind):
    """On average the shift is 0 and the spread 1, as with ties in random order."""
    rng = np.random.default_rng(1)
    found, chances = [], []
    for _ in range(400):
        true, drawn = rows = with_atoms(kind, rng)
        shift, spread = shift_and_spread(normal_scores(true, drawn), 20)
        found.append([shift, spread**2])
        chances.append(chance_of(shift, spread, 200, 20, rows))
    errors = np.std(found, axis=0) / 20
    assert np.all(np.abs(np.mean(found, axis=0) - [0, 1]) <= 3.5 * errors + 1e-12)
    share = np.mean(np.array(chances) <= 0.05, axis=0)
    if kind == "constant":
        assert found[0] == [0.0, pytest.approx(1.0)] and np.all(share == 0)
    else:
        # Binomial, three deviations; the p-value of a spread may be too large.
        assert 0.017 < share[0] < 0.083 and share[1] < 0.083
    # A hundred random orders of ties, for the last data set.
    below, equal = (np.sum(f(drawn, true[:, None]), axis=1) for f in (np.less, np.equal))
    ranks = below + np.floor(rng.random((100, 200)) * (equal + 1))
    z = stats.norm.ppf((ranks + 0.5) / 21)
    scores = normal_scores(true, drawn)
    for mean, of_orders in zip(scores, (z, z**2), strict=True):
        error = np.std(np.mean(of_orders, axis=1)) / 10
        assert abs(np.mean(of_orders) - np.mean(mean)) <= 4 * error + 1e-12


@pytest.mark.parametrize(("sharper", "word"), [(2.0, "over"), (0.5, "under")])
@pytest.mark.parametrize("kind", ["binary", "counts"])
def test_directions_with_ties(kind, sharper, word):
    rows = with_atoms(kind, np.random.default_rng(2), 2000, sharper=sharper)
    numbers = shift_and_spread(normal_scores(*rows), 20)
    check = ParameterCheck("a", *numbers, 0.001, None)
    words = str(cj.PosteriorCheck((check,), None, 0.001, 0.05, 2000, 20, rows={"a": rows}))
    assert f"\na: {word}-confident (spread ratio" in words


@pytest.mark.slow
@pytest.mark.parametrize("kind", ATOMS)
def test_level_with_ties(kind):
    rng = np.random.default_rng(3)
    checks = [cj.check_posterior(*with_atoms(kind, rng, 100), n_resamples=99) for _ in range(200)]
    spreads = [check.parameters[0].spread for check in checks]
    assert abs(np.mean(spreads) - 1) < 4 * np.std(spreads) / 200**0.5 + 0.01
    # At most 5 %, with three deviations of 200 data sets.
    assert sum(check.rejected for check in checks) <= 19


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["binary", "counts"])
def test_verdicts_with_ties(kind):
    sharp = with_atoms(kind, np.random.default_rng(4), sharper=2.0)
    assert "theta: over-confident (spread ratio" in str(cj.check_posterior(*sharp))


PRECISIONS = [("float64", "float32"), ("float32", "float64"), ("float16", "float64")]


@pytest.mark.parametrize("kind", ["arrays", "xarray"])
@pytest.mark.parametrize(("of_theta", "of_draws"), PRECISIONS)
def test_equal_values_of_two_precisions_are_ties(kind, of_theta, of_draws, calls):
    rng = np.random.default_rng(5)
    true, drawn = rng.choice([0.05, 0.15, 1.1], N), rng.choice([0.05, 0.15, 1.1], (N, S))
    given = true.astype(of_theta), drawn.astype(of_draws)
    if kind == "xarray":
        xarray = pytest.importorskip("xarray")
        dims = [("simulation",), ("simulation", "draw")]
        given = [xarray.DataArray(x, dims=d) for x, d in zip(given, dims, strict=True)]
    cj.check_posterior(*given)
    predictions, targets, _ = calls[0]
    found = np.float32(predictions.samples) == np.float32(targets)[:, None]
    np.testing.assert_array_equal(found, drawn == true[:, None])


def test_independent_draws_with_ties_are_worth_their_number():
    rng = np.random.default_rng(6)
    drawn = rng.integers(0, 2, (200, 50)) * 1.0
    assert effective_draws(drawn, 1) > 40


def test_chance_is_the_share_of_right_posteriors():
    """P-values of shifts and spreads of random ranks are uniform, also with few draws."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(1000):
        ranks = rng.integers(0, 8, 200)  # among 7 draws
        scores = stats.norm.ppf((ranks + 0.5) / 8)
        scores = np.stack([scores, scores**2])
        groups = rng.normal(size=200)
        chance = chance_of(*shift_and_spread(scores, 7), 200, 7)
        found.append([*chance, chance_in_column(scores, groups)])
    # Binomial: three deviations around 0.05.
    share = np.mean(np.array(found) <= 0.05, axis=0)
    assert np.all(share[:2] > 0.029) and np.all(share < 0.071), share


def test_chance_in_a_column_sees_means_and_squares():
    rng = np.random.default_rng(1)
    noise, column = rng.normal(size=300), rng.normal(size=300)

    def chance(scores, column):
        return chance_in_column(np.stack([scores, scores**2]), column)

    assert chance(noise, column) > 0.01
    assert chance(noise + np.sign(column), column) < 1e-6
    assert chance(noise * np.where(np.abs(column) > 1, 3, 1), column) < 1e-3
    names = np.where(column > 0, "high", "low")
    assert chance(noise + np.sign(column), names) < 1e-6
    assert chance(noise, np.ones(300)) == 1


def check_of(n=500, **numbers):
    given = {"shift": 0.0, "spread": 1.0, "pvalue": 0.001, "pvalue_given_x": None} | numbers
    found = ParameterCheck("a", **given)
    least = min(p for p in (found.pvalue, found.pvalue_given_x) if p is not None)
    return str(cj.PosteriorCheck((found,), None, least, 0.05, n=n, n_draws=200)).split("\n")[1]


# Of 500 simulations a shift has the error 0.045 and a spread 0.032.
OF_X = {"pvalue_given_x": 0.001, "column": "age", "spread": 1.12}
GIVEN_X = "a: miscalibrated given the observations, clearest with age."
SAID = [
    ({"shift": 0.017, "spread": 1.2}, "a: over-confident (spread ratio 1.2)."),
    ({"shift": -0.4}, "a: biased high by 0.4 posterior SD."),
    (
        {"shift": 0.2, "spread": 0.6},
        "a: under-confident (spread ratio 0.6); biased low by 0.2 posterior SD.",
    ),
    # A shift by itself, as of a normal law around 1; and one so large that ranks are at their end.
    ({"shift": -1.0, "spread": 2**0.5}, "a: biased high by 1 posterior SD."),
    ({"shift": -2.6, "spread": 2.7}, "a: biased high by 2.6 posterior SD."),
    (
        {"shift": 0.03, "spread": 1.01},
        "a: no overall bias or dispersion error detected; errors may be local or in shape.",
    ),
    # What depends on the observations is not called narrow.
    (OF_X | {"column_pvalue": 1e-20}, GIVEN_X),
    (OF_X | {"column_pvalue": 0.5}, "a: over-confident (spread ratio 1.12)."),
    (OF_X | {"column_pvalue": 1e-3}, "(spread ratio 1.12); error varies with age."),
    # Only the test given x rejects.
    (OF_X | {"column_pvalue": 1e-3, "pvalue": 0.5}, GIVEN_X),
]


@pytest.mark.parametrize(("numbers", "said"), SAID)
def test_only_what_is_beyond_chance_is_named(numbers, said):
    assert check_of(**numbers).endswith(said)


def test_words_of_small_numbers():
    one = ParameterCheck("a", 0.0, 1.0, 0.5, None)
    text = str(cj.PosteriorCheck((one,), None, 0.5, 0.05, n=50, n_draws=1))
    assert "\n1 draw of each posterior." in text and "adjusted" not in text
    few = str(cj.PosteriorCheck((one,), None, 0.5, 0.05, n=3, n_draws=1))
    assert few.startswith("Too few simulations for a verdict (p = 0.5, 3 simulations).")
    two = str(cj.PosteriorCheck((one, one), 0.5, 1.0, 0.05, n=50, n_draws=9))
    assert "(p = 1 adjusted for 3 tests, 50 simulations)" in two


def test_the_strongest_evidence_is_first():
    """Smallest p, of either test; of equal ones the largest error."""
    numbers = {"a": (0.1, 1.0, 0.4, 0.2), "b": (0.1, 0.9, 0.001, 0.5), "c": (-0.6, 1.0, 0.001, 0.5)}
    numbers["d"] = 0.0, 1.0, 0.9, 0.01
    checks = tuple(ParameterCheck(name, *x) for name, x in numbers.items())
    said, table, _ = str(cj.PosteriorCheck(checks, None, 0.001, 0.05, 500, 9)).split("\n\n")
    assert [line[0] for line in said.splitlines()[1:]] == ["c", "b", "d"]
    assert [line[0] for line in table.splitlines()[1:]] == ["c", "b", "d", "a"]


@pytest.mark.parametrize(("rho", "n_chains"), [(0.0, 1), (0.5, 4), (0.9, 4)])
def test_draws_of_chains_are_worth_less(rho, n_chains):
    """Autoregressions, whose correlations rho^k have the sum (1 + rho) / (1 - rho)."""
    rng, n, length = np.random.default_rng(0), 50, 200
    chains = rng.normal(size=(n * n_chains, length))
    for k in range(1, length):
        chains[:, k] = rho * chains[:, k - 1] + np.sqrt(1 - rho**2) * chains[:, k]
    drawn = chains.reshape(n, -1)
    expected = n_chains * length * (1 - rho) / (1 + rho)
    assert effective_draws(drawn, n_chains) == pytest.approx(expected, rel=0.1)
    found = dependence({"a": (np.zeros(n), drawn)}, n_chains)
    assert bool(found) == (rho > 0.4)  # at 1 / 3 half of the draws are lost
    if rho == 0.9:
        step = int(re.search(r"draws\[..., ::(\d+)\]", found[0])[1])
        assert 17 <= step <= 22 and "the 800 draws of a" in found[0]
    assert dependence({"a": (np.zeros(n), drawn)}, None) == []


def test_draws_that_do_not_move_are_of_no_chain():
    assert effective_draws(np.zeros((5, 20)), 1) == 20


def test_histograms_of_ranks():
    pytest.importorskip("matplotlib")
    theta, draws, _ = simulated("narrow")
    rows = {"a": (theta[:, 0], draws[..., 0]), "b": (theta[:, 1], draws[..., 1])}
    checks = tuple(ParameterCheck(name, 0.0, 1.0, 0.5, None) for name in rows)
    check = cj.PosteriorCheck(checks, 0.5, 1.0, 0.05, N, S, rows=rows)
    figure = check.plot()
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["a", "b"]
    # The narrow one has an outside.
    labels = [ax.get_legend_handles_labels()[1] for ax in figure.axes]
    assert "outside" in labels[1] and "outside" not in labels[0]
    with pytest.raises(ValueError, match="plot needs the rows"):
        cj.PosteriorCheck(checks, 0.5, 1.0, 0.05, N, S).plot()


def test_numbers_of_float32_have_the_digits_that_they_have():
    values = np.float32([0.001, 1 / 3, 1e-30, np.nan])
    found = plain({"a": values, "b": np.float32(0.05)})
    assert found == {"a": [0.001, 0.33333334, 1e-30, None], "b": 0.05}
    assert np.all(np.float32(found["a"][:3]) == values[:3])
    assert plain(np.float64(1 / 3)) == 1 / 3
    # Infinite evidence is no unknown evidence.
    numbers = np.array([np.nan, np.inf, -np.inf]), float("inf")
    assert plain(numbers) == [[None] * 3, None]
    assert plain(numbers, says_infinity=True) == [[None, "Infinity", "-Infinity"], "Infinity"]
