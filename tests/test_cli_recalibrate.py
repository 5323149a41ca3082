"""The command `calibjax recalibrate`: a map of files."""

import json
import re
from types import SimpleNamespace

import jax
import numpy as np
import polars as pl
import pytest
from scipy.stats import t
from sklearn.metrics import mean_pinball_loss
from typer.testing import CliRunner

import calibjax as cj
from calibjax.cli import app

N = 60
PROBS = "--probs", "p_*", "--target", "y"


def run(*arguments):
    return CliRunner().invoke(app, ["recalibrate", *(str(x) for x in arguments)])


def check_error(result, message):
    assert result.exit_code == 2 and result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert re.search(message, line), line


@pytest.fixture
def tested(monkeypatch):
    """What `calibration_test` was called with; the test itself takes long to compile."""
    calls = []

    def calibration_test(key, data):
        calls.append(data)
        return SimpleNamespace(pvalue=np.float32(0.001 if len(calls) % 2 else 0.4))

    monkeypatch.setattr("calibjax.cli._held_out.calibration_test", calibration_test)
    return calls


def frame_of(n=N, seed=0):
    """Predictions of all kinds that are over-confident, and what is beside them in a file."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    logits = np.stack([x, -x, rng.normal(size=n)], axis=1)
    probs = np.exp(3 * logits) / np.exp(3 * logits).sum(axis=1, keepdims=True)
    labels = np.argmax(logits + rng.gumbel(size=(n, 3)), axis=1)
    target = x + rng.normal(size=n)
    return pl.DataFrame(
        {
            "note": ['a "note", with commas', "line\nbreak", ""] * (n // 3),
            **{f"p_{name}": probs[:, k] for k, name in enumerate("abc")},
            "y": np.array(list("abc"))[labels],
            "p": 1 / (1 + np.exp(-3 * x)),
            "rain": np.where(rng.random(n) < 1 / (1 + np.exp(-x)), "wet", "dry"),
            "q90": x + 0.4,
            "q10": x - 0.4,
            "q50": x,
            "mu": x + 0.3,
            "sd": np.full(n, 0.4),
            **{f"d_{k}": x + 0.2 * rng.normal(size=n) for k in range(3)},
            "value": target,
            "site": np.repeat(np.arange(n // 6), 6),
            "day": [f"2026-03-{1 + k % 12:02}" for k in range(n)],
            "shop": [["a", None, "b"][k % 3] for k in range(n)],
            "lead": rng.normal(size=n),
            "S_2": np.exp(-2 * np.exp(x)),
            "S_1": np.exp(-np.exp(x)),
            "until": rng.uniform(0.1, 2.5, n),
            "died": rng.integers(0, 2, n),
        }
    )


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "fit.csv"
    frame_of().write_csv(path)
    return path


KINDS = {
    "probs": (PROBS, "svs", ["p_a", "p_b", "p_c"], cj.Categorical, "probs"),
    "prob": (
        ("--prob", "p", "--target", "rain", "--event", "wet"),
        "temperature",
        ["p"],
        lambda x: cj.Bernoulli(x[:, 0]),
        "probs",
    ),
    "quantiles": (
        ("--quantiles", "q*", "--target", "value"),
        "pit_beta",
        ["q10", "q50", "q90"],
        lambda x: cj.Quantiles(x, (0.1, 0.5, 0.9)),
        "values",
    ),
    "draws": (
        ("--draws", "d_*", "--target", "value"),
        "shift_scale",
        ["d_0", "d_1", "d_2"],
        cj.Empirical,
        "samples",
    ),
    "survival": (
        ("--survival", "S_*", "--target", "until", "--event", "died"),
        "shift_scale",
        ["S_1", "S_2"],
        lambda x: cj.SurvivalCurve(np.array([1.0, 2.0], np.float32), x.astype(np.float32)),
        "probs",
    ),
}


def targets_of(frame, options):
    name = options[options.index("--target") + 1]
    codes = {"y": "abc", "rain": ("dry", "wet")}
    if name == "until":
        return cj.IntervalCensored.right_censored(frame["until"].cast(pl.Float32), frame["died"])
    if name not in codes:
        return frame[name].to_numpy().astype(np.float32)
    return np.array([list(codes[name]).index(x) for x in frame[name]], np.int32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_recalibrated_columns(tested, rows, tmp_path, kind, ending):
    options, method, names, family, numbers = KINDS[kind]
    new, out, kept = (tmp_path / x for x in (f"new{ending}", f"out{ending}", "map.json"))
    frame = frame_of(seed=1)
    write = pl.DataFrame.write_csv if ending == ".csv" else pl.DataFrame.write_parquet
    write(frame, new)
    done = run(rows, *options, "--method", method, "--apply", new, "--out", out, "--save", kept)
    assert done.exit_code == 0, done.stderr
    assert kind != "survival" or "integrated Brier score   p of the" in done.stdout

    def read(x):
        return family(x[names].to_numpy())

    fit = frame_of()
    recalibrator = cj.fit_recalibrator(read(fit), targets_of(fit, options), method)
    expected = np.asarray(getattr(recalibrator(read(frame)), numbers)).reshape(N, -1)
    found = pl.read_csv(out) if ending == ".csv" else pl.read_parquet(out)
    np.testing.assert_allclose(found[names].to_numpy(), expected, rtol=1e-6)
    # All else is as it was, in its order.
    assert found.columns == frame.columns
    assert found.drop(names).equals(
        pl.read_csv(new).drop(names) if ending == ".csv" else frame.drop(names)
    )
    assert found.schema == (pl.read_csv(new).schema if ending == ".csv" else frame.schema)
    # The kept map does the same, as bytes.
    again = tmp_path / f"again{ending}"
    assert run("--load", kept, "--apply", new, "--out", again).exit_code == 0
    assert again.read_bytes() == out.read_bytes()
    np.testing.assert_array_equal(
        getattr(cj.load_recalibrator(kept)(read(frame)), numbers),
        getattr(recalibrator(read(frame)), numbers),
    )


def test_normal_predictions_stay_normal(tested, rows, tmp_path):
    options, out = ("--mean", "mu", "--sd", "sd", "--target", "value"), tmp_path / "out.csv"
    done = run(rows, *options, "--apply", rows, "--out", out)
    assert done.exit_code == 0 and "shift_scale" in done.stdout
    before, after = frame_of(), pl.read_csv(out)
    # One shift and one factor for all rows, in units of the deviations.
    shift = (after["mu"] - before["mu"]).to_numpy()
    np.testing.assert_allclose(shift, shift[0], atol=1e-5)
    np.testing.assert_allclose(after["sd"], after["sd"][0], rtol=1e-5)
    # About those of least squares, which have an error of 0.13 and 0.1.
    errors = before["value"] - before["mu"]
    np.testing.assert_allclose([shift[0], after["sd"][0]], [errors.mean(), errors.std()], atol=0.3)
    assert all(isinstance(data.predictions, cj.Normal) for data in tested)
    check_error(
        run(rows, *options, "--method", "pit_beta"), "shift_scale, got pit_beta, .* not normal"
    )
    law = cj.Normal(before["mu"].to_numpy(), before["sd"].to_numpy())
    cj.fit_recalibrator(law, before["value"].to_numpy(), "pit_beta").save(tmp_path / "map.json")
    done = run("--load", tmp_path / "map.json", "--apply", rows, "--out", out, *options[:4])
    check_error(done, "shift_scale, got pit_beta")


def test_what_is_printed(tested, rows):
    done = run(rows, *PROBS, "--method", "svs")
    frame = frame_of()
    predictions = cj.Categorical(frame["p_a", "p_b", "p_c"].to_numpy().astype(np.float32))
    targets = targets_of(frame, PROBS)
    recalibrated = cj.cross_fit(predictions, targets, "svs", 5)
    scores = [
        -np.mean(np.log(np.asarray(p.probs)[np.arange(N), targets]))
        for p in (predictions, recalibrated)
    ]
    assert scores[1] < scores[0]
    for words in (
        "Recalibrator: svs",
        r"5 random folds\)",
        rf"before +{scores[0]:.4g} +≤ 0.001",
        rf"after +{scores[1]:.4g} +0.4",
    ):
        assert re.search(words, done.stdout), words
    np.testing.assert_allclose(tested[1].predictions.probs, recalibrated.probs)
    found = json.loads(run(rows, *PROBS, "--method", "svs", "--json").stdout)
    assert found["method"] == "svs" and found["n_rows"] == N
    np.testing.assert_allclose(found["held_out"]["after"]["score"], scores[1], rtol=1e-5)


def test_folds(tested, rows, tmp_path):
    options, *_ = KINDS["quantiles"]
    done = run(rows, *options, "--method", "pit_beta")
    frame = frame_of()
    predictions = cj.Quantiles(
        frame["q10", "q50", "q90"].to_numpy().astype(np.float32), (0.1, 0.5, 0.9)
    )
    targets = targets_of(frame, options)
    blocks = cj.cross_fit(predictions, targets, "pit_beta", 5)
    np.testing.assert_allclose(tested[1].predictions.values, blocks.values)
    assert "5 random folds" in done.stdout
    for word, p in (("before", predictions), ("after", blocks)):
        of_levels = zip(p.levels, np.asarray(p.values, float).T, strict=True)
        loss = np.mean([mean_pinball_loss(targets, q, alpha=u) for u, q in of_levels])
        assert re.search(rf"{word} +{loss:.4g} ", done.stdout) and "pinball loss" in done.stdout
    done = run(rows, *PROBS, "--method", "svs", "--cluster", "site")
    sites = np.unique(frame["site"], return_inverse=True)[1]
    assert tested[-1].clusters.tolist() == sites.tolist() and "clusters" in done.stdout
    frame.with_columns(site=pl.lit("one")).write_csv(tmp_path / "one.csv")
    done = run(tmp_path / "one.csv", *PROBS, "--method", "svs", "--cluster", "site")
    assert "fewer than 3 clusters or times" in done.stdout


def test_times_segments_and_covariates(tested, rows, tmp_path):
    options, *_ = KINDS["quantiles"]
    new, out, kept = (tmp_path / x for x in ("new.csv", "out.csv", "map.json"))
    frame = frame_of(seed=1)
    frame.write_csv(new)
    apply = "--apply", new, "--out", out
    beside = "--time", "day", "--segments", "shop", "--covariates", "lead"
    done = run(rows, *options, *beside, *apply, "--save", kept, "--method", "conditional")
    assert done.exit_code == 0, done.stderr
    assert "5 consecutive folds of times" in done.stdout

    def read(frame):
        values = frame["q10", "q50", "q90"].to_numpy().astype(np.float32)
        lead = {"lead": frame["lead"].to_numpy().astype(np.float32)}
        return cj.Quantiles(values, (0.1, 0.5, 0.9)), {"shop": frame["shop"].to_numpy()}, lead

    fit = frame_of()
    (quantiles, groups, covariates), targets = read(fit), targets_of(fit, options)
    known = {"groups": groups, "covariates": covariates, "times": np.arange(N) % 12}
    recalibrator = cj.fit_recalibrator(quantiles, targets, "conditional", **known)
    found = pl.read_csv(out)["q10", "q50", "q90"].to_numpy()
    np.testing.assert_allclose(found, recalibrator(*read(frame)).values, rtol=1e-5)
    recalibrated = cj.cross_fit(quantiles, targets, "conditional", 5, **known)
    np.testing.assert_allclose(tested[1].predictions.values, recalibrated.values, rtol=1e-5)
    assert np.unique(tested[1].clusters).size == 12 and tested[1].times is None
    again = tmp_path / "again.csv"
    assert run("--load", kept, "--apply", new, "--out", again).exit_code == 0
    assert again.read_bytes() == out.read_bytes()
    for column in ("shop", "lead"):
        frame.drop(column).write_csv(new)
        check_error(run("--load", kept, *apply), f"new.csv: column {column} not found")
    for arguments, message in [
        ((*options, "--time", "day", "--cluster", "site"), "--cluster and --time cannot be used"),
        ((*PROBS, "--covariates", "lead"), "--covariates is for forecasts of numbers"),
        (("--mean", "mu", "--sd", "sd", "--target", "value", *beside), "after which .* not normal"),
        ((*options, "--time", "shop"), "column shop, row .*: expected a value"),
    ]:
        check_error(run(rows, *arguments), message)
    check_error(run("--load", kept, *apply, *beside), "--time cannot be used together with --load")


def test_a_lower_bound_and_a_horizon(tested, tmp_path):
    frame, names = frame_of(), ["q10", "q50", "q90"]
    least = frame.select(pl.min_horizontal(*names, "value").min()).item()
    frame = frame.with_columns(pl.col(*names, "value") - least)
    fit, out = tmp_path / "fit.csv", tmp_path / "out.csv"
    frame.write_csv(fit)
    options = *KINDS["quantiles"][0], "--method", "pit_beta", "--time", "day", "--horizon", "3"
    apply = "--apply", fit, "--out", out
    said = run(fit, *options, *apply).stdout
    free = pl.read_csv(out)[names].to_numpy()
    n_below = np.sum(np.any(free < 0, axis=1))
    assert n_below > 0 and f"{n_below} rows have values below 0 only after" in said
    assert np.diff(np.unique(tested[1].times)) == pytest.approx(np.full(11, 1 / 3))
    done = run(fit, *options, *apply, "--lower", "0")
    np.testing.assert_allclose(pl.read_csv(out)[names].to_numpy(), np.maximum(free, 0), rtol=1e-6)
    assert (
        "below 0, where" not in done.stdout
        and "lower bound of recalibrated values: 0" in done.stdout
    )


def test_a_map_that_does_not_help(monkeypatch, rows):
    """Scores say so if they become worse, as if the map were that of another model."""
    monkeypatch.setattr(
        "calibjax.cli._held_out.calibration_test", lambda *_, **__: SimpleNamespace(pvalue=0.5)
    )
    monkeypatch.setattr(
        "calibjax.recalibration.cross_fitting.fit_recalibrator",
        lambda *_, **__: lambda p, **_: cj.Categorical(np.roll(p.probs, 1, axis=1)),
    )
    said = run(rows, *PROBS, "--method", "svs", "--cluster", "site").stdout
    assert "keep the original predictions" in said
    frame = frame_of()
    probs, labels = frame["p_a", "p_b", "p_c"].to_numpy(), targets_of(frame, PROBS)
    before, after = (np.log(np.roll(probs, k, axis=1)[np.arange(N), labels]) for k in (0, 1))
    # Sites have six rows each: Student's interval of their means, but for its skewness.
    gaps = (before - after).reshape(-1, 6).mean(axis=1)
    low, high = map(float, re.search(r"CI ([-\d.]+) to ([-\d.]+)\)", said).groups())
    error = gaps.std(ddof=1) / gaps.size**0.5
    assert abs(high - low - 2 * t.ppf(0.975, gaps.size - 1) * error) < 0.2 * (high - low)
    assert low < gaps.mean() < high and f"after - before: {gaps.mean():.3g} " in said
    monkeypatch.setattr(
        "calibjax.recalibration.cross_fitting.fit_recalibrator", lambda *_, **__: lambda p, **_: p
    )
    said = run(rows, *PROBS, "--method", "svs").stdout
    assert "after - before: 0 (95 % CI 0 to 0), not significant" in said


def test_columns_of_other_names(tested, rows, tmp_path):
    kept, new, out = (tmp_path / x for x in ("map.json", "new.csv", "out.csv"))
    assert run(rows, *PROBS, "--method", "svs", "--save", kept).exit_code == 0
    frame = frame_of(seed=1).drop("y")
    # Columns belong to classes by their names, whatever their order is.
    frame.select("note", "p_c", "p_a", "p_b").write_csv(new)
    run("--load", kept, "--apply", new, "--out", out)
    frame.write_csv(new)
    run("--load", kept, "--apply", new, "--out", tmp_path / "same.csv")
    names = ["p_a", "p_b", "p_c"]
    assert pl.read_csv(out)[names].equals(pl.read_csv(tmp_path / "same.csv")[names])

    others = frame.select(*names).rename({"p_a": "r_a", "p_b": "r_b", "p_c": "r_c"})
    others.write_csv(new)
    assert run("--load", kept, "--apply", new, "--out", out, "--probs", "r_*").exit_code == 0
    swapped, two = others["r_b", "r_a", "r_c"], frame.with_columns(p_a=1.0, p_b=0.0).drop("p_c")
    unknown = tmp_path / "unknown.json"
    cj.load_recalibrator(kept).save(unknown)  # a map of Python does not know its columns
    for path, table, option, message in [
        (kept, swapped, ("--probs", "r_*"), "classes a, b, c of .*map.json, got b, a, c"),
        (kept, others, (), r"expected at least two columns p_\*, got none"),
        (kept, frame.drop("p_c"), (), "expected the columns p_a, p_b, p_c of .*, got p_a, p_b"),
        (kept, frame.with_columns(p_d=0.0), (), "got p_a, p_b, p_c, p_d"),
        (kept, frame, ("--quantiles", "q*"), "expected kind probs of .*, got quantiles"),
        (kept, frame.with_columns(p_a=pl.lit("?")), (), r"column p_a, row 2: .*number, got \?"),
        (kept, frame.head(0), (), "new.csv: expected at least 1 row, got 0"),
        (unknown, frame, (), "One of the options --probs"),
        (unknown, others["r_b", "r_a"], ("--probs", "r_*"), r"column r_\*, row 2: .* sum of 1"),
        (unknown, two, ("--probs", "p_*"), "3 classes of the fit, got 2"),
    ]:
        table.write_csv(new)
        check_error(run("--load", path, "--apply", new, "--out", out, *option), message)


def test_errors(rows, tmp_path):
    kept, out = tmp_path / "map.json", tmp_path / "out.csv"
    apply = "--apply", rows, "--out", out
    for arguments, message in [
        ((), "file of rows .* --load .* got neither"),
        ((rows, "--load", kept), "got both"),
        ((rows, *PROBS, "--apply", rows), "--apply and --out"),
        ((rows, *PROBS, "--out", out), "--apply and --out"),
        ((rows, *PROBS, "--apply", rows, "--out", rows), "fit.csv: this file is read"),
        ((rows, *PROBS, "--apply", rows, "--out", tmp_path / "x.npz"), "ends in .csv"),
        ((rows, *PROBS, "--apply", rows, "--out", tmp_path / "no" / "x.csv"), "folder not found"),
        ((rows, *PROBS, "--save", tmp_path / "map.txt"), "ends in .json"),
        ((rows, *PROBS, "--method", "best"), "method must be one of .*, got 'best'"),
        ((rows, *PROBS, "--method", "pit_beta"), "method for labels"),
        ((rows, "--probs", "p_*"), "--target must name"),
        ((rows, "--prob", "p", "--target", "p"), "column p: it cannot hold predictions and"),
        (
            (rows, *PROBS, "--apply", tmp_path / "none.csv", "--out", out),
            "none.csv: file not found",
        ),
        (("--load", kept), "--load needs --apply"),
        (("--load", kept, *apply), "map.json: No such file"),
        (
            ("--load", kept, *apply, "--method", "svs"),
            "--method cannot be used together with --load",
        ),
        (("--load", rows, *apply), "fit.csv: expected a file that Recalibrator.save has written"),
    ]:
        check_error(run(*arguments), message)
    assert not out.exists()


def test_damaged_files(tested, rows, tmp_path):
    kept, out = tmp_path / "map.json", tmp_path / "out.csv"
    assert run(rows, *PROBS, "--method", "svs", "--save", kept).exit_code == 0
    whole = json.loads(kept.read_text())
    columns = whole["columns"]
    for change in (
        {"columns": []},
        {"columns": {"kind": "probs"}},
        {"columns": columns | {"names": ["p_a"]}},
        {"columns": columns | {"target": None}},
        {"steps": 1},
    ):
        kept.write_text(json.dumps(whole | change))
        done = run("--load", kept, "--apply", rows, "--out", out)
        check_error(done, "map.json: the (columns|map) in the file (are|is) damaged")
    kept.write_text(json.dumps(whole)[:-9])
    check_error(run("--load", kept, "--apply", rows, "--out", out), "expected a file that Rec")
    assert not out.exists()


@pytest.mark.slow
def test_recalibrate_as_the_library_does(rows):
    found = json.loads(run(rows, *PROBS, "--json", "--seed", 3).stdout)["held_out"]
    frame = frame_of()
    predictions = cj.Categorical(frame["p_a", "p_b", "p_c"].to_numpy().astype(np.float32))
    targets = targets_of(frame, PROBS)
    recalibrated = cj.cross_fit(predictions, targets, "auto", 5)
    for name, p in (("before", predictions), ("after", recalibrated)):
        test = cj.calibration_test(jax.random.key(3), p, targets)
        np.testing.assert_allclose(found[name]["pvalue"], test.pvalue, rtol=1e-5)
