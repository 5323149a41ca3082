"""Simulated forecasts that are wrong for some rows, and p-values of tests of them."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import calibjax as cj

N = 500
N_SAMPLES = 20
TESTS = {
    "covariates": "with covariates",
    "predictions": "without",
    "segments": "`segment_test`, order 2",
}


class Rows(NamedTuple):
    """Forecasts, what happened, and columns ``[n, d]``."""

    predictions: cj.Distribution
    targets: jax.Array
    columns: jax.Array


Case = Callable[[jax.Array], Rows]
#: A change of standard normal errors z, given columns and predicted locations.
Error = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def _interaction(x: jax.Array) -> jax.Array:
    return jnp.sign(x[:, 0] * x[:, 1]) if x.shape[1] > 1 else jnp.zeros(x.shape[0])


ERRORS: dict[str, Error] = {
    "none": lambda z, x, loc: z,
    "bias 0.15 in all rows": lambda z, x, loc: z + 0.15,
    "spread 10 % too small in all rows": lambda z, x, loc: 1.1 * z,
    "bias 0.25 sin(1.5 x1)": lambda z, x, loc: z + 0.25 * jnp.sin(1.5 * x[:, 0]),
    "bias 0.4 where x1 is in its upper 20 %": lambda z, x, loc: z + 0.4 * (x[:, 0] > 0.842),
    "spread exp(0.2 sin(1.5 x1))": lambda z, x, loc: z * jnp.exp(0.2 * jnp.sin(1.5 * x[:, 0])),
    "bias 0.3 sign(x1 x2)": lambda z, x, loc: z + 0.3 * _interaction(x),
    "spread exp(0.2 sign(x1 x2))": lambda z, x, loc: z * jnp.exp(0.2 * _interaction(x)),
    "bias 0.25 sign(predicted mean) x1": lambda z, x, loc: z + 0.25 * jnp.sign(loc) * x[:, 0],
    "0.25 of the mean of all columns": lambda z, x, loc: (
        z + 0.25 * jnp.sum(x, 1) / x.shape[1] ** 0.5
    ),
}


def normal(error: Error, d: int, n: int = N) -> Case:
    """Normal forecasts whose locations and deviations have nothing to do with d normal columns."""

    def draw(key: jax.Array) -> Rows:
        of_x, of_loc, of_scale, of_z = jax.random.split(key, 4)
        x = jax.random.normal(of_x, (n, d))
        loc = jax.random.normal(of_loc, (n,))
        scale = jnp.exp(0.3 * jax.random.normal(of_scale, (n,)))
        z = error(jax.random.normal(of_z, (n,)), x, loc)
        return Rows(cj.Normal(loc, scale), loc + scale * z, x)

    return draw


def events(strength: float, d: int, n: int = N) -> Case:
    """Probabilities of events whose logits lack `strength` times the first of d columns."""

    def draw(key: jax.Array) -> Rows:
        of_x, of_logit, of_y = jax.random.split(key, 3)
        x = jax.random.normal(of_x, (n, d))
        logit = jax.random.normal(of_logit, (n,)) - 1
        targets = jax.random.bernoulli(of_y, jax.nn.sigmoid(logit + strength * x[:, 0]))
        return Rows(cj.Bernoulli(jax.nn.sigmoid(logit)), targets.astype(jnp.int32), x)

    return draw


def simulation(given: str, n: int = N, correlation: float = 0.2) -> Case:
    """theta of the law N(0, 1), an observation x that goes with it, and what is said of theta.

    Args:
        given: "posterior" of theta given x, the "prior", or "samples" of the prior, 20 of each row.
        n: number of rows.
        correlation: of theta and x.
    """
    rest = (1 - correlation**2) ** 0.5

    def draw(key: jax.Array) -> Rows:
        of_theta, of_x, of_samples = jax.random.split(key, 3)
        theta = jax.random.normal(of_theta, (n,))
        x = correlation * theta + rest * jax.random.normal(of_x, (n,))
        predictions: cj.Distribution
        if given == "posterior":
            predictions = cj.Normal(correlation * x, jnp.full(n, rest))
        elif given == "prior":
            predictions = cj.Normal(jnp.zeros(n), jnp.ones(n))
        else:
            predictions = cj.Empirical(jax.random.normal(of_samples, (n, N_SAMPLES)))
        return Rows(predictions, theta, x[:, None])

    return draw


def pvalues(
    case: Case, n_data_sets: int, n_resamples: int, tests: Sequence[str]
) -> dict[str, np.ndarray]:
    """p-values of some `tests`, names in TESTS, of some data sets.

    Outside of jit, so that all cases with one number of columns share what is compiled.
    """
    draw, found = jax.jit(case), dict[str, list[float]]()
    for key in jax.random.split(jax.random.key(0), n_data_sets):
        of_data, of_test = jax.random.split(key)
        predictions, targets, columns = draw(of_data)
        columns = np.asarray(columns)
        test = functools.partial(
            cj.calibration_test, of_test, predictions, targets, n_resamples=n_resamples
        )
        groups = {f"x{j + 1}": x for j, x in enumerate(columns.T)}
        calls = {
            "covariates": functools.partial(test, covariates=columns),
            "predictions": test,
            "segments": functools.partial(
                cj.segment_test, of_test, predictions, targets, groups, n_resamples=n_resamples
            ),
        }
        for name in tests:
            found.setdefault(name, []).append(float(calls[name]().pvalue))
    return {test: np.array(values) for test, values in found.items()}
