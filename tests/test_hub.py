"""Forecast hubs: from long tables to predictions and targets, and all models in one table."""

import datetime
import gzip

import jax
import numpy as np
import polars as pl
import pytest
from scipy.stats import norm, t, ttest_rel
from typer.testing import CliRunner

import calibjax as cj
from calibjax import evaluation
from calibjax.cli import app
from calibjax.evaluation._section import keys_of
from calibjax.hub import HubTable, hub_table, read_hub
from calibjax.hub._hub_table import mean_scores
from calibjax.hub._read_hub import with_days

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
HEADER = "reference_date,location,target_end_date,output_type,output_type_id,value\n"
TASKS = [("2026-01-03", "01", "2026-01-10"), ("2026-01-10", "US", "2026-01-24")]


def lines(values, kind, ids):
    """The rows of all tasks, of which each has a value for each id."""
    return "".join(
        f"{made},{place},{day},{kind},{name},{value}\n"
        for (made, place, day), row in zip(TASKS, values, strict=True)
        for name, value in zip(ids, row, strict=True)
    )


def write(folder, forecasts, observed, model="a"):
    (folder / "model-output" / model).mkdir(parents=True, exist_ok=True)
    (folder / "model-output" / model / f"2026-{model}.csv").write_text(HEADER + forecasts)
    (folder / "observed.csv").write_text(observed)
    return folder / "model-output", folder / "observed.csv"


SERIES = "location,target_end_date,observation\n01,2026-01-10,4\nUS,2026-01-24,2.5\n"


def test_quantiles_of_a_time_series(tmp_path):
    # Levels come in any order, and are written in any way.
    forecasts = lines([[1, 3, 2], [2, 6, 4]], "quantile", ("0.10", ".9", "0.5"))
    forecasts += "2026-01-10,US,2026-01-31,quantile,0.5,9\n"  # what will be is not known
    forecasts += lines([[2], [4]], "median", ["NA"])
    left_out = "1 without an outcome, such as reference_date = 2026-01-10, location = US"
    with pytest.warns(UserWarning, match=left_out):
        a = read_hub(*write(tmp_path, forecasts, SERIES))["a"]
    assert a.predictions.levels == (0.1, 0.5, 0.9)
    np.testing.assert_array_equal(a.predictions.values, [[1, 2, 3], [2, 4, 6]])
    assert a.targets.tolist() == [4.0, 2.5] and a.groups["location"].tolist() == ["01", "US"]
    # Two weeks ahead, and what happened in the week before the forecast is not known.
    assert (np.diff(a.times) * a.horizon).tolist() == [14.0] and a.horizon == 14.0 + 7.0


VERSIONS = {
    "numbers": ("9", "10"),
    "without zeros": ("2026-2-9", "2026-2-10"),
    "of the United States": ("12/30/2025", "1/6/2026"),
    "day or month first, in one order": ("9/1/2026", "10/1/2026"),
    "of Europe": ("28.01.2026", "2.2.2026"),
    "offsets": ("2026-02-10T01:00:00+09:00", "2026-02-09T23:00:00-05:00"),
}


@pytest.mark.parametrize("older, newer", VERSIONS.values(), ids=VERSIONS)
def test_the_last_version_of_a_series(tmp_path, older, newer):
    """A file as FluSight's, whose other columns change from version to version, too."""
    forecasts = lines([[1, 3], [2, 6]], "sample", ("1", "2")).replace("sample,2,6", "sample,9,6")
    observed = "as_of,target,target_end_date,location,location_name,observation,weekly_rate\n"
    observed += "".join(
        f"{as_of},wk inc flu hosp,{day},{place},Alabama,{y},{y / 51}\n"
        for as_of, y in ((newer, 5), (older, 4))
        for _, place, day in TASKS[: 1 if y == 5 else 2]
    )
    paths = write(tmp_path, forecasts, observed)
    a = read_hub(*paths)["a"]
    np.testing.assert_array_equal(a.predictions.samples, [[1, 3], [2, 6]])
    assert a.targets.tolist() == [5.0, 4.0]
    assert read_hub(*paths, as_of=older)["a"].targets.tolist() == [4.0, 4.0]


