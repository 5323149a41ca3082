"""Ensembles with missing members are the ensembles of those that exist."""

import io
import json

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from messages import check_message

import calibjax as cj

N, S = 6, 5
RNG = np.random.default_rng(52)
WHERE = RNG.random((N, S)) < 0.6
WHERE[:, 1] = WHERE[:, 3] = True
WHERE[2], WHERE[:, 4] = True, False  # all of a row, but for a member that is missing everywhere
SAMPLES = {"numbers": np.round(RNG.normal(size=(N, S)), 1), "vectors": RNG.normal(size=(N, S, 2))}
TARGETS = {"numbers": SAMPLES["numbers"][:, 1] + 0.1, "vectors": RNG.normal(size=(N, 2))}
WEIGHTS = RNG.uniform(0.5, 2, (N, S))
LEVEL, KEY = 0.4, jax.random.key(3)
KINDS = {
    "numbers": ("numbers", {}),
    "fair": ("numbers", {"fair": True}),
    "weights": ("numbers", {"weights": WEIGHTS}),
    "vectors": ("vectors", {}),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def filled(name, garbage):
    where = WHERE.reshape(N, S, *(1,) * (SAMPLES[name].ndim - 2))
    samples = jnp.asarray(np.where(where, SAMPLES[name], garbage))
    return samples, jnp.asarray(WHERE), jnp.asarray(TARGETS[name])


def results(options, samples, where, y):
    """What a batch says without draws."""
    p = cj.Empirical(samples, where=where, **options)
    found = [p.mean(), p.variance(), p.standard_deviation()]
    if samples.ndim == 2:
        found += [p.cdf(y), p.survival(y), p.quantile(jnp.asarray(LEVEL, y.dtype)), cj.crps(p, y)]
        found += [*cj.pit_interval(p, y)]
    elif not options:
        found += [*p.unit_box(y)[:2]]
    return found


def of_one(x, y, weights=None, fair=False):
    """The same of the members of one row, by its definitions."""
    n, w = len(x), np.full(len(x), 1 / len(x)) if weights is None else weights / weights.sum()
    mean = w @ x
    variance = w @ (x - mean) ** 2
    low, high = np.sum(x < y, axis=0) / (n + 1), (np.sum(x <= y, axis=0) + 1) / (n + 1)
    if x.ndim == 2:
        return [mean, variance, np.sqrt(variance), low, high]
    order = np.argsort(x)
    quantile = x[order][np.cumsum(w[order]) >= LEVEL - 1e-12][0]
    pairs = w @ np.abs(x[:, None] - x) @ w / 2 * (n / (n - 1) if fair else 1)
    crps = w @ np.abs(x - y) - pairs
    up_to = w @ (x <= y)
    pit = [low, high] if weights is None else [w @ (x < y), up_to]
    return [mean, variance, np.sqrt(variance), up_to, 1 - up_to, quantile, crps, *pit]


@kinds
def test_rows_are_those_of_the_members_that_exist(kind, float64):
    name, options = KINDS[kind]
    found = results(options, *filled(name, np.nan))
    for i, kept in enumerate(WHERE):
        of_row = {key: x if key == "fair" else x[i, kept] for key, x in options.items()}
        expected = of_one(SAMPLES[name][i, kept], TARGETS[name][i], **of_row)
        for ours, alone in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours[i], alone, rtol=1e-12, atol=1e-14)


@kinds
def test_what_stands_for_a_missing_member_changes_no_bit(kind, float64):
    name, options = KINDS[kind]

    @jax.jit
    def of(samples, where, y):
        def total(samples):
            return sum(jnp.sum(x) for x in results(options, samples, where, y))

        p = cj.Empirical(samples, where=where, **options)
        kernel = cj.default_kernel(p)
        draws = p.sample(KEY, (3,)), cj.skce(kernel, p, y)
        return results(options, samples, where, y), draws, jax.grad(total)(samples)

    *first, slopes = expected = of(*filled(name, 1.0))
    assert np.all(np.asarray(slopes)[~WHERE] == 0)
    for garbage in (np.nan, np.inf, -1e300):
        jax.tree.map(np.testing.assert_array_equal, of(*filled(name, garbage)), expected)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves((first, slopes)))


