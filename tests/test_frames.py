"""Frames and grids, whose columns are named with the words of the command line."""

import datetime
import re

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
import xarray

import calibjax as cj
from calibjax.frames._columns import Columns
from calibjax.frames._read_data import read_table
from calibjax.segments import read_columns

N, DAYS, PLACES, MEMBERS = 6, 5, 3, 4
DATES = np.datetime64("2026-01-01") + np.arange(N)
COLUMNS = {
    "p_cat": [0.25, 0.5, 0.5, 0.125, 0.25, 0.75],
    "p_dog": [0.75, 0.5, 0.5, 0.875, 0.75, 0.25],
    "label": ["cat", "dog"] * 3,
    "region": ["north", "south", None, "north", "south", "north"],
    "week": DATES.tolist(),
    "lead": [1, 2, 3, 1, 2, 3],
    "count": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    "sold": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
    "q90": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    "q10": [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0],
    "mu": [0.0] * N,
    "sd": [1.0] * N,
    "alive": [True, False] * 3,
}
FRAMES = {
    "pandas": pd.DataFrame(COLUMNS),
    "index": pd.DataFrame(COLUMNS).set_index("week"),
    "polars": pl.DataFrame(COLUMNS),
    "lists": COLUMNS,
}
CALLS = {
    "probs": {"probs": "p_*", "target": "label"},
    "list": {"probs": ["p_dog", "p_cat"], "target": "label", "classes": ["dog", "cat"]},
    "prob": {"prob": "p_cat", "target": "label", "event": "cat"},
    "quantiles": {"quantiles": "q*", "target": "sold"},
    "normal": {"mean": "mu", "sd": "sd", "target": "sold", "censored": "alive"},
    "draws": {"draws": ["mu", "q10", "q90"], "target": "sold"},
}


class Call:
    """What `evaluate` makes of its arguments; the tests behind it take long to compile."""

    def __init__(self, data, **_):
        self.data, (self.predictions, self.targets) = data, data.samples


@pytest.fixture(autouse=True)
def read(monkeypatch):
    monkeypatch.setattr("calibjax.evaluation._evaluate.evaluate_data", Call)


@pytest.mark.parametrize("call", CALLS)
def test_predictions_of_all_kinds(call):
    found = cj.evaluate(FRAMES["index"], **CALLS[call])
    parameters = {
        "probs": ["p_cat", "p_dog"],
        "list": ["p_dog", "p_cat"],
        "prob": ["p_cat"],
        "quantiles": ["q10", "q90"],
        "normal": ["mu"],
        "draws": ["mu", "q10", "q90"],
    }
    values = np.stack([COLUMNS[x] for x in parameters[call]], 1)
    found_values = np.asarray(jax.tree.leaves(found.predictions)[0]).reshape(N, -1)
    np.testing.assert_array_equal(found_values, values)
    labels = {"probs": [0, 1] * 3, "list": [1, 0] * 3, "prob": [1, 0] * 3}
    if call == "normal":
        assert found.targets.high.tolist() == [np.inf, 1, np.inf, 3, np.inf, 5]
    else:
        np.testing.assert_array_equal(found.targets, labels.get(call, COLUMNS["sold"]))


@pytest.mark.parametrize("frame", FRAMES)
def test_what_else_is_known_of_rows(frame):
    options = {"groups": ["region", "lead"], "weights": "count", "times": "week"}
    horizon = datetime.timedelta(days=2)
    found = cj.evaluate(FRAMES[frame], **CALLS["probs"], **options, horizon=horizon).data
    assert found.classes == ["cat", "dog"]
    region = found.groups["region"]
    assert region[[0, 1, 3]].tolist() == ["north", "south", "north"] and pd.isna(region[2])
    assert found.groups["lead"].tolist() == COLUMNS["lead"]
    assert found.weights.tolist() == COLUMNS["count"]
    days = (DATES - np.datetime64("1970-01-01")).astype(float)
    np.testing.assert_allclose(found.times, (days - days.min()) / 2)
    assert found.horizon == 2
    clusters = cj.evaluate(FRAMES[frame], **CALLS["probs"], clusters="lead").data
    assert clusters.clusters.tolist() == [0, 1, 2, 0, 1, 2]


def test_types_of_columns():
    frame = pd.DataFrame(COLUMNS).astype({"label": "category", "lead": "Int64", "mu": str})
    assert cj.evaluate(frame, **CALLS["probs"]).targets.tolist() == [0, 1] * 3
    assert cj.evaluate(frame, mean="mu", sd="sd", target="lead").targets.tolist()[:2] == [1, 2]
    assert cj.evaluate(frame, prob="p_cat", target="alive").targets.tolist() == [1, 0] * 3
    numbered = pd.DataFrame({0: [0.5, 0.5], 1: [0.5, 0.5], "y": [0, 1]})
    assert cj.evaluate(numbered, probs=[0, 1], target="y").targets.tolist() == [0, 1]


