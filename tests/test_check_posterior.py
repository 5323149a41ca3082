"""Posteriors of simulators: right ones, wrong ones, and the prior in their place."""

import re
import types

import numpy as np
import pytest
import xarray

import calibjax as cj
from calibjax.evaluation import _posterior
from calibjax.evaluation._draws import named_draws

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
    if case == "correlated":
        noise[..., 1] = 0.9 * noise[..., 0] + np.sqrt(1 - 0.9**2) * noise[..., 1]
    return theta, x[:, None] / 2 + np.sqrt(0.5) * noise, x


WORDS = {
    "right": "No sign of an error in the posteriors",
    "narrow": r"wrong \(p = [0.0-9]+\): theta\[1\] is too narrow",
    "shifted": r": theta\[0\] is too high \(by 0.[3-7]",
    "correlated": "the parameters are wrong together, and each of them is not",
    "prior": r"theta\[0\], theta\[1\] given the observations, of which not all is used",
}


@pytest.mark.slow
@pytest.mark.parametrize("case", WORDS)
def test_verdicts(case):
    theta, draws, x = simulated(case)
    check = cj.check_posterior(theta, draws, x)
    assert re.search(WORDS[case], str(check)), str(check)
    assert check.rejected == (case != "right")


@pytest.fixture
def calls(monkeypatch):
    """The arguments of the tests, which take long to compile, and p-values that ascend."""
    found = []

    def calibration_test(key, predictions, targets, **options):
        found.append((predictions, targets, options))
        return type("Result", (), {"pvalue": 0.002 * len(found)})

    monkeypatch.setattr(_posterior, "calibration_test", calibration_test)
    return found


def test_each_parameter_is_tested_alone_given_x_and_with_the_others(calls):
    theta, draws, x = simulated("narrow")
    named = {"a": theta[:, 0], "b": theta[:, 1]}, {"a": draws[..., 0], "b": draws[..., 1]}
    check = cj.check_posterior(*named, x)
    assert [options.get("covariates") is x for _, _, options in calls] == [0, 1, 0, 1, 0]
    np.testing.assert_allclose(calls[4][0].samples, draws, rtol=1e-6)
    assert check.pvalue == pytest.approx(5 * 0.002) and check.joint == pytest.approx(0.01)
    a, b = check.parameters
    # The deviation of the true posterior is 1 / 0.6 of that of the draws; of 250 rows the error
    # is some 5 %, and the ranks among 20 draws cannot show all of it.
    assert abs(a.spread - 1) < 0.15 and 1.2 < b.spread < 1.7
    assert abs(a.shift) < 0.2 and [a.name, b.name] == ["a", "b"]
    assert "a is too" in str(check) and check.to_dict()["rejected"] is True


def test_ranks_of_a_right_posterior_have_shift_0_and_spread_1():
    true = np.arange(21.0)[:, None].repeat(3, 1).ravel() - 0.5
    drawn = np.tile(np.arange(20.0), (len(true), 1))
    shift, spread = _posterior._shift_and_spread(true, drawn)
    assert abs(shift) < 1e-12 and spread == pytest.approx(1.0)
    ties = _posterior._shift_and_spread(np.zeros(5), np.zeros((5, 20)))
    assert ties == (0.0, 0.0)


