"""Outside of jit rows fill a rung up: no number changes, and another n compiles nothing."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax as cj
from calibjax._rows import check_data, first_rows, padded, rung

# Two numbers of rows of the rung 48.
N, OTHER = 45, 47
KEY = jax.random.key(7)


def rows_of(family, n):
    rng = np.random.default_rng(n)
    counts = rng.poisson(3.0, n).astype(np.int32)
    location, z = rng.normal(size=(2, n)).astype(np.float32)
    if family == "labels":
        probs = rng.dirichlet(np.ones(3), n).astype(np.float32)
        return cj.Categorical(probs), rng.integers(0, 3, n).astype(np.int32)
    if family == "events":
        p = rng.uniform(0.05, 0.95, n).astype(np.float32)
        return cj.Bernoulli(p), rng.binomial(1, p).astype(np.int32)
    if family == "counts":
        return cj.Poisson(np.full(n, 3.0, np.float32)), counts
    if family == "quantiles":
        values = location[:, None] + np.array([-1.0, 0.0, 1.0], np.float32)
        # Some targets are quantiles, as the amount of rain may be.
        targets = np.where(counts > 3, values[:, 0], location + z)
        return cj.Quantiles(values, (0.2, 0.5, 0.8)), targets.astype(np.float32)
    return cj.Normal(location, np.full(n, 0.8, np.float32)), location + z


def fitted(predictions, targets):
    return cj.fit_recalibration(cj.affine_scaling, (0.0, 1.0, 0.0), predictions, targets)


def of_predictions(function):
    return lambda predictions, targets: jax.tree.leaves(function(predictions))


SPLITS = cj.MedianVarianceBinning(min_size=5)

# Of each function a family; the tolerance is 0 where no sum is taken over rows.
CASES = {
    "log_score": ("numbers", cj.log_score, 0),
    "crps": ("numbers", cj.crps, 0),
    "crps of counts": ("counts", cj.crps, 0),
    "pit of counts": ("counts", functools.partial(cj.pit, KEY), 0),
    "pit of quantiles": ("quantiles", functools.partial(cj.pit, KEY), 1e-5),
    "top_label": ("labels", cj.top_label, 0),
    "one_vs_rest": ("labels", lambda p, y: cj.one_vs_rest(p, y, 2), 0),
    "ece": ("labels", cj.ece, 1e-5),
    "mce": ("labels", functools.partial(cj.mce, binning=SPLITS), 1e-5),
    "calibration_bins": ("events", cj.calibration_bins, 1e-5),
    "bins by medians": ("labels", functools.partial(cj.calibration_bins, binning=SPLITS), 1e-5),
    "fit_temperature": ("events", cj.fit_temperature, 0),
    "fit_recalibration": ("numbers", fitted, 1e-5),
    "default_kernel": ("numbers", of_predictions(cj.default_kernel), 1e-6),
    "default_kernels": ("labels", of_predictions(cj.default_kernels), 1e-6),
    "calibration_test": (
        "labels",
        lambda p, y: cj.calibration_test(KEY, p, y, n_resamples=99).pvalue,
        0,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_another_number_of_rows(name, caplog):
    family, function, rtol = CASES[name]
    rows = rows_of(family, N)
    found = function(*rows)
    # Inside of jit nothing is filled up.
    for ours, expected in zip(
        *map(jax.tree.leaves, (found, jax.jit(function)(*rows))), strict=True
    ):
        assert ours.shape == expected.shape and ours.dtype == expected.dtype
        np.testing.assert_allclose(ours, expected, rtol=rtol, atol=rtol)
    with jax.log_compiles(), warnings.catch_warnings():
        again = function(*rows_of(family, OTHER))
    assert "Compiling" not in caplog.text
    for ours, other in zip(*map(jax.tree.leaves, (found, again)), strict=True):
        grown = other.shape[0] >= ours.shape[0] if ours.shape else other.shape == ()
        assert grown and other.shape[1:] == ours.shape[1:]


def test_rungs():
    rungs = sorted({rung(n) for n in range(1, 2**14 + 1)})
    assert rungs[:12] == [4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28] and rungs[-1] == 2**14
    assert all(rung(n) == next(x for x in rungs if x >= n) for n in range(1, 300))
    assert max(b / a for a, b in zip(rungs, rungs[1:], strict=False)) == 1.25
    assert rung(2**14 + 1) == 2**14 + 1


def test_what_is_filled_up():
    predictions, targets = rows_of("labels", N)
    targets[0] = -5
    where, weights = np.arange(N) > 0, np.arange(N, dtype=np.float32)
    data = padded(check_data(predictions, targets, where, weights))
    assert data.n == 48 and data.n_kept() == N - 1
    assert not np.any(data.where[N:]) and not data.where[0]
    np.testing.assert_array_equal(data.targets[N:], np.repeat(targets[-1:], 3))
    np.testing.assert_array_equal(first_rows(data.targets, N), targets)
    # A rung has a mask, too, and large data are as they were.
    assert np.all(padded(check_data(*rows_of("numbers", 48))).where)
    assert padded(check_data(*rows_of("events", 2**14 + 1))).where is None


def test_what_is_known_by_draws_is_not_filled_up():
    """Its default kernels draw from all of its rows: their number must be that of the user."""

    def draw(key, loc):
        return loc + jax.random.normal(key)

    predictions = cj.Unnormalized(lambda loc, y: loc - y, np.zeros(N, np.float32), draw)
    data = check_data(predictions, np.zeros(N, np.float32))
    assert padded(data) is data
    assert cj.default_kernel(predictions).prediction_kernel.distance.points.shape == (N,)


def test_keys_and_kernels_may_be_traced_where_rows_are_not():
    rows = rows_of("counts", N)
    keys = jax.random.split(KEY, 2)
    places = jax.vmap(lambda key: cj.pit(key, *rows))(keys)
    np.testing.assert_allclose(places[1], cj.pit(keys[1], *rows), rtol=1e-6)

    def shares(scale):
        kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), scale), cj.WhiteKernel())
        return cj.contributions(kernel, *rows_of("events", N))

    slopes = jax.jacobian(shares)(0.5)
    change = (shares(0.6) - shares(0.4)) / 0.2
    assert slopes.shape == (N,)
    np.testing.assert_allclose(slopes, change, atol=0.1 * np.max(np.abs(change)))


def test_constants_of_a_jit_are_not_filled_up():
    data = check_data(*rows_of("numbers", N))
    assert jax.jit(lambda x: padded(data).n * x)(1) == N


def test_checks_of_values_compile_nothing(caplog):
    families = "labels", "events", "counts", "quantiles", "numbers"
    with jax.log_compiles(), warnings.catch_warnings():
        for family in families:
            check_data(*rows_of(family, 11))
    assert "Compiling" not in caplog.text
    bad = cj.Normal(np.zeros(11, np.float32), np.ones(11, np.float32))
    with pytest.raises(ValueError, match="targets must be finite; row 10 is nan"):
        check_data(bad, jnp.full(11, jnp.nan).at[:10].set(0.0))
