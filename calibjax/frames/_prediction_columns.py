"""The columns of a table that hold predictions: what they mean, and how they are written."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.struct import on_host
from calibjax._data import Distribution
from calibjax._numbers import TOLERANCE
from calibjax.distributions import (
    Bernoulli,
    Categorical,
    Empirical,
    Normal,
    Quantiles,
    SurvivalCurve,
)
from calibjax.frames._array_conversion import absent_options, as_floats, with_options
from calibjax.frames._table import (
    Table,
    are_empty,
    has_lists,
    padded_lists,
)


@dataclasses.dataclass(frozen=True)
class PredictionColumns:
    """Which columns hold predictions, and of which kind; the same columns of other tables do, too.

    Args:
        kind: the option that names them: "probs", "prob", "mean", "quantiles", "draws" or
            "survival".
        names: the columns, of "mean" also that of the deviations; or one array ``[n, m]``.
        pattern: what the option says, for errors about whole rows.
        classes: the classes of the columns of "probs"; None for an array and other kinds.
        levels: the levels of "quantiles", in the order of the columns; None for other kinds.
        times: the times of "survival", in the order of the columns; None for other kinds.
        normalize: whether to divide each row of class probabilities by its sum.
        sort: whether to sort the quantiles of each row.
    """

    kind: str
    names: list[str]
    pattern: str
    classes: list[str] | None = None
    levels: list[float] | None = None
    times: list[float] | None = None
    normalize: bool = False
    sort: bool = False

    def read(self, table: Table) -> Distribution:
        """The predictions of a table; a ValueError names the first bad row."""
        found: Distribution = getattr(self, f"_read_{self.kind}")(table)
        return found

    def columns_of(
        self, predictions: Any, absent: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """The columns ``[n]``, or the array ``[n, m]``, of predictions of this kind.

        Options that are absent are NaN.
        """
        if self.kind == "prob":
            both = np.asarray(predictions.label_probabilities()).astype(str).astype(float)
            # As short as float32 writes them; near 1 it has fewer digits than the complement.
            return {self.names[0]: np.where(both[:, 0] < 1e-3, 1 - both[:, 0], both[:, 1])}
        if self.kind == "mean":
            arrays = predictions.mean(), predictions.spread()
            return dict(zip(self.names, map(np.asarray, arrays), strict=True))
        if self.kind == "quantiles":
            values = np.asarray(predictions.values)[:, np.argsort(self._order())]
        else:
            name = "samples" if self.kind == "draws" else "probs"
            values = np.asarray(getattr(predictions, name))
            values = values if absent is None else np.where(absent, np.nan, values)
        if len(self.names) == 1:
            return {self.names[0]: values}
        return dict(zip(self.names, values.T, strict=True))

    def shown(self) -> list[str]:
        """The columns in a few words."""
        return self.names if self.kind == "mean" else [self.pattern]

    def damage(self) -> str | None:
        """What is wrong with columns that come from a file; None if nothing is."""
        lists = {"names": str, "classes": str, "levels": float, "times": float}
        kinds = lists | {"kind": str, "pattern": str, "normalize": bool, "sort": bool}
        for name, kind in kinds.items():
            value, is_list = getattr(self, name), name in lists
            items = (value or []) if is_list and isinstance(value, list | None) else [value]
            if not all(isinstance(x, kind) for x in items):
                return f"{name} is no {'list of ' if is_list else ''}{kind.__name__}"
        n_columns = {"prob": 1, "mean": 2}.get(self.kind, max(len(self.names), 1))
        if not hasattr(self, f"_read_{self.kind}") or len(self.names) != n_columns:
            return f"kind {self.kind} with {len(self.names)} columns"
        if (self.kind == "quantiles") != (self.levels is not None):
            return "levels are of quantiles"
        if self.kind == "survival" or self.times is not None:
            return "survival curves have no map"
        return None

    def _values(self, table: Table, absent: np.ndarray | None = None) -> Any:
        """The numbers of all columns, or of the array, ``[n, m]``, in NumPy; 0 if absent."""
        if len(self.names) == 1:
            return table.array(self.names[0], absent)
        columns = [None] * len(self.names) if absent is None else absent.T
        pairs = zip(self.names, columns, strict=True)
        return np.stack([table.numbers(name, column) for name, column in pairs], axis=1)

    def absent(self, table: Table) -> np.ndarray | None:
        """Which options the rows do not have, ``[n, m]``; None of all but probabilities of classes.

        They are beyond the end of a list, or empty in a row whose other numbers sum to 1.  In other
        rows what is empty is missing.
        """
        columns = [table.cells(name) for name in self.names] if self.kind == "probs" else []
        if len({len(x) for x in columns}) != 1:
            return None
        cells = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
        is_beyond = np.zeros(cells.shape, bool)
        if has_lists(cells):
            cells, is_beyond = padded_lists(cells)
        if cells.ndim != 2:
            return None
        is_empty = are_empty(cells)
        if not is_empty.any():
            return is_empty
        is_whole = np.all(is_beyond | ~is_empty, axis=1, keepdims=True)
        return (is_beyond & is_whole) | absent_options(as_floats(cells), is_empty)

    def absent_by_column(self, table: Table) -> dict[str, np.ndarray]:
        """For each column the rows ``[n]`` that miss nothing, though something is empty."""
        absent = self.absent(table)
        if absent is None:
            return {}
        columns: Any = absent.T if len(self.names) > 1 else [absent.any(axis=1)]
        return dict(zip(self.names, columns, strict=True))

    def _read_probs(self, table: Table) -> Categorical:
        absent = self.absent(table)
        probs = on_host(self._values(table, absent))
        names = self.names if len(self.names) > 1 else self.names * probs.shape[1]
        for name, column in zip(names, probs.T, strict=True):
            table.check(name, column >= 0, "a probability", column)
        sums = probs.sum(axis=1, dtype=float)
        if self.normalize:
            table.check(self.pattern, sums > 0, "a positive sum", sums)
        else:
            words = f"a sum of 1 ({table.option('normalize', True)} divides by the sum)"
            got = [f"{x:.5g}" for x in sums]
            table.check(self.pattern, np.abs(sums - 1) <= TOLERANCE, words, got)
        absent = np.zeros(probs.shape, bool) if absent is None else absent
        if absent.any():
            sizes = (~absent).sum(axis=1)
            table.say(
                f"{table.source}, {self.pattern}: rows have {sizes.min()} to {sizes.max()} "
                "options; what a row lacks is no class of it."
            )
        return with_options(probs, absent, self.normalize)

    def _read_prob(self, table: Table) -> Bernoulli:
        exact: Any = table.numbers(self.names[0])
        probs = on_host(exact)
        words = "a probability"
        if np.all((probs >= 0) & (probs <= 100)) and np.sum(probs > 1) > len(probs) / 2:
            words += " (the column holds percentages, 0 to 100: divide it by 100)"
        table.check(self.names[0], (probs >= 0) & (probs <= 1), words)
        return jax.tree.map(jnp.asarray, Bernoulli(exact).keeping_digits())

    def _read_mean(self, table: Table) -> Normal:
        mean, sd = self._values(table).T
        table.check(self.names[1], sd > 0, "a positive standard deviation")
        return Normal(mean, sd)

    def _order(self) -> np.ndarray:
        assert self.levels is not None
        return np.argsort(self.levels, kind="stable")

    def _read_quantiles(self, table: Table) -> Quantiles:
        values: Any = self._values(table)
        order = self._order()
        assert self.levels is not None
        if len(order) != values.shape[1]:
            raise ValueError(
                f"{table.source}, column {self.pattern}: expected quantiles at {len(order)} "
                f"levels, got {values.shape[1]}."
            )
        levels = [self.levels[k] for k in order]
        values = np.sort(values[:, order], axis=1) if self.sort else values[:, order]
        predictions = Quantiles(values, levels)
        values = on_host(values)
        for k, (low, high) in enumerate(zip(values.T[:-1], values.T[1:], strict=True)):
            name = self.names[0] if len(self.names) == 1 else self.names[order[k + 1]]
            sort = table.option("sort_quantiles", True)
            words = f"at least the quantile at the level below ({sort} sorts each row)"
            table.check(name, high >= low, words, high)
        return predictions

    def _read_survival(self, table: Table) -> SurvivalCurve:
        assert self.times is not None
        order = np.argsort(self.times, kind="stable")
        times, probs = np.asarray(self.times)[order], on_host(self._values(table))[:, order]
        above = np.ones(len(probs))
        for k, column in zip(order, probs.T, strict=True):
            words = "a probability, at most that of the time before"
            is_valid = (column >= 0) & (column <= above + TOLERANCE)
            table.check(self.names[k], is_valid, words, column)
            above = column
        return SurvivalCurve(jnp.asarray(times), jnp.asarray(probs))

    def _read_draws(self, table: Table) -> Empirical:
        return Empirical(self._values(table))
