"""Outside of jit rows fill a bucket: another number of rows compiles nothing.

The results are those of the rows as they are, which is what a user's jit sees.
"""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import cast
from marks import slow

import calibjax as cj
from calibjax._base.compile import bucket, first_rows
from calibjax._data.data import as_data
from calibjax._data.padding import padded
from calibjax.hypothesis_tests._block import check_complete_blocks

RNG = np.random.default_rng
KEY = jax.random.key(1)
# Two numbers of rows of one bucket.
FIRST, OTHER, RUNG = 47, 45, 48
R = {"n_resamples": 99}
KERNEL = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), np.float32(0.4)), cj.WhiteKernel())
LOCATIONS = cj.Bernoulli(jnp.array([0.2, 0.8], jnp.float32)), jnp.array([1, 0])
SPLITS = cj.MedianVarianceBinning(min_size=5)


def events(n):
    probs = RNG(0).uniform(size=FIRST)
    targets = RNG(1).uniform(size=FIRST) < probs**2
    return cast((cj.Bernoulli(probs[:n]), targets[:n].astype(np.int32)), "float32")


def labels(n):
    probs, targets = RNG(0).dirichlet(np.ones(3), FIRST), RNG(1).integers(3, size=FIRST)
    return cast((cj.Categorical(probs[:n]), targets[:n].astype(np.int32)), "float32")


def numbers(n):
    loc = RNG(0).normal(size=FIRST)
    predictions = cj.Normal(loc[:n], np.full(n, 0.8))
    return cast((predictions, (loc + RNG(1).normal(size=FIRST))[:n]), "float32")


def counts(n):
    rate = RNG(0).uniform(0.5, 4.0, FIRST)
    return cast((cj.Poisson(rate[:n], max_count=32), RNG(1).poisson(rate)[:n]), "float32")


def quantiles(n):
    values = np.sort(RNG(0).normal(size=(FIRST, 3)), axis=1)
    # Some targets are quantiles, as the amount of rain may be: their places are chosen.
    targets = np.where(RNG(1).poisson(3.0, FIRST) > 3, values[:, 1], 0.3)
    return cast((cj.Quantiles(values[:n], (0.1, 0.5, 0.9)), targets[:n]), "float32")


def models(n):
    predictions, targets = events(n)
    others = [cj.Bernoulli(RNG(seed).uniform(size=n).astype(np.float32)) for seed in (5, 6)]
    return [predictions, *others], targets


FAMILIES = events, labels, numbers, counts, quantiles


def asymptotic(method):
    return lambda p, y: cj.asymptotic_skce_test(KEY, KERNEL, p, y, method=method, **R)


def leaves_of(function):
    """What a function makes of predictions alone."""
    return lambda p, y: jax.tree.leaves(function(p))


def calibration_test(p, y):
    return cj.calibration_test(KEY, p, y, **R)


def segment_test(p, y):
    groups = {"side": np.arange(y.shape[0]) % 2, "third": np.arange(y.shape[0]) % 3}
    found = cj.segment_test(KEY, p, y, groups, **R)
    return found.statistic, found.pvalue, found.null_distribution, found.sums


def covariates(p, y):
    columns = {"age": RNG(2).uniform(size=FIRST), "side": np.arange(FIRST) % 2 == 0}
    known = {name: column[: y.shape[0]] for name, column in columns.items()}
    found = cj.calibration_test(KEY, p, y, covariates=known, **R)
    return found.statistic, found.pvalue, found.null_distribution


