"""What check_posterior takes: arrays, frames, datasets, chains, labels, and what is missing."""

import types

import numpy as np
import pandas as pd
import pytest
import xarray

import calibjax as cj
from calibjax.evaluation._posterior._draws import (
    shared,
    stuck,
    swapped,
)
from calibjax.evaluation._posterior._read_simulations import (
    matched,
    read_observations,
    read_parameters,
)

BAD = {
    "a mapping and an array": ({"a": np.zeros(9)}, np.zeros((9, 2)), "must both be arrays"),
    "names": ({"a": np.zeros(9)}, {"b": np.zeros((9, 2))}, "none called a, only b"),
    **{
        f"{theta} and {draws}": (np.zeros(theta), np.zeros(draws), message)
        for theta, draws, message in (
            (9, 9, r"shape \[9, S\] for theta of shape \[9\], got \[9\]"),
            (9, (8, 2), r"\[9, S\] for theta .* got \[8, 2\]"),
            (9, (9, 4, 1), r"got \[9, 4, 1\]"),
            (9, (9, 0), r"\[9, S\] for theta"),
            ((9, 2), (5, 9, 2), r"\[9, S, 2\] .* got \[5, 9, 2\]"),
            ((9, 2), (9, 2, 5), r"\[9, S, 2\]"),
            ((9, 2), (9, 4, 5, 2), r"\[9, S, 2\]"),
            ((9, 1), (9, 4), r"\[9, S, 1\]"),
        )
    },
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
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="n_resamples must be at least 19 for the level 0.05"):
        cj.check_posterior(
            rng.normal(size=(9, 2)), rng.normal(size=(9, 4, 2)), np.zeros(9), n_resamples=18
        )


def test_columns_of_frames_are_names():
    rng = np.random.default_rng(0)
    theta, draws = pd.DataFrame({"a": [0.0, 1.0], "b": [2.0, 3.0]}), rng.normal(size=(2, 5, 2))
    for given in (draws, {"a": draws[..., 0], "b": draws[..., 1]}):
        found = read_parameters(theta, given)
        assert found.true["b"].tolist() == [2, 3]
        np.testing.assert_array_equal(found.drawn["b"], draws[..., 1])


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


def in_dataset(theta, **coords):
    dims = {"scale": "simulation", "effect": ("simulation", "place")}
    return xarray.Dataset({name: (dims[name], theta[name]) for name in theta}, coords=coords)


FORMS = {
    "dataset": lambda theta, draws, each: (theta, draws),
    "turned": lambda theta, draws, each: (
        theta,
        draws.transpose("place", "draw", "simulation", "chain"),
    ),
    "group": lambda theta, draws, each: (theta, types.SimpleNamespace(posterior=draws)),
    "list": lambda theta, draws, each: (theta, [types.SimpleNamespace(posterior=x) for x in each]),
    "places of one in another order": lambda theta, draws, each: (
        theta,
        [*each[:2], each[2].isel(place=[1, 0])],
    ),
    "both": lambda theta, draws, each: (in_dataset(theta).transpose("place", "simulation"), draws),
    "places in another order": lambda theta, draws, each: (
        in_dataset(theta, place=["Oslo", "Rome"]).isel(place=[1, 0]),
        draws,
    ),
    "mappings": lambda theta, draws, each: (theta, dict(draws)),
    "arrays of xarray": lambda theta, draws, each: (dict(in_dataset(theta)), draws),
}


@pytest.mark.parametrize("form", FORMS)
def test_posteriors_of_arviz(form):
    theta, draws, drawn = posteriors()
    found = read_parameters(
        *FORMS[form](theta, draws, [draws.isel(simulation=k) for k in range(3)])
    )
    assert list(found.true) == list(found.drawn) == ["scale", "effect[Oslo]", "effect[Rome]"]
    np.testing.assert_allclose(found.true["effect[Rome]"], theta["effect"][:, 1])
    assert found.n_chains == 2
    # Chains follow each other.
    for name, expected in (("scale", drawn["scale"]), ("effect[Rome]", drawn["effect"][..., 1])):
        np.testing.assert_array_equal(found.drawn[name], expected.reshape(3, 6))


def test_one_array_of_xarray():
    theta, draws, drawn = posteriors()
    found = read_parameters(theta["effect"], draws.effect)
    assert list(found.true) == ["theta[Oslo]", "theta[Rome]"]
    np.testing.assert_array_equal(found.drawn["theta[Oslo]"], drawn["effect"][..., 0].reshape(3, 6))


