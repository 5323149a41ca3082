"""The warning of `evaluate`: do neighbouring rows depend on each other?"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax as cj
from calibjax._data.data import as_data
from calibjax._data.padding import padded
from calibjax.evaluation._serial_dependence import (
    Column,
    _are_sorted,
    _cosines,
    _products,
    _stand_together,
    _tested_labels,
    columns_of_rows,
    neighbour_dependence_test,
    neighbours_in_columns,
    notes_on_order,
)
from calibjax.frames import Model, PredictionColumns, Table, read_table

N = 160


def autoregressive(rng, n=N, steps=4, phi=0.9):
    """Forecasts of an autoregression for some steps ahead, issued at every step; calibrated."""
    x = np.zeros(n + 200)
    for k, shock in enumerate(rng.normal(size=n + 199)):
        x[k + 1] = phi * x[k] + shock
    at = np.arange(100, 100 + n)
    deviation = np.sqrt((1 - phi ** (2 * steps)) / (1 - phi**2))
    return normal(phi**steps * x[at], deviation), x[at + steps]


def normal(mean, deviation=1.0):
    return cj.Normal(np.asarray(mean, np.float32), np.full(len(mean), deviation, np.float32))


def labels(rng, together, n=N):
    """Events whose hidden numbers have a common part in each five rows."""
    x, share = rng.normal(size=n), together**0.5
    common = np.repeat(rng.normal(size=n // 5), 5)
    logits = share * common + (1 - together) ** 0.5 * rng.normal(size=n)
    return cj.Bernoulli(jax.scipy.stats.norm.cdf(x)), (logits < x).astype(int)


def shares(draw, n_sets, levels=(0.01, 0.05)):
    """How many of the data sets have p-values up to the levels."""
    found = [
        neighbour_dependence_test(jax.random.key(k), padded(as_data(*draw())))
        for k in range(n_sets)
    ]
    return [np.mean(np.array(found) <= level) for level in levels]


def test_products_beside_loops():
    rng = np.random.default_rng(0)
    features, values = rng.normal(size=(2, 30, 3)), rng.normal(size=30)
    basis = np.stack([_cosines(values, rng.random(30))] * 2)
    np.testing.assert_allclose(basis[0] @ basis[0].T, np.eye(9), atol=1e-6)
    # Cosines are functions of the ranks: a step down of the first one at each rank.
    assert np.all(np.diff(basis[0][1][np.argsort(values)]) < 0)
    found = _products(features, basis)
    rest = features[1, :, 2] - basis[0].T @ (basis[0] @ features[1, :, 2])
    for row, most in enumerate((1, 2, 5)):
        expected = sum(
            rest[i] * rest[i + lag] for lag in range(1, most + 1) for i in range(30 - lag)
        )
        assert found[row, 1, 2] == pytest.approx(expected)


def test_tested_labels():
    probabilities = np.array([[0.5, 0.5, 0.0], [0.2, 0.1, 0.7]])
    found = _tested_labels(probabilities)
    assert found[0].tolist() == [0, 2] and found[1:, 0].tolist() == [0, 1, 2]
    assert _tested_labels(probabilities[:, :2]).tolist() == [[1, 1]]
    assert _tested_labels(np.full((4, 20), 0.05)).shape == (8, 4)


def test_independent_rows_are_rarely_flagged():
    rng = np.random.default_rng(1)

    def calibrated():
        mean = rng.normal(size=N)
        return normal(mean), mean + rng.normal(size=N)

    at_1, at_5 = shares(calibrated, 300)
    assert at_1 <= 0.03 and 0.015 <= at_5 <= 0.09  # three standard errors and more
    at_1, at_5 = shares(lambda: labels(rng, 0.0), 100)
    assert at_1 <= 0.05 and at_5 <= 0.12


def test_errors_of_the_model_are_not_dependence():
    """Sorted by prediction, errors of neighbours are alike; cosines take them out."""
    rng = np.random.default_rng(2)

    def biased():
        mean = np.sort(rng.normal(size=N))
        return normal(mean), 1.3 * mean + 0.25 + rng.normal(size=N)

    assert shares(biased, 100)[0] <= 0.08


def test_dependent_rows_are_flagged():
    rng = np.random.default_rng(3)
    assert shares(lambda: autoregressive(rng), 20)[0] >= 0.9
    assert shares(lambda: labels(rng, 0.8), 20)[0] >= 0.8


def files(values, number=3):
    """The order of some files that are sorted by their values."""
    parts = np.array_split(np.arange(len(values)), number)
    return np.concatenate([part[np.argsort(values[part], kind="stable")] for part in parts])


def test_what_is_an_order():
    rng = np.random.default_rng(7)
    values, classes = rng.normal(size=N), rng.integers(0, 5, N)
    groups = rng.permutation(5)[classes]
    for x in (values, -values, classes, values > 1):
        is_order = _stand_together if x is classes or x.dtype == bool else _are_sorted
        assert is_order(x[files(x)]) and is_order(np.sort(x)) and not is_order(x)
    assert _stand_together(classes[np.argsort(groups)]) and not _are_sorted(groups[files(classes)])
    # 40 files are not few, and neither is a run for every two rows.
    assert not _are_sorted(values[files(values, 40)])
    assert not _stand_together(np.repeat(rng.permutation(N // 2), 2))
    for is_order in (_are_sorted, _stand_together):
        assert not is_order(np.zeros(N)) and not is_order(np.arange(N) % 2)
    # Rows of ten days have one error each, and a walk goes up as often as down.
    assert not _are_sorted(np.repeat(values[:10], N // 10))
    walk = np.cumsum(rng.normal(size=(20, N)), axis=1)
    assert not any(map(_are_sorted, walk)) and _are_sorted(walk[0] + 3 * np.arange(N))


ORDERS = {
    "target": np.argsort,
    "descending": lambda y: np.argsort(-y, kind="stable"),
    "files": files,
    "halves": lambda y: np.argsort(y > np.median(y), kind="stable"),
}


@pytest.mark.parametrize("order", ORDERS)
def test_the_order_of_targets_is_not_dependence(order):
    """Independent rows; without the order of targets all of these have the least p-value."""
    rng = np.random.default_rng(8)
    found = []
    for k in range(20):
        mean = rng.normal(size=N)
        targets = mean + rng.normal(size=N)
        at = ORDERS[order](targets)
        data = padded(as_data(normal(mean[at]), targets[at]))
        found.append(neighbour_dependence_test(jax.random.key(k), data))
    assert np.mean(np.array(found) <= 0.05) <= 0.2  # three standard errors


def test_no_test_in_the_order_of_classes_censoring_or_errors():
    rng, key = np.random.default_rng(9), jax.random.key(0)
    predictions, events = labels(rng, 0.0)
    probs = np.asarray(predictions.probs)
    right, said = (probs > 0.5) == (events == 1), np.where(events == 1, probs, 1 - probs)
    for at in (np.lexsort([probs, events]), files(1 - events), np.argsort(right), np.argsort(said)):
        data = padded(as_data(cj.Bernoulli(probs[at]), events[at]))
        assert neighbour_dependence_test(key, data) is None
    mean = np.zeros(N)
    times, ends = rng.normal(size=(2, N)) + [[0.0], [0.5]]
    low, high = np.minimum(times, ends), np.where(times > ends, np.inf, times)
    for at in (np.argsort(times > ends), files(times > ends), np.argsort(low)):
        hidden = cj.IntervalCensored(low[at], high[at])
        data = padded(as_data(normal(mean), hidden, intervals=True))
        assert neighbour_dependence_test(key, data) is None
    worst = np.argsort(-np.abs(times))
    data = padded(as_data(normal(mean), times[worst]))
    assert neighbour_dependence_test(key, data) is None


def test_a_rising_series_is_tested():
    """Totals since the first day, whose forecasts follow them: only their errors depend."""
    predictions, targets = autoregressive(np.random.default_rng(10))
    total = 5.0 * np.arange(N)
    data = padded(as_data(normal(np.asarray(predictions.loc) + total), targets + total))
    assert neighbour_dependence_test(jax.random.key(0), data) == pytest.approx(1 / 300)


def test_a_column_that_says_the_class_is_not_advised():
    rng = np.random.default_rng(11)
    predictions, events = labels(rng, 0.0)
    ward = Column("ward", False, rng.integers(0, 10, N))
    outcome = Column("outcome day", True, rng.permutation(N) + N * events)
    data = padded(as_data(predictions, events))
    found = neighbours_in_columns(jax.random.key(0), data, [ward, outcome])
    assert [column.name for column in found] == ["ward"]


def test_the_same_key_the_same_answer_and_few_rows_none():
    predictions, targets = autoregressive(np.random.default_rng(4))
    data = padded(as_data(predictions, targets))
    found = [neighbour_dependence_test(jax.random.key(0), data) for _ in range(2)]
    assert found[0] == found[1] == pytest.approx(1 / 300)
    few = padded(as_data(predictions[:49], targets[:49]))
    assert neighbour_dependence_test(jax.random.key(0), few) is None
    both = cj.MultivariateNormalDiag(jnp.zeros((60, 2)), jnp.ones((60, 2)))
    vectors = padded(as_data(both, jnp.zeros((60, 2))))
    assert neighbour_dependence_test(jax.random.key(0), vectors) is None
    hidden = cj.IntervalCensored(targets, np.where(np.arange(N) % 4, targets, np.inf))
    data = padded(as_data(predictions, hidden, intervals=True))
    assert neighbour_dependence_test(jax.random.key(0), data) <= 0.01


def test_other_columns_say_which_rows_depend():
    """Rows in random order: a column of days, or of wards, brings neighbours together again."""
    rng = np.random.default_rng(6)
    predictions, targets = autoregressive(rng)
    days = rng.permutation(N)
    predictions, targets = predictions[days], targets[days]
    data = padded(as_data(predictions, targets))
    wards = rng.integers(0, 10, N)
    columns = [Column("day", True, days.astype(float)), Column("ward", False, wards)]
    of_days, of_wards = neighbours_in_columns(jax.random.key(0), data, columns)
    assert of_days.pvalue == pytest.approx(1 / 300) and of_wards.pvalue > 0.01
    (of_both,) = notes_on_order(None, [of_wards, of_days])
    assert (
        "in day appear dependent" in of_both
        and "pass 'day' as times with the horizon of" in of_both
    )
    assert notes_on_order(None, [of_wards]) == []


def test_columns_of_dates_and_of_names():
    days = [f"2026-01-{day:02}" for day in (3, 1, 2, 4)]
    frame = {
        "mu": [0.0] * 4,
        "patient": ["a", "b", "c", "d"],
        "ward": ["x", "y", "x", "y"],
        "nurse_id": [1, 1, 2, 2],
        "day": days,
        "gap": ["x", None, "x", "x"],
        "note": ["x"] * 4,
    }
    table = read_table(frame)
    place = PredictionColumns("mean", ["mu", "sd"], "mu")
    model = Model(table, place, "y", normal(np.zeros(4)), np.zeros(4))
    nurse, day = columns_of_rows(model, None)
    assert (nurse.name, nurse.is_time, nurse.values.tolist()) == ("nurse_id", False, [0, 0, 1, 1])
    assert day.name == "day" and day.is_time and np.argsort(day.values).tolist() == [1, 2, 0, 3]
    used = PredictionColumns("mean", ["mu", "nurse_id"], "mu")
    (day,) = columns_of_rows(dataclasses.replace(model, target="ward", columns=used), None)
    assert day.name == "day"


def test_questions_come_before_topics():
    """A log names the topic of a question first, whose rows depend less on each other."""
    columns = {"mu": [0.0] * 4, "topic": ["a", "a", "b", "b"], "prompt_id": ["p", "q", "p", "q"]}
    table = read_table(columns)
    model = Model(
        table, PredictionColumns("mean", ["mu", "sd"], "mu"), "y", normal(np.zeros(4)), np.zeros(4)
    )
    (found,) = columns_of_rows(model, None)
    assert (found.name, found.values.tolist()) == ("prompt_id", [0, 1, 0, 1])


def test_days_that_forecasts_are_about_and_their_leads():
    """Made in six weeks, each for one and two weeks ahead; birthdays have nothing to do with it."""
    made = np.repeat(np.datetime64("2026-01-03") + 7 * np.arange(6), 2)
    about = made + 7 * np.tile([1, 2], 6)
    born = np.datetime64("1980-01-01") + np.random.default_rng(0).permutation(9999)[:12]

    def found(**days):
        columns = {name: x.astype(str).tolist() for name, x in days.items()}
        table = read_table({"mu": [0.0] * 12} | columns)
        model = Model(
            table, PredictionColumns("mean", ["mu", "sd"], "mu"), "y", normal(np.zeros(12)), made
        )
        (column,) = columns_of_rows(model, None)
        return column

    for names in (("made", "about"), ("about", "made")):
        column = found(**{name: {"made": made, "about": about}[name] for name in names})
        assert (column.name, column.horizon) == ("about", 14 + 7)
    assert (found(born=born, made=made).name, found(made=made).horizon) == ("born", None)


def test_what_tells_the_test_is_said():
    day = Column("day", True, np.arange(N), 21.0, 0.003)
    ward = Column("my ward", False, np.arange(N), None, 0.003)
    (both,) = notes_on_order(None, [ward, day])
    of_day = "pass 'day' as times with the horizon 21, if errors at nearby times are similar"
    of_ward = "'my ward' as clusters, if errors in one my ward are similar"
    assert both.endswith(f"{of_day}, or {of_ward}, and not both.")
    assert notes_on_order(0.5, [ward._replace(pvalue=0.5), day])[0].endswith(f"{of_day}.")
    assert notes_on_order(0.003, [ward])[0].endswith(f"pass {of_ward}.")
    on_command_line = Table({}, np.arange(0), "x.csv", on_command_line=True).option
    told = notes_on_order(0.003, [], on_command_line)[0]
    shared = "if they share a day, a location or a person."
    assert told.endswith(f"pass --time and a --horizon, or --cluster, {shared}")
    told = notes_on_order(0.003, [])[0]
    assert told.endswith(f"pass times and a horizon, or clusters, {shared}")


@pytest.mark.slow
def test_evaluate_warns():
    predictions, targets = autoregressive(np.random.default_rng(5))
    found = cj.evaluate(predictions, targets)
    assert found.pvalue_of_neighbours <= 0.01
    assert "Neighbouring rows appear dependent" in found.notes[0]
    assert "assumes independent rows" in repr(found)
    told = cj.evaluate(predictions, targets, times=np.arange(N), horizon=4)
    assert told.pvalue_of_neighbours is None and "eighbouring rows" not in repr(told)
    assert told.pvalue > found.pvalue and "160 times, horizon 4" in repr(told)
    assert notes_on_order(0.011, []) == []