CURVES = {
    "segment_test": segment_test,
    "pit_curve": lambda p, y: cj.pit_curve(KEY, p, y, n_bins=10, **R),
    "coverage_curve": lambda p, y: cj.coverage_curve(KEY, p, y, n_levels=5, **R),
    "residual_map": lambda p, y: cj.residual_map(KEY, p, y, n_bins=2, **R),
    "calibration_test": calibration_test,
}
CALLS = {
    events: {
        "calibration_test": calibration_test,
        "segment_test": segment_test,
        "covariates": covariates,
        "landmarks": lambda p, y: cj.aggregated_skce_test(KEY, [KERNEL], p, y, n_cells=46, **R),
        **{
            method: asymptotic(method)
            for method in ("bootstrap", "wild", "gamma", "pearson", "spectrum", "features")
        },
        "blocks": lambda p, y: cj.asymptotic_block_skce_test(KERNEL, p, y, block_size=4),
        "bound": lambda p, y: cj.distribution_free_skce_test(KERNEL, p, y),
        "cme": lambda p, y: cj.asymptotic_cme_test(KERNEL, p, y, *LOCATIONS),
        "locations": lambda p, y: cj.sample_test_locations(KEY, p, 3),
        "state": lambda p, y: cj.SKCEState.empty(4).update(KERNEL, p, y),
        "interval": lambda p, y: cj.skce_confidence_interval(KEY, KERNEL, p, y, **R),
        "equivalent_temperature": lambda p, y: cj.equivalent_temperature(KEY, KERNEL, p, y, **R),
        "contributions": lambda p, y: cj.contributions(KERNEL, p, y),
        "reliability_curve": lambda p, y: cj.reliability_curve(KEY, p, y, n_bins=3, **R),
        "witness_map": lambda p, y: cj.witness_map(KEY, p, y, n_bins=3, **R),
        "smooth_ece": cj.smooth_ece,
        "calibration_bins": cj.calibration_bins,
        "fit_temperature": cj.fit_temperature,
    },
    models: {
        "comparison": lambda models, y: cj.compare_calibration(
            KEY, KERNEL, models[0], models[1:], y, **R
        )
    },
    labels: {
        "top_label": cj.top_label,
        "one_vs_rest": lambda p, y: cj.one_vs_rest(p, y, 2),
        "ece": cj.ece,
        "mce": functools.partial(cj.mce, binning=SPLITS),
        "bins by medians": functools.partial(cj.calibration_bins, binning=SPLITS),
        "default_kernels": leaves_of(cj.default_kernels),
        "pvalue": lambda p, y: calibration_test(p, y).pvalue,
    },
    numbers: {
        "log_score": cj.log_score,
        "crps": cj.crps,
        "default_kernel": leaves_of(cj.default_kernel),
        **CURVES,
    },
    counts: {"crps": cj.crps, "pit": functools.partial(cj.pit, KEY), **CURVES},
    quantiles: {"pit": functools.partial(cj.pit, KEY), **CURVES},
}
CASES = {
    f"{family.__name__}, {name}": (family, call)
    for family, calls in CALLS.items()
    for name, call in calls.items()
}
# The relative tolerance where it is not 1e-4: 0 where no sum is taken over rows.
RTOL = {
    **dict.fromkeys(["numbers, log_score", "numbers, crps", "counts, crps", "counts, pit"], 0),
    **dict.fromkeys(["labels, top_label", "labels, one_vs_rest", "labels, pvalue"], 0),
    **dict.fromkeys(["events, fit_temperature"], 0),
    **dict.fromkeys(["numbers, default_kernel", "labels, default_kernels"], 1e-6),
    **dict.fromkeys(["labels, ece", "labels, mce", "labels, bins by medians"], 1e-5),
    **dict.fromkeys(["events, calibration_bins"], 1e-5),
    "quantiles, pit": 1e-5,
}
# Others of their kind are fast.
SLOW = {f"{family.__name__}, {name}" for family in (counts, quantiles) for name in CURVES}
SLOW |= {f"events, {name}" for name in ("features", "pearson", "cme, model", "blocks, model")}
SLOW |= {"events, interval", "events, landmarks", "events, covariates"}
SLOW |= {"numbers, segment_test"}
SLOW |= {"numbers, calibration_test", "numbers, coverage_curve", "numbers, pit_curve"}
SLOW |= {f"events, {name}" for name in ("calibration_test", "distribution free, model")}
SLOW |= {f"events, {name}" for name in ("wild", "gamma", "spectrum", "witness_map")}
SLOW |= {"events, equivalent_temperature", "labels, mce"}


