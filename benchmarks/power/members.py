"""Scenarios with ensembles, of numbers and of vectors: right or wrong in a known way.

Members and targets of a row come from one law with a mean and a deviation of its own.  Errors are
in units of this deviation.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import calibjax as cj
from benchmarks.power.scenario import CALIBRATED, Scenario

#: ``draw(key, shape)`` gives numbers of a law.
Draw = Callable[[jax.Array, tuple[int, ...]], jax.Array]


class Error(NamedTuple):
    """How ensembles are wrong.

    Args:
        width: how wide members are.
        shift: what is added to targets.
        wave: members are exp(wave sin(2 x)) as wide, for a row at x.
        noise, middle: the law of members and targets, and what members are scaled around.
    """

    width: float = 1.0
    shift: float = 0.0
    wave: float = 0.0
    noise: Draw = jax.random.normal
    middle: float = 0.0


def _heavy(key, shape):
    return jax.random.t(key, 2.0, shape)


def _gamma(key, shape):
    return jax.random.gamma(key, 3.0, shape) / 3**0.5


NORMAL = {
    CALIBRATED: Error(),
    "members .85 as wide": Error(0.85),
    "members 1.2 as wide": Error(1.2),
    "shift of .15": Error(shift=0.15),
}
_OTHERS = {
    "t(2)": Error(noise=_heavy),
    "t(2), .8 as wide": Error(0.8, noise=_heavy),
    "t(2), shift of .25": Error(shift=0.25, noise=_heavy),
    "exponential": Error(noise=jax.random.exponential),
    "exponential, .8 as wide": Error(0.8, noise=jax.random.exponential, middle=1.0),
    "exponential, shift of .15": Error(shift=0.15, noise=jax.random.exponential),
}


def _rows(key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
    mean_key, deviation_key = jax.random.split(key)
    deviation = jnp.exp(0.3 * jax.random.normal(deviation_key, (n,)))
    return jax.random.normal(mean_key, (n,)), deviation


def ensembles(size: int, error: Error, missing: float = 0.0, decades: bool = False) -> Scenario:
    """Ensembles of some members, of which a share is missing; with decades, means from .01 to 100.

    Two members are never missing.
    """

    def scenario(key, n):
        keys = jax.random.split(key, 5)
        mean, deviation = _rows(keys[0], n)
        x = mean
        if decades:
            x = jax.random.uniform(keys[0], (n,), minval=-2.0, maxval=2.0)
            mean, deviation = 10.0**x, 10.0**x * jnp.clip(0.2 * deviation, 0.1, 0.3)
        width = error.width * jnp.exp(error.wave * jnp.sin(2 * x))[:, None]
        members = error.middle + width * (error.noise(keys[1], (n, size)) - error.middle)
        targets = mean + deviation * (error.shift + error.noise(keys[2], (n,)))
        where = None
        if missing:
            is_lost = jax.random.bernoulli(keys[3], missing, (n, size))
            where = ~is_lost | (jnp.arange(size) < 2)
        members = mean[:, None] + deviation[:, None] * members
        return cj.Empirical(members, where=where), targets

    return scenario


def law(error: Error) -> Scenario:
    """The same rows, and the normal law of the members in their place."""

    def scenario(key, n):
        mean, deviation = _rows(jax.random.split(key, 5)[0], n)
        _, targets = ensembles(1, error)(key, n)
        return cj.Normal(mean, error.width * deviation), targets

    return scenario


def fitted(size: int, error: Error) -> Scenario:
    """The same rows, and a normal law with the mean and the deviation of the members."""

    def scenario(key, n):
        predictions, targets = ensembles(size, error)(key, n)
        mean, deviation = predictions.mean(), jnp.std(predictions.samples, axis=1, ddof=1)
        return cj.Normal(mean, deviation), targets

    return scenario


class VectorError(NamedTuple):
    """The same of vectors whose coordinates are correlated by 0.3; the last two of the first one.

    Args:
        width: how wide members are.
        correlation: of the coordinates of members.
        shift, narrow: what is added to targets, and how wide members are.
    """

    width: float = 1.0
    correlation: float = 0.3
    shift: float = 0.0
    narrow: float = 1.0


VECTORS = {
    CALIBRATED: VectorError(),
    "members .85 as wide": VectorError(0.85),
    "members uncorrelated": VectorError(correlation=0.0),
    "shift of .2 in one": VectorError(shift=0.2),
    "members .8 as wide in one": VectorError(narrow=0.8),
}


def vectors(size: int, d: int, error: VectorError) -> Scenario:
    def noise(key, shape, correlation):
        own_key, common_key = jax.random.split(key)
        common = jax.random.normal(common_key, (*shape, 1))
        own = jax.random.normal(own_key, (*shape, d))
        return (1 - correlation) ** 0.5 * own + correlation**0.5 * common

    def scenario(key, n):
        keys = jax.random.split(key, 4)
        deviation = _rows(keys[0], n)[1][:, None]
        mean, is_first = jax.random.normal(keys[1], (n, d)), jnp.arange(d) == 0
        width = error.width * jnp.where(is_first, error.narrow, 1.0)
        members = width * noise(keys[2], (n, size), error.correlation)
        targets = error.shift * is_first + noise(keys[3], (n,), 0.3)
        members = mean[:, None] + deviation[:, None] * members
        return cj.Empirical(members), mean + deviation * targets

    return scenario


def _settings() -> dict[str, tuple[str, dict[str, Any]]]:
    found = {}
    for size in (5, 10, 20):
        errors = NORMAL | _OTHERS
        found[f"members_{size}"] = (
            f"Ensembles of {size}",
            {name: ensembles(size, error) for name, error in errors.items()},
        )
    found["members_law"] = (
        "The normal law of the members",
        {name: law(error) for name, error in NORMAL.items()},
    )
    for size in (10, 20, 50):
        found[f"fitted_{size}"] = (
            f"A normal law with the mean and the deviation of {size} members",
            {CALIBRATED: fitted(size, Error())},
        )
    for size, name, error in (
        (6, "members .82 as wide", Error(0.82)),
        (10, "members .86 as wide", Error(0.86)),
        (12, "gamma(3), .8 as wide", Error(0.8, noise=_gamma, middle=3**0.5)),
    ):
        scenarios = {CALIBRATED: ensembles(size, error._replace(width=1.0))}
        found[f"narrow_{size}"] = (
            f"Narrow ensembles of {size}",
            scenarios | {name: ensembles(size, error)},
        )
    for size in (5, 10, 20):
        found[f"missing_{size}"] = (
            f"Ensembles of {size}, 30 % of the members missing",
            {name: ensembles(size, error, missing=0.3) for name, error in NORMAL.items()},
        )
    errors = {
        CALIBRATED: Error(),
        "members .85 as wide": Error(0.85),
        "locally too narrow or too wide": Error(wave=0.3),
    }
    found["members_decades"] = (
        "Ensembles of 10 over four decades",
        {name: ensembles(10, error, decades=True) for name, error in errors.items()},
    )
    for d in (2, 5):
        for size in (10, 20):
            found[f"vectors_{d}_{size}"] = (
                f"Ensembles of {size} vectors of {d} coordinates",
                {name: vectors(size, d, error) for name, error in VECTORS.items()},
            )
    return found


#: The title and the scenarios of each setting.
MEMBERS = _settings()
