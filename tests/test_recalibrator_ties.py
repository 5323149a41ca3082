"""Ties of maps that look scores up: equal ones are equal at a fit and where the map is used."""

import itertools

import jax
import numpy as np
import pytest
from marks import slow
from scipy import stats
from sklearn.isotonic import IsotonicRegression

import calibjax as cj

N = 200
RNG = np.random.default_rng(0)
# Of events: what the probability is, as a whole number, and the probability that it stands for.
CODES = {
    "continuous": RNG.permutation(N),
    **{f"votes of {k}": RNG.integers(0, k + 1, N) for k in (5, 7, 10, 100)},
    "saturated": RNG.integers(0, 8, N),
    "equal": np.zeros(N, int),
}
# Beside 1 float32 knows no difference of the last three.
SATURATED = np.array([0.5, 1e-3, 1e-4, 1e-5, 3e-7, 1e-9, 1e-10, 1e-12])


def _rest(kind):
    """The probabilities of no event."""
    codes = CODES[kind]
    if kind == "saturated":
        return SATURATED[codes]
    if kind.startswith("votes"):
        return 1 - codes / int(kind.split()[-1])
    return 1 - (codes + 0.5) / (N if kind == "continuous" else 3)


def _events(codes):
    return (np.random.default_rng(1).random(N) < 0.1 + 0.8 * codes / (1 + codes.max())).astype(int)


def isotonic(codes, happened):
    """Means at tied scores, by scikit-learn on whole numbers."""
    return IsotonicRegression().fit(codes, happened).predict(codes)


def venn_abers(codes, happened):
    """One row more of the same score, once an event and once none."""
    found = np.zeros(len(codes))
    for code in np.unique(codes):
        more = np.append(codes, code)
        p0, p1 = (
            IsotonicRegression().fit(more, np.append(happened, y)).predict([code])[0]
            for y in (0, 1)
        )
        found[codes == code] = p1 / (1 - p0 + p1)
    return found


TYPES = list(itertools.product(("float32", "float64"), repeat=2))
# The dtypes at the fit and at the use, and whether 64 bits are on.
PRECISIONS = slow(
    {(*types, True) for types in TYPES if types != ("float64", "float32")},
    [(*types, x64) for types in TYPES for x64 in (False, True)],
)


@pytest.mark.parametrize(("at_fit", "at_use", "x64"), PRECISIONS)
@pytest.mark.parametrize("kind", CODES)
def test_events_with_equal_probabilities_are_tied(kind, at_fit, at_use, x64):
    codes, rest = CODES[kind], _rest(kind)
    events = _events(codes)
    pair = np.stack([rest, 1 - rest], axis=1)
    # One number near 1 has not the digits of two columns.
    of_one = np.minimum(codes, 5) if kind == "saturated" else codes
    with jax.enable_x64(x64):
        for of, seen in ((lambda p: cj.Bernoulli(p[:, 1]), of_one), (cj.Categorical, codes)):
            for method, expected in (("isotonic", isotonic), ("venn_abers", venn_abers)):
                fit = of(pair.astype(at_fit))
                recalibrated = cj.fit_recalibrator(fit, events, method)(of(pair.astype(at_use)))
                q = np.asarray(recalibrated.label_probabilities(), float)[:, 1]
                right = expected(seen, events)
                if method == "isotonic":
                    right = (1 - 1 / (N + 1)) * right + 0.5 / (N + 1)
                np.testing.assert_allclose(q, right, atol=2e-6, err_msg=f"{method} {of}")


