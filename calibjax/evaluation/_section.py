"""The parts of an evaluation: a case, which holds the data, and sections, which report on it."""

import abc
import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from calibjax._base.compile import quick_jit
from calibjax._data.data import Data
from calibjax._data.interval_censored import IntervalCensored
from calibjax._data.padding import padded
from calibjax.evaluation._serial_dependence import Column
from calibjax.frames import Table
from calibjax.hypothesis_tests import CalibrationTestResult
from calibjax.measures.families import few_draws
from calibjax.measures.measure import MeasureResult
from calibjax.nulls.ranks import as_multiple
from calibjax.nulls.sampler import why_not_tested
from calibjax.segments import ReadSegments

N_RESAMPLES = 999
# The number of rows, times classes, above which draws take long.
_LONG = 2**16


class Keys(NamedTuple):
    """A key for each part that draws; the unused one keeps the others what they were."""

    test: jax.Array
    effect: jax.Array
    measures: jax.Array
    curves: jax.Array
    unused: jax.Array
    neighbours: jax.Array
    segments: jax.Array


def keys_of(seed: int) -> Keys:
    """The keys; each part draws the same numbers, whichever other parts are computed."""
    return Keys(*keys_from(jax.random.key(seed)))


@functools.partial(quick_jit, light=True)
def keys_from(key: jax.Array) -> tuple[jax.Array, ...]:
    """Some keys of a key."""
    return tuple(jax.random.split(key, len(Keys._fields)))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Case:
    """What is evaluated, from which sections compute what they say; an `Evaluation` is one."""

    data: Data
    test: CalibrationTestResult
    level: float
    seed: int
    columns: Sequence[Column] = ()
    groups: ReadSegments | None = None
    table: Table | None = None
    is_x64: bool = False

    @functools.cached_property
    def pvalue(self) -> float:
        """The p-value of `calibration_test`, a multiple of 1/1000; NaN if nothing is tested."""
        return as_multiple(self.test.pvalue, N_RESAMPLES)

    @property
    def rejected(self) -> bool:
        """Whether the p-value is at most the level: the model is not calibrated."""
        return self.pvalue <= self.level

    @functools.cached_property
    def why_not_tested(self) -> str | None:
        """The reason why the p-value is missing, such as too few clusters; None if it is not."""
        return why_not_tested(self.data)

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.data.n

    @functools.cached_property
    def row_names(self) -> np.ndarray:
        """What each row is called, ``[n]``: its number among the rows that were given, from 0.

        In a text file it is the line, and in several files the number and the file.
        """
        return self.data.names_of_rows()

    @functools.cached_property
    def targets(self) -> np.ndarray | IntervalCensored:
        """`IntervalCensored`, or the observed targets ``[n]`` or ``[n, d]``, labels ``0 … m-1``."""
        return jax.tree.map(np.asarray, self.data.targets)

    @functools.cached_property
    def random_keys(self) -> Keys:
        """The keys of the parts that draw."""
        return keys_of(self.seed)

    @functools.cached_property
    def padded(self) -> Data:
        """The data with as many rows as a bucket has, behind which others are masked."""
        return padded(self.data)

    def option(self, name: str) -> str:
        """How users write the name of an argument, such as times or --time."""
        return name if self.table is None else self.table.option(name)

    def said_as(self, in_python: str, in_command: str) -> str:
        """What the verdict recommends to call, as users of Python or of the command do it."""
        return in_command if self.table is not None and self.table.on_command_line else in_python

    @property
    def n_draws(self) -> int:
        """How many data sets under H0 say where measures and maps of a calibrated model lie."""
        is_long = self.n * (self.data.predictions.n_labels or 1) > _LONG
        return few_draws(1 - self.level, N_RESAMPLES) if is_long else N_RESAMPLES


_T = TypeVar("_T")


class Section(functools.cached_property[_T], abc.ABC):
    """A part of an evaluation: what it computes, and what the evaluation prints and saves of it.

    An instance is an attribute of `Evaluation`.  It is computed when it is first asked for or
    printed, in the precision of `evaluate`, and kept.
    """

    #: Whether it is computed when an evaluation is printed, and whether files have it.
    is_printed = is_saved = True

    def __init__(self) -> None:
        super().__init__(self._in_precision)
        self.__doc__ = type(self).__doc__

    def _in_precision(self, case: Case) -> _T:
        with jax.enable_x64(case.is_x64):
            return self.compute(case)

    @abc.abstractmethod
    def compute(self, case: Case) -> _T:
        """What it finds; other sections are asked for by `of`."""

    def of(self, case: Case) -> _T:
        """What it has found of a case."""
        return self.__get__(case)

    def clause(self, case: Case) -> str | None:
        """What the verdict says of it."""
        return None

    def advice(self, case: Case) -> str | None:
        """What the verdict recommends."""
        return None

    def rows(self, case: Case) -> Iterable[tuple[str, MeasureResult]]:
        """Lines of the table of numbers."""
        return ()

    def notes(self, case: Case) -> list[str]:
        """Sentences below the table: what is omitted, or may be too narrow."""
        return []

    def to_dict(self, case: Case) -> dict[Any, Any]:
        """What files have of it, if they do."""
        return {self.attrname: self.of(case)}