def test_errors_of_posteriors():
    theta, draws, _ = posteriors()
    each = [draws.isel(simulation=k) for k in range(3)]
    places = in_dataset(theta, place=["Oslo", "Bern"])
    for arguments, message in (
        ((np.ones(3), draws), "both have names, got ndarray and Dataset"),
        ((draws, np.ones((3, 6))), "both have names, got Dataset and ndarray"),
        (({"rate": np.ones(3)}, draws), "none called rate, only scale, effect, other"),
        (({"scale": np.ones(4)}, draws), r"\[4, S\] for theta .* got \[3, 6\]"),
        ((theta, each[0]), "dimensions simulation and draw, .* got chain, draw. A list"),
        (
            (theta, draws.rename(draw="sample")),
            "got simulation, chain, sample",
        ),
        ((theta, [*each[:2], None]), r"draws\[2\] must be a posterior"),
        ((theta, [*each[:2], each[2].isel(draw=[0])]), r"one shape of scale, .* in draws\[2\]"),
        (({"scale": np.ones((3, 1))}, draws), r"\[3, S, 1\] for theta .* got \[3, 6\]"),
        ((theta, each[:2]), r"\[3, S\] for theta .* got \[2, 6\]"),
        ((places, draws), "one set of labels of place, got Oslo, Bern and Oslo, Rome"),
    ):
        with pytest.raises((TypeError, ValueError), match=message) as error:
            cj.check_posterior(*arguments)
        assert "\n" not in str(error.value)


N, S = 6, 4
NAMES = np.array(["a", "b", "c", "d", "e", "f"])


def labelled():
    """Numbers that say which simulation they are of, in three arrays with labels."""
    rows = np.arange(N, dtype=float)
    theta = xarray.DataArray(rows, dims="simulation", coords={"simulation": NAMES})
    noise = np.random.default_rng(0).uniform(-0.1, 0.1, (N, S))
    draws = xarray.DataArray(rows[:, None] + noise, dims=("simulation", "draw"))
    x = xarray.DataArray(rows[:, None] * [1, 10], dims=("simulation", "k"))
    return theta, *(v.assign_coords(simulation=NAMES) for v in (draws, x))


def simulations(theta, draws, x, drop_missing=False):
    parameters = read_parameters(theta, draws)
    return matched(parameters, read_observations(x), drop_missing)


def test_simulations_are_paired_by_labels():
    theta, draws, x = labelled()
    found = simulations(theta[::-1], draws[[1, 3, 4, 2]], x[[4, 3, 2, 1, 0]])
    ((true, drawn),) = found.parameters.values()
    np.testing.assert_array_equal(np.round(drawn[:, 0]), true)
    np.testing.assert_array_equal(found.columns["x[1]"], 10 * true)
    assert set(found.names) == {"b", "c", "d", "e"}
    assert [NAMES[int(k)] for k in true] == found.names.tolist()
    assert (
        "4 simulations are in all arguments, by their labels: theta has 6, draws has 4"
        in (found.notes[0])
    )
    assert simulations(theta, draws, x).notes == []


def test_labels_of_a_list_of_posteriors():
    theta, draws, x = labelled()
    each = [xarray.Dataset({"a": draws[k]}) for k in (3, 1)]
    found = simulations({"a": theta}, each, x.isel(simulation=[0, 1, 3]))
    true, drawn = found.parameters["a"]
    np.testing.assert_array_equal(np.round(drawn[:, 0]), true)
    assert sorted(true) == [1, 3]


def test_labels_that_do_not_fit():
    theta, draws, x = labelled()
    with pytest.raises(
        ValueError, match="x must have labels of simulations, as those of theta and"
    ):
        simulations(theta[::-1], draws, x.to_numpy())
    with pytest.raises(ValueError, match="got b twice"):
        simulations(theta, draws[[0, 1, 1]], x)
    with pytest.raises(ValueError, match="in common, got theta a, b; draws c; x"):
        simulations(theta[:2], draws[2:3], x)
    # One that has labels beside arrays without goes by places, as before.
    assert simulations(theta.to_numpy(), draws, x.to_numpy()).notes == []
    with pytest.raises(ValueError, match="must have the same simulations, got .*5"):
        simulations(theta, draws, x.to_numpy()[:5])


