"""The forecasts of one model of a hub, with what was observed."""

import dataclasses
import re
from typing import Any

import numpy as np

from calibjax._data import Data, Distribution

# The columns of the day that a forecast is about, and of the day when it was made.
DAYS = "target_end_date", "target_date"
ORIGINS = "reference_date", "origin_date", "forecast_date", "nowcast_date"
DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclasses.dataclass(frozen=True)
class HubForecasts:
    """All forecasts of one model whose outcome is known; `read_hub` makes them.

    Args:
        model: its name.
        predictions: n predictions.
        targets: what was observed ``[n]``; labels ``0 … m-1`` of categories and of bins.
        tasks: the columns that say what each forecast is about, such as location and horizon, as
            texts ``[n]``.
        categories: the names of the m categories; None for numbers and bins.
        n_unobserved: the number of other forecasts, whose outcome is not known.
        n_incomplete: the number of forecasts that were left out because they miss a level, a
            category or a sample.
        left_out: why these were left out, and what else was not read, in words.
    """

    model: str
    predictions: Distribution
    targets: np.ndarray
    tasks: dict[str, np.ndarray]
    categories: list[str] | None = None
    n_unobserved: int = 0
    n_incomplete: int = 0
    left_out: tuple[str, ...] = ()

    @property
    def times(self) -> np.ndarray | None:
        """The day that each forecast is about, in days; None if no column says it."""
        return _days(self.tasks, DAYS)

    @property
    def horizon(self) -> float | None:
        """Forecasts about days that are closer than this number may depend on each other.

        When a forecast is made, what happened before the last forecast is known, and the rest is
        not: the largest lead, and the least time between two days on which forecasts were made.
        """
        made, about = _days(self.tasks, ORIGINS), self.times
        if made is None or about is None:
            return None
        gaps = np.diff(np.unique(made))
        return float(max((about - made).max(), 0.0) + (gaps.min() if len(gaps) else 1.0))

    @property
    def dependence(self) -> dict[str, Any]:
        """Which forecasts may depend on each other: `times` and `horizon`, or nothing."""
        times, horizon = self.times, self.horizon
        return {} if times is None or horizon is None else {"times": times, "horizon": horizon}

    @property
    def data(self) -> Data:
        """Predictions and targets, and which of them may depend on each other."""
        return Data(self.predictions, self.targets, **self.dependence)

    def __getitem__(self, rows: np.ndarray) -> "HubForecasts":
        """Some of the forecasts."""
        tasks = {name: values[rows] for name, values in self.tasks.items()}
        predictions = self.predictions[rows]
        return dataclasses.replace(
            self, predictions=predictions, targets=self.targets[rows], tasks=tasks
        )

    def __repr__(self) -> str:
        kind = type(self.predictions).__name__
        words = [f"{len(self.targets)} forecasts ({kind}) of {self.model}"]
        if self.n_unobserved:
            words.append(f"{self.n_unobserved} others, whose outcome is not known")
        if self.n_incomplete:
            words.append(f"{self.n_incomplete} incomplete ones left out")
        return ": ".join([", ".join(words), *(["; ".join(self.left_out)] * bool(self.left_out))])


def check_days(tasks: dict[str, np.ndarray]) -> None:
    """Raises a ValueError where a column of days holds something else than dates."""
    for names in (DAYS, ORIGINS):
        _days(tasks, names)


def _days(tasks: dict[str, np.ndarray], names: tuple[str, ...]) -> np.ndarray | None:
    """The first of some columns that has dates, in days since 1970; None if there is none.

    Raises:
        ValueError: a column has such a name, and something else than dates.
    """
    for name in names:
        texts = tasks.get(name, np.array(["None"]))
        if np.all(texts == "None"):  # as in a hub of peaks, whose day is what they predict
            continue
        bad = next((text for text in texts if not DATE.match(text)), None)
        if bad is not None:
            raise ValueError(
                f"column {name}: expected dates such as 2026-03-31, got {bad}; they say which "
                "forecasts depend on each other."
            )
        return texts.astype("datetime64[D]").astype(float)
    return None
