"""Columns by their types: equal values have equal codes, in whatever they are written."""

import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
import test_covariates
from typer.testing import CliRunner

import calibjax as cj
from calibjax._data.column_encoding import ColumnCode
from calibjax._data.typed_column import numbered, typed_column
from calibjax.cli import app
from calibjax.cli._new_rows import sort_key

UTC = datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1)


def array(dtype):
    return lambda values: np.array([np.nan if x is None else x for x in values], dtype)


def times(dtype):
    return lambda values: np.array(values, "M8[us]").astype(dtype)


def in_zone(name):
    """The same instants as times of UTC."""

    def of(values):
        zoned = [x and x.replace(tzinfo=UTC).astimezone(ZoneInfo(name)) for x in values]
        return pd.Series(pd.DatetimeIndex(zoned))

    return of


def in_zones(values):
    zones = ZoneInfo("Asia/Tokyo"), ZoneInfo("America/Lima")
    return [x and x.replace(tzinfo=UTC).astimezone(zones[k % 2]) for k, x in enumerate(values)]


def each(function):
    return lambda values: [None if x is None else function(x) for x in values]


# What holds the values of a kind; the values are written in Python.
NUMBERS = {
    "float32": array(np.float32),
    "float64": array(np.float64),
    "objects": lambda values: np.array(values, object),
    "list": list,
    "Decimal": each(lambda x: Decimal(str(x))),
    "pandas": pd.Series,
    "pandas categories": lambda values: pd.Series(pd.Categorical(values)),
    "polars": pl.Series,
    "polars Decimal": lambda values: pl.Series(each(lambda x: Decimal(str(x)))(values)),
    "masked": lambda values: np.ma.masked_array(
        [0 if x is None else x for x in values], [x is None for x in values]
    ),
}
INTEGERS = {
    "int8": array(np.int8),
    "int64": array(np.int64),
    "uint64": array(np.uint64),
    "Int64": lambda values: pd.Series(values, dtype="Int64"),
    "polars UInt8": lambda values: pl.Series(values, dtype=pl.UInt8),
    "bfloat16": array(jnp.bfloat16),
}
TRUTHS = {"bool": array(bool), "pandas boolean": lambda x: pd.Series(x, dtype="boolean")} | {
    "list of bool": each(bool),
    "polars Boolean": lambda values: pl.Series(each(bool)(values)),
}
TIMES = {
    **{f"datetime64[{unit}]": times(f"M8[{unit}]") for unit in ("D", "s", "us", "ns")},
    "date": each(lambda x: x.date()),
    "datetime": list,
    "zone": in_zone("Europe/Berlin"),
    "zone of objects": lambda values: np.array(in_zones(values), object),
    "two zones": in_zones,
    "Period": lambda values: pd.Series(pd.PeriodIndex(values, freq="D")),
    "Periods": lambda values: list(pd.PeriodIndex(values, freq="D")),
    "pandas": pd.Series,
    "index": pd.DatetimeIndex,
    "pandas categories": lambda values: pd.Series(pd.Categorical(values)),
    "polars Date": lambda values: pl.Series(values).cast(pl.Date),
    "polars zone": lambda values: (
        pl.Series(values).dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo")
    ),
}
DURATIONS = {
    "timedelta64[h]": lambda values: np.array(values, "m8[us]").astype("m8[h]"),
    "timedelta64[ns]": lambda values: np.array(values, "m8[ns]"),
    "timedelta": list,
    "pandas": pd.Series,
    "polars": pl.Series,
}
TEXTS = {
    "str": lambda values: np.array(values, str),
    "bytes": lambda values: np.array([x.encode() for x in values]),
    "objects": lambda values: np.array(values, object),
    "list": list,
    "pandas": pd.Series,
    "pandas objects": lambda values: pd.Series(values, dtype=object),
    "pandas categories": lambda values: pd.Series(pd.Categorical(values)),
    "polars": pl.Series,
    "polars Categorical": lambda values: pl.Series(values, dtype=pl.Categorical),
    "polars Enum": lambda values: pl.Series(values, dtype=pl.Enum(["a", "b", "c", "other", "é"])),
}
# What only the columns of other rows may hold.
DAYS = [EPOCH + datetime.timedelta(days=20_000 + k) for k in range(4)]
WRITTEN = {
    "numbers": {"text": each(str)},
    "times": {
        "text": each(lambda x: x.date().isoformat()),
        "text of a zone": each(lambda x: x.isoformat() + "+00:00"),
    },
    "truths": {"text": each(lambda x: str(bool(x))), **INTEGERS, **NUMBERS},
}
# Three values in their order, and one that the fit has not seen.
KINDS = {
    "numbers": (INTEGERS | NUMBERS, [1, 2, 100, 3]),
    "fractions": (NUMBERS, [-0.3, 0.1, 0.7, 0.2]),
    "zero": (NUMBERS, [-2.5, 0.0, 1e-30, 1.0]),
    "truths": (TRUTHS, [0, 1, None, None]),
    "integers that floats round": (
        {
            "int64": array(np.int64),
            "uint64": array(np.uint64),
            "list": list,
            "Decimal": each(Decimal),
            "Int64": lambda values: pd.Series(values, dtype="Int64"),
            "polars": lambda values: pl.Series(values, dtype=pl.UInt64),
        },
        [2**53, 2**53 + 1, 2**53 + 2, 2**53 + 3],
    ),
    "integers beyond int64": (
        {"uint64": array(np.uint64), "list": list, "Decimal": each(Decimal)},
        [2**63, 2**63 + 1, 2**63 + 2, 2**63 + 3],
    ),
    "times": (TIMES, DAYS),
    "durations": (DURATIONS, [datetime.timedelta(hours=k) for k in (1, 30, 31, 2)]),
    "texts": (TEXTS, ["a", "b", "other", "é"]),
}
CASES = [(kind, form) for kind, (forms, _) in KINDS.items() for form in forms]
NO_MISSING = {"int8", "int64", "uint64", "bool", "str", "bytes"}


