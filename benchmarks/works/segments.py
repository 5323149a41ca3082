"""Simulated forecasts that are wrong for some rows, and p-values of tests that look for these."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr

import calibjax as cj
from calibjax.segments import SegmentSums

Draw = Callable[[jax.Array], tuple[cj.Distribution, jax.Array]]
Groups = Mapping[str, np.ndarray]
#: What the tests are called on the page.
TESTS = {
    "segments": "`segment_test`",
    "bonferroni": "Bonferroni, normal tails",
    "yekutieli": "Benjamini and Yekutieli",
    "loop": "a loop of `calibration_test`",
    "mcgrad": "MCGrad's own p-value",
}
N_CLASSES = 10
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)


class Case(NamedTuple):
    """Data sets of one kind.

    Args:
        draw: predictions and targets of a key.
        groups: columns of the rows.
        options: other arguments of the test.
        planted: conditions of the segments that are wrong; none if the model is calibrated.
    """

    draw: Draw
    groups: Groups
    options: Mapping[str, np.ndarray] = {}
    planted: tuple[Mapping[str, str], ...] = ()


def stations(n: int) -> Groups:
    """Four columns: 126 segments of one and two."""
    rng = np.random.default_rng(n)
    return {
        "station": rng.choice(list("ABCDE"), n),
        "lead": rng.integers(1, 5, n),
        "kind": rng.choice(["rain", "snow", "hail", "fog"], n),
        "height": rng.uniform(0, 1, n),
    }


def cells(n: int) -> Groups:
    """Two columns with 40 pairs of levels."""
    rng = np.random.default_rng(n)
    return {"station": rng.choice(list("ABCDEFGHIJ"), n), "lead": rng.integers(1, 5, n)}


def normal(
    groups: Groups,
    shift: np.ndarray | float = 0.0,
    spread: np.ndarray | float = 1.0,
    share: float = 0.0,
    clusters: np.ndarray | None = None,
) -> Draw:
    """Normal forecasts; errors have a shift and a spread, in predicted deviations, and clusters
    that have a share of the variance in common.
    """
    n = next(iter(groups.values())).size
    units = np.arange(n) if clusters is None else clusters

    def draw(key: jax.Array) -> tuple[cj.Distribution, jax.Array]:
        of_loc, of_scale, of_error, of_units = jax.random.split(key, 4)
        loc = jax.random.normal(of_loc, (n,))
        scale = jnp.exp(0.3 * jax.random.normal(of_scale, (n,)))
        common = jax.random.normal(of_units, (n,))[units]
        own = jax.random.normal(of_error, (n,))
        error = np.sqrt(share) * common + np.sqrt(1 - share) * own
        shifts, spreads = (
            jnp.broadcast_to(jnp.asarray(x, jnp.float32), n) for x in (shift, spread)
        )
        return cj.Normal(loc, scale), loc + scale * (shifts + spreads * error)

    return draw


def events(groups: Groups, middle: float = 0.0, shift: np.ndarray | float = 0.0) -> Draw:
    """Events whose logits are around `middle`; the true ones are higher by `shift`."""
    n = next(iter(groups.values())).size

    def draw(key: jax.Array) -> tuple[cj.Distribution, jax.Array]:
        of_logit, of_target = jax.random.split(key)
        logits = middle + jax.random.normal(of_logit, (n,))
        truth = cj.Bernoulli(jax.nn.sigmoid(logits + jnp.asarray(shift, jnp.float32)))
        return cj.Bernoulli(jax.nn.sigmoid(logits)), truth.sample(of_target)

    return draw


def classes(groups: Groups, temperature: np.ndarray | float = 1.0) -> Draw:
    """Ten classes; the true logits are those of the predictions over the temperature."""
    n = next(iter(groups.values())).size

    def draw(key: jax.Array) -> tuple[cj.Distribution, jax.Array]:
        of_logits, of_target = jax.random.split(key)
        logits = 1.5 * jax.random.normal(of_logits, (n, N_CLASSES))
        scale = jnp.broadcast_to(jnp.asarray(temperature, jnp.float32), n)[:, None]
        return cj.Categorical.from_logits(logits), jax.random.categorical(of_target, logits / scale)

    return draw


def counts(groups: Groups) -> Draw:
    n = next(iter(groups.values())).size

    def draw(key: jax.Array) -> tuple[cj.Distribution, jax.Array]:
        of_rate, of_target = jax.random.split(key)
        rate = jnp.exp(jnp.clip(jax.random.normal(of_rate, (n,)), -2, 2))
        predictions = cj.Poisson(rate, max_count=40)
        return predictions, predictions.sample(of_target)

    return draw


def samples(groups: Groups) -> Draw:
    """Ten draws for each row, exchangeable with the target."""
    n = next(iter(groups.values())).size

    def draw(key: jax.Array) -> tuple[cj.Distribution, jax.Array]:
        of_loc, of_values = jax.random.split(key)
        loc = jax.random.normal(of_loc, (n, 1))
        values = loc + jax.random.normal(of_values, (n, 11))
        return cj.Empirical(values[:, 1:]), values[:, 0]

    return draw


def quantiles(groups: Groups) -> Draw:
    draw_normal = normal(groups)

    def draw(key: jax.Array) -> tuple[cj.Distribution, jax.Array]:
        predictions, targets = draw_normal(key)
        values = jnp.stack([predictions.quantile(jnp.float32(level)) for level in LEVELS], axis=1)
        return cj.Quantiles(values, LEVELS), targets

    return draw


def measured(
    case: Case, n_data_sets: int, n_resamples: int, n_loops: int, seed: int = 0
) -> dict[str, np.ndarray]:
    """p-values of each test, and whether the first segment is a planted one, of each data set.

    Of the first `n_loops` data sets also the least p-value of a loop over levels of one column.
    """

    conditions: list[dict[str, str]] = []

    def of_key(key: jax.Array) -> tuple[jax.Array, SegmentSums]:
        draw_key, test_key = jax.random.split(key)
        result = cj.segment_test(
            test_key, *case.draw(draw_key), case.groups, n_resamples=n_resamples, **case.options
        )
        conditions[:] = map(dict, result.names.conditions)
        return result.pvalue, result.sums

    keys = jax.random.split(jax.random.key(seed), n_data_sets)
    of_keys = jax.jit(lambda keys: jax.lax.map(of_key, keys, batch_size=4))
    pvalues, sums = of_keys(keys)
    scores, is_tested = np.abs(np.asarray(sums.scores)), np.asarray(sums.is_tested)
    z = np.abs(np.asarray(sums.sums)) / np.sqrt(np.where(is_tested, sums.variance, 1.0))
    tails = np.where(is_tested, 2 * np.asarray(ndtr(-z)), 1.0)
    first = scores.reshape(n_data_sets, -1).argmax(axis=1) // scores.shape[2]
    found = {
        "segments": np.asarray(pvalues),
        "bonferroni": np.minimum(tails.min(axis=(1, 2)) * is_tested.sum(axis=(1, 2)), 1.0),
        "yekutieli": np.array([_yekutieli(p[t]) for p, t in zip(tails, is_tested, strict=True)]),
        "first": np.array([conditions[s] in case.planted for s in first]),
    }
    if n_loops:
        found["loop"] = np.array([_loop(case, key, n_resamples) for key in keys[:n_loops]])
    return found


def _yekutieli(pvalues: np.ndarray) -> float:
    """The least p-value adjusted by Benjamini and Yekutieli."""
    ordered, n = np.sort(pvalues), pvalues.size
    ranks = np.arange(1, n + 1)
    return float(min(np.min(ordered * n / ranks * np.sum(1 / ranks)), 1.0))


def _loop(case: Case, key: jax.Array, n_resamples: int) -> float:
    """The least p-value over the levels of each column, each tested by itself."""
    draw_key, test_key = jax.random.split(key)
    predictions, targets = jax.jit(case.draw)(draw_key)
    found = []
    for column in case.groups.values():
        codes = column if np.unique(column).size <= 12 else np.floor(4 * column)
        for level in np.unique(codes):
            mask = jnp.asarray(codes == level)
            test = cj.calibration_test(
                test_key, predictions, targets, where=mask, n_resamples=n_resamples
            )
            found.append(test.pvalue)
    return float(min(map(float, found)))
