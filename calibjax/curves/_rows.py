"""Rows of curves: binary ones are checked, and each device sees all of them."""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax
from jax.typing import ArrayLike

from calibjax._compile import quick_jit
from calibjax._distribution import Distribution
from calibjax._rows import Data, check_data
from calibjax._sharding import gathered


def check_binary(
    predictions: Distribution,
    targets: ArrayLike,
    where: ArrayLike | None,
    weights: ArrayLike | None = None,
) -> Data:
    """The arguments as `Data`; a TypeError says how predictions of classes become binary ones."""
    if isinstance(predictions, Distribution) and not predictions.is_binary:
        raise TypeError(
            f"predictions must be Bernoulli(probs), got {type(predictions).__name__}; of class "
            "probabilities, top_label(predictions, targets) or one_vs_rest(predictions, targets, "
            "label) makes binary predictions and targets."
        )
    return check_data(predictions, targets, where, weights)


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
