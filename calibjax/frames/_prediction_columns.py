"""The columns of a table that hold predictions: what they mean, and how they are written."""

import dataclasses
import itertools
from typing import Any

import jax
import numpy as np

from calibjax import distributions as dist
from calibjax._base.struct import on_host
from calibjax._data.distribution import Distribution
from calibjax._numbers.validity import TOLERANCE
from calibjax.frames._array_conversion import as_floats
from calibjax.frames._table import Table, are_empty, has_lists, padded_lists

# The rounding error of probabilities with two digits, by which a sum may differ from 1 for each.
_ROUNDING = 0.005
_ROUNDED = "; rounding errors are removed by numpy.clip(predictions, 0, 1)"


@dataclasses.dataclass(frozen=True)
class PredictionColumns:
    """Which columns hold predictions, and of which kind, in one or several tables.

    Args:
        kind: the option that names them: "probs", "prob", "mean", "quantiles", "draws" or
            "survival".
        names: the columns, of "mean" also that of the deviations; or one array ``[n, m]``.
        pattern: what the option says, for errors about whole rows.
        classes: the classes of the columns of "probs"; None for an array and other kinds.
        levels: the levels of "quantiles", in the order of the columns; None for other kinds.
        times: the times of "survival", in the order of the columns; None for other kinds.
        normalize: whether to divide each row of class probabilities by its sum.
        percent: whether probabilities are percentages.
        sort: whether to sort the quantiles of each row.
    """

    kind: str
    names: list[str]
    pattern: str
    classes: list[str] | None = None
    levels: list[float] | None = None
    times: list[float] | None = None
    normalize: bool = False
    percent: bool = False
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
            values = np.where(both[:, 0] < 1e-3, 1 - both[:, 0], both[:, 1])
            return {self.names[0]: self._written(values)}
        if self.kind == "mean":
            arrays = predictions.mean(), predictions.spread()
            return dict(zip(self.names, map(np.asarray, arrays), strict=True))
        if self.kind == "quantiles":
            order = np.argsort(self.levels or [], kind="stable")
            values = np.asarray(predictions.values)[:, np.argsort(order)]
        elif self.kind == "survival":
            values = np.asarray(predictions.probs)[:, np.argsort(np.argsort(self.times or []))]
        else:
            name = "samples" if self.kind == "draws" else "probs"
            values = np.asarray(getattr(predictions, name))
            values = self._written(values)
            values = values if absent is None else np.where(absent, np.nan, values)
        if len(self.names) == 1:
            return {self.names[0]: values}
        return dict(zip(self.names, values.T, strict=True))

    def _written(self, values: np.ndarray) -> np.ndarray:
        return np.round(100 * values.astype(np.float64), 10) if self.percent else values

    def shown(self) -> list[str]:
        """The columns in a few words."""
        return self.names if self.kind == "mean" else [self.pattern]

    def _values(self, table: Table, absent: np.ndarray | None = None) -> Any:
        """The numbers of all columns, or of the array, ``[n, m]``, in float64; 0 if absent."""
        if len(self.names) == 1:
            values = table.array(self.names[0], absent)
            if values.ndim == 1:
                event = "for one event use prob, else " if self.kind == "probs" else "use "
                table.refuse(
                    self.names[0],
                    f"got one column; {event}a pattern with one *, such as "
                    f"'{self.names[0]}_*', or an array of two dimensions; pivot long tables first",
                )
            return values
        columns = [None] * len(self.names) if absent is None else absent.T
        pairs = zip(self.names, columns, strict=True)
        return np.stack([table.numbers(name, column) for name, column in pairs], axis=1)

    def absent(self, table: Table) -> np.ndarray | None:
        """Which options or members the rows do not have, ``[n, m]``; None of other kinds.

        Options are beyond the end of a list, or empty in a row whose other numbers sum to 1.  In
        other rows what is empty is missing, and so are the members of a row that has none.
        """
        if self.kind not in ("probs", "draws"):
            return None
        if all(table.numbers_of_texts(name) is not None for name in self.names):
            return np.zeros((len(table), len(self.names)), bool)
        columns = [table.cells(name) for name in self.names]
        cells = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
        is_beyond = np.zeros(cells.shape, bool)
        if has_lists(cells):
            cells, is_beyond = padded_lists(cells)
        if cells.ndim != 2:
            return None
        is_empty = are_empty(cells)
        if self.kind == "draws":
            return is_empty & ~is_empty.all(axis=1, keepdims=True)
        if not is_empty.any():
            return is_empty
        sums, sizes = np.where(is_empty, 0.0, as_floats(cells)).sum(axis=1), (~is_empty).sum(axis=1)
        sum_to_one = np.abs(sums - 1) <= _ROUNDING * sizes + 1e-6
        is_whole = np.all(is_beyond | ~is_empty, axis=1, keepdims=True)
        return (is_beyond & is_whole) | (is_empty & sum_to_one[:, None])

    def absent_by_column(self, table: Table) -> dict[str, np.ndarray]:
        """For each column the rows ``[n]`` that miss nothing, though something is empty."""
        absent = self.absent(table)
        if absent is None:
            return {}
        columns: Any = absent.T if len(self.names) > 1 else [absent.any(axis=1)]
        return dict(zip(self.names, columns, strict=True))

    def _read_probs(self, table: Table) -> dist.Categorical:
        absent = self.absent(table)
        probs = self._values(table, absent) / (100 if self.percent else 1)
        sums, is_negative = probs.sum(axis=1), probs < 0
        other = ""
        if probs.max(initial=0) > 1 or is_negative.any():
            other = _hint("Categorical", table)
        if np.allclose(sums, 100, atol=2):
            other = f"; they look like percentages, {_of_percentages(table, 'them')}"
        elif is_negative.any() and probs.min() > -TOLERANCE:
            other = _ROUNDED
        names = self.names if len(self.names) > 1 else self.names * probs.shape[1]
        for name, column in zip(names, probs.T, strict=True):
            table.check(name, column >= 0, "a probability", column, other)
        if self.normalize:
            table.check(self.pattern, sums > 0, "a positive sum", sums)
            probs = probs / sums[:, None]
        else:
            words = f"a sum of 1 ({table.option('normalize', True)} divides by the sum)"
            is_valid = np.abs(sums - 1) <= TOLERANCE
            table.check(self.pattern, is_valid, words, lambda row: f"{sums[row]:.5g}", other)
        if absent is not None and absent.any():
            sizes = (~absent).sum(axis=1)
            if table.source:
                table.say(
                    f"{table.called(self.pattern)}: rows have {sizes.min()} to {sizes.max()} "
                    "options; options missing in a row are not classes of it."
                )
            probs = np.where(absent, 0, np.maximum(probs, dist.LEAST_OF_CLASS / 2))
            return dist.Categorical(jax.device_put(probs), ragged=True)
        return dist.Categorical(jax.device_put(probs))

    def _read_prob(self, table: Table) -> dist.Bernoulli:
        (name,) = self.names
        probs: Any = table.numbers(name) / (100 if self.percent else 1)
        other = _hint("Bernoulli", table)
        if np.all((probs > -TOLERANCE) & (probs < 1 + TOLERANCE)):
            other = _ROUNDED
        elif np.all((probs >= 0) & (probs <= 100)):
            is_most = np.sum(probs > 1) > len(probs) / 2
            words = f"; of percentages, 0 to 100, {_of_percentages(table, 'the column')}"
            other = words if is_most else ""
        table.check(name, (probs >= 0) & (probs <= 1), "a probability", hint=other)
        return jax.device_put(dist.Bernoulli(probs).with_full_precision())

    def _read_mean(self, table: Table) -> dist.Normal:
        mean, sd = self._values(table).T
        table.check(self.names[1], sd > 0, "a positive standard deviation")
        return dist.Normal(mean, sd)

    def _read_quantiles(self, table: Table) -> dist.Quantiles:
        values: Any = self._values(table)
        assert self.levels is not None
        order = np.argsort(self.levels, kind="stable")
        if len(order) != values.shape[1]:
            words = f"expected quantiles at {len(order)} levels, got {values.shape[1]}"
            table.refuse(self.pattern, words)
        values = np.sort(values[:, order], axis=1) if self.sort else values[:, order]
        predictions = dist.Quantiles(values, [self.levels[k] for k in order])
        sort = table.option("sort_quantiles", True)
        words = f"at least the quantile at the level below ({sort} sorts each row)"
        for k, (low, high) in enumerate(itertools.pairwise(on_host(values).T), 1):
            name = self.names[0] if len(self.names) == 1 else self.names[order[k]]
            table.check(name, high >= low, words, high)
        return predictions

    def _read_survival(self, table: Table) -> dist.SurvivalCurve:
        assert self.times is not None
        order = np.argsort(self.times, kind="stable")
        probs = self._values(table)[:, order]
        words, above = "a probability, at most that of the time before", np.ones(len(probs))
        for k, column in zip(order, probs.T, strict=True):
            table.check(self.names[k], (column >= 0) & (column <= above + TOLERANCE), words, column)
            above = column
        return dist.SurvivalCurve(*jax.device_put((np.asarray(self.times)[order], probs)))

    def _read_draws(self, table: Table) -> dist.Empirical:
        absent = self.absent(table)
        samples = self._values(table, absent)
        if absent is None or not absent.any():
            return dist.Empirical(samples)
        counts = (~absent).sum(axis=1)
        if table.source:
            share, of_rows = 100 * absent.mean(), f"rows have {counts.min()} to {counts.max()}"
            words = f"{share:.2g} % of the members are missing; {of_rows}."
            table.say(f"{table.called(self.pattern)}: {words}")
        exists: Any = ~absent
        return dist.Empirical(samples, where=exists)


def _of_percentages(table: Table, what: str) -> str:
    return "pass --percent" if table.on_command_line else f"divide {what} by 100"


def _hint(family: str, table: Table) -> str:
    if table.on_command_line:
        return ""
    return (
        f"; if they are logits, pass calibjax.{family}.from_logits(predictions), if draws, "
        "calibjax.Empirical(predictions), if quantiles, calibjax.Quantiles(predictions, levels), "
        "and of means calibjax.Normal(mean, sd)"
    )
