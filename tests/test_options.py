"""Questions with fewer options or more: what a row lacks is said, and zeros are probabilities."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

import calibjax as cj
from calibjax.cli._columns import Columns
from calibjax.frames import Columns as FrameColumns
from calibjax.frames import read_arrays, read_table

NAN = np.nan
# A question with all options, of which one was rounded to 0; one without B; one without A and C.
PROBS = np.array([[0.75, 0.25, 0.0], [0.5, NAN, 0.5], [NAN, 1.0, NAN], [0.25, 0.25, 0.5]])
LABELS = np.array([2, 0, 1, 1])
EXISTS = ~np.isnan(PROBS)
NAMES = ["p_A", "p_B", "p_C"]


def columns(order):
    return {NAMES[k]: PROBS[:, k] for k in order} | {"y": [*"CABB"]}


def in_file(name, write):
    def read(folder, order):
        write(folder / name, columns(order))
        return Columns(target="y", probs="p.*" if "keys" in name else "p_*").read(folder / name)

    return read


def write_keys(path, table):
    rows = [dict(zip(table, cells, strict=True)) for cells in zip(*table.values(), strict=True)]
    records = [
        {"p": {name[-1]: x for name, x in row.items() if x == x and name != "y"}, "y": row["y"]}
        for row in rows
    ]
    path.write_text("\n".join(map(json.dumps, records)))


DOORS = {
    "csv": in_file("x.csv", lambda path, x: pd.DataFrame(x).to_csv(path, index=False)),
    "csv of R": in_file("x.csv", lambda path, x: pd.DataFrame(x).to_csv(path, na_rep="NA")),
    "keys": in_file("keys.jsonl", write_keys),
    "parquet": in_file("x.parquet", lambda path, x: pl.DataFrame(x).write_parquet(path)),
    "pandas": lambda _, order: FrameColumns(target="y", probs="p_*").of(
        read_table(pd.DataFrame(columns(order)), "y")
    ),
    "polars": lambda _, order: FrameColumns(target="y", probs="p_*").of(
        read_table(pl.DataFrame(columns(order), nan_to_null=True), "y")
    ),
    "array": lambda _, order: read_arrays(PROBS[:, order], np.argsort(order)[LABELS]),
}


@pytest.mark.filterwarnings("ignore:data, column p_")
@pytest.mark.parametrize("order", ([0, 1, 2], [2, 0, 1]))
@pytest.mark.parametrize("door", DOORS)
def test_a_column_means_the_same_in_every_order(door, order, tmp_path):
    model = DOORS[door](tmp_path, order)
    probs = np.asarray(model.predictions.probs)
    if model.classes:
        order = ["ABC".index(name) for name in model.classes]
    assert model.predictions.ragged and np.array_equal(probs > 0, EXISTS[:, order])
    np.testing.assert_allclose(probs, np.nan_to_num(PROBS[:, order]), rtol=1e-6, atol=1e-30)
    assert np.array_equal(np.asarray(order)[np.asarray(model.targets)], LABELS)


def test_lists_end_where_options_end(tmp_path):
    lists = [[0.75, 0.25, 0.0], [0.5, None, 0.5], [1.0], [0.25, 0.25, 0.5]]
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(json.dumps({"p": p, "y": 0}) for p in lists))
    model = Columns(target="y", probs="p").read(path)
    exists = np.asarray(model.predictions.probs) > 0
    assert exists.tolist() == [[True] * 3, [True, False, True], [True, False, False], [True] * 3]
    path.write_text("\n".join(json.dumps({"p": [0.5, 0.5, 0.0], "y": 0}) for p in lists))
    assert not Columns(target="y", probs="p").read(path).predictions.ragged


def test_rounded_probabilities_of_a_rare_class(tmp_path):
    """A class that is rounded to 0.00 in half of the rows is no option that these lack."""
    rng = np.random.default_rng(0)
    rare = np.where(rng.random(900) < 0.5, 0.004, rng.uniform(0.01, 0.05, 900))
    first = (1 - rare) * rng.uniform(0.2, 0.8, 900)
    p = np.stack([first, 1 - rare - first, rare], axis=1)
    labels = (rng.random((900, 1)) > np.cumsum(p, axis=1)).sum(axis=1)
    p = np.round(p, 2)
    labels[: len(p) // 2] = np.where(rare < 0.005, labels % 2, labels)[: len(p) // 2]
    losses = []
    for order in ([0, 1, 2], [2, 0, 1]):
        table = pd.DataFrame(p[:, order], columns=[f"p_{'abc'[k]}" for k in order])
        parts = []
        for name, rows in (("fit", slice(450)), ("new", slice(450, 900))):
            path = tmp_path / f"{name}.csv"
            table.assign(y=np.array([*"abc"])[labels])[rows].to_csv(path, index=False)
            parts.append(Columns(target="y", probs="p_*", normalize=True).read(path))
        fit, new = parts
        recalibrated = cj.fit_recalibrator(fit.predictions, fit.targets, "temperature")(
            new.predictions
        )
        losses.append(float(cj.log_score(recalibrated, new.targets).mean()))
    assert np.isfinite(losses).all() and losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_a_target_is_an_option_of_its_row():
    with pytest.raises(
        ValueError, match="targets, row 1: expected options of their rows, got 1, with 2 options"
    ):
        read_arrays(PROBS, [2, 1, 1, 1])
    with pytest.raises(ValueError, match="row 1: .* got .*nan"):
        read_arrays(np.where(EXISTS, PROBS, NAN) * 0.5, LABELS)


def test_an_observed_option_with_the_probability_0():
    """And zeros of options are raised by the rule of dense tables, not by that of lacking ones."""
    probs = np.tile(PROBS[[0, 1, 3]], (20, 1))
    labels = np.tile([0, 2, 1], 20)
    labels[0] = 2
    found, targets = read_arrays(probs, labels).samples
    with np.errstate(divide="ignore"):
        expected = -np.log(np.asarray(found.label_probabilities())[np.arange(60), labels])
    np.testing.assert_allclose(cj.log_score(found, targets), expected)
    assert np.isinf(expected[0]) and np.isfinite(expected[1:]).all()
    tempered = cj.apply_temperature(found, 2.0)
    assert np.isinf(cj.log_score(tempered, targets)[0])
    np.testing.assert_array_equal(np.asarray(tempered.probs) == 0, np.isnan(probs))
    recalibrator = cj.fit_recalibrator(found, targets, "identity")
    recalibrated = np.asarray(recalibrator(found).probs)
    assert recalibrator.fit.n_zero_probability == 1
    np.testing.assert_array_equal(recalibrated == 0, np.isnan(probs))
    # Half of the smallest probability, which is 1/4.
    np.testing.assert_allclose(recalibrated[0, 2], 0.125 / 1.125, rtol=1e-6)
