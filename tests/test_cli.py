"""The command line: files in, a verdict and an exit status out."""

import importlib.metadata
import json
import os
import pwd
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import calibjax as cj
from calibjax.__main__ import main
from calibjax.cli import app


def run(*arguments):
    return CliRunner().invoke(app, [str(x) for x in arguments])


def write(path, text):
    path.write_text(text)
    return path


def check_error(result, message):
    assert result.exit_code == 2 and result.stdout == "", result.output
    (line,) = result.stderr.splitlines()
    assert re.search(message, line), line


class Found:
    """What stands for the result of `evaluate`, which takes long to compile."""

    def __init__(self, data, *, seed, level, above, columns, table, order):
        self.data, self.level, self.above, self.order = data, level, above, order
        self.rejected = seed == 1
        self.why_not_tested = None

    def blocks(self):
        yield "the verdict"

    def to_dict(self):
        return {"verdict": "the verdict"}

    def to_html(self, path, by):
        path.write_text("<p>the verdict</p>")


@pytest.fixture
def calls(monkeypatch):
    """The arguments of all calls of `evaluate`."""
    found = []

    def evaluate(*args, **kwargs):
        found.append(Found(*args, **kwargs))
        return found[-1]

    monkeypatch.setattr("calibjax.evaluation.evaluate_data", evaluate)
    return found


PETS = "p_dog,p_cat,p_fox,label\n0.5,0.3,0.2,cat\n0.1,0.1,0.8,fox\n0.6,0.4,0,dog\n"
PROBS = "--probs", "p_*", "--target", "label"
CURVES = """S_730;S_365;days;died;arm
0,5;0,75;400;1;a
0,25;0,5;900;0;b
1;1;300;0;a
"""


def test_survival_curves_in_columns(calls, tmp_path):
    path = write(tmp_path / "cox.csv", CURVES)
    options = "--survival", "S_*", "--target", "days", "--event", "died", "--segments", "arm"
    assert run("evaluate", path, *options).exit_code == 0
    (call,) = calls
    assert isinstance(call.data.predictions, cj.SurvivalCurve)
    np.testing.assert_array_equal(call.data.predictions.times[0], [365, 730])
    np.testing.assert_array_equal(call.data.predictions.probs, [[0.75, 0.5], [0.5, 0.25], [1, 1]])
    np.testing.assert_array_equal(call.data.targets.low, [400, 900, 300])
    np.testing.assert_array_equal(call.data.targets.high, [400, np.inf, np.inf])
    no = run("compare", path, path, "--survival", "S_*", "--target", "days")
    assert no.exit_code == 2 and "No such option" in no.output


def test_censored_targets(calls, tmp_path):
    text = "mu,sd,y,alive,bad\n0,1,0.5,no,1\n0,1,1.5, True,2\n0,1,2,0,1\n"
    path = write(tmp_path / "times.csv", text)
    options = "--mean", "mu", "--sd", "sd", "--target", "y"
    assert run("evaluate", path, *options, "--censored", "alive").exit_code == 0
    assert calls[0].data.targets.low.tolist() == [0.5, 1.5, 2.0]
    assert calls[0].data.targets.high.tolist() == [0.5, np.inf, 2.0]
    check_error(run("evaluate", path, *options, "--censored", "bad"), "column bad, row 3: .* got 2")
    options = "--prob", "sd", "--target", "bad", "--event", "2", "--censored", "alive"
    check_error(run("evaluate", path, *options), "--censored .* --mean")


def test_columns_of_rows(calls, tmp_path):
    text = "p,y,w,site,day,step\n.1,0,1,b,2026-03-31,3\n.2,1,.5,a,2026-04-02,4.5\n"
    path = write(tmp_path / "rows.csv", text)
    options = "--prob", "p", "--target", "y"
    assert run("evaluate", path, *options, "--weight", "w", "--cluster", "site").exit_code == 0
    assert calls[0].data.weights.tolist() == [1, 0.5]
    assert calls[0].data.clusters.tolist() == [1, 0]
    for column, times in {"day": [0, 1], "step": [0, 0.75]}.items():
        run("evaluate", path, *options, "--time", column, "--horizon", 2)
        assert calls[-1].data.times.tolist() == times and calls[-1].data.horizon == 2
    pl.read_csv(path, try_parse_dates=True).write_parquet(tmp_path / "rows.parquet")
    run("evaluate", tmp_path / "rows.parquet", *options, "--time", "day")
    assert calls[-1].data.clusters.tolist() == [0, 1] and calls[-1].data.weights is None
    assert calls[-1].data.horizon == 0
    for more, message in [
        (("--time", "site"), "column site, row 2: expected a number, or a date .*, got b"),
        (("--time", "day", "--cluster", "site"), "cannot be used together"),
        (("--horizon", 2), "--horizon .* --time"),
        (("--weight", "site"), "column site, row 2: expected a finite number"),
        (("--cluster", "none"), "column none not found"),
    ]:
        check_error(run("evaluate", path, *options, *more), message)