def test_draws_are_members_that_exist(float64):
    samples, where, _ = filled("numbers", 99.0)
    drawn = cj.Empirical(samples, where=where).sample(KEY, (4000,))
    for i in range(N):
        values, counts = np.unique(drawn[:, i], return_counts=True)
        members, of_members = np.unique(samples[i, WHERE[i]], return_counts=True)
        np.testing.assert_array_equal(values, members)
        share = of_members / WHERE[i].sum()
        assert np.all(np.abs(counts / 4000 - share) < 5 * np.sqrt(share / 4000))


def test_quantiles_are_at_the_levels_of_each_row(float64):
    samples, where, _ = filled("numbers", np.nan)
    p = cj.Empirical(samples, where=where)
    levels, values = p.known_quantiles()
    for i in range(N):
        n = WHERE[i].sum()
        np.testing.assert_allclose(levels[i, :n], np.arange(1, n + 1) / (n + 1))
        np.testing.assert_array_equal(values[i, :n], np.sort(SAMPLES["numbers"][i, WHERE[i]]))
    assert np.all(np.diff(levels, axis=1) > 0) and np.all(np.asarray(levels) < 1)
    doubled = p.with_quantiles(2 * values)
    np.testing.assert_allclose(doubled.samples[WHERE], 2 * SAMPLES["numbers"][WHERE])
    assert doubled.where is where


@pytest.mark.parametrize(("fair", "words"), [(False, "one member"), (True, "two members")])
def test_a_row_without_members(fair, words):
    where = WHERE.copy()
    where[3] = False
    y, samples = jnp.float32(TARGETS["numbers"]), np.float32(SAMPLES["numbers"])
    p = cj.Empirical(samples, where=where, fair=fair)
    message = f"where must be true for at least {words} of each row; row 3 is "
    check_message(lambda: cj.crps(p, y), ValueError, message)
    scores = jax.jit(lambda w: cj.crps(cj.Empirical(samples, where=w, fair=fair), y))(where)
    np.testing.assert_array_equal(np.isnan(scores), np.arange(N) == 3)
    assert np.isfinite(cj.calibration_test(KEY, p, y, where=np.arange(N) != 3).pvalue)
    where[3, 2] = True
    if fair:
        p = cj.Empirical(samples, where=where, fair=True)
        check_message(
            lambda: cj.crps(p, y),
            ValueError,
            "two members of each row; row 3 is ",
        )


def test_missing_members_without_a_mask():
    samples = np.where(WHERE, SAMPLES["numbers"], np.nan).astype("float32")
    y = jnp.float32(TARGETS["numbers"])
    check_message(lambda: cj.crps(cj.Empirical(samples), y), ValueError, "where=~isnan")
    for where, error in (
        (WHERE * 1.0, TypeError),
        (WHERE[:, 0], ValueError),
        (WHERE[:, :2], ValueError),
    ):
        check_message(
            lambda w=where: cj.crps(cj.Empirical(samples, where=w), y), error, "where must h"
        )


def texts_of(x, where):
    """Members of a file: empty cells, and other words, are missing."""
    words = np.resize(["", "NA", "nan"], x.shape)
    return np.where(where, x.astype(str), words)


def as_csv(path, x, where, y):
    rows = np.column_stack([texts_of(x, where), y.astype(str)])
    header = [f"m_{k}" for k in range(x.shape[1])] + ["y"]
    path.write_text("\n".join(map(",".join, [header, *rows])))
    return path, "m_*"