@pytest.mark.parametrize("name", slow(SLOW, CASES))
def test_another_number_of_rows(name, caplog):
    family, call = CASES[name]
    jax.block_until_ready(call(*family(FIRST)))
    rows = family(OTHER)
    caplog.clear()
    with jax.log_compiles(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = call(*rows)
    assert "Compiling" not in caplog.text and "XLA compilation" not in caplog.text
    assert_same(found, jax.jit(call)(*rows), RTOL.get(name, 1e-4))


def thrice(call):
    """A call with three times as many rows of numbers: maps of each forecast need a hundred."""
    return lambda p, y: call(cj.Normal(np.tile(p.loc, 3), np.tile(p.scale, 3)), np.tile(y, 3))


def cross_fit(method):
    return lambda p, y: cj.cross_fit(p, y, method)


def after_a_fit(method):
    """What a map makes of some rows, whatever their number."""
    fitted = functools.cache(lambda family: cj.fit_recalibrator(*family(FIRST), method))
    families = {cj.Bernoulli: events, cj.Categorical: labels, cj.Normal: numbers}
    return lambda p, y: fitted(families[type(p)])(p)


def monitor(p, y):
    monitor = cj.CalibrationMonitor.start(KEY, jax.tree.map(lambda x: np.asarray(x)[:20], p))
    return monitor.update(p, y).log_e_value


def evaluation(**options):
    return lambda p, y: str(cj.evaluate(cj.Data(p, y), **options))


# Calls that are made outside of jit alone.
OUTSIDE = {
    events: {
        "cross_fit": cross_fit("auto"),
        "a map": after_a_fit("spline"),
        "decompose_score": cj.decompose_score,
        "brier": lambda p, y: cj.decompose_score(p, y, score="brier"),
        "corp_curve": lambda p, y: cj.corp_curve(p, y, key=KEY, **R),
        "monitor": monitor,
        "evaluate": evaluation(),
        "html": lambda p, y: cj.evaluate(cj.Data(p, y)).to_html(),
    },
    labels: {
        "cross_fit": cross_fit("auto"),
        "a map": after_a_fit("sms"),
        "monitor": monitor,
        "evaluate": evaluation(),
    },
    numbers: {
        "cross_fit": cross_fit("auto"),
        "conditional": thrice(cross_fit("conditional")),
        "conformal": cross_fit("conformal"),
        "a map": after_a_fit("pit_beta"),
        "apply_temperature": lambda p, y: cj.apply_temperature(p, 2.0),
        "decompose_score": cj.decompose_score,
        "monitor": monitor,
        "evaluate": evaluation(),
    },
    counts: {"cross_fit": cross_fit("auto"), "monitor": monitor, "evaluate": evaluation()},
    quantiles: {"cross_fit": cross_fit("auto"), "monitor": monitor, "evaluate": evaluation()},
}
CASES_OUTSIDE = {
    f"{family.__name__}, {name}": (family, call)
    for family, calls in OUTSIDE.items()
    for name, call in calls.items()
}
FAST_OUTSIDE = "a map", "brier", "corp_curve", "apply_temperature"
SLOW_OUTSIDE = {x for x in CASES_OUTSIDE if not x.endswith(FAST_OUTSIDE)}


@pytest.mark.parametrize("name", slow(SLOW_OUTSIDE, CASES_OUTSIDE))
def test_another_number_of_rows_outside_of_jit(name, caplog):
    family, call = CASES_OUTSIDE[name]
    call(*family(FIRST))
    rows = family(OTHER)
    caplog.clear()
    with jax.log_compiles(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call(*rows)
    assert "Compiling" not in caplog.text and "XLA compilation" not in caplog.text


def assert_same(found, expected, rtol=1e-4):
    """But for rounding; p-values are multiples of 1 / 100, and whole numbers are equal."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        # A number of Python has no dtype before jit.
        ours = np.asarray(ours, theirs.dtype if isinstance(ours, float) else None)
        theirs = np.asarray(theirs)
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        if ours.dtype.kind == "f":
            size = np.max(np.abs(theirs), initial=0, where=np.isfinite(theirs))
            np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=min(rtol, 1e-5) * size)
        else:
            np.testing.assert_array_equal(ours, theirs)


def test_a_mask_remains():
    predictions, targets = events(OTHER)
    where = jnp.arange(OTHER) % 15 != 2
    data = padded(as_data(predictions, targets, where=where))
    assert bucket(OTHER) == bucket(FIRST) == bucket(int(where.sum())) == data.n == RUNG
    assert data.where.sum() == where.sum()
    kept = jax.tree.map(lambda x: x[where], (predictions, targets))
    masked = cj.calibration_test(KEY, predictions, targets, where=where, **R)
    assert_same(masked.null_distribution, calibration_test(*kept).null_distribution)


def test_buckets():
    buckets = sorted({bucket(n) for n in range(1, 2**14 + 1)})
    assert buckets[:5] == [4, 6, 8, 12, 16] and buckets[14:19] == [512, 768, 1024, 1280, 1536]
    assert buckets[-1] == 2**14
    assert all(bucket(n) == next(x for x in buckets if x >= n) for n in range(1, 300))
    few, many = buckets[1:17], buckets[16:]
    assert max(b / a for a, b in zip(few, few[1:], strict=False)) == 1.5
    assert max(b / a for a, b in zip(many, many[1:], strict=False)) == 1.25
    assert bucket(2**14 + 1) == 2**14 + 1


def test_what_is_filled_up():
    predictions, targets = labels(OTHER)
    targets = np.array(targets)
    targets[0] = -5
    where, weights = np.arange(OTHER) > 0, np.arange(OTHER, dtype=np.float32)
    data = padded(as_data(predictions, targets, where=where, weights=weights))
    assert data.n == RUNG and data.n_kept() == OTHER - 1
    assert not np.any(data.where[OTHER:]) and not data.where[0]
    np.testing.assert_array_equal(data.targets[OTHER:], np.repeat(targets[-1:], RUNG - OTHER))
    # What was masked may be anything, and is what a kept row is.
    targets[0] = targets[1]
    np.testing.assert_array_equal(first_rows(data.targets, OTHER), targets)
    # A bucket has a mask, too, and large data are as they were.
    whole = cj.Normal(np.zeros(RUNG, np.float32), 1.0)
    assert np.all(padded(as_data(whole, np.zeros(RUNG, np.float32))).where)
    large = cj.Bernoulli(np.full(2**14 + 1, 0.5, np.float32))
    assert padded(as_data(large, np.zeros(2**14 + 1, np.int32))).where is None


def test_what_is_known_by_draws_is_not_filled_up():
    """Its default kernels draw from all of its rows: their number must be that of the user."""

    def draw(key, loc):
        return loc + jax.random.normal(key)

    predictions = cj.Unnormalized(lambda loc, y: loc - y, np.zeros(OTHER, np.float32), draw)
    data = as_data(predictions, np.zeros(OTHER, np.float32))
    assert padded(data) is data
    assert cj.default_kernel(predictions).prediction_kernel.distance.points.shape == (OTHER,)


def test_keys_and_kernels_may_be_traced_where_rows_are_not():
    rows = counts(OTHER)
    keys = jax.random.split(KEY, 2)
    places = jax.vmap(lambda key: cj.pit(key, *rows))(keys)
    np.testing.assert_allclose(places[1], cj.pit(keys[1], *rows), rtol=1e-6)

    def shares(scale):
        kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), scale), cj.WhiteKernel())
        return cj.contributions(kernel, *events(OTHER))

    slopes = jax.jacobian(shares)(0.5)
    change = (shares(0.6) - shares(0.4)) / 0.2
    assert slopes.shape == (OTHER,)
    np.testing.assert_allclose(slopes, change, atol=0.1 * np.max(np.abs(change)))


def test_constants_of_a_jit_are_not_filled_up():
    data = as_data(*numbers(OTHER))
    assert jax.jit(lambda x: padded(data).n * x)(1) == OTHER


def test_checks_of_values_compile_nothing(caplog):
    rows = [jax.tree.map(np.asarray, family(11)) for family in FAMILIES]
    with jax.log_compiles(), warnings.catch_warnings():
        for data in rows:
            as_data(*data)
    assert "Compiling" not in caplog.text
    bad = cj.Normal(np.zeros(11, np.float32), np.ones(11, np.float32))
    with pytest.raises(ValueError, match="targets must be finite; row 10 is nan"):
        as_data(bad, jnp.full(11, jnp.nan).at[:10].set(0.0))


def test_a_check_of_masked_blocks_compiles_nothing(caplog):
    predictions, targets = events(OTHER)
    where = np.arange(OTHER) % 15 != 2
    data = as_data(predictions, targets, where=jnp.asarray(where))
    with jax.log_compiles(), warnings.catch_warnings():
        with pytest.raises(ValueError, match="at least 9 complete blocks of 5 rows, got 6"):
            check_complete_blocks(data, 5, at_least=9)
    assert "Compiling" not in caplog.text