def test_segments_are_columns(calls, tmp_path):
    path = write(tmp_path / "p.csv", "p,y,region,lead\n0.5,1,north,1\n0.2,0,,2\n0.9,1,south,1\n")
    arguments = "evaluate", path, "--prob", "p", "--target", "y", "--segments", "region, lead"
    assert run(*arguments).exit_code == 0 and run(*arguments, "--order", 1).exit_code == 0
    assert [call.order for call in calls] == [2, 1]
    assert {name: x.tolist() for name, x in calls[0].data.groups.items()} == {
        "region": ["north", None, "south"],
        "lead": [1, 2, 1],
    }
    assert "column regions" in run(*arguments[:-1], "regions").stderr


def test_output_of_evaluate(calls, tmp_path):
    path = write(tmp_path / "preds.csv", PETS)
    arguments = "evaluate", path, "--probs", "p_*", "--target", "label"
    assert run(*arguments).stdout == "the verdict\n"
    result = run(*arguments, "--json", "--html", tmp_path / "report.html", "--level", 0.1)
    assert json.loads(result.stdout) == {"verdict": "the verdict"} and result.stderr == ""
    assert (tmp_path / "report.html").read_text() == "<p>the verdict</p>"
    assert calls[1].level == 0.1 and calls[1].above is None
    assert run(*arguments, "--above", 1.5).exit_code == 0 and calls[2].above == 1.5
    assert run(*arguments, "--seed", 1).exit_code == 1


def test_errors_in_options(tmp_path):
    path = write(tmp_path / "numbers.csv", "p,y\n0.5,0\n0.25,1\n")
    for options, message in (
        (("--level", "5"), "--level must be between 0 and 1, got 5"),
        (("--html", "/no/folder/x.html"), "folder not found: /no/folder"),
    ):
        check_error(run("evaluate", path, "--prob", "p", "--target", "y", *options), message)


@pytest.mark.parametrize("error", [ValueError, TypeError, RuntimeError, MemoryError])
def test_other_errors_are_no_verdict(monkeypatch, tmp_path, error):
    def evaluate(*args, **kwargs):
        raise error("first line\nsecond line")

    monkeypatch.setattr("calibjax.evaluation.evaluate_data", evaluate)
    path = write(tmp_path / "preds.csv", PETS)
    result = run("evaluate", path, "--probs", "p_*", "--target", "label")
    check_error(result, "first line second line$")


def binary_file(path, temperature, key, shift=0.0, n=60):
    """A model of two classes, whose logits are too large by a factor."""
    key, target_key = jax.random.split(jax.random.key(key))
    logits = jax.random.normal(key, (n,))
    targets = cj.Bernoulli(jax.nn.sigmoid(logits + shift)).sample(target_key)
    probs = np.asarray(jax.nn.sigmoid(temperature * logits), float)
    labels = np.array(["no", "yes"])[np.asarray(targets)]
    pl.DataFrame({"p_no": 1 - probs, "p_yes": probs, "label": labels}).write_csv(path)
    return path


def swapped(path, source):
    """The same file with its columns in another order."""
    pl.read_csv(source).select("label", "p_yes", "p_no").write_csv(path)
    return path


def brier_comparison(key, kernel, data, others, **options):
    """A comparison that needs no compilation: of Brier scores, whose error is 0.01."""
    assert kernel is None
    labels = np.eye(2)[data.targets]
    scores = [np.mean((x.probs - labels) ** 2) for x in (data.predictions, *others)]
    difference = scores[0] - np.array(scores[1:])
    pvalue = np.where(difference == 0, 1.0, 0.001)
    deviations = np.ones((2, 999))
    error = np.full(len(others), 0.01)
    return cj.CalibrationComparison(
        *map(jnp.asarray, (scores, difference, pvalue, error, deviations)), several=True
    )


def test_compare(monkeypatch, tmp_path):
    monkeypatch.setattr("calibjax.intervals.compare_calibration", brier_comparison)
    monkeypatch.setattr("calibjax.evaluation.notes_on_independence", lambda *_: [])
    good = binary_file(tmp_path / "good.csv", 1.0, 0)
    bad = binary_file(tmp_path / "bad.csv", 8.0, 0)
    # Classes have one order in all files.
    bad = swapped(tmp_path / "swapped.csv", bad)
    result = run("compare", bad, good, *PROBS, "--json")
    assert result.exit_code == 1 and result.stderr == ""
    found = json.loads(result.stdout)
    skce = {x["file"]: x["skce"] for x in found["models"]}
    for path in (good, bad):
        frame = pl.read_csv(path)
        brier = np.mean((frame["p_yes"] - (frame["label"] == "yes").cast(float)).to_numpy() ** 2)
        np.testing.assert_allclose(skce[str(path)], brier, rtol=1e-5)
    (pair,) = found["pairs"]
    difference = skce[str(bad)] - skce[str(good)]
    np.testing.assert_allclose(pair["difference"], difference, rtol=1e-5)
    np.testing.assert_allclose(pair["interval"], [difference - 0.01, difference + 0.01], rtol=1e-5)
    assert pair["rejected"]

    # The exit status is about the first two.
    result = run("compare", good, good, bad, *PROBS)
    assert result.exit_code == 0
    assert f"No significant difference between {good} and {good} (p = 1" in result.stdout
    assert f"{good} is better calibrated than {bad} (p ≤ 0.002" in result.stdout


