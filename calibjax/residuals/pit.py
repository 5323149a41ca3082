"""Residuals that are functions of mean 0 of the PIT of a target, and draws of PITs."""

import dataclasses
import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from calibjax._base.sharding import Axis
from calibjax._base.struct import PyTree, rows_of, static, struct, widest_dtype
from calibjax._data.capabilities import exchangeable_pool, pit_ends
from calibjax._data.distribution import Distribution, Labels
from calibjax._data.interval_censored import unit_interval
from calibjax._numbers.arithmetic import fast_where
from calibjax._numbers.unit_interval import UnitInterval, cell_of_line, cells_of_line, interval
from calibjax.kernels.base import KernelLike, Sample
from calibjax.kernels.pit import UnitFeature, pooled
from calibjax.residuals.base import FiniteResidual, Prepared

# The number of even quantiles that stand for a distribution of real numbers.
_LEVELS = 32


class Hidden(NamedTuple):
    """What would be known of a draw that is hidden as its row is.

    Args:
        interval: where U lies if the draw is hidden, ``[n]``.
        contains: which draws are hidden, ``[n, D]``; U of the others is known.
    """

    interval: UnitInterval
    contains: jax.Array


class DrawnPIT(NamedTuple):
    """Where U = F(y) lies for the observed targets, and for draws of them under H0.

    Args:
        observed: the intervals of the observed targets, ``[n]``.
        drawn: U and 1 - U of the draws, both ``[n, D]``, or their intervals.
        hidden: which draws are hidden; None if none is.
    """

    observed: UnitInterval
    drawn: tuple[jax.Array, jax.Array] | UnitInterval
    hidden: Hidden | None = None

    def values(
        self,
        of_intervals: Callable[[UnitInterval], jax.Array],
        of_points: Callable[[jax.Array, jax.Array], jax.Array],
    ) -> jax.Array:
        """Functions of the unit line for the observed targets and all draws, ``[n, 1 + D, M]``."""
        observed = of_intervals(self.observed)[:, None]
        if isinstance(self.drawn, UnitInterval):
            drawn = of_intervals(self.drawn)
        else:
            drawn = of_points(*self.drawn)
        if self.hidden is not None:
            of_hidden = of_intervals(self.hidden.interval)[:, None]
            drawn = fast_where(self.hidden.contains[..., None], of_hidden, drawn)
        return jnp.concatenate([observed, drawn], axis=1)


def of_intervals(
    predictions: Distribution,
    intervals: UnitInterval,
    function: Callable[[UnitInterval], jax.Array],
) -> jax.Array:
    """A function of where PITs lie; looked up, if it is long, where rows share all ends."""
    ends = pit_ends(predictions)
    if ends is None or ends.size**2 > intervals.low.size:
        return function(intervals)
    between = ((ends[1:] + ends[:-1]) / 2).tolist()
    first, last = (cell_of_line(x, x, between) for x in intervals[:2])
    # XLA would compute a table of constants while it compiles, in seconds.
    low, high = lax.optimization_barrier(
        [
            jnp.asarray(x.ravel(), intervals.low.dtype)
            for x in np.meshgrid(ends, ends, indexing="ij")
        ]
    )
    return rows_of(function(interval(low, high)), first * ends.size + last)


