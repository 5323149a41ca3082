"""The keys of the parts of an evaluation, from one seed."""

from typing import NamedTuple

import jax


class Keys(NamedTuple):
    """A key for each part that draws; the unused one keeps the others what they were."""

    test: jax.Array
    effect: jax.Array
    measures: jax.Array
    curves: jax.Array
    unused: jax.Array
    neighbours: jax.Array
    segments: jax.Array


def keys_of(seed: int) -> Keys:
    """The keys; each part draws the same numbers, whichever other parts are computed."""
    return Keys(*_split(jax.random.key(seed)))


@jax.jit
def _split(key: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(jax.random.split(key, len(Keys._fields)))