@pytest.mark.parametrize(("at_fit", "at_use", "x64"), PRECISIONS)
@pytest.mark.parametrize(("m", "votes"), [(3, 10), (3, 100), (10, 7)])
def test_classes_with_equal_probabilities_are_tied(m, votes, at_fit, at_use, x64):
    """Whatever the other classes of a row have, zeros included, and in whatever order they come."""
    rng = np.random.default_rng(2)
    codes = rng.multinomial(votes, rng.dirichlet(np.ones(m), N))
    labels = np.array([rng.choice(m, p=p) for p in (codes + 1) / (votes + m)])
    columns = [isotonic(codes[:, k], labels == k) for k in range(m)]
    right = np.stack(columns, axis=1)
    right = (1 - 1 / (N + 1)) * right / right.sum(axis=1, keepdims=True) + 1 / (m * (N + 1))
    # Means of votes, added up one after another, are known up to rounding.
    drawn = np.stack([rng.permuted(np.repeat(np.arange(m), row)) for row in codes])
    probs = np.add.reduce((drawn[:, :, None] == np.arange(m)) / np.float32(votes), axis=1)
    with jax.enable_x64(x64):
        for order in (np.arange(m), np.arange(m)[::-1]):
            fit, use = (cj.Categorical(probs[:, order].astype(x)) for x in (at_fit, at_use))
            recalibrator = cj.fit_recalibrator(fit, np.argsort(order)[labels], "isotonic")
            found = np.asarray(recalibrator(use).probs)
            np.testing.assert_allclose(found, right[:, order], atol=2e-6)


def test_dense_probabilities_are_not_one_tie():
    """5000 floats one after another, each of which is next to the one before."""
    probs = np.float32(0.5) + np.arange(5000, dtype=np.float32) * np.float32(2**-24)
    events = np.arange(5000) // 2500
    (curve, _) = cj.fit_recalibrator(cj.Bernoulli(probs), events, "isotonic").steps
    at = np.interp(probs.astype(float), curve.scores[0], curve.values[0])
    assert np.all(np.abs(np.flatnonzero((at > 0) & (at < 1)) - 2500) < 100)
    assert at[0] == 0 and at[-1] == 1


# Conformal quantiles.  Errors are whole multiples of a step, so that whole numbers say who is tied.

STEPS = np.random.default_rng(3).integers(-6, 7, N)
TENTHS = np.random.default_rng(4).integers(0, 50, N)
OFFSETS = np.array([-1.6, -0.9, -0.4, -0.1, 0.2, 0.5, 0.7, 1.2, 1.9])
ONE = np.ones(N)
FORECASTS = {
    # The location, the step, and the family.
    "normal": (TENTHS, 1.0, lambda x: cj.Normal(x, (2 * ONE).astype(x.dtype))),
    "normal, of tenths": (TENTHS / 10, 0.1, lambda x: cj.Normal(x, (0.2 * ONE).astype(x.dtype))),
    "normal, far from 0": (
        273.15 + TENTHS / 10,
        0.5,
        lambda x: cj.Normal(x, (1.5 * ONE).astype(x.dtype)),
    ),
    "laplace": (TENTHS / 10, 0.3, lambda x: cj.Laplace(x, (0.7 * ONE).astype(x.dtype))),
    "quantiles": (
        TENTHS / 10,
        0.1,
        lambda x: cj.Quantiles(
            (x[:, None] + OFFSETS).astype(x.dtype), tuple(np.arange(1, 10) / 10)
        ),
    ),
    "samples": (TENTHS / 10, 0.1, lambda x: cj.Empirical((x[:, None] + OFFSETS).astype(x.dtype))),
    "log-normal": (0 * ONE, 1.0, lambda x: cj.LogNormal(x, ONE.astype(x.dtype))),
    "gamma": (0 * ONE, 1.0, lambda x: cj.Gamma((x + 2.3).astype(x.dtype), ONE.astype(x.dtype))),
    "poisson": (0 * ONE, 1.0, lambda x: cj.Poisson((x + 4.3).astype(x.dtype), max_count=64)),
}
MIXED = ("normal, of tenths", "normal, far from 0", "quantiles", "poisson")