def test_missing_values_are_left_out_if_asked():
    frame = pd.DataFrame(COLUMNS).assign(sold=[0, None, 2, 3, 4, 5])
    with pytest.warns(UserWarning, match="data: 5 of 6 rows are used, without missing values"):
        found = cj.evaluate(frame, **CALLS["quantiles"], drop_missing=True, groups="lead")
    assert found.targets.tolist() == [0, 2, 3, 4, 5]
    assert found.data.groups["lead"].tolist() == [1, 3, 1, 2, 3]
    with pytest.raises(ValueError, match="data, column sold, row 1: .* got nothing"):
        cj.evaluate(frame, **CALLS["quantiles"])
    with pytest.raises(ValueError, match=r"number \(drop_missing=True leaves out rows without"):
        cj.evaluate(frame, **CALLS["quantiles"])
    # A name such as that of Namibia is not lost in silence.
    frame = pd.DataFrame(COLUMNS).assign(land=["DE", "NA", "FR", "", "NA", "FR"])
    words = r"3 of 6 rows .* \(missing are 3 of land\); of land, NA and an empty text is taken"
    with pytest.warns(UserWarning, match=words):
        cj.evaluate(frame, **CALLS["quantiles"], drop_missing=True, clusters="land")


# Arguments beside a frame in which some columns are replaced.
BAD = {
    "no column": (
        {},
        {"probs": "p_*", "target": "labels"},
        "column labels not found.* is it label?",
    ),
    "no target": ({}, {"probs": "p_*"}, "target must name the outcome column"),
    "one column": ({}, {"probs": ["p_cat"], "target": "label"}, "two names .* or more"),
    "the same twice": ({}, {"draws": ["mu", "mu"], "target": "sold"}, "different columns"),
    "no pattern": ({}, {"probs": "x_*", "target": "label"}, r"two columns x_\*, got none"),
    "from 1": ({"label": [1, 2] * 3}, CALLS["probs"], "column label: .*got 1 … 2: subtract 1"),
    "classes": ({}, CALLS["list"] | {"classes": ["dog"]}, "classes must be 2 names"),
    "dates": ({}, {"mean": "mu", "sd": "sd", "target": "week"}, "week: expected numbers, got date"),
    "missing": ({}, CALLS["probs"] | {"clusters": "region"}, "region, row 2: expected a value"),
    "no weight": ({"mu": -1}, CALLS["probs"] | {"weights": "mu"}, "mu, row 0: .*a weight"),
    "units": ({}, CALLS["probs"] | {"clusters": "lead", "times": "week"}, "clusters and times"),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_of_columns(case):
    new, options, message = BAD[case]
    with pytest.raises(ValueError, match=message) as error:
        cj.evaluate(pd.DataFrame(COLUMNS).assign(**new), **options)
    assert "\n" not in str(error.value) and "--" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((COLUMNS,), {}, "got nothing; of a frame, evaluate.frame, target=.label."),
        ((COLUMNS, "label"), {}, "got the text 'label'; .*evaluate.frame, target='label'"),
        ((COLUMNS, [0, 1]), CALLS["probs"], "targets must not be given where arguments name"),
        (
            (COLUMNS, [0, 1]),
            {"drop_missing": True},
            "drop_missing must be False for arrays, .* known",
        ),
        ((np.ones((3, 2)),), CALLS["probs"], "data must be a frame .*, got ndarray"),
        ((pl.LazyFrame(COLUMNS),), CALLS["probs"], r"data.collect\(\)"),
        (
            (COLUMNS,),
            CALLS["probs"] | {"clusters": [0, 1]},
            "clusters must be the name of",
        ),
        ((COLUMNS,), CALLS["probs"] | {"groups": {"a": [0]}}, "groups must be a list of names"),
        ((COLUMNS,), CALLS["probs"] | {"normalize": "yes"}, "normalize"),
    ],
    ids=["nothing", "text", "both", "missing", "array", "lazy", "clusters", "groups", "flag"],
)
def test_errors_of_arguments(arguments, options, message):
    with pytest.raises(TypeError, match=message):
        cj.evaluate(*arguments, **options)