def as_lists(path, x, where, y):
    """Lists of different lengths, of which one has a null."""
    lists = [x[i, kept].tolist() for i, kept in enumerate(where)]
    lists[0].insert(1, None)
    rows = [{"m": m, "y": float(z)} for m, z in zip(lists, y, strict=True)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path, "m"


def as_frame(_, x, where, y):
    columns = np.where(where, x, np.nan).T
    return pd.DataFrame({f"m_{k}": c for k, c in enumerate(columns)} | {"y": y}), "m_*"


def as_array(_, x, where, y):
    return {"m": np.where(where, x, np.nan), "y": y}, "m"


@pytest.mark.filterwarnings("ignore:.*members are missing")
@pytest.mark.parametrize("door", [as_csv, as_lists, as_frame, as_array])
def test_empty_cells_are_missing_members(door, tmp_path):
    x, y = SAMPLES["numbers"], TARGETS["numbers"]
    table, draws = door(tmp_path / f"x.{'csv' if door is as_csv else 'jsonl'}", x, WHERE, y)
    predictions = cj.read_data(table, target="y", draws=draws).predictions
    for i, kept in enumerate(WHERE):
        found = np.asarray(predictions.samples)[i, np.asarray(predictions.where)[i]]
        np.testing.assert_allclose(found, x[i, kept], rtol=1e-6)
    # A row without a member is missing, as a whole.
    where = WHERE.copy()
    where[4] = False
    table, draws = door(tmp_path / f"x.{'csv' if door is as_csv else 'jsonl'}", x, where, y)
    with pytest.raises(ValueError, match="expected a finite number|expected .*numbers"):
        cj.read_data(table, target="y", draws=draws)
    with pytest.warns(UserWarning, match="5 of 6 rows are used"):
        assert len(cj.read_data(table, target="y", draws=draws, drop_missing=True).targets) == 5


@pytest.mark.filterwarnings("ignore:.*percentages are read as shares", "ignore:.*are missing")
def test_percentages_may_be_missing(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("m_1,m_2,y\n10%,,0.2\n0%,50%,0.1\n")
    predictions = cj.read_data(path, target="y", draws="m_*").predictions
    np.testing.assert_allclose(predictions.samples, [[0.1, 0.1], [0.0, 0.5]])
    np.testing.assert_array_equal(predictions.where, [[True, False], [True, True]])


def test_ensembles_without_missing_members_have_no_mask(tmp_path):
    x, y = SAMPLES["numbers"], TARGETS["numbers"]
    table, draws = as_csv(tmp_path / "x.csv", x, np.ones_like(WHERE), y)
    assert cj.read_data(table, target="y", draws=draws).predictions.where is None


@pytest.mark.parametrize("method", ["shift_scale", "conformal"])
def test_a_map_takes_the_levels_of_each_row(method):
    """A map of rows with missing members is near that of all members, and keeps what is missing."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(0.5, 0.7, (400, 30)).astype("float32"), rng.normal(size=400).astype("float32")
    where = rng.random(x.shape) < 0.8
    some = cj.Empirical(np.where(where, x, np.nan), where=where)
    found = cj.fit_recalibrator(some, y, method=method)(some)
    if method == "shift_scale":
        np.testing.assert_array_equal(found.where, where)
    u = np.asarray(cj.pit(KEY, found, jnp.asarray(y)))
    assert abs(u.mean() - 0.5) < 0.03 and abs(u.std() - 12**-0.5) < 0.03


@pytest.mark.slow
def test_a_monitor_takes_complete_batches_and_others(key):
    rng = np.random.default_rng(5)
    members, targets = rng.normal(size=(2, 40, S)).astype("float32"), rng.normal(size=(2, 40))
    targets = jnp.asarray(targets.astype("float32"))
    where = rng.random((40, S)) < 0.6
    where[:, 1] = True
    complete = cj.CalibrationMonitor.start(key, cj.Empirical(jnp.asarray(members[0])), n_features=4)
    before = complete.update(cj.Empirical(jnp.asarray(members[0])), targets[0])
    some = [
        cj.Empirical(jnp.asarray(np.where(where, members[1], garbage)), where=jnp.asarray(where))
        for garbage in (np.nan, 1e9)
    ]
    after = [before.update(p, targets[1]) for p in some]
    assert float(after[0].log_e_value) == float(after[1].log_e_value) != float(before.log_e_value)
    assert int(after[0].n_rows) == 80
    # Whether the first batch was complete does not matter to a file, nor do masks of ones.
    file = io.BytesIO()
    after[0].save(file)
    file.seek(0)
    loaded = cj.CalibrationMonitor.start(key, some[0], n_features=4).load(file)
    assert float(loaded.log_e_value) == float(after[0].log_e_value)
    ones = cj.Empirical(jnp.asarray(members[0]), where=jnp.ones((40, S), bool))
    again = complete.update(ones, targets[0])
    # Of a logarithm: two programs may round its terms, which add up to nearly 0, in two ways.
    np.testing.assert_allclose(again.log_e_value, before.log_e_value, rtol=1e-5, atol=1e-5)


def test_the_event_of_a_set_of_members_and_target_has_its_share(float64):
    """Given the set, any of its values is the target: the share of the set is the probability."""
    t, bins = 0.2, {"n_bins": 3, "n_resamples": 99}
    ensemble = cj.Empirical(jnp.asarray(np.where(WHERE, SAMPLES["numbers"], np.nan)), where=WHERE)
    y = jnp.asarray(TARGETS["numbers"])
    pool, _ = ensemble.exchangeable_pool(y)
    probabilities = pool.survival(jnp.full(N, t))
    for row in range(N):
        values = np.append(SAMPLES["numbers"][row][WHERE[row]], TARGETS["numbers"][row])
        np.testing.assert_allclose(probabilities[row], np.mean(values > t))
    curve = cj.reliability_curve(KEY, cj.Bernoulli(probabilities), y > t, **bins)
    assert int(jnp.sum(curve.count)) == N


@pytest.mark.slow
def test_how_often_events_of_calibrated_members_leave_the_band():
    n_sets, n = 200, 300

    @jax.jit
    def leaves(keys, width):
        def one(key):
            centre, member, target, lost, test = jax.random.split(key, 5)
            mean = jax.random.normal(centre, (n, 1))
            members = mean + width * jax.random.normal(member, (n, S))
            where = (jax.random.uniform(lost, (n, S)) < 0.7) | (jnp.arange(S)[None] < 1)
            y = mean[:, 0] + jax.random.normal(target, (n,))
            pool, _ = cj.Empirical(members, where=where).exchangeable_pool(y)
            event = cj.Bernoulli(pool.survival(jnp.full(n, 0.5)))
            curve = cj.reliability_curve(test, event, y > 0.5, n_bins=6, n_resamples=199)
            low, high = curve.simultaneous_low, curve.simultaneous_high
            return jnp.any((curve.frequency < low) | (curve.frequency > high))

        return jax.lax.map(one, keys)

    keys = jax.random.split(jax.random.key(8), n_sets)
    shares = [float(jnp.mean(leaves(keys, width))) for width in (1.0, 0.4)]
    assert shares[0] <= 0.05 + 2.5 * (0.05 * 0.95 / n_sets) ** 0.5 and shares[1] > 0.5


def test_missing_members_with_a_bound():
    """Members at the bound stay there, such as dry ones, and missing ones remain missing."""
    rng = np.random.default_rng(0)
    centre = rng.normal(-0.3, 1, 200)
    rain = np.maximum(centre[:, None] + 0.4 + 0.6 * rng.normal(size=(200, S)), 0)
    where = rng.random((200, S)) < 0.8
    where[:, 0] = True
    y = np.maximum(centre + rng.normal(size=200), 0)
    members = cj.Empirical(jnp.asarray(rain), where=jnp.asarray(where))
    found = cj.fit_recalibrator(members, jnp.asarray(y), "shift_scale", lower=0.0)(members)
    assert found.where.dtype == bool and np.array_equal(found.where, where)
    moved = np.asarray(found.samples)[where]
    assert np.all(moved[rain[where] == 0] == 0) and np.all(moved >= 0)
    assert np.mean(moved != rain[where]) > 0.3