@pytest.mark.parametrize(
    ("name", "at_fit", "at_use", "x64"),
    [(name, "float32", "float32", False) for name in FORECASTS]
    + slow(
        {(name, *types, True) for name in MIXED[1:] for types in TYPES},
        [(name, *types, True) for name in MIXED for types in TYPES],
    ),
)
def test_conformal_quantiles_have_their_ties(name, at_fit, at_use, x64):
    """How many targets of the fit are at or below, and below, an order statistic of the steps."""
    loc, step, family = FORECASTS[name]
    is_positive = not loc.any()
    codes = np.abs(STEPS) + 1 if is_positive else STEPS
    targets = loc + step * codes
    with jax.enable_x64(x64):
        y = codes if name == "poisson" else targets.astype(at_fit)
        recalibrator = cj.fit_recalibrator(family(loc.astype(at_fit)), y, "conformal")
        recalibrated = recalibrator(family(loc.astype(at_use)))
        if name == "samples":
            levels, values = (
                np.arange(1, 10) / 10,
                np.sort(np.asarray(recalibrated.samples), axis=1),
            )
        else:
            levels, values = np.array(recalibrated.levels), np.asarray(recalibrated.values)
    new = targets.astype(at_use)[:, None]
    ordered = np.sort(codes)
    for k, level in enumerate(levels):
        rank = (N + 1) * level
        if level < 0.5:
            at = ordered[int(np.floor(rank + 1e-9)) - 1]
            assert np.sum(new[:, 0] < values[:, k]) == np.sum(codes < at), level
        else:
            at = ordered[int(np.ceil(rank - 1e-9)) - 1]
            assert np.sum(new[:, 0] <= values[:, k]) == np.sum(codes <= at), level


def test_conformal_guarantee_of_whole_numbers():
    """40 times 2000 new rows: each bound holds within its standard error."""
    n, rng, found = 199, np.random.default_rng(0), []
    for _ in range(40):
        mean = rng.integers(0, 4, n + 2000).astype(np.float32)
        y = np.round(mean + rng.normal(size=n + 2000)).astype(np.float32)
        predictions = cj.Normal(mean, np.ones_like(mean))
        recalibrated = cj.fit_recalibrator(predictions[:n], y[:n], "conformal")(predictions[n:])
        values, levels = np.asarray(recalibrated.values), list(recalibrated.levels)
        low, upper, high = (values[:, levels.index(x)] for x in (0.025, 0.95, 0.975))
        new = y[n:]
        held = (new >= low) & (new <= high)
        found.append([np.mean(x) for x in (new <= upper, new <= high, held)])
    mean, error = np.mean(found, axis=0), np.std(found, axis=0) / 40**0.5
    assert np.all(mean + 2 * error > [0.95, 0.975, 0.95])


@pytest.mark.parametrize(
    ("at_fit", "x64"), [("float32", False), ("float32", True), ("float64", True)]
)
def test_targets_at_a_quantile_are_at_most_it(at_fit, x64):
    """Of even predictions and twentieths, at those levels that are twentieths, too."""
    codes, ones = np.random.default_rng(5).integers(1, 20, N), np.ones(N, at_fit)
    with jax.enable_x64(x64):
        targets = (codes / 20).astype(at_fit)
        predictions = cj.as_predictions(stats.uniform(np.zeros(N), ones))
        (line,) = cj.fit_recalibrator(predictions, targets, "pit_isotonic").steps
    levels = np.array(line.levels)
    share = np.mean(codes[:, None] <= np.round(20 * levels, 9), axis=0)
    # As the docstring says, one row more is even; and values are apart.
    np.testing.assert_allclose(line.probabilities, (N * share + levels) / (N + 1), atol=4e-4)


@pytest.mark.parametrize("form", ["quantiles", "members"])
def test_counts_come_back_whole(form):
    """Poisson forecasts that are too narrow are recalibrated to whole numbers."""
    rng, levels = np.random.default_rng(0), np.array([0.1, 0.25, 0.5, 0.75, 0.9])
    rate = np.exp(rng.normal(1.0, 0.7, 600))
    counts = stats.poisson.ppf(levels, rate[:, None])
    narrow = np.round(rate[:, None] + 0.4 * (counts - rate[:, None]))
    y = rng.poisson(rate).astype(float)
    given = cj.Quantiles(narrow, tuple(levels)) if form == "quantiles" else cj.Empirical(narrow)
    recalibrator = cj.fit_recalibrator(given, y, "shift_scale")
    found = recalibrator(given)
    values = np.asarray(found.values if form == "quantiles" else found.samples)
    assert np.array_equal(values, np.round(values)) and np.any(values != narrow)
    assert "recalibrated values are whole numbers" in str(recalibrator)
    halves = y + 0.5
    between = cj.fit_recalibrator(given, halves, "shift_scale")
    assert "whole" not in str(between)
