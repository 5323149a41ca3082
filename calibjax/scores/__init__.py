"""Scores of single predictions: one number for each row."""

from calibjax.scores._crps import crps
from calibjax.scores._log_score import log_score
from calibjax.scores._pit import PITInterval, drawn_pit_interval, mass_below, pit, pit_interval
from calibjax.scores._pit_between_levels import pit_between_levels
from calibjax.scores._score_rows import numbers_as_data, score_rows