def test_observations_in_all_forms():
    x = np.arange(6.0).reshape(3, 2)
    array = xarray.DataArray(x.T, dims=("k", "simulation"), coords={"k": ["mean", "sd"]})
    for given, names in (
        (x, ["x[0]", "x[1]"]),
        (x.tolist(), ["x[0]", "x[1]"]),
        (array, ["x[mean]", "x[sd]"]),
        (xarray.Dataset({"s": array}), ["s[mean]", "s[sd]"]),
        (pd.DataFrame(x, columns=["u", "v"]), ["u", "v"]),
        ({"u": x[:, 0], "v": x[:, 1:]}, ["u", "v"]),
    ):
        columns, _ = read_observations(given)
        assert list(columns) == names
        np.testing.assert_array_equal(np.stack(list(columns.values()), axis=1), x)
    assert list(read_observations(x[:, 0])[0]) == ["x"]
    for wrong, message in (
        (x[None], r"x must have shape \[n\] or \[n, k\], got \[1, 3, 2\]; x.reshape"),
        ({"u": x[:, 0], "v": x[1:]}, "x must have columns of one length"),
        ({}, "x must have at least one column"),
        (None, "x must be an array"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            read_observations(wrong)


def test_missing_numbers_are_named_and_can_be_dropped():
    rng = np.random.default_rng(0)
    theta, draws, x = rng.normal(size=(20, 2)), rng.normal(size=(20, 5, 2)), rng.normal(size=20)
    draws[[3, 7, 8], 0, 1], theta[4, 0], x[7] = np.nan, np.inf, np.nan
    words = (
        r"missing or infinite numbers in theta of 1 simulation \(4\), draws of 3 simulations "
        r"\(3, 7, 8\) and x of 1 simulation \(7\)"
    )
    with pytest.raises(
        ValueError, match=rf"{words}; drop_missing=True leaves 4 of 20 .* out"
    ) as error:
        cj.check_posterior(theta, draws, x)
    assert len(str(error.value)) < 300
    found = simulations(theta, draws, x, drop_missing=True)
    kept = np.setdiff1d(np.arange(20), [3, 4, 7, 8])
    np.testing.assert_array_equal(found.parameters["theta[1]"][1], draws[kept, :, 1])
    np.testing.assert_array_equal(found.columns["x"], x[kept])
    assert (
        found.names.tolist() == kept.tolist()
        and "4 of 20 simulations are left out" in (found.notes[0])
    )
    with pytest.raises(ValueError, match="two simulations at least"):
        simulations(theta * np.nan, draws, x, drop_missing=True)


def test_stuck_samplers_are_counted():
    rng = np.random.default_rng(0)
    true, drawn = rng.normal(size=20), rng.normal(size=(20, 5))
    drawn[[2, 9]] = drawn[[2, 9], :1]
    drawn[5] = true[5]  # a parameter that is known for sure
    (said,) = stuck({"a": (true, drawn)}, np.arange(20))
    assert "all equal, and not equal to its true value, in 2 simulations (2, 9)" in said
    # The posterior of a category may be sure, and wrong by chance.
    category = (
        np.arange(20) % 3,
        np.where(np.arange(20)[:, None] < 4, 2, rng.integers(3, size=(20, 5))),
    )
    assert stuck({"a": category}, np.arange(20)) == []
    assert stuck({"a": (true, drawn[:, :1])}, np.arange(20)) == []


def test_axes_that_look_swapped():
    rng = np.random.default_rng(0)
    true = rng.normal(size=50)
    drawn = true[:, None] + rng.normal(size=(50, 50))
    assert "numpy.swapaxes(draws, 0, 1)" in swapped({"a": (true, drawn.T)})[0]
    assert swapped({"a": (true, drawn)}) == swapped({"a": (true, rng.normal(size=(50, 50)))}) == []
    assert swapped({"a": (true, drawn[:, :49])}) == []


def test_draws_of_a_common_bank():
    rng = np.random.default_rng(0)
    true, bank = rng.normal(size=50), rng.normal(size=1000)
    nearest = np.argsort(np.abs(true[:, None] + rng.normal(size=(50, 1)) - bank), axis=1)[:, :40]
    (said,) = shared({"a": (true, bank[nearest])})
    assert "share draws" in said
    assert shared({"a": (true, rng.choice(bank, (50, 40)))}) == []
    assert shared({"a": (true, true[:, None] + rng.normal(size=(50, 40)))}) == []
    # Counts are equal anyway.
    counts = rng.poisson(3.0, 50), rng.poisson(3.0, (50, 40))
    assert shared({"a": counts}) == []
