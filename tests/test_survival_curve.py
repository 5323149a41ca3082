"""Survival curves on a grid of times: cells by enumeration, moments and scores by quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import call
from instances import FAMILIES, cast
from marks import fast_in_float64
from messages import check_message
from scipy import integrate, stats

import calibjax as cj
from calibjax.expectations import default_kernels

TIMES = np.array([1.0, 2.0, 4.0])
PROBS = np.array([[0.75, 0.5, 0.25], [1.0, 0.5, 0.5], [0.9, 0.2, 0.0], [0.0, 0.0, 0.0]])
N = len(PROBS)
EVERYWHERE = jax.tree_util.Partial(lambda p, q: jnp.ones(()))
FEATURES = {
    "cosines": cj.PITKernel(EVERYWHERE).unit_feature(),
    "normal scores": cj.PITKernel(EVERYWHERE, np.ones(4), "normal scores").unit_feature(),
}
names = pytest.mark.parametrize("name", FEATURES)


def curves(dtype="float64", probs=PROBS, times=TIMES):
    return cj.SurvivalCurve(jnp.asarray(times, dtype), jnp.asarray(probs, dtype))


def each(time, n=N):
    return np.full(n, float(time))


@fast_in_float64
def test_what_is_said_about_a_target(dtype):
    """By hand: the cell of an event, and what is left after the last time."""
    p, first = curves(dtype), []
    for time in (0.0, 0.3, 1.0, 1.1, 2.0, 3.0, 4.0, 4.1, 99.0):
        low, high = cj.pit_interval(p, each(time).astype(dtype))
        assert low.dtype == dtype
        first.append((float(low[0]), float(high[0])))
    assert first == [*[(0.0, 0.25)] * 3, *[(0.25, 0.5)] * 2, *[(0.5, 0.75)] * 2, *[(0.75, 1.0)] * 2]
    # Censored at the times, between them, where S is linear, and after the last one.
    for time, at in [(0, 0), (1, 0.25), (1.5, 0.375), (3, 0.625), (4, 0.75), (9, 0.75)]:
        low, high = cj.pit_interval(p, cj.IntervalCensored(each(time), each(np.inf)))
        assert (low[0], high[0]) == (at, 1.0)
    ends = [((0.5, 1), (0.125, 0.25)), ((3, 9), (0.625, 1)), ((5, 9), (0.75, 1))]
    for (start, end), expected in [*ends, ((-np.inf, 9), (0, 1)), ((-np.inf, 3), (0, 0.625))]:
        low, high = cj.pit_interval(p, cj.IntervalCensored(each(start), each(end)))
        np.testing.assert_allclose((low[0], high[0]), expected, rtol=1e-6)


def mean_feature(name, predictions, laws, cells):
    """The mean feature ``[n, K]`` of what is seen of cells with probabilities ``[m, n]``."""
    of_rows = jax.jit(FEATURES[name].of_rows)
    features = [of_rows(predictions, x) for x in cells]
    return np.einsum("mn,mnk->nk", laws, np.stack(features))


@names
def test_the_mean_feature_is_0_wherever_in_a_cell_a_target_is(name, float64):
    """Whatever the law in a cell is, and also if all are censored at one of the times."""
    p, edges = curves(), np.array([0.0, *TIMES, 7.0])
    masses = -np.diff(np.pad(PROBS, ((0, 0), (1, 1)), constant_values=((0, 0), (1, 0))))
    for share in (0.01, 0.6, 1.0):
        exact = [each(a + share * (b - a)) for a, b in zip(edges[:-1], edges[1:], strict=True)]
        means = mean_feature(name, p, masses.T, exact)
        np.testing.assert_allclose(means, 0.0, atol=1e-10)
        for k, time in enumerate(TIMES):
            seen = exact[: k + 1] + [cj.IntervalCensored(each(time), each(np.inf))]
            seen = [
                x if isinstance(x, cj.IntervalCensored) else cj.IntervalCensored(x, x) for x in seen
            ]
            law = np.concatenate([masses.T[: k + 1], PROBS.T[k : k + 1]])
            np.testing.assert_allclose(mean_feature(name, p, law, seen), 0.0, atol=1e-10)


@names
def test_censoring_inside_of_a_cell_costs_its_square(name, float64):
    """Of linear curves the mean feature is off by the share of a cell that is censored in it."""
    largest = []
    for k in (8, 16, 32):
        times = np.linspace(0, 1, k + 1)[1:]
        p = cj.SurvivalCurve(times, 1 - 0.9 * times[None])
        errors = []
        for time in times[k // 2] - np.array([0.25, 0.5, 0.75]) / k:
            before = np.append(times[times < time], time)
            law = np.append(0.9 * np.diff(before, prepend=0.0), 1 - 0.9 * time)
            seen = [cj.IntervalCensored(each(t, 1), each(t, 1)) for t in before]
            seen.append(cj.IntervalCensored(each(time, 1), each(np.inf, 1)))
            errors.append(mean_feature(name, p, law[:, None], seen)[0])
        largest.append(np.abs(errors).max(axis=0)[0])
    # phi' a (w - a) / 2 for the cell w and its part a before the censoring time.
    assert 1e-5 < largest[-1] < 1e-3
    np.testing.assert_allclose(np.array(largest[:-1]) / largest[1:], 4.0, rtol=0.2)


def of_linear_curve(row, y):
    """S of a row of PROBS, linear from 1 at 0."""
    return np.interp(y, [0, *TIMES], [1, *PROBS[row]])


def test_moments_and_scores_by_quadrature(float64):
    p, targets = curves(), [each(y) for y in (0.4, 1.0, 3.3, 4.0, 17.0)]
    mean, variance = call(p, "mean"), call(p, "variance")
    scores = [cj.crps(p, y) for y in targets]

    def integral(f, *kinks):
        edges = sorted({0, *TIMES, *(k for k in kinks if k < 4)})
        return sum(
            integrate.fixed_quad(f, a, b, n=8)[0]
            for a, b in zip(edges[:-1], edges[1:], strict=True)
        )

    for row in range(N):
        expected = integral(lambda t, row=row: of_linear_curve(row, t))
        np.testing.assert_allclose(mean[row], expected, rtol=1e-12)
        square = integral(lambda t, row=row: 2 * t * of_linear_curve(row, t))
        np.testing.assert_allclose(variance[row], square - expected**2, rtol=1e-10)
        for y, found in zip(targets, scores, strict=True):
            score = integral(
                lambda t, row=row, y=y[0]: (1 - of_linear_curve(row, t) - (y <= t)) ** 2, y[0]
            )
            np.testing.assert_allclose(found[row], score, rtol=1e-12)
    for y in (np.array([0.0, 1.5, 2.0, 8.0]), np.array([3.0, 0.2, 4.0, 1.0])):
        np.testing.assert_array_equal(cj.crps(p, y), cj.crps(p, np.minimum(y, 4.0)))
    exact = cj.log_score(p, np.array([0.5, 1.5, 3.0, 0.5]))
    np.testing.assert_allclose(exact, -np.log([0.25, 0.5, 0.1, 1.0]))
    assert np.isposinf(cj.log_score(p, each(3.0))[1])  # nothing is in that cell
    for end in (11.0, 12.0, np.inf):
        late = cj.log_score(p, cj.IntervalCensored(each(11.0), each(end)))
        np.testing.assert_allclose(late[:2], -np.log(PROBS[:2, -1]))
        assert np.isposinf(late[2:]).all()


def test_curves_that_begin_at_0(float64):
    """Events at once have a probability, and in place of the density there it is the score."""
    p = cj.SurvivalCurve(np.array([0.0, 2.0]), np.array([[0.9, 0.4], [1.0, 0.4]]))
    np.testing.assert_allclose(cj.pit_interval(p, each(0, 2)), [[0, 0], [0.1, 0]])
    np.testing.assert_allclose(cj.pit_interval(p, each(1, 2)), [[0.1, 0], [0.6, 0.6]])
    np.testing.assert_allclose(cj.log_score(p, each(0, 2)), [-np.log(0.1), np.inf])
    np.testing.assert_allclose(cj.log_score(p, each(1, 2)), -np.log([0.25, 0.3]))
    before, after = call(p, "cdf_jump", each(0, 2))
    np.testing.assert_allclose((before, after), [[0, 0], [0.1, 0]])
    assert np.all(np.asarray(call(p, "quantile", jnp.asarray(0.05))) == [0.0, 0.05 / 0.3])


def test_both_tails_in_float32():
    """The upper tail has all digits, and so have scores of U and of censored targets."""
    probs = np.array([[0.5, 1e-10, 3e-30], [1.0, 0.5, 1e-20]])
    p = curves("float32", probs)
    found = call(p, "survival", np.array([3.0, 4.0], "float32"))
    np.testing.assert_allclose(found, [0.5e-10, 1e-20], rtol=1e-5)
    score = cj.log_score(p, cj.IntervalCensored(each(3.0, 2), each(np.inf, 2)))
    np.testing.assert_allclose(score, -np.log([0.5e-10, 0.25]), rtol=1e-5)
    law = stats.norm
    feature = cj.PITKernel(EVERYWHERE, np.ones(1), "normal scores").unit_feature()
    high, low = law.isf(probs[:, 2]), law.isf(probs[:, 1])
    expected = (law.pdf(low) - law.pdf(high)) / (probs[:, 1] - probs[:, 2])
    found = jax.jit(feature.of_rows)(p, jnp.full(2, 3.5))[:, 0]
    np.testing.assert_allclose(found, expected, rtol=2e-5)


@fast_in_float64
def test_draws_come_from_the_cells(key, dtype):
    p, n_draws = curves(dtype), 20_000
    draws = np.asarray(p.sample(key, (n_draws,)))
    assert draws.dtype == dtype and np.isfinite(draws).all()
    cells = np.sum(draws[..., None] > TIMES, axis=2)
    masses = -np.diff(np.pad(PROBS, ((0, 0), (1, 1)), constant_values=((0, 0), (1, 0))))
    counts = np.stack([np.sum(cells == k, axis=0) for k in range(4)], axis=1)
    errors = np.sqrt(masses * (1 - masses) / n_draws)
    assert np.all(np.abs(counts / n_draws - masses) <= 4 * errors)
    # Even in the cell, and those after the last time are just that.
    assert stats.kstest(draws[cells[:, 0] == 1, 0] - 1, "uniform").pvalue > 1e-3
    late = draws[cells == 3]
    assert np.all(late == np.nextafter(np.asarray(4, dtype), np.inf, dtype=dtype))
    low, high = cj.pit_interval(p[:1], late[:1])
    assert (low[0], high[0]) == (0.75, 1.0)


def test_places_are_drawn_in_the_cells(key):
    n = 4000
    p = cj.SurvivalCurve(jnp.asarray(TIMES), jnp.tile(jnp.asarray(PROBS[:1]), (n, 1)))
    y = np.repeat([0.1, 1.99, 3.0, 9.0], n // 4)
    places = np.asarray(cj.pit(key, p, y))
    np.testing.assert_array_equal(np.floor(4 * places), np.repeat(np.arange(4), n // 4))
    assert stats.kstest(places, "uniform").pvalue > 1e-3


def test_rises_by_rounding():
    rough = np.array([[0.7, 0.7004, 0.2]] * 4, "float32")
    p = curves("float32", rough)
    low, high = cj.pit_interval(p, np.array([0.5, 1.5, 3.0, 9.0], "float32"))
    np.testing.assert_allclose(low, [0, 0.3, 0.3, 0.8], rtol=1e-6)
    np.testing.assert_allclose(high, [0.3, 0.3, 0.8, 1.0], rtol=1e-6)


def mean_probability(p):
    return jnp.mean(p.probs)


@pytest.mark.parametrize("function", ["skce", "log_score", "crps"])
def test_gradients(function, float64):
    p, y = cast(FAMILIES["survival_curve"](8, 0))
    kernel = cj.PITKernel(cj.DistanceKernel(cj.EmbeddingDistance(mean_probability)))
    targets = cj.IntervalCensored(y, jnp.where(jnp.arange(8) % 3 == 0, jnp.inf, y))

    @jax.jit
    def value(times, probs):
        predictions = cj.SurvivalCurve(times, probs)
        if function == "skce":
            return cj.skce(kernel, predictions, targets)
        score = (
            cj.crps(predictions, y) if function == "crps" else cj.log_score(predictions, targets)
        )
        return jnp.sum(score)

    slopes = jax.jit(jax.grad(value, (0, 1)))(p.times, p.probs)
    rng, step = np.random.default_rng(0), 1e-6
    for _ in range(3):
        moves = [rng.normal(size=p.probs.shape) for _ in range(2)]
        up, down = (value(p.times + s * moves[0], p.probs + s * moves[1]) for s in (step, -step))
        found = sum(np.sum(g * d) for g, d in zip(slopes, moves, strict=True))
        np.testing.assert_allclose(found, (up - down) / (2 * step), rtol=1e-6, atol=1e-8)


def test_derivatives_of_certain_curves_are_finite():
    p, kernel = curves("float32"), cj.default_kernel(curves("float32"))

    def total(probs, y):
        q = cj.SurvivalCurve(p.times, probs)
        censored = cj.IntervalCensored(y, jnp.full(N, jnp.inf))
        scores = jnp.where(jnp.isfinite(cj.log_score(q, y)), cj.log_score(q, y), 0.0)
        return cj.skce(kernel, q, censored) + jnp.sum(cj.crps(q, y)) + jnp.sum(scores)

    for y in (0.0, 1.0, 3.0, 4.0, 50.0):
        slopes = jax.jit(jax.grad(total, (0, 1)))(p.probs, jnp.full(N, y))
        assert all(np.isfinite(x).all() for x in slopes)


def test_masks_and_bad_values():
    p, y = cast(FAMILIES["survival_curve"](12, 0), "float32")
    kept = np.arange(12) % 4 != 1
    q = cj.SurvivalCurve(
        jnp.where(kept[:, None], p.times, jnp.nan), jnp.where(kept[:, None], p.probs, 7.0)
    )
    targets = cj.IntervalCensored(jnp.where(kept, y, jnp.nan), jnp.where(kept, y, -3.0))
    kernel = cj.default_kernel(p[kept])
    expected = cj.skce(kernel, p[kept], y[kept])
    for function in (cj.skce, jax.jit(cj.skce)):
        np.testing.assert_allclose(function(kernel, q, targets, where=kept), expected, rtol=1e-4)
    inside = jax.jit(lambda p, y: cj.skce(kernel, p, y))
    np.testing.assert_allclose(inside(p, y), cj.skce(kernel, p, y), rtol=1e-4)
    rising = cj.SurvivalCurve(p.times, p.probs.at[3, 2].set(1.0))
    still = cj.SurvivalCurve(p.times.at[3, 2].set(p.times[3, 1]), p.probs)
    for bad in (rising, still):
        assert np.isnan(inside(bad, y))
    assert np.isnan(inside(p, y.at[2].set(-1.0)))


def test_bad_arguments():
    good, y, one = curves("float32"), np.ones(N, "float32"), PROBS[0]
    times = "times must be nonnegative, finite and increasing, with a positive last one; row 0"
    probs = r"probs must be in \[0, 1\] and nonincreasing along the times, within 0.001; row 0"
    lines = [
        (lambda: cj.SurvivalCurve(TIMES[:2], PROBS), ValueError, r"times .* \[2\] and \[4, 3\]"),
        (lambda: cj.SurvivalCurve(TIMES, PROBS.T), ValueError, r"got shapes \[3\] and \[3, 4\]"),
        (
            lambda: cj.SurvivalCurve(curves("float32").times, PROBS[:2]),
            ValueError,
            r"predictions\[rows\]",
        ),
        (
            lambda: cj.fit_recalibrator(curves("float32"), y, "conformal"),
            TypeError,
            "quantiles for 'conformal', got SurvivalCurve",
        ),
        (lambda: cj.crps(cj.SurvivalCurve(TIMES[::-1], PROBS), y), ValueError, times),
        (lambda: cj.crps(cj.SurvivalCurve(TIMES - 2, PROBS), y), ValueError, times),
        (lambda: cj.crps(cj.SurvivalCurve(TIMES * np.nan, PROBS), y), ValueError, times),
        (lambda: cj.crps(cj.SurvivalCurve(TIMES[:1] * 0, PROBS[:, :1]), y), ValueError, times),
        (lambda: cj.crps(cj.SurvivalCurve(TIMES, 1 - PROBS), y), ValueError, probs),
        (lambda: cj.crps(cj.SurvivalCurve(TIMES, 2 * PROBS), y), ValueError, probs),
        (lambda: cj.crps(cj.SurvivalCurve(TIMES, one), y), ValueError, r"shape \[n, k\]"),
        (lambda: cj.crps(good, -y), ValueError, "targets must be nonnegative and finite; row 0"),
        (
            lambda: cj.crps(cj.SurvivalCurve(list(TIMES), PROBS), y),
            TypeError,
            "times must be an array, got list",
        ),
        (lambda: cj.apply_temperature(good, 2.0), TypeError, "after the last time is not known"),
        (lambda: cj.product_kernel(good), NotImplementedError, "closed form for SurvivalCurve"),
    ]
    for call_, exception, message in lines:
        check_message(call_, exception, message)


def test_units_and_ensembles(float64):
    p, y = cast(FAMILIES["survival_curve"](9, 0))
    expected = cj.skce(cj.default_kernel(p), p, y)
    for unit in (1e-30, 1e30):
        q = cj.SurvivalCurve(unit * p.times, p.probs)
        np.testing.assert_allclose(cj.skce(cj.default_kernel(q), q, unit * y), expected, rtol=1e-6)
    pairs = jnp.stack([p.probs, p.probs**2], axis=1)
    mixture = cj.Mixture.ensemble(cj.SurvivalCurve(TIMES, pairs[:, :, :3]))
    mean = cj.SurvivalCurve(TIMES, pairs[:, :, :3].mean(axis=1))
    for method in ("mean", "variance"):
        np.testing.assert_allclose(call(mixture, method), call(mean, method))
    for method in ("cdf", "survival", "log_prob", "restricted"):
        np.testing.assert_allclose(call(mixture, method, y), call(mean, method, y))
    np.testing.assert_allclose(cj.crps(mixture, y), cj.crps(mean, y), rtol=1e-10)
    # After the last time no more is known of the mixture.
    late = cj.IntervalCensored(each(5, 9), np.where(np.arange(9) > 4, 9.0, 5.0))
    for targets in (late, cj.IntervalCensored(each(3, 9), each(11, 9))):
        found, expected = (cj.pit_interval(x, targets) for x in (mixture, mean))
        np.testing.assert_allclose(found, expected)


class Step:
    """What scikit-survival's StepFunction has: times, values, and a line that both stand for."""

    def __init__(self, x, y, a=1.0, b=0.0):
        self.x, self.y, self.a, self.b = np.asarray(x), np.asarray(y), a, b

    def __call__(self, times):
        return self.a * self.y[np.searchsorted(self.x, times, side="right") - 1] + self.b