def column(values):
    return typed_column("column x of groups", values, len(values))


def code_of(values, kept=None):
    kept = np.ones(len(values), bool) if kept is None else kept
    return ColumnCode.of("x", column(values), kept)


@pytest.mark.parametrize(("kind", "form"), CASES)
def test_equal_values_have_one_code(kind, form):
    """The rows of the fit, in every form that the same values have at other rows."""
    forms, values = KINDS[kind]
    known = [x for x in values[:3] if x is not None]
    rows = [2, 0, 1, 1, 0, 2] if len(known) == 3 else [1, 0, 0, 1]
    code = code_of(forms[form]([known[k] for k in rows]))
    assert code.n_known == len(known)
    new = [known[k] for k in reversed(rows)] + values[3:] * (values[3] is not None)
    expected = [*reversed(rows)] + [-1] * (values[3] is not None)
    for name, other in (forms | WRITTEN.get(kind, {})).items():
        np.testing.assert_array_equal(code.codes(column(other(new))), expected, err_msg=name)
        if name in NO_MISSING:
            continue
        with_missing = code.codes(column(other([None, *new, None])))
        np.testing.assert_array_equal(with_missing, [len(known), *expected, len(known)], name)
    if form not in NO_MISSING:
        again = code_of(forms[form]([None, *(known[k] for k in rows)]))
        assert again.levels == code.levels


@pytest.mark.parametrize("form", ["float32", "float64", "Decimal", "polars"])
def test_rounding_moves_no_number_across_a_cut(form):
    numbers = np.round(np.random.default_rng(0).normal(size=500), 3).tolist()
    code = code_of(NUMBERS[form](numbers))
    quarter = np.searchsorted(np.sort(numbers)[[125, 250, 375]], numbers, side="right")
    for name, other in NUMBERS.items():
        codes = code.codes(column(other(numbers)))
        np.testing.assert_array_equal(codes, quarter, err_msg=name)


