"""What the tests have in common that can compare a statistic with draws from the model."""

import dataclasses
from collections.abc import Collection
from typing import Any, TypeVar

import jax

from calibjax._check import check_choice, check_integer, check_key
from calibjax.operators import BlockH, TiledH

AnyH = TypeVar("AnyH", bound=TiledH | BlockH)


def check_null(null: Any, nulls: Collection[str], key: Any, n_resamples: Any) -> int:
    """n_resamples, checked; the null "model" needs a key, and the other nulls draw nothing."""
    check_choice("null", null, nulls)
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    if null == "model" and key is None:
        raise ValueError("key must be given for null='model', which draws targets, got None.")
    if null != "model" and key is not None:
        raise ValueError(f"key must be None for null={null!r}, which draws nothing.")
    if key is not None:
        check_key(key)
    return n_resamples


def with_targets(operator: AnyH, targets: jax.Array) -> AnyH:
    """The operator of other targets for the same predictions."""
    return dataclasses.replace(operator, samples=(operator.samples[0], targets))
