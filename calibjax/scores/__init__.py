"""Scores of single predictions: one number for each row."""

from calibjax.scores._pit import (
    PITInterval,
    drawn_pit_interval,
    mass_below,
    pit,
    pit_between_levels,
    pit_interval,
)
from calibjax.scores._scores import crps, log_score, numbers_as_data, score_rows

__all__ = ["crps", "log_score", "pit", "pit_interval"]
__dir__ = __all__.copy