@pytest.mark.parametrize("form", [x for x in TIMES if x != "pandas categories"])
def test_times_are_cut_alike(form):
    days = [EPOCH + datetime.timedelta(days=int(k)) for k in np.arange(-20, 380) ** 2 // 7]
    code = code_of(TIMES[form](days))
    ordered = np.sort(np.array(days, "M8[us]"))
    quarter = np.searchsorted(ordered[[100, 200, 300]], np.array(days, "M8[us]"), side="right")
    for name, other in (TIMES | WRITTEN["times"]).items():
        np.testing.assert_array_equal(code.codes(column(other(days))), quarter, name)


def test_what_most_rows_have_is_a_bin():
    code = code_of(np.r_[np.zeros(90), np.arange(1.0, 21.0)])
    assert code.cuts == (0.5,)


def test_text_of_a_number_is_text():
    """NumPy writes numbers and missing values in a list as texts, if one item is a text."""
    assert code_of(["a", float("nan"), None, "nan", 1.5]).levels == ("1.5", "a", "nan")
    assert code_of(["1", "2"]).levels == ("1", "2")
    assert code_of([1, True, 2.5, Decimal("1.0")]).levels == (1.0, 2.5)
    assert code_of([Decimal("sNaN"), Decimal(2), Decimal("NaN")]).levels == (2,)


NEAR = [2**63 + k for k in range(-200, 200)]


@pytest.mark.parametrize("form", KINDS["integers beyond int64"][0])
@pytest.mark.parametrize("rows", [slice(None), slice(0, 200), slice(200, 400)])
def test_cuts_may_be_on_both_sides_of_int64(form, rows):
    """All rows had one code, which was an empty range of another."""
    make = KINDS["integers beyond int64"][0][form]
    code, given = code_of(make(NEAR)), column(make(NEAR[rows]))
    np.testing.assert_array_equal(code.codes(given), np.repeat(range(4), 100)[rows])
    names = code.names(column(make(NEAR)), code.codes(column(make(NEAR))))
    assert names[2] == f"{2**63} to {2**63 + 99}"


MIXED = ["1", 1, True, 1.0, "a", 2.5, None]


@pytest.mark.parametrize("seed", range(3))
def test_objects_of_several_kinds_have_the_codes_of_their_texts(seed):
    """1, True and 1.0 were the first of them, and their part of a column was an error."""
    items = np.array(MIXED, object)[np.random.default_rng(seed).permutation(len(MIXED))]
    code = code_of(items)
    assert code.levels == ("1", "1.0", "2.5", "True", "a")
    expected = [{"1": 0, "1.0": 1, "2.5": 2, "True": 3, "a": 4}.get(str(x), 5) for x in items]
    for rows in [slice(None), *(slice(k, k + 1) for k in range(len(items)))]:
        for part in (items[rows], items[rows].tolist(), pd.Series(items[rows], dtype=object)):
            np.testing.assert_array_equal(code.codes(column(part)), expected[rows])
    np.testing.assert_array_equal(code.codes(column(np.arange(4))), [-1, 0, -1, -1])


@pytest.mark.parametrize("fit", [[1, 2, 3], [1.5, 2.5], [False, True], np.arange(99), DAYS])
def test_texts_for_what_is_missing_are_missing_where_the_fit_had_numbers(fit):
    code = code_of(fit)
    for text in ("nan", "NaN", "-nan", "NA", " ", "null", "NaT"):
        if text == "-nan" and fit is DAYS:
            continue
        given = [text, str(fit[1]), text]
        found = code.codes(column(given))
        assert found[0] == found[2] == code.n_known > found[1] >= 0
        assert code.codes(column([text, text]))[0] == code.n_known


NAMED = {
    "months": np.array(["2019-12", "2020-01", "2020-02"], "M8[M]"),
    "years": np.array(["2019", "2020"], "M8[Y]"),
    "days": np.array(DAYS, "M8[D]"),
    "periods of months": pd.Series(pd.period_range("2019-11", periods=3, freq="M")),
    "periods of years": pd.period_range("2019", periods=3, freq="Y"),
    "truths": np.array([False, True]),
    "numbers": [0.1, 2, 1e-9],
    "mixed": np.array(MIXED, object),
}


@pytest.mark.parametrize("kind", NAMED)
def test_names_of_levels_are_read_as_these(kind):
    given = column(NAMED[kind])
    code = code_of(NAMED[kind])
    names = code.names(given, code.codes(given))
    assert len(set(names)) == code.n_known
    found = code.codes(column(np.array(names, object)))
    np.testing.assert_array_equal(found, range(code.n_known))


ERRORS = {
    "underscore": ([1000, 2], ["1_000"], ValueError, "must hold numbers, as .* got '1_000'"),
    "a word": (DAYS, ["now"], ValueError, "must hold times, .* got 'now'"),
    "texts of numbers": ([1, 2], ["1", "x"], ValueError, "must hold numbers, as .* got 'x'"),
    "texts of times": (DAYS, ["1.1.2024"], ValueError, "must hold times, .* got '1.1.2024'"),
    "times of numbers": ([1, 2], DAYS, TypeError, "must hold numbers, .* '2024-10-04 00:00:00'"),
    "lists": (["a"], pd.Series([["a"], {}]), TypeError, "must hold one value in each row"),
    "complex": (["a"], [1j], TypeError, "must hold real numbers, times or categories"),
    "shape": (["a"], [["a", "b"]], ValueError, r"must have shape \[n\], got shape \[1, 2\]"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_values_of_another_kind_are_errors(case):
    fit, other, exception, message = ERRORS[case]
    code = code_of(fit)
    with pytest.raises(exception, match=f"column x of groups {message}"):
        code.codes(column(other))


@pytest.mark.parametrize("form", ["zone", "date", "Period", "two zones", "polars Date"])
def test_covariates_have_the_ranks_of_their_values(form, key):
    """Times that were read as texts were one category a row, and the power was lost."""
    days = [EPOCH + datetime.timedelta(days=int(k)) for k in test_covariates.AGE]
    known = (key, test_covariates.PREDICTIONS, test_covariates.EVENTS)

    def test(age):
        columns = test_covariates.COLUMNS | {"age": age}
        return test_covariates.TEST(*known, covariates=columns)

    found, expected = test(TIMES[form](days)), test(test_covariates.AGE)
    np.testing.assert_array_equal(found.null_distribution, expected.null_distribution)
    assert found.pvalue == expected.pvalue


# Who reads columns.

N = 120
WEEK = np.arange(N) * 7 // N
P = np.random.default_rng(0).uniform(0.2, 0.8, N).astype(np.float32)
EVENTS = (np.random.default_rng(1).random(N) < np.where(WEEK == 6, 0.97, P)).astype(np.int32)
DATES = [EPOCH + datetime.timedelta(days=int(k)) for k in WEEK]
PREDICTIONS = cj.Bernoulli(jnp.asarray(P))


def of_map(groups):
    fitted = cj.fit_recalibrator(
        PREDICTIONS, EVENTS, "identity", groups={"x": TIMES["zone"](DATES)}
    )
    return fitted(PREDICTIONS, {"x": groups}).probs


READERS = {
    "segment_test": lambda x: (
        cj.segment_test(KEY, PREDICTIONS, EVENTS, {"x": x}, n_resamples=99).sums.scores
    ),
    "recalibrator": of_map,
    "clusters": lambda x: cj.frames.read_rows(clusters=x)["clusters"],
    "times": lambda x: cj.frames.read_rows(times=x, horizon=2)["times"],
}
KEY = jax.random.key(3)


@pytest.mark.parametrize("reader", READERS)
def test_all_readers_of_columns_agree(reader):
    expected = READERS[reader](TIMES["datetime64[D]"](DATES))
    for form in ("date", "zone", "two zones", "polars zone"):
        np.testing.assert_array_equal(READERS[reader](TIMES[form](DATES)), expected, form)


def test_a_file_keeps_types(tmp_path):
    groups = {
        "day": DATES,
        "share": np.array([0.1, 0.2, 0.7])[WEEK % 3],
        "ours": WEEK > 5,
        "far": np.where(WEEK > 5, np.inf, 1.0).astype(np.float32),
        "name": np.array(list("abcdefg"))[WEEK],
    }
    fitted = cj.fit_recalibrator(PREDICTIONS, EVENTS, "identity", groups=groups)
    fitted.save(tmp_path / "map.json")
    loaded = cj.load_recalibrator(tmp_path / "map.json")
    assert loaded.group_map.coding == fitted.group_map.coding
    others = groups | {
        "day": TIMES["two zones"](DATES),
        "share": groups["share"].astype(np.float32),
        "ours": groups["ours"] * 1.0,
    }
    np.testing.assert_array_equal(
        loaded(PREDICTIONS, others).probs, fitted(PREDICTIONS, groups).probs
    )
    share = loaded(PREDICTIONS, others).probs - P
    assert np.abs(share).max() > 0.01


def test_files_of_other_types(tmp_path):
    """A map of a Parquet file with dates, for one with times of a zone and for a text file."""
    frame = pl.DataFrame({"p": P, "y": EVENTS, "day": DATES, "share": (WEEK % 3) / 10})
    fit, *files = (tmp_path / x for x in ("fit.parquet", "zone.parquet", "text.csv"))
    frame.with_columns(pl.col("day").cast(pl.Date)).write_parquet(fit)
    zoned = pl.col("day").dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo")
    frame.with_columns(zoned, pl.col("share").cast(pl.Float32)).write_parquet(files[0])
    frame.with_columns(pl.col("day").dt.strftime("%Y-%m-%d")).write_csv(files[1])
    options = ["--prob", "p", "--target", "y", "--segments", "day,share", "--method", "identity"]
    found = []
    for file in (fit, *files):
        arguments = [fit, *options, "--apply", file, "--out", tmp_path / f"out{file.suffix}"]
        done = CliRunner().invoke(app, ["recalibrate", *map(str, arguments)])
        assert done.exit_code == 0, done.output
        read = pl.read_csv if file.suffix == ".csv" else pl.read_parquet
        found.append(read(tmp_path / f"out{file.suffix}")["p"].to_numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-6)
    assert np.abs(found[0] - P).max() > 0.01


TEXTS_OF_FILES = {
    "texts that look like numbers": (["1", "2", "north"], ["1", "2"]),
    "numbers, some missing at the fit": (["30", "41.5", "NA"], ["30", "41.5"]),
    "numbers, some missing": (["30", "41.5"], ["30", "NA", "41.5"]),
    "whole numbers": (["1", "2"], ["1.0", "2.0"]),
    "texts, some empty": (["1", "x", ""], ["1", ""]),
}


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("case", TEXTS_OF_FILES)
def test_the_fit_decides_what_texts_of_a_file_are(case, ending, tmp_path):
    """Each file decided it by its own rows, and there was an error."""
    levels, new = TEXTS_OF_FILES[case]
    words = [levels[k] for k in (6 - WEEK) * len(levels) // 7]
    kept = np.array([k for k in range(N) if words[k] in new or case == "whole numbers"])
    others = [new[levels.index(words[k])] if case == "whole numbers" else words[k] for k in kept]
    if case == "numbers, some missing":
        others[::7] = ["NA"] * len(others[::7])
    fit, file, out = tmp_path / "fit.csv", tmp_path / f"x{ending}", tmp_path / f"out{ending}"
    events = np.where(np.array(words) == levels[0], np.arange(N) % 9 > 0, EVENTS).astype(np.int32)
    frame = pl.DataFrame({"p": P, "y": events, "g": words})
    frame.write_csv(fit)
    frame = frame[kept].with_columns(g=pl.Series(others))
    if ending == ".csv":
        frame.write_csv(file)
    else:
        is_whole = all(x.isdecimal() for x in others)
        frame.with_columns(pl.col("g").cast(pl.Int64) if is_whole else pl.col("g")).write_parquet(
            file
        )
    options = ["--prob", "p", "--target", "y", "--segments", "g", "--method", "identity"]
    arguments = [fit, *options, "--apply", file, "--out", out]
    done = CliRunner().invoke(app, ["recalibrate", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    found = (pl.read_csv if ending == ".csv" else pl.read_parquet)(out)["p"].to_numpy()
    # The levels by hand: floats, if all known texts are numbers.
    are_texts = case in ("texts that look like numbers", "texts, some empty")
    values, kind = {"": None, "NA": np.nan}, object if are_texts else float
    groups = [np.array([values.get(x, x) for x in texts], kind) for texts in (words, others)]
    fitted = cj.fit_recalibrator(PREDICTIONS, events, "identity", groups={"g": groups[0]})
    expected = fitted(cj.Bernoulli(P[kept]), {"g": groups[1]}).probs
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert np.abs(found - P[kept]).max() > 1e-3


def test_times_with_offsets_are_ordered_by_when_they_are():
    ordered = [
        "2026-03-01T01:00+02:00",
        "2026-02-28T23:30Z",
        "2026-03-01 00:15",
        "01.03.2026 01:00",
    ]
    places = [sort_key(x) for x in ordered[:3]]
    assert places == sorted(places) and len({str(x) for x in places}) == 3
    assert sort_key("2026-03-01T01:00+02:00") == sort_key("2026-02-28T18:00-05:00")


def test_numbered_is_what_numpy_finds():
    values = np.random.default_rng(0).integers(0, 9, 50)
    for x in (values, values.astype(str).astype(object), values / 7):
        levels, places = numbered(x)
        expected, at = np.unique(x, return_inverse=True)
        np.testing.assert_array_equal(levels, expected)
        np.testing.assert_array_equal(places, at)


@pytest.mark.parametrize("kind", ["numbers", "times", "texts"])
def test_masked_rows_may_hold_anything(kind):
    forms, values = KINDS[kind]
    items = np.array([*values, "unknown", b"?", 1j, None], object)
    kept = np.arange(8) < 4
    typed = typed_column("column x of groups", items, 8, kept)
    assert ColumnCode.of("x", typed, kept) == code_of(
        forms["objects" if kind != "times" else "datetime"](values)
    )
    with pytest.raises(ValueError, match="x must be known in every row; row 7 is None"):
        typed_column("x", items, 8, np.arange(8) != 4, known=True)


CODES = {
    "texts": ["1", "10", "2"],
    "integers": [1, 10, 2],
    "floats": np.array([1.0, 10.0, 2.0]),
    "float32": np.array([1, 10, 2], np.float32),
    "Int64": pd.Series([1, 10, 2], dtype="Int64"),
    "beside a missing value": pd.Series([1, 10, 2, None]),
    "list beside None": [1, 10, 2, None],
    "polars": pl.Series([1, 10, 2]),
    "categories": pd.Categorical([1, 10, 2]),
    "numpy texts": np.array(["1", "10", "2"]),
}


@pytest.mark.parametrize("form", CODES)
def test_a_map_of_codes_meets_them_in_any_type(form):
    code = code_of(["01", "1", "10", "2"])
    assert code.codes(column(CODES[form]))[:3].tolist() == [1, 2, 3]
    assert code.codes(column(["1.0"])).tolist() == [-1]
