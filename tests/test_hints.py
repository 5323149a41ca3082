"""What an error or a warning tells people to do, done."""

import ast
import json
import re
import types

import jax
import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import calibjax as cj
from calibjax._data.data import as_data
from calibjax._data.padding import padded
from calibjax.cli import app
from calibjax.cli._columns import Columns
from calibjax.evaluation._serial_dependence import (
    columns_of_rows,
    neighbours_in_columns,
    notes_on_order,
)
from calibjax.frames import cluster_numbers, read_arrays

# A file, options, and what is told; the first option in that is then given.
P, Q = ("--prob", "p", "--target", "y"), ("--quantiles", "q*", "--target", "y")
HINTS = {
    "sums": ("p_a,p_b,y\n.5,.6,a\n.2,.7,b\n", ("--probs", "p_*", "--target", "y"), "--normalize"),
    "missing prediction": ("p,y\n.5,1\n,0\n.2,0\n", P, "--drop-missing"),
    "missing target": ("p,y\n.5,1\n.2,\n.2,0\n", P, "--drop-missing"),
    "missing option": (
        "p_a,p_b,p_c,y\n.5,.5,,a\n.2,.7,,b\n.2,.7,.1,b\n",
        ("--probs", "p_*", "--target", "y"),
        "--drop-missing",
    ),
    "event": ("p,y\n.5,rain\n.2,dry\n", P, "--event rain"),
    "crossing": ("q10,q90,y\n2,1,0\n1,2,0\n", Q, "--sort-quantiles"),
    "levels": ("qa,qb,y\n1,2,0\n1,2,0\n", Q, "--levels .1,.9"),
    "decimals": (
        "m;s;y\n1,500;2;0\n2,250;2;0\n",
        ("--mean", "m", "--sd", "s", "--target", "y"),
        "--decimal ,",
    ),
    "separator": ("p~note~y\n.5~a~1\n.2~b,c~0\n", P, "--separator ~"),
    "sd": ("m,s,y\n1,2,0\n1,2,0\n", ("--mean", "m", "--target", "y"), "--sd s"),
    "target": ("p,y\n.5,1\n.2,0\n", ("--prob", "p"), "--target y"),
    "horizon": ("p,y,day\n.5,1,1\n.2,0,2\n", (*P, "--horizon", "2"), "--time day"),
}


@pytest.fixture(autouse=True)
def without_tests(monkeypatch):
    """The tests behind the reading of files take long to compile."""
    name = "calibjax.evaluation.evaluate_data"
    monkeypatch.setattr(
        name,
        lambda *_, **__: types.SimpleNamespace(rejected=False, why_not_tested=None, blocks=list),
    )


def evaluate(path, options):
    return CliRunner().invoke(app, ["evaluate", str(path), *options])


@pytest.mark.parametrize("case", HINTS)
def test_an_option_that_is_named_is_right(case, tmp_path):
    content, options, told = HINTS[case]
    path = tmp_path / "x.csv"
    path.write_text(content)
    refused = evaluate(path, options)
    (line,) = refused.stderr.splitlines()[-1:]
    others = [x for x in re.findall("--[a-z-]+", line) if x not in options]
    assert refused.exit_code == 2 and others[0] == told.split()[0], line
    done = evaluate(path, [*options, *told.split()])
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(
    "labels, event",
    [
        (["churn", "not_churn"], "churn"),
        (["happy", "unhappy"], "happy"),
        (["disease", "no disease"], "disease"),
    ],
)
def test_classes_that_are_given_have_the_event_last(labels, event):
    targets = np.array(labels * 3)
    with pytest.raises(ValueError, match="classes must name them, the event last") as caught:
        read_arrays(np.full(6, 0.5), targets)
    classes = ast.literal_eval(re.search(r"classes=(\[.*?\])", str(caught.value))[1])
    found = read_arrays(np.full(6, 0.5), targets, classes).targets
    np.testing.assert_array_equal(found, targets == event)


def rows_of_wards(n=200):
    """Events that all happen or not in a ward, whose numbers say nothing, and names beside them."""
    rng = np.random.default_rng(0)
    ward = rng.permutation(np.repeat(np.arange(n // 4), 4))
    y = (rng.random(n // 4) < 0.5)[ward].astype(int)
    p = np.round(rng.uniform(0.3, 0.7, n), 6)
    names = {
        "copy": np.where(y == 1, "yes", "no"),
        "right": np.where((p > 0.5) == (y == 1), "right", "wrong"),
        "band": np.digitize(p, [0.4, 0.5]).astype(str),
        "said": np.where(p > 0.5, "yes", "no"),
    }
    return {"p": p, "y": y} | names | {"ward": np.char.add("ward ", ward.astype(str))}


def test_rows_of_one_outcome_are_no_cluster(tmp_path):
    """Following the hint turned p = .048 into 1: labels of one cluster say nothing any more."""
    rows = rows_of_wards()
    for names, expected in (
        (["copy", "right", "band", "said"], []),
        (["said", "copy", "ward"], ["ward"]),
    ):
        path = tmp_path / "x.csv"
        pl.DataFrame({name: rows[name] for name in ("p", "y", *names)}).write_csv(path)
        columns = Columns(target="y", prob="p")
        model = columns.read(path)
        found = columns_of_rows(model, None)
        assert [column.name for column in found] == expected
    data = padded(as_data(model.predictions, model.targets))
    (hint,) = notes_on_order(None, neighbours_in_columns(jax.random.key(0), data, found))
    name = re.search(r"pass '(\w+)' as clusters", hint)[1]
    assert len(np.unique(cluster_numbers(model.table.typed(name))))
    assert evaluate(path, [*P, "--cluster", name]).exit_code == 0


def test_targets_of_a_log_are_no_cluster(tmp_path):
    """A log names its own columns, so that no option does."""
    answers = [["-1.0", "False"], ["-2.0", "True"]]
    lines = [
        {"doc_id": k, "target": "AB"[k % 2], "filtered_resps": answers, "answer": ["x", "y"][k % 2]}
        for k in range(60)
    ]
    path = tmp_path / "samples.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    model = Columns().read(path)
    assert model.target == "target" and columns_of_rows(model, None) == []
    with pytest.warns(UserWarning, match="A is the first of option_probabilities"):
        data = cj.read_data(str(path))
    np.testing.assert_allclose(
        data.predictions.probs, [[1 / (1 + np.exp(-1)), 1 / (1 + np.e)]] * 60, 1e-6
    )
    np.testing.assert_array_equal(data.targets, np.arange(60) % 2)
    with pytest.raises(ValueError, match="target must name"):
        cj.read_data(tmp_path / "samples.jsonl", probs="answer")


def test_numbers_that_rise_with_the_target_are_no_cluster(tmp_path):
    rng = np.random.default_rng(0)
    y, mu = rng.normal(size=(2, 90))
    names = {
        "size": np.digitize(y, [-0.5, 0.5]).astype(str),
        "forecast": np.where(mu > 0, "high", "low"),
        "shop": rng.choice(["a", "b", "c"], 90),
    }
    path = tmp_path / "x.csv"
    pl.DataFrame({"mu": mu, "sd": np.ones(90), "y": y} | names).write_csv(path)
    columns = Columns(target="y", mean="mu", sd="sd")
    found = columns_of_rows(columns.read(path), None)
    assert [column.name for column in found] == ["shop"]
    assert isinstance(columns.read(path).predictions, cj.Normal)
