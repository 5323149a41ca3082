"""Rows of curves: each device sees all of them."""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

from calibjax._compile import quick_jit
from calibjax._sharding import gathered

P = ParamSpec("P")
Curve = TypeVar("Curve")

_STATIC = {"n_bins", "n_levels", "n_resamples", "law"}


def on_all_rows(core: Callable[P, Curve]) -> Callable[P, Curve]:
    """Decorator: compiles ``core(key, data, …)`` and runs it with all rows on each device."""
    names = [name for name in inspect.signature(core).parameters if name in _STATIC]
    compiled = quick_jit(core, simple_loops=True, static_argnames=names)

    @functools.wraps(core)
    def run(*args: P.args, **options: P.kwargs) -> Curve:
        # The NaN of empty cells is no error.
        with jax.debug_nans(False):
            return compiled(*gathered(args), **options)

    return run
