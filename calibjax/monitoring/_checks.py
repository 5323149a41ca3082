"""Checks of what a monitor is given."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._distribution import Distribution
from calibjax._parameters import family_name, row_shapes
from calibjax._rows import Data
from calibjax._struct import is_traced
from calibjax.kernels import KernelLike


def checked_list(kernels: Sequence[KernelLike]) -> Sequence[KernelLike]:
    if not isinstance(kernels, Sequence) or not kernels:
        actual = "none" if isinstance(kernels, Sequence) else type(kernels).__name__
        raise TypeError(f"kernels must be a list of kernels on predictions, got {actual}.")
    return kernels


def check_level(level: ArrayLike) -> None:
    if not is_traced(level):
        given = np.asarray(level)
        if not np.all((given > 0) & (given < 1)):
            raise ValueError(f"level must be in (0, 1), got {level}.")


def check_family(landmarks: Distribution, data: Data) -> None:
    seen: list[tuple[str, list[list[int]]]] = []

    def look(p: Distribution, y: jax.Array) -> None:
        pooled = p.pool_target(y)[0].without_marks()
        seen.append((family_name(pooled), row_shapes(pooled)))

    jax.eval_shape(look, data.predictions, jax.tree.map(jnp.asarray, data.targets))
    expected, ours = family_name(landmarks), row_shapes(landmarks)
    ((actual, theirs),) = seen
    if actual != expected:
        raise TypeError(f"predictions must be of the family {expected} of start, got {actual}.")
    if ours != theirs:
        raise ValueError(
            f"predictions must have the shapes that start has seen, but for the number of rows, "
            f"{ours}, got {theirs}."
        )


def not_counted(data: Data, has_place: np.ndarray) -> ValueError:
    """The error for a batch whose evidence is NaN, though its values are valid."""
    if has_place.all():
        return ValueError("predictions are too extreme for the kernels of the monitor: NaN.")
    row = int(np.argmin(has_place))
    prediction, target = jax.tree.map(lambda x: np.asarray(x[row]).tolist(), data.samples)
    return ValueError(
        "predictions must have a cdf or a log density at their targets; in "
        f"{jnp.result_type(*jax.tree.leaves(data.predictions))} it is NaN for "
        f"{np.sum(~has_place)} of {data.n} rows, such as row {row}, "
        f"{jax.tree.leaves(prediction)} with the target {jax.tree.leaves(target)}.  Mask "
        "such rows with where, or compute in float64."
    )
