"""Methods of predictions as one program, where outside of jit each operation is one; tiles."""

import contextlib
import functools

import jax
import pytest

from calibjax._pairwise import tiles
from calibjax.operators import gram_matrix


@functools.partial(jax.jit, static_argnums=1)
def call(predictions, method, *arguments):
    """``predictions.method(*arguments)``."""
    return getattr(predictions, method)(*arguments)


@functools.partial(jax.jit, static_argnums=1)
def draw(predictions, n_draws, key):
    """Draws ``[n_draws, n, …]``, and which of them the law can make."""
    draws = predictions.sample(key, (n_draws,))
    supports = jax.vmap(lambda y: predictions.supports(y)[1])
    return draws, supports(draws)


@jax.jit
def moments(predictions):
    """Means and variances."""
    return predictions.mean(), predictions.variance()


@contextlib.contextmanager
def tiles_of(tile, tile_rows):
    """Sums over pairs are traced with values ``tile(parameters, rows, rows)``, in small tiles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "most_tile_rows", lambda: tile_rows)
        patch.setattr(gram_matrix, "h_tile", tile)
        patch.setattr(gram_matrix, "prepared", lambda kernel, samples, axis: samples)
        yield
