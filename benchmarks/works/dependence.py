"""Simulated forecasts whose rows depend on each other, and p-values of tests of them."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from jax.scipy.stats import beta

import calibjax as cj

MEMORY = 0.9
N_CLASSES = 10
TESTS = {
    "told": "`calibration_test` with the units",
    "redraws": "without them",
    "thinned": "one row of each unit",
    "POT": "POT",
    "PRIT": "PRIT",
    "PIET": "PIET",
}


class Error(NamedTuple):
    """What is wrong with predictions.

    Args:
        bias: of normal ones, in predicted deviations.
        spread: the true deviation, in predicted ones.
        temperature: by what the logits of classes must be divided.
    """

    bias: float = 0.0
    spread: float = 1.0
    temperature: float = 1.0


class Case(NamedTuple):
    """Rows that depend on each other.

    Args:
        draw: predictions and targets of a key.
        units: the arguments of a test that name the dependence.
        kept: rows that hardly depend on each other, one of each unit.
    """

    draw: Callable[[jax.Array], tuple[Any, jax.Array]]
    units: Mapping[str, Any]
    kept: np.ndarray


def clusters(kind: str, n: int, n_clusters: int, share: float, error: Error | None = None) -> Case:
    """Clusters of equal sizes whose errors have one part in common.

    Args:
        kind: "location", "spread" or "class", what the rows of a cluster have in common.
        n: number of rows.
        n_clusters: how many clusters.
        share: the correlation of the normal variables behind the errors.
        error: what is wrong, if anything is.
    """
    ids = np.arange(n) % n_clusters

    def draw(key: jax.Array) -> tuple[Any, jax.Array]:
        of_x, of_z, of_y, of_others = jax.random.split(key, 4)
        x = _correlated(of_x, ids, 0.5)
        z = _correlated(of_z, ids, share)
        if kind == "location":
            return _normal(x, z, error)
        if kind == "spread":
            sign = jnp.where(jax.random.bernoulli(of_y, 0.5, (n,)), 1.0, -1.0)
            return _normal(x, sign * ndtri(0.5 + ndtr(z) / 2), error)
        logits = jnp.concatenate([x[:, None], jax.random.normal(of_y, (n, N_CLASSES - 1))], axis=1)
        others = jax.random.categorical(of_others, logits[:, 1:]) + 1
        targets = jnp.where(ndtr(z) < jax.nn.softmax(logits)[:, 0], 0, others)
        return cj.Categorical(jax.nn.softmax(logits * (error or Error()).temperature)), targets

    return Case(draw, {"clusters": ids}, np.arange(n_clusters))


def events(expected: float, n: int, n_clusters: int | None = None, share: float = 0.3) -> Case:
    """Probabilities of rare events, of independent rows or of rows in clusters."""
    ids = np.arange(n) % (n_clusters or n)

    def draw(key: jax.Array) -> tuple[Any, jax.Array]:
        of_x, of_z = jax.random.split(key)
        raw = jnp.exp(jax.random.normal(of_x, (n,)))
        probs = jnp.clip(raw * expected / jnp.sum(raw), 0.0, 1.0)
        happened = ndtr(_correlated(of_z, ids, share if n_clusters else 0.0)) < probs
        return cj.Categorical(jnp.stack([1 - probs, probs], axis=-1)), happened.astype(jnp.int32)

    return Case(draw, {"clusters": ids} if n_clusters else {}, np.arange(n_clusters or n))


def ahead(horizon: int, n: int, error: Error | None = None) -> Case:
    """Perfect forecasts of an autoregression, each issued before the last one is verified."""

    def draw(key: jax.Array) -> tuple[Any, jax.Array]:
        start, noise = jax.random.split(key)
        steps = np.sqrt(1 - MEMORY**2) * jax.random.normal(noise, (n + horizon,))
        first = jax.random.normal(start)
        series = jax.lax.scan(lambda x, e: (MEMORY * x + e,) * 2, first, steps)[1]
        mean, sd = MEMORY**horizon * series[:-horizon], np.sqrt(1 - MEMORY ** (2 * horizon))
        return _normal(mean, (series[horizon:] - mean) / sd, error, sd)

    return Case(draw, {"times": np.arange(n), "horizon": horizon}, np.arange(0, n, horizon))


def sums(horizon: int, n: int) -> Case:
    """Forecasts of what comes in so many steps together, issued at every step."""

    def draw(key: jax.Array) -> tuple[Any, jax.Array]:
        of_x, of_z = jax.random.split(key)
        total = jnp.cumsum(jax.random.normal(of_z, (n + horizon,)))
        z = (total[horizon:] - total[:-horizon]) / np.sqrt(horizon)
        return _normal(jax.random.normal(of_x, (n,)), z, None)

    return Case(draw, {"times": np.arange(n), "horizon": horizon}, np.arange(0, n, horizon))


def stations(n_stations: int, n_days: int, horizon: int, share: float) -> Case:
    """Stations under one weather, which lasts for so many days."""
    days = np.repeat(np.arange(n_days), n_stations)

    def draw(key: jax.Array) -> tuple[Any, jax.Array]:
        of_x, of_day, of_z = jax.random.split(key, 3)
        total = jnp.cumsum(jax.random.normal(of_day, (n_days + horizon,)))
        shared = ((total[horizon:] - total[:-horizon]) / np.sqrt(horizon))[days]
        z = np.sqrt(share) * shared + np.sqrt(1 - share) * jax.random.normal(of_z, days.shape)
        return _normal(_correlated(of_x, days, 0.5), z, None)

    kept = np.arange(0, n_days, horizon) * n_stations
    return Case(draw, {"times": days, "horizon": horizon}, kept)


def hub(stretches: int, n_places: int, memory: str, error: Error | None = None) -> Case:
    """Forecasts of places for each week, four weeks ahead, whose errors have a part in common.

    Args:
        stretches: how many horizons the weeks cover.
        n_places: how many places there are.
        memory: of the errors, "moving average" of the four weeks, or "autoregression" with a
            correlation of 0.1 at the horizon.
        error: what is wrong, if anything is.
    """
    n_weeks, horizon, share = 4 * stretches, 4, 0.6
    weeks = np.repeat(np.arange(n_weeks), n_places)

    def series(noise: jax.Array) -> jax.Array:
        if memory == "moving average":
            total = jnp.cumsum(noise, axis=0)
            return (total[horizon:] - total[:-horizon]) / np.sqrt(horizon)
        rho = 0.1 ** (1 / horizon)
        steps = np.sqrt(1 - rho**2) * noise[horizon:]
        return jax.lax.scan(lambda x, e: (rho * x + e,) * 2, noise[0], steps)[1]

    def draw(key: jax.Array) -> tuple[Any, jax.Array]:
        of_x, of_all, of_place = jax.random.split(key, 3)
        common = series(jax.random.normal(of_all, (n_weeks + horizon, 1)))
        own = series(jax.random.normal(of_place, (n_weeks + horizon, n_places)))
        z = (np.sqrt(share) * common + np.sqrt(1 - share) * own).ravel()
        return _normal(jax.random.normal(of_x, weeks.shape), z, error)

    return Case(draw, {"times": weeks, "horizon": horizon}, np.arange(0, weeks.size, 4 * n_places))


#: Members of an ensemble, and levels of quantiles, which predict the same as a normal variable.
_MEMBERS, _LEVELS = 9, np.array([0.025, 0.25, 0.5, 0.75, 0.975])


def hospitals(
    kind: str, sizes: np.ndarray, between: float, ratio: float = 1.0, slope: float = 1.0
) -> Case:
    """Clusters of unequal sizes, whose errors have a part in common.

    Args:
        kind: "numbers", "quantiles", "ensembles", or "events of 2 %" or another share.
        sizes: how many rows each cluster has.
        between: the deviation of what they have in common, of logits or in deviations.
        ratio: of observed to expected events, or the bias of numbers plus 1.
        slope: of true logits.
    """
    ids = np.repeat(np.arange(sizes.size), sizes)

    def draw(key: jax.Array) -> tuple[Any, jax.Array]:
        of_x, of_u, of_y, of_m = jax.random.split(key, 4)
        x, common = jax.random.normal(of_x, ids.shape), jax.random.normal(of_u, sizes.shape)[ids]
        if kind.startswith("events"):
            middle = float(np.log(float(kind.split()[2]) / 100))
            logits = middle + x
            p = jax.nn.sigmoid(logits)
            # The mean over clusters is p, nearly.
            true = jax.nn.sigmoid(middle + slope * x + between * common)
            scale = 1.0
            if between:
                nodes, w = np.polynomial.hermite_e.hermegauss(21)
                means = jax.nn.sigmoid(middle + x[:, None] + between * nodes) @ (w / w.sum())
                scale = p / means
            happened = jax.random.uniform(of_y, ids.shape) < ratio * scale * true
            return cj.Bernoulli(p), happened.astype(jnp.int32)
        own = jax.random.normal(of_y, ids.shape)
        z = (between * common + own) / np.sqrt(1 + between**2) + ratio - 1
        if kind == "numbers":
            return _normal(x, z, None)
        if kind == "quantiles":
            return cj.Quantiles(x[:, None] + ndtri(_LEVELS), tuple(_LEVELS)), x + z
        members = jax.random.normal(of_m, (ids.size, _MEMBERS))
        return cj.Empirical(x[:, None] + members), x + z

    return Case(draw, {"clusters": ids}, np.arange(sizes.size))


def _correlated(key: jax.Array, ids: np.ndarray, share: float) -> jax.Array:
    """Standard normal variables that have the correlation `share` within a cluster."""
    common, own = jax.random.normal(key, (2, ids.size))
    return np.sqrt(share) * common[ids] + np.sqrt(1 - share) * own


def _normal(mean: Any, z: jax.Array, error: Error | None, sd: Any = None) -> tuple[Any, jax.Array]:
    sd = jnp.exp(mean / 3) if sd is None else jnp.full_like(mean, sd)
    bias, spread, _ = error or Error()
    return cj.Normal(mean, sd), mean + sd * (bias + spread * z)


def pot(u: jax.Array) -> jax.Array:
    """Pointwise order tests: the i-th smallest of n uniform numbers is Beta(i, n + 1 - i)."""
    i = jnp.arange(1.0, u.size + 1, dtype=u.dtype)
    return _combined(beta.cdf(jnp.sort(u), i, u.size + 1 - i), is_truncated=True)


def prit(u: jax.Array) -> jax.Array:
    """Pointwise rank tests: the number of values up to u is Binomial(n, u)."""
    u = jnp.sort(u)
    # Of ties, the last one's rank.
    rank = jnp.searchsorted(u, u, side="right").astype(u.dtype)
    below = beta.sf(u, rank, u.size - rank + 1)
    # P(B <= k) = 1 - I_u(k + 1, n - k), of which half of the mass at k is taken away.
    upto = jnp.where(rank < u.size, beta.sf(u, rank + 1, jnp.maximum(u.size - rank, 1.0)), 1.0)
    return _combined((below + upto) / 2, is_truncated=True)


def piet(u: jax.Array) -> jax.Array:
    """Pointwise tests of the values themselves."""
    return _combined(u, is_truncated=False)


def _combined(places: jax.Array, is_truncated: bool) -> jax.Array:
    """The Cauchy combination of two-sided p-values of numbers that are uniform one by one."""
    p = 2 * jnp.minimum(places, 1 - places)
    # Single precision has no tangent next to p = 0.
    terms = 1 / jnp.tan(np.pi * jnp.clip(p, 1e-7, 1 - 1e-7))
    if is_truncated:
        terms = jnp.where(p < 0.5, terms, 0.0)
    return 0.5 - jnp.arctan(jnp.mean(terms)) / np.pi


def of_units(case: Case, n_data_sets: int, n_resamples: int) -> np.ndarray:
    """The p-values of the test with the units, one by one: cases of other sizes share programs."""
    data = jax.jit(jax.vmap(case.draw))(jax.random.split(jax.random.key(0), n_data_sets))
    found = []
    for k in range(n_data_sets):
        predictions, targets = jax.tree.map(lambda x, k=k: x[k], data)
        result = cj.calibration_test(
            jax.random.key(k), predictions, targets, n_resamples=n_resamples, **case.units
        )
        found.append(float(result.pvalue))
    return np.array(found)


def measured(
    case: Case, n_data_sets: int, n_beside: int, n_resamples: int
) -> dict[str, np.ndarray]:
    """The p-values of the test with the units, of all data sets, and of the others, of a few.

    `statistic` is what the test without units compares with that of redrawn targets.
    """
    of_data, of_tests = jax.random.split(jax.random.key(0))
    data = jax.jit(jax.vmap(case.draw))(jax.random.split(of_data, n_data_sets))
    keys = jax.random.split(of_tests, n_data_sets)
    few = jax.tree.map(lambda x: x[:n_beside], (keys, data))
    found = _beside(*few, case.kept, n_resamples=n_resamples)
    if case.units:
        units = {name: x for name, x in case.units.items() if name != "horizon"}
        horizon = case.units.get("horizon")
        found["told"] = _told(keys, data, units, horizon=horizon, n_resamples=n_resamples)
    else:
        found["told"] = found["redraws"]
    return {name: np.asarray(values) for name, values in found.items()}


# The rows are arguments, so that all cases with as many rows are one program.
@functools.partial(jax.jit, static_argnames=("horizon", "n_resamples"))
def _told(keys: Any, data: Any, units: Any, horizon: int | None, n_resamples: int) -> jax.Array:
    options = {"horizon": horizon, **units} if horizon else units

    def pvalue(key_and_data: Any) -> jax.Array:
        key, (predictions, targets) = key_and_data
        return _test(key, predictions, targets, n_resamples, **options).pvalue

    return jax.lax.map(pvalue, (keys, data))


@functools.partial(jax.jit, static_argnames="n_resamples")
def _beside(keys: Any, data: Any, kept: jax.Array, n_resamples: int) -> dict[str, jax.Array]:
    def pvalues(key_and_data: Any) -> dict[str, jax.Array]:
        key, (predictions, targets) = key_and_data
        redraws = _test(key, predictions, targets, n_resamples)
        thinned = _test(key, *jax.tree.map(lambda x: x[kept], (predictions, targets)), n_resamples)
        found = {"redraws": redraws.pvalue, "statistic": redraws.statistic}
        found["thinned"] = thinned.pvalue
        if isinstance(predictions, cj.Normal):
            u = predictions.cdf(targets)
            found |= {"POT": pot(u), "PRIT": prit(u), "PIET": piet(u)}
        return found

    return jax.lax.map(pvalues, (keys, data))


def _test(key: jax.Array, predictions: Any, targets: Any, n_resamples: int, **units: Any) -> Any:
    return cj.calibration_test(key, predictions, targets, n_resamples=n_resamples, **units)