BAD = {
    "a mapping and an array": ({"a": np.zeros(9)}, np.zeros((9, 2)), "must both be arrays"),
    "names": ({"a": np.zeros(9)}, {"b": np.zeros((9, 2))}, r"names of theta, \['a'\], got \['b'\]"),
    "axes": (np.zeros(9), np.zeros(9), r"got shapes \[9\] and \[9\]"),
    "rows": (np.zeros(9), np.zeros((8, 2)), r"\[9, S\] for theta .* got \[8, 2\]"),
    "draws first": (np.zeros((9, 2)), np.zeros((5, 9, 2)), r"\[9, S, 2\] .*; numpy.swapaxes\("),
    "not finite": (np.zeros(9), np.full((9, 2), np.nan), "theta: expected finite numbers"),
    "different draws": (
        {"a": np.zeros(9), "b": np.zeros(9)},
        {"a": np.zeros((9, 2)), "b": np.zeros((9, 3))},
        "the same n and S",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_errors(case):
    theta, draws, message = BAD[case]
    with pytest.raises((TypeError, ValueError), match=message):
        cj.check_posterior(theta, draws)


def test_too_few_resamples_for_the_level():
    with pytest.raises(ValueError, match="n_resamples must be at least 99 for 5 tests"):
        cj.check_posterior(np.zeros((9, 2)), np.zeros((9, 4, 2)), np.zeros(9), n_resamples=98)


def posteriors():
    """Parameters of three simulations, and draws in two chains of three."""
    rng = np.random.default_rng(0)
    theta = {"scale": rng.normal(size=3), "effect": rng.normal(size=(3, 2))}
    drawn = {"scale": rng.normal(size=(3, 2, 3)), "effect": rng.normal(size=(3, 2, 3, 2))}
    dims = {"scale": ("simulation", "chain", "draw")}
    dims["effect"] = *dims["scale"], "place"
    coords = {"place": ["Oslo", "Rome"]}
    draws = xarray.Dataset({name: (dims[name], x) for name, x in drawn.items()}, coords=coords)
    return theta, draws.assign(other=draws.scale), drawn


@pytest.mark.parametrize("form", ["dataset", "turned", "group", "list", "both"])
def test_posteriors_of_arviz(form):
    theta, draws, drawn = posteriors()
    given = {
        "dataset": lambda: (theta, draws),
        "turned": lambda: (theta, draws.transpose("place", "draw", "simulation", "chain")),
        "group": lambda: (theta, types.SimpleNamespace(posterior=draws)),
        "list": lambda: (
            theta,
            [types.SimpleNamespace(posterior=draws.isel(simulation=k)) for k in range(3)],
        ),
        "both": lambda: (
            xarray.Dataset(
                {
                    "scale": ("simulation", theta["scale"]),
                    "effect": (("place", "simulation"), theta["effect"].T),
                }
            ),
            draws,
        ),
    }
    found = _posterior._parameters(*named_draws(*given[form]()))
    assert list(found) == ["scale", "effect[Oslo]", "effect[Rome]"]
    np.testing.assert_allclose(found["effect[Rome]"][0], theta["effect"][:, 1], rtol=1e-6)
    # Chains follow each other.
    if form != "turned":
        expected = drawn["effect"][..., 1].reshape(3, 6)
        np.testing.assert_allclose(found["effect[Rome]"][1], expected, rtol=1e-6)
    expected = np.sort(drawn["scale"].reshape(3, 6))
    np.testing.assert_allclose(np.sort(found["scale"][1]), expected, rtol=1e-6)


def test_errors_of_posteriors():
    theta, draws, _ = posteriors()
    each = [draws.isel(simulation=k) for k in range(3)]
    for arguments, message in (
        ((np.ones(3), draws), "theta must be a mapping .* got ndarray"),
        ((draws, np.ones((3, 6))), "draws must be a dataset"),
        (({"rate": np.ones(3)}, draws), "none called rate, only scale, effect, other"),
        (({"scale": np.ones(4)}, draws), "of simulations, which is missing"),
        ((theta, each[0]), "simulations, which is missing; scale has chain, draw. .*a list"),
        ((theta, draws.rename(draw="sample")), "expected the dimension draw, got"),
        ((theta, [*each[:2], None]), r"draws\[2\] must be a posterior"),
        ((theta, [*each[:2], each[2].isel(draw=[0])]), r"one shape of scale, .* in draws\[2\]"),
        (({"scale": np.ones((3, 1))}, draws), r"expected theta of shape \[3\] for 3 posteriors"),
        ((theta, each[:2]), r"expected theta of shape \[2\] for 2 posteriors, got \[3\]"),
    ):
        with pytest.raises((TypeError, ValueError), match=message) as error:
            cj.check_posterior(*arguments)
        assert "\n" not in str(error.value)
