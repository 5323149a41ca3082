"""evaluate of groups: for whom a model is wrong, in the verdict, the page and the file."""

import copy
import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from test_aggregated import plain_step_down
from typer.testing import CliRunner

import calibjax as cj
from calibjax import plot
from calibjax.cli import app
from calibjax.evaluation._groups import segments_in_words, worst_segment
from calibjax.evaluation._report._figures import pictures_of_groups
from calibjax.evaluation._wording import cells
from calibjax.frames import Table
from calibjax.hypothesis_tests.adjusted import adjusted_pvalues

N = 120
STATION, LEAD = np.repeat(list("ABC"), N // 3), np.tile([1, 2], N // 2)
P = np.random.default_rng(0).uniform(0.2, 0.8, N).astype(np.float32)


@pytest.fixture(scope="module")
def evaluation():
    """Events of the station C come nearly always."""
    probabilities = np.where(STATION == "C", 0.97, P)
    events = np.random.default_rng(1).random(N) < probabilities
    both = np.stack([1 - P, P, np.zeros_like(P)], axis=1)  # three classes, as other tests have
    both = np.maximum(both - 1e-3, 1e-3)
    both /= both.sum(axis=1, keepdims=True)
    groups = {"station": STATION, "lead": LEAD}
    return cj.evaluate(both, events.astype(int), classes=["no", "yes", "?"], groups=groups)


STORE = 10001 + np.repeat(np.arange(15), 8)
STORES = {x: STORE.astype(x) for x in ("int", "float", "str", "float32")}
STORES |= {"Polars": pl.Series(STORE), "days": STORE.astype("M8[D]")}


@pytest.mark.parametrize("kind", STORES)
def test_a_table_has_a_line_for_each_value(evaluation, kind):
    """More than twelve numbers were cut at their quartiles, and floats had four digits."""
    evaluated = copy.copy(evaluation)
    vars(evaluated)["data"] = evaluation.data.replace(groups={"store": STORES[kind]})
    tables = [evaluated.by("store")]
    if kind == "float":
        tables += [evaluation.by({"store": STORE / 1e6})]
    for table in tables:
        assert len({x.levels["store"] for x in table.groups}) == 15
        assert {x.n for x in table.groups} == {8}
    names = np.unique(STORES["days"] if kind == "days" else STORE).astype(str)
    assert sorted(x.levels["store"] for x in tables[0].groups) == names.tolist()


def test_the_verdict_names_the_segment(evaluation):
    segment = worst_segment(evaluation.segments, 0.05)
    assert segment is not None and segment.conditions == {"station": "C"}
    assert f"learest segment: {segment}, p ≤ 0.001 adjusted for " in evaluation.verdict
    assert evaluation.verdict.endswith("o correct segments, use fit_recalibrator(groups=...).")
    assert f"{segment}, p ≤ 0.001 adjusted for" in repr(evaluation)
    told = copy.copy(evaluation)
    vars(told)["table"] = Table({}, np.arange(0), on_command_line=True)
    del vars(told)["verdict"]
    assert told.verdict.endswith("o correct segments, use calibjax recalibrate --segments.")


@pytest.mark.slow
def test_the_file_has_segments(evaluation):
    saved = json.loads(evaluation.to_json())["segments"]
    assert saved["segments"][0]["conditions"] == {"station": "C"}


@pytest.mark.slow
def test_the_page_has_segments_and_never_says_fair(evaluation):
    page = evaluation.to_html()
    assert "<h2>For whom it is wrong</h2>" in page and "not whether it is fair" in page
    # Four pictures of all rows, that of segments, and those of three stations.
    assert page.count("<svg") == 8 and page.count("</svg>") == 8
    assert page.index("C, n = 40") < page.index("B, n = 40")  # the clearest first
    assert ">NOT CALIBRATED<" in page
    on_the_whole = copy.copy(evaluation)
    vars(on_the_whole)["pvalue"] = 0.3
    assert ">WRONG FOR SOME<" in on_the_whole.to_html()


def test_pictures_of_groups_with_rare_events(evaluation):
    """Their axes are logarithmic, without a 0, and each shows the rows of its group."""
    evaluated, targets = copy.copy(evaluation), (np.arange(N) % 9 == 0).astype(np.int32)
    rare = evaluation.data.replace(predictions=cj.Bernoulli(P**4 / 10), targets=targets)
    # Those of the rare events, of which none could be tested, would have no pictures.
    vars(evaluated).update(data=rare, segments=evaluation.segments)
    axes = [picture.draw(ax=None) for picture in pictures_of_groups(evaluated)]
    assert [ax.get_yscale() for ax in axes] == ["log"] * 3
    assert len({ax.get_ylim()[1] for ax in axes}) == 1 and min(ax.get_ylim()[0] for ax in axes) > 0
    options = {"n_bins": 15, "confidence_level": 1 - 0.05 / 3, "where": STATION == "C"}
    key = evaluation.random_keys.curves
    curve = cj.reliability_curve(key, rare.predictions, rare.targets, **options)
    (points, *_) = (x for x in axes[0].lines if len(x.get_ydata()) == np.sum(curve.count > 0))
    known = np.asarray(curve.frequency)[np.asarray(curve.count) > 0]
    np.testing.assert_allclose(points.get_ydata()[known > 0], known[known > 0], rtol=1e-5)


def test_the_picture(evaluation):
    found = evaluation.segments
    ax = plot.segments(found)
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels[-1] == "all rows (120)" and labels[-2] == "C (40)" and len(labels) <= 12
    ax = plot.segments(found, statistic="calibration slope")
    assert ax.get_xlabel() == "calibration slope"
    with pytest.raises(ValueError, match="statistic must be one that a segment has"):
        plot.segments(found, statistic="spread")


@pytest.mark.slow
def test_long_names_leave_room_for_intervals(evaluation):
    found, long = evaluation.segments, "the station behind the mountains and far above the sea"
    names = tuple(f"{long}, {name}" for name in found.names.segments)
    found = dataclasses.replace(found, names=found.names._replace(segments=names))
    ax = plot.segments(found)
    ax.figure.canvas.draw()
    boxes = [x.get_window_extent() for x in ax.get_yticklabels()]
    assert ax.get_position().width > 0.4
    # No name hides another one, from the bottom.
    assert all(low.y1 <= high.y0 for low, high in zip(boxes, boxes[1:], strict=False))


@pytest.mark.slow
def test_by_groups(evaluation):
    """The test of each group alone, and the step-down of the draws of all groups."""
    table = evaluation.by({"station": STATION})
    assert [x.name for x in table.rejected()] == ["C"] and table.groups[0].n == 40
    assert table.groups[0].directions[0].name == "'yes' under-estimated"
    data, tests = evaluation.data, {}
    for number, name in enumerate("ABC"):
        # Draws of different groups are independent of each other.
        key = jax.random.fold_in(evaluation.random_keys.test, number)
        tests[name] = cj.calibration_test(key, data.replace(where=STATION == name))
    both = [(x.kernels.scores, x.kernels.draws) for x in tests.values()]
    values = np.array([np.column_stack(x) for x in both], float)
    adjusted = dict(zip("ABC", plain_step_down(values), strict=True))
    for x in table.groups:
        assert x.pvalue == pytest.approx(float(tests[x.name].pvalue), abs=0.0021)
        assert x.adjusted_pvalue == pytest.approx(max(adjusted[x.name], x.pvalue), abs=0.0021)
    header, line, *_, first_note, last_note = repr(table).splitlines()
    assert header.split() == "station rows mean confidence accuracy ECE temperature p error".split()
    assert line.split()[:2] == ["C", "40"] and "≤ 0.001  'yes' under-estimated" in line
    assert first_note == "p is adjusted for 3 groups"
    assert last_note == "≤ 0.001: the smallest p-value that 999 draws give"
    probs = np.asarray(evaluation.predictions.probs)[STATION == "C"]
    hits = probs.argmax(axis=1) == np.asarray(evaluation.targets)[STATION == "C"]
    of_group = table.groups[0].measures
    assert of_group["predicted"].value == pytest.approx(probs.max(axis=1).mean(), rel=1e-6)
    assert of_group["accuracy"].value == of_group["observed"].value == hits.mean()
    columns = table.to_dict()
    assert columns["station"] == [x.name for x in table.groups] and columns["rows"] == [40] * 3
    assert columns["p"] == [x.adjusted_pvalue for x in table.groups]
    of_c = evaluation.data.replace(where=STATION == "C")
    temperature = pytest.approx(float(cj.fit_temperature(of_c)), rel=1e-4)
    assert columns["temperature"][0] == temperature
    # Columns that were groups of the evaluation need no more than their names.
    assert evaluation.by("station").to_dict() == table.to_dict()
    with pytest.raises(ValueError, match="among the groups of evaluate.*got .'height'"):
        evaluation.by(["height"])


@pytest.mark.slow
def test_small_groups_are_not_tested(evaluation):
    names = np.where(np.arange(N) < 5, "few", "many")
    table = evaluation.by({"size": names})
    assert [x.name for x in table.groups] == ["many", "few"]
    line = repr(table).splitlines()[2].split("  ")
    assert line[0].split() == ["few"] and line[-1].strip() == "fewer than 8 rows"
    columns = table.to_dict()
    assert columns["p"][1] is None and columns["rows"] == [115, 5]
    html = evaluation.to_html(by=table)
    assert '<th scope="row">many</th><td>115</td><td>' in html and "<td>fewer than 8 rows" in html
    assert "Each group alone" not in evaluation.to_html()


def test_a_table_of_events_is_complete():
    """Twelve hospitals, each as the whole evaluation of its rows; a tiny one is not tested."""
    rng = np.random.default_rng(0)
    hospitals = np.repeat([f"H{k:02d}" for k in range(12)], 60)
    hospitals[:3], hospitals[3] = "tiny", "one row"
    risks = rng.uniform(0.05, 0.6, 720).astype(np.float32)
    events = (rng.random(720) < np.clip(risks * (1 + (hospitals == "H05")), 0, 1)).astype(int)
    table = cj.evaluate(risks, events).by({"hospital": hospitals})
    columns = table.to_dict()
    assert list(columns)[:4] == ["hospital", "rows", "observed", "expected"]
    assert list(columns)[4:] == ["observed / expected", "low", "high", "slope", "p", "error"]
    assert set(columns["hospital"]) == set(hospitals) and columns["hospital"][0] == "H05"
    assert sum(columns["observed"]) == events.sum() and len(pl.DataFrame(columns)) == 14
    rows = hospitals == "H05"
    alone = cj.evaluate(risks[rows], events[rows]).measures
    ratio, slope = alone["observed / expected"], alone["calibration slope"]
    found = [columns[x][0] for x in ("observed / expected", "low", "high", "slope")]
    assert found == pytest.approx([ratio.value, *ratio.interval, slope.value])
    # Each line has the decimals of its own interval: a tiny group with a wide one changes no other.
    for group, line in zip(table.groups, table.cells()[1:], strict=True):
        value, interval, *_ = cells(ratio := "observed / expected", group.measures[ratio])
        assert line[4:7] == [value, *(interval.split(" … ") if interval else ["", ""])]
    assert {x[4].partition(".")[2] for x in table.cells()[1:]} > {""}
    assert table.pooled.n_groups == 13 and str(table.pooled) == repr(table).splitlines()[-1]


@pytest.mark.slow
def test_groups_in_few_clusters_are_not_tested():
    rng, group = np.random.default_rng(0), np.repeat(["a", "b", "c"], 100)
    clusters = np.where(group == "a", rng.integers(0, 3, 300), rng.integers(0, 40, 300))
    loc = rng.normal(size=300)
    errors = rng.normal(size=300) + (group == "c")
    evaluation = cj.evaluate(cj.Normal(loc, np.ones(300)), loc + errors, clusters=clusters)
    table = evaluation.by({"group": group})
    assert [x.name for x in table.groups] == ["c", "b", "a"] and len(table.rejected()) == 1
    last = table.groups[-1]
    assert np.isnan([last.pvalue, last.adjusted_pvalue]).all() and not last.directions
    assert last.why_not_tested == "cannot be tested: 3 clusters, at least 6 are needed"
    assert last.why_not_tested in evaluation.to_html(by=table)
    assert repr(table).splitlines()[3].endswith(last.why_not_tested)
    assert repr(table).splitlines()[4] == "p is adjusted for 2 groups"


def test_without_groups_nothing_is_said():
    assert segments_in_words(None, 0.05) is None


@pytest.mark.slow
def test_the_command(tmp_path):
    table = pl.DataFrame({"p": P, "y": (P > 0.5).astype(int), "station": STATION, "lead": LEAD})
    table.write_csv(tmp_path / "events.csv")
    options = ["--prob", "p", "--target", "y", "--segments", "station,lead"]
    run = CliRunner().invoke(app, ["evaluate", str(tmp_path / "events.csv"), *options])
    assert run.exit_code == 1 and "segment_test, 999 simulated data sets" in run.stdout
    both = [*options[:-2], "--by", "station"]  # a column that need not have segments
    run = CliRunner().invoke(app, ["evaluate", str(tmp_path / "events.csv"), *both])
    assert "station  rows  observed  expected  observed / expected" in run.stdout
    saved = ["--json", "--table", str(tmp_path / "groups.csv")]
    run = CliRunner().invoke(app, ["evaluate", str(tmp_path / "events.csv"), *both, *saved])
    lines, written = json.loads(run.stdout)["by"], pl.read_csv(tmp_path / "groups.csv")
    assert len(lines) == 3 and written.columns == list(lines[0])
    assert written["expected"].to_list() == pytest.approx([x["expected"] for x in lines])
    wrong = CliRunner().invoke(
        app, ["evaluate", str(tmp_path / "events.csv"), *options[:-1], "station,place"]
    )
    assert wrong.exit_code == 2


def sets_of_groups(n_groups, n_wrong, n_sets, clusters=None):
    """Which of many groups of 50 normal rows are rejected, ``[n_sets, n_groups]``.

    Targets of the first ones are 0.9 deviations too high.  With `clusters`, 40 of them cross the
    groups, and their rows share 30 % of the variance.
    """

    @jax.jit
    def results(key, loc, targets, units):
        def of_group(group):
            number, loc, targets, units = group
            options = {} if clusters is None else {"clusters": units}
            of_key = jax.random.fold_in(key, number)
            return cj.calibration_test(of_key, cj.Normal(loc, jnp.ones(50)), targets, **options)

        return jax.lax.map(of_group, (jnp.arange(n_groups), loc, targets, units))

    found = []
    for seed in range(n_sets):
        rng = np.random.default_rng(seed)
        loc, noise = rng.normal(size=(2, n_groups, 50))
        units = rng.integers(0, 40, noise.shape)
        if clusters is not None:
            noise = np.sqrt(0.7) * noise + np.sqrt(0.3) * rng.normal(size=40)[units]
        noise[:n_wrong] += 0.9
        arrays = [jnp.asarray(x, jnp.float32) for x in (loc, loc + noise)]
        tests = results(jax.random.key(seed), *arrays, jnp.asarray(units))
        of_groups = [jax.tree.map(lambda x, g=g: x[g], tests) for g in range(n_groups)]
        found.append(np.array(adjusted_pvalues(of_groups)) <= 0.05)
    return np.array(found)


@pytest.mark.slow
def test_many_groups_of_which_some_are_wrong():
    rejected = sets_of_groups(64, 9, 100)
    assert np.mean(rejected[:, :9].sum(axis=1) >= 8) > 0.94
    # The error of a share of 0.05 of 100 sets is 0.022.
    assert np.mean(rejected[:, 9:].any(axis=1)) < 0.05 + 3 * 0.022


@pytest.mark.slow
@pytest.mark.parametrize("clusters", [None, 40])
def test_many_calibrated_groups_raise_few_false_alarms(clusters):
    share = np.mean(sets_of_groups(60, 0, 60, clusters).any(axis=1))
    # The error of a share of 0.05 of 60 sets is 0.028.
    assert share < 0.05 + 3 * 0.028
