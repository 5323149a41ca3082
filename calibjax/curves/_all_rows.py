"""Cores of curves, which see all rows on each device."""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

from calibjax._sharding import gathered

P = ParamSpec("P")
Curve = TypeVar("Curve")

_STATIC = {"n_bins", "n_levels", "n_resamples"}


def on_all_rows(core: Callable[P, Curve]) -> Callable[P, Curve]:
    """Decorator: compiles ``core(key, data, …)`` and runs it with all rows on each device."""
    names = [name for name in inspect.signature(core).parameters if name in _STATIC]
    compiled = jax.jit(core, static_argnames=names)

    @functools.wraps(core)
    def of_gathered(*args: P.args, **options: P.kwargs) -> Curve:
        # The NaN of empty cells is no error.
        with jax.debug_nans(False):
            return compiled(*gathered(args), **options)

    return of_gathered