def test_columns_of_bad_frames():
    twice = pd.DataFrame([[0.5, 0, 0]] * 2, columns=["p", "y", "y"])
    for frame, message in (
        (twice, "different names of columns: .* 'y' 2 times"),
        ({"p": [0.5, 0.5], "y": [1]}, "same length, got 2 of p, 1 of y"),
        ({"p": 0.5, "y": [1, 0]}, "column p must be an array, a list or a frame, got 0.5"),
        ({"p": np.ones((2, 2, 2)), "y": [1, 0]}, r"\[2, 2, 2\]; name the dimensions"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            cj.evaluate(frame, prob="p", target="y")


def grid():
    rng = np.random.default_rng(0)
    observed = rng.normal(size=(DAYS, PLACES)).astype(np.float32)
    forecast = rng.normal(size=(DAYS, PLACES, MEMBERS)).astype(np.float32)
    return {
        "observed": (("time", "station"), observed),
        "forecast": (("time", "station", "member"), forecast),
        "time": DATES[:DAYS],
        "station": ["Oslo", "Rome", "Bern"],
    }


@pytest.mark.parametrize("form", ["arrays", "turned", "dataset"])
def test_grids(form):
    data = grid()
    observed, forecast = data["observed"][1], data["forecast"][1]
    if form == "turned":
        data["forecast"] = ("member", "time", "station"), np.moveaxis(forecast, 2, 0)
    if form == "dataset":
        coords = {name: data.pop(name) for name in ("time", "station")}
        data = xarray.Dataset(data, coords=coords)
    options = {"target": "observed", "draws": "forecast", "times": "time", "groups": ["station"]}
    found = cj.evaluate(data, **options)
    np.testing.assert_array_equal(found.targets, observed.ravel())
    np.testing.assert_array_equal(found.predictions.samples, forecast.reshape(-1, MEMBERS))
    assert found.data.groups["station"].tolist() == ["Oslo", "Rome", "Bern"] * DAYS
    assert np.diff(found.data.clusters).tolist() == ([0, 0, 1] * DAYS)[:-1]
    observed[1, 2] = np.nan
    at = "data, column observed, time 2026-01-02.*, station Bern: expected a finite number"
    with pytest.raises(ValueError, match=at):
        cj.evaluate(data, **options)
    with pytest.warns(UserWarning, match="14 of 15 rows are used"):
        found = cj.evaluate(data, **options, drop_missing=True)
    assert len(found.targets) == len(found.data.groups["station"]) == 14


def test_dimensions_name_levels_and_classes():
    data = grid()
    values = np.sort(data["forecast"][1][..., :3])
    data |= {"q": (("time", "station", "level"), values), "level": [0.1, 0.5, 0.9]}
    found = cj.evaluate(data, target="observed", quantiles="q").predictions
    np.testing.assert_array_equal(found.values, values.reshape(-1, 3))
    assert [float(x) for x in found.levels] == pytest.approx([0.1, 0.5, 0.9])
    probs = np.random.default_rng(1).dirichlet([1, 1], DAYS)
    data |= {"p": (("time", "kind"), probs), "kind": ["dry", "wet"]}
    data["weather"] = ("time", "station"), np.array([["wet", "dry", "wet"]] * DAYS)
    found = cj.evaluate(data, target="weather", probs="p")
    np.testing.assert_allclose(found.predictions.probs, probs.repeat(PLACES, 0), rtol=1e-6)
    assert found.targets.tolist() == [1, 0, 1] * DAYS and found.data.classes == ["dry", "wet"]


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (
            {"forecast": (("time", "station", "lead", "member"), np.ones((DAYS, PLACES, 2, 2)))},
            "one",
        ),
        ({"forecast": (("time", "place", "member"), np.ones((DAYS, 2, 2)))}, "got time, place"),
        ({"forecast": (("time", "station", "member"), np.ones((DAYS, 2, 2)))}, "conflicting sizes"),
        (
            {"forecast": (("time", "station", "member"), np.ones((DAYS, PLACES)))},
            "not convert",
        ),
        ({"forecast": (("time", "station"), np.ones((DAYS, PLACES)))}, "array of two dimensions"),
        ({"observed": (("time", "height"), np.ones((DAYS, 2)))}, "got time, station, member"),
    ],
    ids=["two more", "other names", "other size", "too few", "no member", "other targets"],
)
def test_errors_of_grids(new, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        cj.evaluate(grid() | new, target="observed", draws="forecast")


def test_observations_by_the_time_that_forecasts_are_about():
    """The lines of docs/forecasts.md make a dataset that is read."""
    dates = np.datetime64("2026-01-01", "ns") + np.arange(8) * np.timedelta64(1, "D")
    leads = np.array([1, 2], "timedelta64[D]").astype("timedelta64[ns]")
    ds = xarray.Dataset(
        {
            "obs": (("valid_time", "station"), np.arange(16.0).reshape(8, 2)),
            "t2m": (("time", "lead", "station", "member"), np.ones((6, 2, 2, 3))),
        },
        {"time": dates[:6], "lead": leads, "valid_time": dates},
    )
    with pytest.raises(ValueError, match="t2m: expected the dimensions valid_time, station of"):
        cj.evaluate(ds, target="obs", draws="t2m")
    obs = ds.obs.sel(valid_time=ds.time + ds.lead).drop_vars("valid_time")
    ds = ds.drop_dims("valid_time").assign(obs=obs)
    found = cj.evaluate(ds, target="obs", draws="t2m")
    by_hand = [
        2 * (made + lead) + station for made in range(6) for lead in (1, 2) for station in (0, 1)
    ]
    assert found.targets.tolist() == by_hand
    nothing = ds.assign(obs=np.nan * ds.obs)
    with pytest.raises(ValueError, match=r"obs, .* number \(no row has one\), got nothing"):
        cj.evaluate(nothing, target="obs", draws="t2m")
    with pytest.raises(ValueError, match="got 0"), pytest.warns(UserWarning, match="24 of obs"):
        cj.evaluate(nothing, target="obs", draws="t2m", drop_missing=True)


def test_arrays_of_xarray():
    data = xarray.Dataset({name: grid()[name] for name in ("observed", "forecast")})
    with pytest.raises(TypeError, match="must be a Dataset .* got a DataArray"):
        cj.evaluate(data.forecast, target="observed", draws="forecast")
    with pytest.raises(ValueError, match="of a grid name the dimensions"):
        cj.evaluate(data.forecast, data.observed)
    with pytest.raises(ValueError, match="of a grid name the dimensions"):
        cj.evaluate(3 * data.forecast.transpose("member", "station", "time"), data.observed)
    empty = data.isel(time=[])
    with pytest.raises(ValueError, match="expected at least 2 rows, got 0"):
        cj.evaluate(empty, target="observed", draws="forecast")


def test_swapped_arguments():
    numbers = np.linspace(-1, 1, N)
    for predictions, targets in (
        (cj.IntervalCensored(numbers, numbers), numbers),
        (numbers, np.stack([numbers] * 3, axis=1)),
        (numbers, cj.Normal(numbers, np.ones(N))),
    ):
        with pytest.raises((TypeError, ValueError), match="predictions come first"):
            cj.evaluate(predictions, targets)
    with pytest.raises(ValueError, match="count the classes from 1, subtract 1"):
        cj.evaluate(pd.DataFrame(np.full((3, 3), 1 / 3)), [1, 2, 3])


@pytest.mark.parametrize("kind", ["prob", "probs"])
def test_percentages(kind):
    """Confidences from 0 to 100 are what a hundredth of them is, in reading and in writing."""
    shares = {"no": [0.0, 0.42, 1.0], "yes": [1.0, 0.58, 0.0]}
    frame = {name: 100 * np.array(x) for name, x in shares.items()} | {"y": ["no", "yes", "no"]}
    names = {"prob": "yes"} if kind == "prob" else {"probs": ["no", "yes"]}
    data = cj.read_data(frame, target="y", percent=True, **names)
    probs = data.predictions.label_probabilities()
    np.testing.assert_allclose(probs, np.transpose([*shares.values()]), rtol=1e-6)
    columns = Columns(target="y", percent=True, **names).prediction_columns(read_table(frame))
    for name, values in columns.columns_of(data.predictions).items():
        np.testing.assert_allclose(values, frame[name], rtol=1e-6)
    with pytest.raises(ValueError, match="yes, row 1: expected a probability, got 101"):
        cj.read_data({"yes": [50, 101.0], "y": [0, 1]}, target="y", prob="yes", percent=True)
    with pytest.raises(ValueError, match="percent can be used only together with prob"):
        cj.read_data({"m": [1.0], "s": [1.0], "y": [0]}, target="y", mean="m", sd="s", percent=True)


CODES = ["1", "01", "001"] * 2
WITH_CODES = COLUMNS | {"code": CODES}
FRAMES_OF_CODES = {
    "mapping": WITH_CODES,
    "arrays": WITH_CODES | {"code": np.array(CODES)},
    "pandas": pd.DataFrame(WITH_CODES),
    "pandas categories": pd.DataFrame(WITH_CODES).astype({"code": "category"}),
    "Polars": pl.DataFrame(WITH_CODES),
    "Polars categories": pl.DataFrame(WITH_CODES).cast({"code": pl.Categorical}),
    "xarray": xarray.Dataset({name: ("row", x) for name, x in WITH_CODES.items()}),
}


@pytest.mark.parametrize("frame", FRAMES_OF_CODES)
def test_codes_stay_text(frame):
    frame = FRAMES_OF_CODES[frame]
    found = cj.read_data(frame, **CALLS["probs"], groups=["code"])
    assert list(found.groups["code"]) == CODES
    clusters = cj.read_data(frame, **CALLS["probs"], clusters="code").clusters
    assert len(set(clusters.tolist())) == 3


def test_numbers_of_categories_are_no_quantities():
    gaps = read_table(pd.DataFrame({"g": pd.Categorical([1, None, 10])})).columns["g"]
    assert gaps.tolist() == ["1", None, "10"]
    numbers = pd.Series(pd.Categorical(np.arange(26) // 2))
    frame = pd.DataFrame({"g": numbers, "p": 0.5, "y": 0})
    data = cj.read_data(frame, prob="p", target="y", groups="g")
    for groups in (data.groups, {"g": numbers}):
        ((column,), _) = read_columns(groups, np.ones(26, bool))
        assert sorted(map(int, column.levels)) == [*range(13)]


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, dict])
def test_a_pattern_cuts_no_number(library):
    values = {x: np.full(N, float(x)) for x in ("0.1", "0.5", "0.9")} | {"y": np.zeros(N)}
    frame = library(values)
    for pattern in ("0.*", "0*", list(values)[:3]):
        found = cj.read_data(frame, quantiles=pattern, target="y").predictions.levels
        assert [float(x) for x in found] == pytest.approx([0.1, 0.5, 0.9])
    with pytest.raises(ValueError, match="in .0, 1., got 0.1, 0.5, 1.0; divide percentages by 100"):
        cj.read_data(frame, quantiles="0*", levels=[0.1, 0.5, 1.0], target="y")
    risks = library({"S_12": np.full(N, 0.9), "S_18": np.full(N, 0.8), "y": np.ones(N)})
    found = cj.read_data(risks, survival="S_1*", event="y", target="y").predictions
    assert np.unique(found.times).tolist() == [12, 18]


ROWS = pd.Index([*"abcdef"])
SORTED = pd.Series([0.1, 0.2, 0.3, 0.6, 0.8, 0.9], ROWS)
OTHER = SORTED[::-1]
MIXED_ORDERS = {
    "targets": lambda: cj.evaluate(SORTED, OTHER.round().astype(int)),
    "weights": lambda: cj.evaluate(SORTED, SORTED.round().astype(int), weights=OTHER),
    "clusters": lambda: cj.evaluate(SORTED, [0, 1] * 3, clusters=OTHER),
    "times": lambda: cj.evaluate(np.array(SORTED), SORTED.round().astype(int), times=OTHER),
    "groups": lambda: cj.evaluate(SORTED, [0, 1] * 3, groups=pd.DataFrame({"g": OTHER})),
    "groups['g']": lambda: cj.evaluate(SORTED, [0, 1] * 3, groups={"g": OTHER}),
    "groups['h']": lambda: read_columns({"g": SORTED, "h": OTHER}, np.ones(N, bool)),
    "predictions": lambda: cj.evaluate(
        pd.DataFrame({"no": 1 - SORTED, "yes": SORTED}), OTHER.round().map({0: "no", 1: "yes"})
    ),
    "scale": lambda: cj.Normal(SORTED, OTHER),
    "covariates['h']": lambda: cj.Data(
        cj.Bernoulli(np.full(N, 0.5)), np.tile([0, 1], 3), covariates={"g": SORTED, "h": OTHER}
    ),
    "data['y']": lambda: cj.read_data({"p": SORTED, "y": OTHER.round()}, prob="p", target="y"),
    "targets[1]": lambda: cj.evaluate(
        cj.Weibull(np.ones(N), np.ones(N)), (SORTED, OTHER.round() == 1)
    ),
}


@pytest.mark.parametrize("case", MIXED_ORDERS)
def test_an_index_in_another_order_is_an_error(case):
    name = "targets" if case == "predictions" else case
    with pytest.raises(ValueError, match=rf"^{re.escape(name)} must have its index in the order"):
        MIXED_ORDERS[case]()


def test_other_indices_are_positions():
    targets = SORTED.round().astype(int)
    numbered = targets.reset_index(drop=True)
    found = [cj.evaluate(SORTED, y).data for y in (targets, numbered, targets.to_numpy())]
    assert all(x.targets.tolist() == targets.tolist() for x in found)