def test_compare_of_rows_that_depend(monkeypatch, tmp_path):
    given = []

    def comparison(key, kernel, data, others):
        given.append(data)
        numbers = np.ones(2), np.zeros(1), np.ones(1), np.ones(1), np.ones((2, 999))
        return cj.CalibrationComparison(*map(jnp.asarray, numbers), several=True, method="none")

    monkeypatch.setattr("calibjax.intervals.compare_calibration", comparison)
    # All 15 forecasts of a day have one error, and the days come in no order.
    days = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 15))
    errors = np.random.default_rng(1).normal(size=10)[days]
    path = tmp_path / "days.csv"
    dates = [f"2026-03-{day + 1:02}" for day in days]
    pl.DataFrame({"mu": np.zeros(150), "sd": np.ones(150), "y": errors, "day": dates}).write_csv(
        path
    )
    command = "compare", path, path, "--mean", "mu", "--sd", "sd", "--target", "y"
    warning = r"Neighbouring rows in day appear dependent .*: pass 'day' as --time"
    assert re.search(warning, run(*command).stdout)
    (note,) = json.loads(run(*command, "--json").stdout)["notes"]
    assert re.search(warning, note)
    assert not any(data.is_dependent for data in given)

    assert "dependent" not in run(*command, "--time", "day").stdout
    few = run(*command, "--time", "day", "--horizon", 2)
    assert "Few stretches (5.0 of the horizon 2," in few.stdout
    np.testing.assert_array_equal(given[2].clusters, days)
    np.testing.assert_array_equal(given[3].times, days / 2)
    assert [data.horizon for data in given[2:]] == [0, 2]
    run(*command, "--cluster", "day")
    np.testing.assert_array_equal(given[-1].clusters, days)
    check_error(run(*command, "--horizon", 2), "--horizon .* --time")


