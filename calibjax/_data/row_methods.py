"""Methods of a batch of predictions: in one dtype, and of *one* prediction, too."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax

from calibjax._base.struct import batch_of_one, widened, widened_integers
from calibjax._numbers.unit_interval import with_levels

T = TypeVar("T")

#: Methods whose predictions and targets have one dtype: without targets, and of targets.
_WIDENED = (
    *("mean", "variance", "standard_deviation", "location", "spread", "off_mode_probability"),
    *("log_prob", "score", "cdf", "survival", "tails", "cdf_jump", "pit_intervals"),
    *("unit_interval", "unit_box", "crps_closed_form"),
)
#: Methods that see parameters and targets as they are given.
_AS_GIVEN = ("has_stein_identity", "supports", "restricted", "sample")


def _of_batch_or_one(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a batch that also takes one prediction and its target, as a batch of one.

    Parameters and real targets become floating-point numbers of one dtype, at least float32, labels
    and counts integers of at least 32 bits, and a level one number for each prediction.
    """
    name = method.__name__

    @functools.wraps(method)
    def of_batch_or_one(self: Any, *args: Any, **options: Any) -> Any:
        if not self.n_batch_axes:
            # A level, a key and a shape are not those of a row.
            is_given = name in ("quantile", "sample")
            given, named = (args, options) if is_given else batch_of_one((args, options))
            # The axes of `shape` stand in front of the batch.
            shape = options.get("shape", (*args, (), ())[1]) if name == "sample" else ()
            found = of_batch_or_one(batch_of_one(self), *given, **named)
            return jax.tree.map(lambda x: x if isinstance(x, str) else x.squeeze(len(shape)), found)
        if name == "quantile":
            return method(*with_levels(self, *args, **options))
        if name in _WIDENED and self.target_kind == "real":
            self, args, options = widened((self, args, options))
        elif name in _WIDENED:
            self = widened(self)
            args, options = jax.tree.map(widened_integers, (args, options))
        return method(self, *args, **options)

    return of_batch_or_one


def row_methods(cls: type[T]) -> type[T]:
    """Makes methods that a class defines take one prediction, too, and numbers of one dtype."""
    for name in {*_WIDENED, *_AS_GIVEN, "quantile"} & vars(cls).keys():
        setattr(cls, name, _of_batch_or_one(vars(cls)[name]))
    return cls
