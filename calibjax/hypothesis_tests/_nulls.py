"""What the tests have in common that can compare a statistic with draws from the model."""

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

import jax

from calibjax._check import check_choice, check_integer, check_key
from calibjax.hypothesis_tests._result import CalibrationTestResult
from calibjax.operators import BlockH, TiledH
from calibjax.resampling import counted_pvalue_with_ties, row_numbers, under_model


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


def redrawn(
    statistic: Callable[[Any], Any], key: jax.Array, h: TiledH | BlockH, n_resamples: int
) -> Any:
    """``statistic(h)`` for n_resamples draws of all targets, and last for the observed ones."""
    predictions, _ = h.samples

    def of_targets(targets: jax.Array) -> Any:
        return statistic(dataclasses.replace(h, samples=(predictions, targets)))

    numbers = row_numbers(h.weights.reshape(-1), h.axis)
    return under_model(of_targets, key, h.samples, numbers, n_resamples)


def ranked(values: jax.Array, estimate: jax.Array, **more: Any) -> CalibrationTestResult:
    """The result for the last of R + 1 values of a statistic, compared with the others."""
    return CalibrationTestResult(
        statistic=values[-1],
        pvalue=counted_pvalue_with_ties(values),
        estimate=estimate,
        null_distribution=values[:-1],
        **more,
    )