@struct
class PITResidual(FiniteResidual):
    """phibar(y | p), the means of functions of U = F_p(y): its mean is 0.

    Args:
        feature: phibar.
        table: its means over the cells of the line, which stand for it, ``[cells, M]``; or None.
        ends: those of these cells, if they are not those of `cells_of_line`.
    """

    feature: UnitFeature
    table: jax.Array | None = None
    ends: tuple[float, ...] = static(default=())

    @property
    def is_of_pit(self) -> bool:
        return self.feature.is_of_pit

    def pooled(self, a: Sample) -> Sample:
        return pooled(a)

    def of_one(self, a: Sample) -> jax.Array:
        return self.feature(*a)

    def of_rows(self, rows: Sample) -> jax.Array:
        return self.feature.of_rows(*rows)

    def prepare(self, prediction_kernel: KernelLike, rows: Sample, axis: Axis) -> Prepared:
        return super().prepare(prediction_kernel, exchangeable_pool(*rows), axis)

    def means_under(self, predictions: Distribution, others: Distribution) -> jax.Array:
        """The means over even quantiles of other predictions, or over their labels."""
        if isinstance(predictions, Labels):
            return super().means_under(predictions, others)
        if predictions.target_kind == "integer":
            raise NotImplementedError(
                "equivalent_temperature of counts has no PITKernel; use product_kernel, got "
                f"{type(predictions).__name__}."
            )
        levels = (np.arange(_LEVELS) + 0.5) / _LEVELS
        of_levels = lax.map(
            lambda u: self.of_rows((predictions, others.quantile(u))),
            jnp.asarray(levels, widest_dtype(*jax.tree.leaves(predictions))),
        )
        return jnp.mean(of_levels, axis=0)

    def n_numbers(self, predictions: Distribution, targets: PyTree) -> int:
        if predictions.target_shape != "n":
            return super().n_numbers(predictions, targets)
        return len(self.feature.orders)

    def in_pit_cells(self, ends: tuple[float, ...], dtype: DTypeLike) -> "PITResidual":
        cells = lax.optimization_barrier(cells_of_line(dtype, ends))
        return PITResidual(self.feature, self.feature.of_intervals(cells), ends)

    def values(
        self,
        predictions: Distribution,
        targets: jax.Array | UnitInterval | DrawnPIT,
        others: PyTree = None,
    ) -> jax.Array:
        """``[n, D, M]`` for targets ``[n, D, …]``, intervals, or the PIT of targets and draws."""
        if isinstance(targets, UnitInterval):
            return of_intervals(predictions, targets, self.feature.of_intervals)
        if not isinstance(targets, DrawnPIT):
            if not self.is_of_pit or pit_ends(predictions) is None:
                return super().values(predictions, targets)
            intervals = jax.vmap(lambda y: unit_interval(predictions, y), 1, 1)(targets)
            return of_intervals(predictions, intervals, self.feature.of_intervals)
        if self.table is None:
            return targets.values(self.feature.of_intervals, self.feature.of_points)
        both = zip(targets.observed.middle(), targets.drawn, strict=False)
        u, above = (jnp.concatenate([x[:, None], drawn], axis=1) for x, drawn in both)
        return rows_of(self.table, cell_of_line(u, above, self.ends))


def values_of(
    residuals: Sequence[FiniteResidual],
    predictions: Distribution,
    targets: PyTree,
    others: PyTree = None,
) -> list[jax.Array]:
    """The `values` of each residual; like functions of the PIT of numbers are made together."""
    found: dict[int, jax.Array] = {}
    groups: dict[Hashable, list[tuple[int, PITResidual]]] = {}
    for i, x in enumerate(residuals):
        if isinstance(x, PITResidual) and predictions.target_shape == "n":
            kind = x.feature.features if x.table is None else x.ends
            groups.setdefault(kind, []).append((i, x))
        else:
            found[i] = x.values(predictions, targets, others)
    for group in groups.values():
        numbers, parts = zip(*group, strict=True)
        values = _joined(parts).values(predictions, targets)
        ends = np.cumsum([len(x.feature.orders) for x in parts])[:-1].tolist()
        found |= zip(numbers, jnp.split(values, ends, axis=2), strict=True)
    return [found[i] for i in range(len(residuals))]


def _joined(parts: Sequence[PITResidual]) -> PITResidual:
    """One residual with the numbers of several."""
    if len(parts) == 1:
        return parts[0]
    weights = jnp.concatenate([x.feature.valid_weights() for x in parts])
    orders = tuple(itertools.chain(*(x.feature.orders for x in parts)))
    feature = dataclasses.replace(parts[0].feature, weights=weights, orders=orders)
    tables = [x.table for x in parts if x.table is not None]
    return PITResidual(feature, jnp.concatenate(tables, axis=1) if tables else None, parts[0].ends)