def test_versions_up_to_a_date(tmp_path):
    """A file as that of the COVID-19 Forecast Hub, with the column `date`."""
    observed = "state,date,observation,location,as_of,target\n" + "".join(
        f"AL,{day},{y},{place},{as_of},wk inc covid hosp\n"
        for as_of, y in (("2026-02-10T12:00:00", 5), ("2026-02-09", 4), ("2026-02-11", 6))
        for _, place, day in TASKS
    )
    paths = write(tmp_path, QUANTILES, observed)
    for as_of, y in ((None, 6), ("2026-02-10", 5), (datetime.date(2026, 2, 9), 4)):
        assert read_hub(*paths, as_of=as_of)["a"].targets.tolist() == [y, y]
    with pytest.raises(ValueError, match="as_of must be a date such as .*observed.csv, got 9"):
        read_hub(*paths, as_of=9)
    for as_of in ("1/2/2026", "soon", ""):
        wrong = observed.replace("2026-02-09", as_of).replace("2026-02-11", "2/1/2026")
        with pytest.raises(ValueError, match="expected .*, or numbers, in the column as_of, got"):
            read_hub(*write(tmp_path, QUANTILES, wrong))
    # A folder for each version, as FluSight had them; its older files have a column `value`.
    for as_of, y in (("2026-02-11", 6), ("2026-02-09", 4)):
        (folder := tmp_path / "target-data" / f"as_of={as_of}").mkdir(parents=True)
        series = SERIES.replace(",4\n", f",{y}\n").replace(",2.5\n", f",{y}\n")
        (folder / "time-series.csv").write_text(series.replace("observation", "value"))
    for as_of, y in ((None, 6), ("2026-02-10", 4)):
        found = read_hub(paths[0], tmp_path / "target-data", as_of=as_of)["a"]
        assert found.targets.tolist() == [y, y]
    paths = write(tmp_path, QUANTILES, SERIES)
    arguments = ["hub", str(paths[0]), "--target-data", str(paths[1]), "--as-of", "2026-02-09"]
    assert "needs a column as_of" in CliRunner().invoke(app, arguments).stderr


def test_times_of_the_day_at_midnight_are_dates(tmp_path):
    paths = write(tmp_path, lines([[1, 3], [2, 6]], "quantile", (0.1, 0.9)), SERIES)
    days = [datetime.datetime(2026, 1, 10), datetime.datetime(2026, 1, 24)]
    observed = {"location": ["01", "US"], "target_end_date": days, "observation": [4.0, 2.5]}
    pl.DataFrame(observed).write_parquet(tmp_path / "observed.parquet")
    assert read_hub(paths[0], tmp_path / "observed.parquet")["a"].targets.tolist() == [4.0, 2.5]


ORACLE = "location,target_end_date,output_type,output_type_id,oracle_value\n"


def test_categories_of_oracle_output(tmp_path):
    forecasts = lines([[0.2, 0.3, 0.5], [0.1, 0.8, 0.1]], "pmf", ("low", "high", "middle"))
    known = {"01": "middle", "US": "low"}
    observed = ORACLE + "".join(
        f"{place},{day},pmf,{name},{int(known[place] == name)}\n"
        for _, place, day in TASKS
        for name in ("low", "middle", "high")
    )
    paths = write(tmp_path, forecasts, observed)
    a = read_hub(*paths)["a"]
    assert isinstance(a.predictions, cj.Categorical)
    assert [a.classes[k] for k in a.targets] == ["middle", "low"]
    # A later version of which only the right category is written.
    versions = [f"as_of,{ORACLE}", *(f"9,{x}\n" for x in observed.splitlines()[1:])]
    versions.append(f"10,{TASKS[0][1]},{TASKS[0][2]},pmf,high,1\n")
    paths[1].write_text("".join(versions))
    assert [a.classes[k] for k in read_hub(*paths)["a"].targets] == ["high", "low"]
    paths[1].write_text(observed)
    a = read_hub(*paths, ordered=["low", "middle", "high"])["a"]
    assert isinstance(a.predictions, cj.Ordinal) and a.targets.tolist() == [1, 0]
    np.testing.assert_allclose(a.predictions.probs, [[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]], rtol=1e-6)
    with pytest.raises(ValueError, match="ordered must name low, high, middle, got low"):
        read_hub(*paths, ordered=["low"])


