"""Published numbers beside ours: their differences in standard errors, and a table of them.

Both numbers are of random data sets: the standard error is that of their difference, made of ours
and of the published one.  The latter follows from the spread of our data sets and the number of
published ones, since both have the same law.
"""

import math
import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from _experiment import print_table

THRESHOLD = 4.0
# Of p-values: a test may refuse some data sets, and these do not count.
MAX_MISSING = 0.01


class Comparison(NamedTuple):
    """A published number and ours, in a cell of a table; `error` is that of their difference."""

    row: str
    column: str
    published: float
    ours: float
    error: float

    @property
    def difference(self) -> float:
        """Ours less the published one, in standard errors."""
        return (self.ours - self.published) / self.error


def of_mean(
    row: str, column: str, published: float, published_sets: int, values: np.ndarray
) -> Comparison:
    """Of a mean over data sets; `values` ``[N]`` are ours, one for each data set.

    An exact value is one of infinitely many sets.
    """
    values = np.asarray(values, float)
    error = values.std(ddof=1) * math.sqrt(1 / values.size + 1 / published_sets)
    return Comparison(row, column, published, values.mean(), error)


def of_variance(
    row: str, column: str, published: float, published_sets: int, values: np.ndarray
) -> Comparison:
    """Of a variance (ddof = 1) of data sets, which is a mean of squares."""
    values = np.asarray(values, float)
    squares = (values - values.mean()) ** 2 * values.size / (values.size - 1)
    return of_mean(row, column, published, published_sets, squares)


def of_rate(
    row: str, column: str, published: float, published_sets: int, errors: np.ndarray
) -> Comparison:
    """Of a rate of errors; `errors` ``[L, N]`` are ours, 0, 1 or missing (NaN).

    The variance is the binomial one at the pooled rate (k + 1) / (N + 2), which is not 0 where no
    test errs.  Where the published rate is that of *one* draw of something else, such as test
    locations, ours is the mean over L draws of it, each with its own N data sets, and (1 + 1/L)
    times the variance between draws is added: that of the L rates, less their binomial noise.
    """
    rate, n_kept = np.nanmean(errors), np.sum(~np.isnan(errors))
    n_both = n_kept + published_sets
    pooled = (n_kept * rate + published_sets * published + 1) / (n_both + 2)
    variance = pooled * (1 - pooled) * (1 / n_kept + 1 / published_sets)
    n_draws, n_sets = errors.shape
    if n_draws > 1:
        rates = np.nanmean(errors, axis=1)
        noise = np.mean(rates * (1 - rates)) / (n_sets - 1)
        variance += max(0.0, np.var(rates, ddof=1) - noise) * (1 + 1 / n_draws)
    return Comparison(row, column, published, rate, math.sqrt(variance))


def errors_at(level: float, pvalues: np.ndarray, calibrated: bool) -> np.ndarray:
    """1 for each error at this level, 0 for each right decision, NaN where there is no p-value."""
    missing = np.isnan(pvalues)
    if np.mean(missing) > MAX_MISSING:
        raise ValueError(f"{np.mean(missing):.1%} of the p-values are NaN.")
    # Some are counts over counts, and equal to the level but for rounding.
    return np.where(missing, np.nan, (pvalues <= level * (1 + 1e-6)) == calibrated)


def report(tables: Mapping[str, Iterable[Comparison]], check: bool) -> None:
    """Prints tables whose cells are `published / ours`; if `check`, large differences are errors.

    The last column is the largest difference of the row in standard errors, positive where ours is
    larger.
    """
    too_large = []
    for title, comparisons in tables.items():
        comparisons = list(comparisons)
        columns = dict.fromkeys(cell.column for cell in comparisons)
        rows = []
        for row in dict.fromkeys(cell.row for cell in comparisons):
            cells = {cell.column: cell for cell in comparisons if cell.row == row}
            texts = [
                f"{cells[column].published:.3g} / {cells[column].ours:.3g}"
                if column in cells
                else ""
                for column in columns
            ]
            largest = max((cell.difference for cell in cells.values()), key=abs)
            rows.append([row, *texts, f"{largest:+.1f}"])
        print_table([title, *columns, "largest difference / s.e."], rows)
        largest = max(comparisons, key=lambda cell: abs(cell.difference))
        print(
            f"\n{len(comparisons)} numbers.  Largest difference: "
            f"{largest.difference:+.1f} s.e. ({largest.row}, {largest.column})."
        )
        too_large += [cell for cell in comparisons if abs(cell.difference) > THRESHOLD]
    if check and too_large:
        sys.exit(f"{len(too_large)} numbers differ by more than {THRESHOLD} standard errors.")