def test_compare_of_answers_to_the_same_questions(monkeypatch, tmp_path):
    given = []

    def comparison(key, kernel, data, others):
        given.append((data, *others))
        numbers = np.ones(2), np.zeros(1), np.ones(1), np.ones(1), np.ones((2, 999))
        return cj.CalibrationComparison(*map(jnp.asarray, numbers), several=True, method="none")

    monkeypatch.setattr("calibjax.intervals.compare_calibration", comparison)
    monkeypatch.setattr("calibjax.evaluation.notes_on_independence", lambda *_: [])
    rng, paths = np.random.default_rng(0), []
    for name in "ab":
        said, correct = rng.integers(5, 11, 60) * 10, rng.random(60) < 0.6
        frame = pl.DataFrame({"id": np.arange(60), "said": said, "correct": correct})
        paths.append(tmp_path / f"{name}.jsonl")
        frame.write_ndjson(paths[-1])
    command = "compare", *paths, "--prob", "said", "--percent", "--target", "correct"
    check_error(run(*command), "same target .*; of answers to the same questions --cluster names")
    assert run(*command, "--cluster", "id").exit_code == 0
    for data, path in zip(given[-1], paths, strict=True):
        frame = pl.read_ndjson(path)
        np.testing.assert_allclose(data.predictions.probs, frame["said"] / 100, rtol=1e-6)
        np.testing.assert_array_equal(data.targets, frame["correct"].cast(int))
    pl.read_ndjson(paths[1]).with_columns(id=pl.col("id") // 2).write_ndjson(paths[1])
    check_error(run(*command, "--cluster", "id"), "b.jsonl, column id, row 2: .*same value as in")
    # Rows that miss a value in one file are left out of all.
    for path, gap in zip(paths, (7, 11), strict=True):
        frame = pl.read_ndjson(path)
        said = [None if k == gap else x for k, x in enumerate(frame["said"].to_list())]
        frame.with_columns(said=pl.Series(said), id=np.arange(60)).write_ndjson(path)
    result = run(*command, "--cluster", "id", "--drop-missing")
    assert "The models are compared on the 58 rows that all files have." in result.stderr
    for data, path in zip(given[-1], paths, strict=True):
        kept = pl.read_ndjson(path).filter(~pl.col("id").is_in([7, 11]))
        np.testing.assert_allclose(data.predictions.probs, kept["said"] / 100, rtol=1e-6)
        np.testing.assert_array_equal(data.targets, kept["correct"].cast(int))


@pytest.mark.slow
def test_compare_as_the_library_does(tmp_path):
    paths = [binary_file(tmp_path / f"{k}.csv", factor, 0) for k, factor in enumerate((1.0, 8.0))]
    result = run("compare", *paths, *PROBS, "--json")
    (pair,) = json.loads(result.stdout)["pairs"]
    frames = [pl.read_csv(path) for path in paths]
    models = [cj.Categorical(jnp.asarray(x["p_no", "p_yes"].to_numpy())) for x in frames]
    targets = jnp.asarray((frames[0]["label"] == "yes").to_numpy().astype(int))
    expected = cj.compare_calibration(jax.random.key(0), None, *models, targets)
    numbers = [pair["difference"], pair["pvalue"], *pair["interval"]]
    interval = expected.confidence_interval()
    arrays = [expected.difference, expected.pvalue, interval.low, interval.high]
    np.testing.assert_allclose(numbers, np.stack(arrays), rtol=1e-4)
    assert result.exit_code == 1 and pair["rejected"]


def test_errors_of_compare(tmp_path):
    good = binary_file(tmp_path / "good.csv", 1.0, 0)
    check_error(run("compare", good, *PROBS), "good.csv: expected at least one more file")
    frame = pl.read_csv(good)
    other = tmp_path / "other.csv"
    frame.head(5).write_csv(other)
    check_error(run("compare", good, other, *PROBS), "other.csv: expected the 60 rows .*got 5")
    frame.rename({"p_no": "p_never"}).write_csv(other)
    check_error(run("compare", good, other, *PROBS), "other.csv, column label, row .*got 'no'")
    frame.select(p_a="p_no", p_b="p_yes", label=pl.lit("a")).write_csv(other)
    message = "other.csv: expected the classes no, yes as in the first file, got a, b"
    check_error(run("compare", good, other, *PROBS), message)
    flipped = frame["label"].to_list()
    flipped[3] = "yes" if flipped[3] == "no" else "no"
    frame.with_columns(label=pl.Series(flipped)).write_csv(other)
    check_error(run("compare", good, other, *PROBS), "other.csv, column label, row 5: .*the same")


@pytest.mark.slow
def test_evaluate_as_the_library_does(tmp_path):
    path = binary_file(tmp_path / "preds.csv", 8.0, 0)
    result = run("evaluate", path, *PROBS, "--json", "--html", tmp_path / "report.html")
    frame = pl.read_csv(path)
    expected = cj.evaluate(
        frame["p_no", "p_yes"].to_numpy(), frame["label"].to_list(), classes=["no", "yes"]
    )
    assert result.exit_code == 1 and expected.rejected
    assert json.loads(result.stdout)["pvalue"] == expected.pvalue
    assert "<svg" in (tmp_path / "report.html").read_text()


def test_help_in_a_process_of_its_own(tmp_path):
    command = [sys.executable, "-X", "importtime", "-m", "calibjax", "--help"]
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert [x.name for x in tmp_path.iterdir()] == ["calibjax"]
    assert " jax" not in result.stderr  # which takes longer to import than all else
    commands = "evaluate", "recalibrate", "compare", "monitor"
    for word in (*commands, "calibjax evaluate preds.csv --probs 'p_*'"):
        assert word in result.stdout


@pytest.mark.parametrize("command", ["evaluate", "recalibrate", "compare", "monitor"])
def test_help_has_an_example(command):
    result = run(command, "--help")
    assert result.exit_code == 0 and f"calibjax {command} " in result.stdout.split("xample")[1]


def test_version():
    assert run("--version").stdout == f"calibjax {importlib.metadata.version('calibjax')}\n"


def test_no_folder_for_compiled_programs(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(write(tmp_path / "file", "no folder")))
    monkeypatch.setattr(sys, "argv", ["calibjax", "--version"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 0 and capsys.readouterr().out.startswith("calibjax ")
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ


def test_no_home_and_a_crash(monkeypatch, capsys):
    """Of a container whose user has no entry in /etc/passwd; 1 would be a verdict."""
    for name in ("HOME", "XDG_CACHE_HOME", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: {}[uid])
    monkeypatch.setattr(sys, "argv", ["calibjax", "--version"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 0 and "JAX_COMPILATION_CACHE_DIR" not in os.environ
    monkeypatch.setattr("calibjax.cli.app", lambda prog_name: {}[prog_name])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2 and "KeyError: 'calibjax'" in capsys.readouterr().err


def test_missing_libraries(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "calibjax.cli", None)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert "pip install 'calibjax[cli]'" in capsys.readouterr().err