@pytest.mark.parametrize("of_bins", [True, False])
def test_bins_between_thresholds(tmp_path, of_bins):
    forecasts = lines([[0.1, 0.6], [0.3, 0.9]], "cdf", ("2.5", "10"))
    observed = ORACLE + "".join(
        f"{place},{day},cdf,{x},{int(y <= x)}\n"
        for (_, place, day), y in zip(TASKS, (4, 2.5), strict=True)
        for x in (2.5, 10)
    )
    a = read_hub(*write(tmp_path, forecasts, observed if of_bins else SERIES))["a"]
    np.testing.assert_allclose(a.predictions.probs, [[0.1, 0.5, 0.4], [0.3, 0.6, 0.1]], rtol=1e-5)
    assert a.targets.tolist() == [1, 0]  # 4 is above 2.5, which is not above itself


def test_the_ends_of_the_support_are_no_levels(tmp_path):
    """They say no probability: what is read are the levels between them, finite ends or not."""
    inner = lines([[1, 3, 2], [2, 6, 4]], "quantile", ("0.1", "0.9", "0.5"))
    ends = lines([["-inf", 9], [0, "inf"]], "quantile", ("0", "1.0"))
    a, b = (read_hub(*write(tmp_path, x, SERIES))["a"] for x in (inner, ends + inner))
    assert b.predictions.levels == (0.1, 0.5, 0.9)
    np.testing.assert_array_equal(a.predictions.values, b.predictions.values)


@pytest.mark.parametrize("observed", [SERIES, SERIES.replace("01,", "1,", 1)])
def test_zeros_in_front_that_a_program_lost(tmp_path, observed):
    for text in ("01", "1", "001"):
        forecasts = lines([[1, 3], [2, 6]], "quantile", (0.1, 0.9)).replace(",01,", f",{text},")
        a = read_hub(*write(tmp_path, forecasts, observed))["a"]
        assert a.groups["location"].tolist() == [observed.split("\n")[1].split(",")[0], "US"]