class Frame:
    """What lifelines' frame has: times as its index, and a column for each row."""

    def __init__(self, index, values):
        self.index, self.columns, self.values = index, range(values.shape[1]), values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)


def test_curves_of_other_packages():
    steps = [Step(TIMES, row / 2, 2.0) for row in PROBS]
    for found in (
        cj.SurvivalCurve.from_curves(Frame(TIMES, PROBS.T)),
        cj.SurvivalCurve.from_curves(steps),
        cj.SurvivalCurve.from_curves(np.array(steps, dtype=object)),
    ):
        np.testing.assert_allclose(found.probs, PROBS)
        np.testing.assert_allclose(found.times, np.tile(TIMES, (N, 1)))
    for curves_, exception, message in [
        (PROBS, TypeError, "curves must be a frame .* or step functions with times x, got ndarray"),
        (3.0, TypeError, "got float"),
        ([Step(TIMES, PROBS[0]), Step([1.0], [0.5])], ValueError, r"one number .* got \[1, 3\]"),
    ]:
        check_message(lambda c=curves_: cj.SurvivalCurve.from_curves(c), exception, message)


def cox(key, n, n_times, factor=1.0):
    """Cox models at even times, lifetimes that they make `factor` times as long, and censoring."""
    risk = jnp.exp(jax.random.normal(key, (n, 1)))
    times = jnp.asarray(np.linspace(0.0, 2.0, n_times + 1)[1:], jnp.float32)
    predictions = cj.SurvivalCurve(times, jnp.exp(-0.7 * risk * times[None] ** 1.5))
    of_time, of_end = jax.random.split(jax.random.fold_in(key, 1))
    hazard = jax.random.exponential(of_time, (n,)) / (0.7 * risk[:, 0])
    lifetime = factor * hazard ** (1 / 1.5)
    end = 3.0 * jax.random.uniform(of_end, (n,))
    return (
        predictions,
        lifetime,
        cj.IntervalCensored.right_censored(jnp.minimum(lifetime, end), lifetime <= end),
    )


@pytest.mark.parametrize("n_times", [6, 60])
def test_estimates_of_calibrated_curves_are_0_on_average(n_times, key):
    n_sets = 300

    def estimates(key):
        found = []
        for factor in (1.0, 0.7):
            p, lifetime, censored = cox(key, 80, n_times, factor)
            kernel = cj.default_kernel(p)
            found += [cj.skce(kernel, p, lifetime), cj.skce(kernel, p, censored)]
        return jnp.stack(found)

    keys = jax.random.split(key, n_sets)
    found = np.asarray(jax.jit(lambda keys: jax.lax.map(estimates, keys, batch_size=50))(keys))
    means, errors = found.mean(0), found.std(0, ddof=1) / np.sqrt(n_sets)
    print(means, errors)
    assert np.all(np.abs(means[:2]) < 3.5 * errors[:2])
    assert np.all(means[2:] > 10 * errors[2:])


def test_the_test_of_calibration(key):
    p, lifetime, _ = cox(key, 300, 20)
    _, shorter, _ = cox(key, 300, 20, 0.7)
    assert cj.calibration_test(key, p, lifetime).pvalue > 0.05
    assert cj.calibration_test(key, p, shorter).pvalue < 0.01
    assert len(default_kernels(p)) == 9
