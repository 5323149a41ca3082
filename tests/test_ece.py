"""Binned calibration errors: other implementations, published numbers, masks, transformations."""

import functools
import heapq

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow
from messages import calls, check_message
from sklearn.calibration import calibration_curve

import calibjax as cj
from calibjax import MedianVarianceBinning, UniformBinning, ece, mce

# The definitions, in Python.


def uniform_bins(probs, n_bins):
    """Rows by the tuple of their intervals: 0 is in the first, others are closed on the right.

    Of two classes the second one counts alone.
    """
    ends = [k * (1 / n_bins) for k in range(1, n_bins)]
    bins = {}
    for i, p in enumerate(probs):
        p = p[1:] if len(p) == 2 else p
        bins.setdefault(tuple(sum(x > end for end in ends) for x in p), []).append(i)
    return list(bins.values())


def median_variance_bins(probs, min_size, max_bins=np.inf):
    """With a queue of sets, that of the largest variance first."""
    queue, final, n_bins = [], [], 1

    def push(members):
        if len(members) < 2 * min_size:
            final.append(members)
            return
        variances = np.var(probs[members], axis=0, ddof=1)
        # Classes that agree to rounding are equal.
        first = int(np.argmax(np.isclose(variances, max(variances), rtol=1e-10)))
        heapq.heappush(queue, (-max(variances), members, first))

    push(list(range(len(probs))))
    while queue and n_bins < max_bins:
        _, members, c = heapq.heappop(queue)
        cut = sorted(probs[members, c])[len(members) // 2]
        sides = (
            [i for i in members if probs[i, c] < cut],
            [i for i in members if probs[i, c] >= cut],
        )
        if min(map(len, sides)) < min_size:
            final.append(members)
        else:
            n_bins += 1
            for side in sides:
                push(side)
    return final + [members for _, members, _ in queue]


DISTANCES = {
    "total_variation": lambda p, f: np.sum(np.abs(p - f)) / 2,
    "euclidean": lambda p, f: np.sqrt(np.sum((p - f) ** 2)),
    "squared_euclidean": lambda p, f: np.sum((p - f) ** 2),
    "kullback_leibler": lambda p, f: sum(b * np.log(b / a) for a, b in zip(p, f, strict=True) if b),
}


def errors(bins, probs, targets, distance):
    """ECE and MCE."""
    onehot = np.eye(probs.shape[1])[targets]
    each = [distance(probs[b].mean(axis=0), onehot[b].mean(axis=0)) for b in bins]
    return sum(len(b) / len(probs) * e for b, e in zip(bins, each, strict=True)), max(each)


@jax.jit
def jitted_bins(binning, probs, where):
    return binning.bins(probs, where)


def partition(binning, probs, where=None):
    """The set of bins, each the set of its rows."""
    where = np.ones(len(probs), bool) if where is None else where
    numbers = np.array(jitted_bins(binning, jnp.asarray(probs), jnp.asarray(where)))
    assert numbers.dtype == np.int32
    assert 0 <= numbers.min() <= numbers.max() < binning.capacity(*probs.shape)
    return as_sets(np.flatnonzero(where & (numbers == b)) for b in set(numbers))


def as_sets(bins):
    return {frozenset(map(int, b)) for b in bins if len(b)}


def data(n, m, seed=0, steps=None, alpha=0.3):
    """Random predictions and targets; multiples of 1/steps have ties and stand on edges."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(m, alpha), n)
    if steps:
        probs = rng.multinomial(steps, probs) / steps
    return probs, rng.integers(m, size=n).astype("int32")


# Bins.


@pytest.mark.parametrize(
    ("n", "m", "steps", "n_bins"),
    [(120, 2, None, 1000), (120, 3, 20, 10), (121, 3, 20, 1), (121, 4, None, 3), (121, 10, 10, 10)],
)
def test_uniform_bins(n, m, steps, n_bins, float64):
    probs, _ = data(n, m, steps=steps)
    assert partition(UniformBinning(n_bins), probs) == as_sets(uniform_bins(probs, n_bins))


@pytest.mark.parametrize(
    ("n", "m", "steps", "min_size", "max_bins"),
    [
        (120, 2, None, 1, None),
        (120, 3, 20, 1, None),
        (120, 3, 20, 5, None),
        (121, 4, None, 5, 7),
        (121, 10, 10, 4, None),
        (121, 10, 10, 3, 8),
        (121, 4, None, 61, None),
        (121, 4, None, 3, 1),
    ],
)
def test_median_variance_bins(n, m, steps, min_size, max_bins, float64):
    probs, _ = data(n, m, steps=steps)
    binning, options = MedianVarianceBinning(min_size, max_bins), (min_size, max_bins or n)
    expected = as_sets(median_variance_bins(probs, *options))
    assert partition(binning, probs) == expected
    assert min(map(len, expected)) >= min_size and len(expected) <= options[1]
    where = np.random.default_rng(1).random(n) < 0.8
    rows = np.flatnonzero(where)
    expected = as_sets(rows[b] for b in median_variance_bins(probs[where], *options))
    assert partition(binning, probs, where) == expected


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_bins", [2, 7, 10, 100])
def test_edges(n_bins, dtype):
    """On the ends of the intervals, beside them, and of votes: one rule for all that has bins."""
    ends = np.linspace(0, 1, n_bins + 1).astype(dtype)
    beside = [np.nextafter(ends, np.array(x, dtype)) for x in (0, 1)]
    p = np.concatenate([ends, *beside, np.arange(101, dtype=dtype) / np.array(100, dtype)])
    # In one shape.
    p = np.resize(p, 404)
    y = np.random.default_rng(n_bins).integers(0, 2, p.size)
    with jax.enable_x64(dtype == "float64"):
        binning = UniformBinning(n_bins)
        np.testing.assert_array_equal(jax.jit(lambda: binning.edges(dtype))(), ends)
        found = {
            "event": ece(cj.Bernoulli(p), y, binning=binning),
            "two classes": ece(cj.Categorical(np.stack([1 - p, p], axis=1)), y, binning=binning),
        }
        worst = mce(cj.Bernoulli(p), y, binning=binning)
        bins = cj.calibration_bins(cj.Bernoulli(p), y, binning=binning)
        n_filled = int(np.sum(bins.count > 0))
        intervals = np.asarray(jax.jit(binning.intervals)(p))
    # By hand: the first interval that ends at p or later.
    by_hand = np.array([next(k for k, end in enumerate(ends[1:]) if x <= end) for x in p])
    np.testing.assert_array_equal(intervals, by_hand)
    numbers, counts = np.unique(by_hand, return_counts=True)
    p, at = p.astype(float), [by_hand == k for k in numbers]
    gaps = np.array([abs(np.sum(y[rows] - p[rows])) for rows in at])
    tolerance = {"rtol": 1e-5 if dtype == "float32" else 1e-12}
    for name, value in found.items():
        np.testing.assert_allclose(value, gaps.sum() / p.size, err_msg=name, **tolerance)
    np.testing.assert_allclose(worst, np.max(gaps / counts), **tolerance)
    np.testing.assert_array_equal(bins.count[:n_filled], counts)
    if dtype == "float64":
        # scikit-learn has the ends in float64.
        frequency, prediction = calibration_curve(y, p, n_bins=n_bins)
        np.testing.assert_allclose(bins.frequency[:n_filled], frequency, **tolerance)
        np.testing.assert_allclose(bins.prediction[:n_filled], prediction, **tolerance)


def test_events_on_an_end():
    # Each p was in two bins: its own, and that of 1 - p.
    p, y = np.repeat([0.19, 0.2, 0.21], 40), np.zeros(120, int)
    y[:16] = y[80:96] = 1
    for predictions in (cj.Bernoulli(p), cj.Categorical(np.stack([1 - p, p], axis=1))):
        np.testing.assert_allclose(ece(predictions, y), abs(16 - 0.39 * 40) / 120 + 7.6 / 120)


P3 = np.array([[0.4, 0.1, 0.5], [0.5, 0.3, 0.2], [0.3, 0.7, 0]])
P5 = np.concatenate([P3, [[0.1, 0, 0.9], [0.8, 0.1, 0.1]]])
SINGLES = [[0], [1], [2], [3], [4]]
# CalibrationErrors.jl, test/binning: rows counted from 0.
PUBLISHED_BINS = [
    (MedianVarianceBinning(1), P3, SINGLES[:3]),
    (MedianVarianceBinning(2), P3, [[0, 1, 2]]),
    (MedianVarianceBinning(1), P5, SINGLES),
    (MedianVarianceBinning(2), P5, [[2, 4], [0, 1, 3]]),
    (MedianVarianceBinning(3), P5, [[0, 1, 2, 3, 4]]),
    (UniformBinning(2), P3, [[2], [0, 1]]),
    (UniformBinning(1), P3, [[0, 1, 2]]),
    (UniformBinning(3), P5, SINGLES),
    (UniformBinning(2), P5, [[3], [2], [0, 1], [4]]),
    (UniformBinning(1), P5, [[0, 1, 2, 3, 4]]),
]


@pytest.mark.parametrize(("binning", "probs", "bins"), PUBLISHED_BINS)
def test_published_bins(binning, probs, bins, float64):
    # In one shape: the rows of P3 are the first ones of P5.
    assert partition(binning, P5, np.arange(5) < len(probs)) == as_sets(bins)


def test_variances_of_samples(float64):
    # With a divisor of n the second of {0, 1} and {2, 3, 4} would vary more.
    p = np.array([0, 0.1414, 0.7078, 0.8, 0.8922])
    probs = np.stack([p, 1 - p], axis=1)
    assert partition(MedianVarianceBinning(1, 3), probs) == as_sets([[0], [1], [2, 3, 4]])


# Estimates.

OPTIONS = {
    **{name: {"binning": UniformBinning(3), "distance": name} for name in DISTANCES},
    "dynamic bins": {"binning": MedianVarianceBinning(7), "distance": "euclidean"},
}


def test_estimates_and_their_gradients_with_bins_held_fixed(float64):
    probs, targets = data(120, 3, alpha=2.0)
    direction = np.random.default_rng(1).normal(size=probs.shape)

    @jax.jit
    def along(step):
        """For each option, ECE + MCE on the way, with the two of them, and its derivative."""

        def estimates(step, options):
            predictions = cj.Categorical(probs + step * direction)
            both = ece(predictions, targets, **options), mce(predictions, targets, **options)
            return sum(both), both

        estimates = jax.value_and_grad(estimates, has_aux=True)
        return {name: estimates(step, options) for name, options in OPTIONS.items()}

    # No prediction changes its bin on the way.
    step = 1e-7
    here, ahead, behind = along(0.0), along(step), along(-step)
    for name, options in OPTIONS.items():
        dynamic = name == "dynamic bins"
        bins = median_variance_bins(probs, 7) if dynamic else uniform_bins(probs, 3)
        expected = errors(bins, probs, targets, DISTANCES[options["distance"]])
        (_, found), slope = here[name]
        assert found[0].dtype == jnp.float64
        np.testing.assert_allclose(found, expected, rtol=1e-12, err_msg=name)
        difference = (ahead[name][0][0] - behind[name][0][0]) / (2 * step)
        assert abs(difference) > 1e-3, name
        np.testing.assert_allclose(slope, difference, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", slow(OPTIONS.keys() - {"total_variation"}, OPTIONS))
def test_estimates_outside_of_jit(name, float64):
    probs, targets = data(120, 3, alpha=2.0)
    bins = median_variance_bins(probs, 7) if name == "dynamic bins" else uniform_bins(probs, 3)
    expected = errors(bins, probs, targets, DISTANCES[OPTIONS[name]["distance"]])
    found = [f(cj.Categorical(probs), targets, **OPTIONS[name]) for f in (ece, mce)]
    assert found[0].dtype == jnp.float64
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_distance_of_ones_own(float64):
    probs, targets = data(120, 3, alpha=2.0)

    def chi_squared(scale, p, f):
        return scale * jnp.sum(jnp.square(p - f) / p)  # does not exist for an empty bin

    def estimate(scale, distance):
        return ece(cj.Categorical(probs), targets, distance=distance(scale))

    expected, _ = errors(
        uniform_bins(probs, 10), probs, targets, lambda p, f: np.sum((p - f) ** 2 / p)
    )
    for distance in (
        lambda scale: jax.tree_util.Partial(chi_squared, scale),
        lambda scale: lambda p, f: chi_squared(scale, p, f),
    ):
        found = jax.value_and_grad(estimate)(2.0, distance)
        np.testing.assert_allclose(found, [2 * expected, expected], rtol=1e-12)


def test_zero(float64):
    # CalibrationErrors.jl, test/ece.jl.
    predictions = cj.Categorical(jnp.array([[0, 1], [0.5, 0.5], [0.5, 0.5], [1, 0]]))
    assert ece(predictions, jnp.array([1, 1, 0, 0])) == 0
    assert mce(cj.Bernoulli(jnp.array([0, 0.5, 0.5, 1])), jnp.array([0, 0, 1, 1])) == 0
    assert ece(predictions, jnp.array([0, 1, 0, 1])) == 0.5


# Widmann et al., NeurIPS 2019: 10 uniform bins, median variance bins of 100.
CIFAR10 = {
    "densenet121": (0.06607267260685921, 0.029532869835646354),
    "mobilenet_v2": (0.08683923462654226, 0.03456354253906284),
    "resnet18": (0.07488154767161395, 0.03644622574154899),
}


@pytest.mark.parametrize("network", slow(CIFAR10.keys() - {"densenet121"}, CIFAR10))
def test_cifar10(network, reference_folder, float64):
    with np.load(reference_folder / "data" / "cifar10_predictions.npz") as cifar10:
        predictions, targets = cj.Categorical(cifar10[network]), cifar10["labels"]
    found = [
        ece(predictions, targets, binning=b) for b in (UniformBinning(), MedianVarianceBinning(100))
    ]
    np.testing.assert_allclose(found, CIFAR10[network], rtol=1e-13)


# The same: the mean over simulated data sets of n = 250, predictions from Dir(alpha, …, alpha), a
# share of the targets is of class 0 and not of the model. With the default bins, and those of 5.
ESTIMATES = "uniform", "median_variance"
SIMULATED = [
    (10, 0.1, 0.0, 0.439519, 0.25243),
    (10, 0.1, 0.5, 0.663308, 0.526699),
    (2, 1.0, 0.0, 0.0629297, 0.113385),
    (2, 0.1, 0.25, 0.138294, 0.137812),
]


@pytest.mark.parametrize(
    ("m", "alpha", "share", *ESTIMATES), slow(set(SIMULATED) - {SIMULATED[3]}, SIMULATED)
)
def test_published_means(m, alpha, share, uniform, median_variance):
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(m, alpha), (300, 250))
    above = rng.random((300, 250, 1)) > np.cumsum(probs, axis=2)
    targets = np.where(rng.random((300, 250)) < share, 0, above[..., :-1].sum(axis=2))
    draws = np.array(many(jnp.asarray(probs, "float32"), jnp.asarray(targets, "int32")))
    errors = draws.std(axis=1) / np.sqrt(300)
    assert np.all(errors < 0.003)
    assert np.all(np.abs(draws.mean(axis=1) - [uniform, median_variance]) < 4 * errors)


@jax.jit
@jax.vmap
def many(probs, targets):
    predictions = cj.Categorical(probs)
    dynamic = ece(predictions, targets, binning=MedianVarianceBinning(5))
    return ece(predictions, targets), dynamic


# Families, masks, precision, transformations.

every_binning = pytest.mark.parametrize("binning", [UniformBinning(3), MedianVarianceBinning(7)])


@every_binning
def test_bernoulli_is_two_classes(binning):
    probs, targets = data(120, 2)
    p = jnp.asarray(probs[:, 1], "float32")
    pair = cj.Bernoulli(p), cj.Categorical(jnp.stack([1 - p, p], axis=1))
    one, other = (ece(predictions, targets, binning=binning) for predictions in pair)
    assert one == other and one > 0.1


@pytest.mark.parametrize(
    "binning", [pytest.param(UniformBinning(3), marks=pytest.mark.slow), MedianVarianceBinning(7)]
)
def test_masked_rows_are_absent(binning, float64):
    probs, targets = data(120, 3)
    where = np.random.default_rng(1).random(120) < 0.8
    where[0] = False
    holes = np.where(where[:, None], probs, np.nan), np.where(where, targets, -1), where

    def both(probs, targets, where=None):
        options = {"binning": binning, "where": where}
        return jnp.stack([f(cj.Categorical(probs), targets, **options) for f in (ece, mce)])

    def with_gradients(*rows):
        return jax.jit(lambda *rows: (both(*rows), jax.jacrev(both)(*rows)))(*rows)

    expected, expected_gradient = with_gradients(probs[where], targets[where])
    found, gradient = with_gradients(*holes)
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    np.testing.assert_allclose(gradient[:, where], expected_gradient, atol=1e-15)
    assert np.all(gradient[:, ~where] == 0)
    np.testing.assert_allclose(both(*map(jnp.asarray, holes)), expected, rtol=1e-13)


@every_binning
def test_jit_and_vmap(binning, float64):
    batches = [data(16, 2, seed) for seed in range(3)]

    def estimate(probs, targets):
        return ece(cj.Categorical(probs), targets, binning=binning)

    loop = [estimate(*batch) for batch in batches]
    stacked = [jnp.stack(x) for x in zip(*batches, strict=True)]
    np.testing.assert_allclose(jax.jit(jax.vmap(estimate))(*stacked), loop, rtol=1e-13)


def test_gradient_where_the_error_is_0():
    # And with classes of probability 0 that never came.
    probs = np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]], "float32")

    def loss(probs, distance):
        return ece(cj.Categorical(probs), np.array([0, 1, 2]), distance=distance)

    @jax.jit
    def values_and_gradients(probs):
        return {name: jax.value_and_grad(loss)(probs, name) for name in DISTANCES}

    for name, (value, gradient) in values_and_gradients(probs).items():
        assert value == 0 and np.all(np.isfinite(gradient)), name


def test_many_equal_predictions():
    # One after the other, their sum in float32 would be wrong by 0.7 percent.
    n = 2**18
    predictions = cj.Bernoulli(jnp.full(n, 0.9, "float32"))
    value = ece(predictions, jnp.arange(n) % 10 > 0)
    assert abs(value) < 1e-5


def test_half_precision():
    probs, targets = data(120, 3, steps=16)
    half = ece(cj.Categorical(jnp.asarray(probs, "bfloat16")), targets)
    assert half.dtype == jnp.float32
    assert half == ece(cj.Categorical(jnp.asarray(probs, "float32")), targets)


def test_bad_values_inside_jit_give_nan():
    probs, targets = (jnp.array(x) for x in data(12, 3))
    probs = probs.astype("float32")
    where = jnp.arange(12) < 5

    @functools.partial(jax.jit, static_argnums=3)
    def estimates(probs, targets, where, min_size):
        binning = MedianVarianceBinning(min_size)
        options = {"binning": binning, "where": where, "distance": "kullback_leibler"}
        return jnp.stack([f(cj.Categorical(probs), targets, **options) for f in (ece, mce)])

    assert jnp.all(jnp.isfinite(estimates(probs, targets, where, 5)))
    assert jnp.all(jnp.isnan(estimates(probs, targets, where, 6)))  # of 5
    assert jnp.all(jnp.isnan(estimates(probs, targets.at[1].set(3), where, 5)))
    assert jnp.all(jnp.isnan(estimates(probs.at[1].set(jnp.nan), targets, where, 5)))
    assert ece(cj.Categorical(probs), targets, where=where) > 0
    none = jax.jit(lambda where: ece(cj.Categorical(probs), targets, where=where))
    assert none(where & False) == 0


# Bad arguments: a call, the exception, the parts of its message.

CLASSES = cj.Categorical(np.full((6, 4), 0.25, "float32"))
LABELS = np.zeros(6, "int32")
NORMAL = cj.Normal(jnp.ones(6), jnp.ones(6))

BAD = {
    TypeError: {
        r"predictions must be .*Bernoulli\(probs\), or a Mixture of these, got an array": lambda: (
            ece(CLASSES.probs, LABELS)
        ),
        "predictions must be Cat.*got Normal": lambda: mce(NORMAL, LABELS),
        "binning must be UniformBinning.n_bins. or MedianVarianceBinning.*, got int": lambda: ece(
            CLASSES, LABELS, binning=10
        ),
        "binning must be .*got type": lambda: mce(CLASSES, LABELS, binning=UniformBinning),
        "distance must be one of .* or a callable, got int": lambda: ece(
            CLASSES, LABELS, distance=1
        ),
        "n_bins must be .*got float": lambda: UniformBinning(2.5),
    },
    ValueError: {
        "targets must be labels.*row 0 is 4": lambda: ece(CLASSES, LABELS + 4),
        r"where must have shape \[n\] with n = 6 .*got shape \[7\]": lambda: ece(
            CLASSES, LABELS, where=np.ones(7, bool)
        ),
        "predictions must hold at least min_size = 7 rows, got 6": lambda: ece(
            CLASSES, LABELS, binning=MedianVarianceBinning(7)
        ),
        "predictions must hold at least min_size = 6 rows, got 5": lambda: ece(
            CLASSES, LABELS, binning=MedianVarianceBinning(6), where=np.arange(6) < 5
        ),
        "distance must be one of total_variation, euclidean, .*, got 'tv'": lambda: ece(
            CLASSES, LABELS, distance="tv"
        ),
        r"distance must return a scalar, got shape \[4\]": lambda: ece(
            CLASSES, LABELS, distance=lambda p, f: p - f
        ),
        "n_bins must be between 1 and .*, got 0": lambda: UniformBinning(0),
        "min_size must be at least 1, got 0": lambda: MedianVarianceBinning(0),
        "max_bins must be at least 1, got 0": lambda: MedianVarianceBinning(max_bins=0),
    },
}


@pytest.mark.parametrize("case", calls(BAD))
def test_message(case):
    check_message(*case)
