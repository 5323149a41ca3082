"""Rows whose targets came although the model gave them the probability 0."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._rows import Data
from calibjax._struct import widest_dtype
from calibjax.evaluation._rows import log_scores, named_rows


@dataclasses.dataclass(frozen=True)
class Impossible:
    """The rows whose targets the model called impossible; one of them may decide a test.

    Args:
        rows: their numbers, from 0.
        pvalue_without: the p-value of `calibration_test` without them; None if all rows were not
            rejected, or too few are left.
    """

    rows: np.ndarray
    pvalue_without: float | None = None


def impossible_rows(data: Data) -> np.ndarray:
    """The kept rows with an infinite log score: of probability 0, or of less than can be held."""
    scores = log_scores(data)
    return np.empty(0, int) if scores is None else np.flatnonzero(np.isposinf(scores))


def in_words(impossible: Impossible, predictions: Any) -> str | None:
    """How many rows there are, which, and what the p-value is without them; None if none."""
    n = len(impossible.rows)
    if n == 0:
        return None
    zero = "probability" if predictions.target_kind == "integer" else "density"
    least = jnp.finfo(widest_dtype(*jax.tree.leaves(predictions))).tiny
    said = (
        f"{n} {'target' if n == 1 else 'targets'} came to which the model gave the {zero} 0 or "
        f"less than {float(least):.2g} ({named_rows(impossible.rows)})"
    )
    if impossible.pvalue_without is None:
        return said
    return f"{said}; without {'it' if n == 1 else 'them'} p = {impossible.pvalue_without:.3g}"