QUANTILES = lines([[1, 3], [2, 6]], "quantile", (0.1, 0.9))
SHARES = lines([[0.6, 0.1]] * 2, "pmf", "ab")
NAMES = "location,observation\n01,a\nUS,b\n"
BAD = {
    "no column": (QUANTILES, "location,y\n01,1\n", "expected a column oracle_value or observ"),
    "no shared column": (
        QUANTILES,
        "place,observation\n01,1\n",
        "expected columns of what was obs",
    ),
    "no outcome": (
        QUANTILES,
        "location,observation\n77,1\n",
        "no forecast is complete and has an .*: 2 without an outcome, such as .* location = 01",
    ),
    "infinite": (
        QUANTILES,
        "location,observation\n01,inf\n",
        "a number as oracle_value, got .*inf",
    ),
    "twice": (QUANTILES, "location,observation,location\n01,1,01\n", "names of columns, got loca"),
    "crossing": (
        QUANTILES.replace("0.9,6", "0.9,1"),
        SERIES,
        "not fall as the quantile rises .*, got reference_date = 2026-01-10, location = US, .*"
        "2026-a.csv, 0.1 = 2.0, 0.9 = 1.0",
    ),
    "percent": (QUANTILES.replace(",0.", ",8"), SERIES, "a, with .*: levels must be at least 2"),
    "one row": (QUANTILES, SERIES.replace("US", "77"), "predictions must hold at least 2 rows"),
    "falling": (lines([[0.6, 0.1]] * 2, "cdf", (2, 9)), SERIES, "not fall as the cdf rises"),
    "pmf": (SHARES, NAMES, "sum to one"),
    "percentages": (SHARES.replace(",0.", ",9"), NAMES, "got 96; divide percents by 100"),
    "other dates": (
        QUANTILES.replace("2026-01-03", "1/3/2026"),
        SERIES,
        "dates such as 2026-03-31 as reference_date, got reference_date = 1/3/2026",
    ),
    "no number at all": (QUANTILES, "location,observation\n01,NaN\nUS,\n", "no forecast is comp"),
    "two outcomes": (QUANTILES, "location,observation\n01,1\n01,2\n", "not two, got location = 01"),
    "no number": (QUANTILES, "location,observation\n01,much\n", "expected a number as oracle_v"),
    "two values": (QUANTILES * 2, SERIES, "not two, got reference_date = 2026-01-03, .*id = 0.1"),
    "no number as value": (QUANTILES.replace(",6\n", ",x\n"), SERIES, "finite numbers.* value = x"),
    "no level": (QUANTILES.replace("0.9,", "top,"), SERIES, "numbers as output_type_id .*= top"),
    "no type": (QUANTILES.replace("quantile", "mean"), SERIES, "one of quantile, sample, cdf, pmf"),
    "two types": (
        QUANTILES + QUANTILES.replace("quantile", "sample"),
        SERIES,
        "output_type must be one of quantile, sample, got None; .* --output-type chooses",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_errors(tmp_path, case):
    forecasts, observed, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        read_hub(*write(tmp_path, forecasts, observed))


def test_an_odd_file_does_not_count_for_all(tmp_path):
    """Levels are equal up to rounding; one file misses a level, one has another one."""
    tasks = HEADER, "location,target_end_date,observation\n"
    for k, ids in enumerate(
        [(0.1, 0.3, 0.9), (0.1, 0.1 + 0.2, 0.9), (0.1, 0.9), (0.1, 0.3, 0.5, 0.9)]
    ):
        path = write(tmp_path, "", "")[0] / "a" / f"{k}.csv"
        rows = lines([range(len(ids))] * 2, "quantile", ids).replace("2026-01", f"2026-0{k + 1}")
        path.write_text(tasks[0] + rows)
    (tmp_path / "model-output" / "a" / "2026-a.csv").unlink()
    observed = tasks[1] + "".join(
        f"{place},{day.replace('2026-01', f'2026-0{k + 1}')},1\n"
        for k in range(4)
        for _, place, day in TASKS
    )
    (tmp_path / "observed.csv").write_text(observed)
    with pytest.warns(UserWarning) as warned:
        a = read_hub(tmp_path / "model-output", tmp_path / "observed.csv")["a"]
    assert a.predictions.levels == (0.1, 0.3, 0.9)
    np.testing.assert_array_equal(a.predictions.values, [[0, 1, 2]] * 4 + [[0, 1, 3]] * 2)
    said, incomplete, beyond = str(warned[0].message).split("; ")
    assert said == "6 forecasts (Quantiles) of a"
    assert incomplete.startswith("2 incomplete, such as") and incomplete.endswith("2.csv")
    assert beyond.startswith("2 with 0.5, not used, such as") and beyond.endswith("3.csv")


def test_crossing_quantiles_are_sorted(tmp_path):
    paths = write(tmp_path, lines([[3, 1], [2, 6]], "quantile", (0.1, 0.9)), SERIES)
    a = read_hub(*paths, sort=True)["a"]
    np.testing.assert_array_equal(a.predictions.values, [[1, 3], [2, 6]])
    arguments = ["hub", str(paths[0]), "--target-data", str(paths[1])]
    assert "--sort-quantiles sorts quantiles" in CliRunner().invoke(app, arguments).stderr
    # A model that is unknown is an error after all files were read.
    result = CliRunner().invoke(app, [*arguments, "--sort-quantiles", "--model", "b"])
    assert result.stderr == "--model must be one of a, got b.\n"


def test_models_without_the_target_are_left_out(tmp_path):
    def with_target(name):
        rows = QUANTILES.replace(",quantile", f",{name},quantile")
        return HEADER.replace(",output_type,", ",target,output_type,", 1) + rows

    for model, content in {
        "a": with_target("x"),
        "b": with_target("y"),
        "c": with_target("x") + with_target("y").split("\n", 1)[1],
    }.items():
        folder = write(tmp_path, "", SERIES, model)[0]
        (folder / model / f"2026-{model}.csv").write_text(content)
    paths = folder, tmp_path / "observed.csv"
    with pytest.warns(UserWarning, match=r"b left out, without quantile, x\."):
        assert list(read_hub(*paths, target="x")) == ["a", "c"]
    arguments = ["hub", str(paths[0]), "--target-data", str(paths[1]), "--target", "x"]
    said, _ = CliRunner().invoke(app, [*arguments, "--model", "d"]).stderr.splitlines()
    assert said.startswith("b left out")
    with pytest.raises(ValueError, match="target must be one of x, y, got z"):
        read_hub(*paths, target="z")
    with pytest.raises(ValueError, match="model-output: target must be one of x, y, got None"):
        read_hub(*paths)


def test_errors_of_files(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "wide.csv").write_text("q0.1,q0.9,y\n1,2,3\n")
    (tmp_path / "observed.csv").write_text(SERIES)
    for name, content in (
        ("no.csv", b""),
        ("no.parquet", b"\x89PNG"),
        ("cut.csv.gz", gzip.compress(HEADER.encode())[:-9]),
    ):
        (tmp_path / name).write_bytes(content)
    for name, message in (
        ("none", "no file or folder"),
        ("empty", "no file or folder with files that end in .csv"),
        ("no.csv", "no.csv: not a readable table: empty CSV"),
        ("no.parquet", "no.parquet: not a readable table: parquet: File out of spec"),
        ("cut.csv.gz", "cut.csv.gz: not a readable table: unexpected end"),
        ("wide.csv", "expected the columns output_type, output_type_id, value of a hub"),
    ):
        with pytest.raises(ValueError, match=message):
            read_hub(tmp_path / name, tmp_path / "observed.csv")


N = 96


@pytest.fixture(scope="module")
def two_models(tmp_path_factory):
    """A file with two models; one is too narrow and misses a task."""
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(2, N))
    frames = []
    for name, scale in (("good", 1.0), ("narrow", 0.3)):
        values = x[:, None] + scale * norm.ppf(LEVELS)
        values = values if name == "good" else values[:-1]
        frames.append(
            pl.DataFrame(
                {
                    "model_id": name,
                    "unit": np.repeat(np.arange(len(values)), len(LEVELS)),
                    "output_type": "quantile",
                    "output_type_id": np.tile(LEVELS, len(values)),
                    "value": values.ravel(),
                }
            )
        )
    folder = tmp_path_factory.mktemp("hub")
    pl.concat(frames).write_parquet(folder / "all.parquet")
    pl.DataFrame({"unit": np.arange(N), "observation": x + noise}).write_csv(folder / "y.csv")
    return folder / "all.parquet", folder / "y.csv", x + noise


def wis(quantiles, y):
    """Bracher et al. (2021) for a median and two intervals of 50 and 90 %."""
    q = np.asarray(quantiles.values, float)
    score = np.abs(y - q[:, 2]) / 2
    for k, alpha in ((0, 0.1), (1, 0.5)):
        low, high = q[:, k], q[:, 4 - k]
        outside = np.maximum(low - y, 0) + np.maximum(y - high, 0)
        score += alpha / 2 * (high - low + 2 / alpha * outside)
    return score / 2.5


def test_all_models_in_one_table(two_models):
    hub = read_hub(*two_models[:2])
    assert list(hub) == ["good", "narrow"]
    table = hub_table(jax.random.key(0), hub, n_resamples=199)
    assert table.models["good"]["n"] == N and table.n_common == N - 1
    assert table.models["narrow"]["p"] < 0.01 < table.models["good"]["p"]
    inside = norm.ppf(0.75) * 0.3 >= np.abs(two_models[2] - hub["good"].predictions.values[:, 2])
    row = table.models["narrow"]
    np.testing.assert_allclose(row["50 % coverage"], inside[:-1].mean(), rtol=1e-6)
    assert list(row) == "n|WIS|relative WIS|bias|50 % coverage|90 % coverage|p".split("|")
    key = keys_of(0).test  # what `evaluate` tests with
    narrow = hub["narrow"]
    test = cj.calibration_test(key, narrow.predictions, narrow.targets, n_resamples=199)
    assert table.models["narrow"]["p"] == float(test.pvalue)
    # Scores on the tasks of both models, and the paired test of SciPy.
    y = two_models[2][:-1].astype(np.float32)
    good, bad = (wis(hub[x].predictions[: N - 1], y) for x in ("good", "narrow"))
    scores, errors = table.common["WIS"], table.common["SKCE"]
    np.testing.assert_allclose(row["WIS"], bad.mean(), rtol=1e-5)
    np.testing.assert_allclose(row["relative WIS"], bad.mean() / good.mean(), rtol=1e-5)
    np.testing.assert_allclose(
        [x["value"] for x in scores.values()], [good.mean(), bad.mean()], rtol=1e-5
    )
    paired = ttest_rel(good, bad)
    found = scores["narrow"]
    np.testing.assert_allclose(found["difference"], np.mean(bad - good), rtol=1e-4)
    np.testing.assert_allclose(found["pvalue"], paired.pvalue, rtol=1e-3)
    assert 0 < found["low"] < found["difference"] < found["high"]
    of_comparison = jax.random.split(jax.random.key(0))[1]
    laws = [hub[x].predictions[: N - 1] for x in hub]
    right = cj.compare_calibration(of_comparison, None, *laws, y, n_resamples=199)
    assert errors["good"] == {"value": float(right.estimates[0])}
    np.testing.assert_allclose(errors["narrow"]["pvalue"], right.pvalue, rtol=1e-5)
    numbers = right.difference, *right.confidence_interval()
    of_other = [-errors["narrow"][x] for x in ("difference", "high", "low")]
    np.testing.assert_allclose(of_other, numbers, rtol=1e-5)
    assert f"On the {N - 1} tasks" in str(table) and "assumed independent" in str(table)
    assert "CI high  adjusted p\n" in str(table)
    assert "difference = model minus good, negative is better; 95 % CI:\n" in str(table)
    assert str(table).count("≤ 0.005\n") == 1 and str(table).endswith("  ≤ 0.01")


@pytest.mark.slow
def test_each_line_has_the_decimals_of_its_interval():
    common = {"a": {"value": 2.0}, "b": {"value": 1.52}, "c": {"value": 14.2}}
    common["b"] |= {"difference": -0.4812, "low": -0.5531, "high": -0.4093, "pvalue": 0.01}
    common["c"] |= {"difference": 12.23, "low": -104.3, "high": 128.8, "pvalue": 0.7}
    models = {name: {"n": 9, "bias": 0.1, "p": 0.5} for name in common}
    lines = str(HubTable(models, {"WIS": common}, 9, "")).splitlines()
    assert "bias (-1 to 1, + too high)" in lines[0]
    assert [x.split()[2:5] for x in lines[-2:]] == [
        ["-0.481", "-0.553", "-0.409"],
        ["12", "-104", "129"],
    ]


def test_a_table_by_group(two_models, monkeypatch):
    """Each line has the numbers of the rows of its group, of the tasks that both models have."""

    def few(data):
        return ["Few stretches."] * (data is hub["narrow"])

    monkeypatch.setattr("calibjax.hub._hub_table.notes_on_few_units", few)
    hub = {name: data.take(np.arange(64)) for name, data in read_hub(*two_models[:2]).items()}
    side = np.repeat(["east", "west"], 32)
    hub = {name: x.replace(groups=x.groups | {"side": side}) for name, x in hub.items()}
    table = hub_table(jax.random.key(0), hub, by=["side"], n_resamples=199)
    y = np.asarray(hub["good"].targets)
    for group, rows in (("east", slice(32)), ("west", slice(32, 64))):
        (found,) = (x for name, x in table.groups.items() if group in name)
        scores = [wis(hub[x].predictions[rows], y[rows]).mean() for x in hub]
        for (name, row), score in zip(found.items(), scores, strict=True):
            assert row["n"] == 32 and 0 < row["p"] <= 1
            np.testing.assert_allclose(row["WIS"], score, rtol=1e-5)
            np.testing.assert_allclose(row["relative WIS"], score / scores[0], rtol=1e-5)
            q = np.asarray(hub[name].predictions.values)[rows]
            inside = (q[:, 0] <= y[rows]) & (y[rows] <= q[:, 4])
            np.testing.assert_allclose(row["90 % coverage"], inside.mean(), rtol=1e-6)
    assert table.notes == ("narrow: Few stretches.",) and table.notes[0] in str(table)
    assert table.to_dict()["groups"].keys() == table.groups.keys()


def test_intervals_of_scores_know_which_days_depend():
    """By the sum over all pairs of rows, each with the weight 1 - d / L, for L = 3 horizons."""
    made = np.datetime64("2026-01-03") + 7 * np.arange(60)
    tasks = {"reference_date": made.astype(str), "target_end_date": (made + 7).astype(str)}
    y = np.convolve(np.random.default_rng(0).normal(size=61), [1, 1], "valid")
    laws = {"a": cj.Normal(np.zeros(60), 1.0), "b": cj.Normal(np.full(60, 0.5), 1.0)}
    models = {name: with_days(cj.Data(law, y).replace(groups=tasks)) for name, law in laws.items()}
    assert models["a"].horizon == 14
    (found,) = mean_scores(models).values()
    gaps = -np.subtract(*(np.asarray(cj.crps(law, y), float) for law in laws.values()))
    parts, weeks = (gaps - gaps.mean()) / 60, np.arange(60)
    weights = np.maximum(0, 1 - np.abs(weeks[:, None] - weeks) / 6)
    freedom = 60 / 6 - 1  # windows of six weeks
    b = 1 / (freedom + 1)
    error = (parts @ weights @ parts / (1 - b + b**2 / 3)) ** 0.5
    _, difference, low, high, pvalue = found["b"].values()
    half = t.ppf(0.975, freedom) * error
    np.testing.assert_allclose([low, high], gaps.mean() + half * np.array([-1, 1]), rtol=1e-4)
    np.testing.assert_allclose(pvalue, 2 * t.sf(abs(gaps.mean()) / error, freedom), rtol=1e-4)
    assert list(found["a"]) == ["value"] and difference == pytest.approx(gaps.mean())


def test_infinite_scores_have_no_difference():
    laws = {"a": np.array([[0.5, 0.5], [1.0, 0.0]]), "b": np.array([[0.5, 0.5], [0.5, 0.5]])}
    y = np.array([0, 1])
    models = [(name, cj.Data(cj.Categorical(p), y)) for name, p in laws.items()]
    for ordered in (models, models[::-1]):
        found = mean_scores(dict(ordered))
        assert [list(x) for x in found["log loss"].values()] == [["value"]] * 2
    table = HubTable({}, found, 2, "")
    assert table.to_dict()["common"]["log loss"]["a"] == {"value": "Infinity"}


def test_models_without_common_tasks():
    data = cj.Data(cj.Normal(np.zeros(2, np.float32), 1.0), np.zeros(2))
    tasks = {"a": ["1", "2"], "b": ["3", "4"]}
    hub = {name: data.replace(groups={"day": np.array(x)}) for name, x in tasks.items()}
    day = {"reference_date": np.array(["2026-01-03"] * 2)}
    one = with_days(data.replace(groups=day | {"target_date": np.array(["2026-01-10"] * 2)}))
    with pytest.raises(ValueError, match="of several days, got only those made on 2026-01-03"):
        hub_table(jax.random.key(0), {"a": one})
    with pytest.raises(ValueError, match="in common, got none of the same day"):
        hub_table(jax.random.key(0), hub)
    with pytest.raises(ValueError, match="reference must be one of a, b, got c"):
        hub_table(jax.random.key(0), hub, reference="c")


def test_the_command(two_models, monkeypatch):
    evaluated = []
    monkeypatch.setattr(evaluation, "evaluate_data", lambda x, **_: evaluated.append(x))
    path, observed, targets = two_models
    arguments = ["hub", str(path), "--target-data", str(observed)]
    CliRunner().invoke(app, [*arguments, "--model", "good", "--segments", "unit"])
    (data,) = evaluated
    np.testing.assert_allclose(data.targets, targets, rtol=1e-6)
    assert list(data.groups) == ["unit"] and data.times is None
    for extra, message in (
        (["--model", "bad"], "--model must be one of good, narrow, got bad."),
        (
            ["--segments", "unit"],
            "--segments and --html can be used only together with --model.",
        ),
        (["--model", "good", "--segments", "x"], "--segments: column x not found, only unit."),
        (["--model", "good", "--by", "x"], "--by: column x not found, only unit."),
        (["--by", "x"], "by must name columns of the tasks, unit, got x."),
    ):
        result = CliRunner().invoke(app, arguments + extra)
        assert result.exit_code == 2 and result.stderr.strip() == message
