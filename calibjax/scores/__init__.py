"""Scores of single predictions: one number for each row."""

from calibjax.scores._scores import crps, log_score, numbers_as_data, score_rows
from calibjax.scores.pit_intervals import PITInterval, pit, pit_and_interval, pit_interval

__all__ = ["crps", "log_score", "pit", "pit_interval"]
__dir__ = __all__.copy
