"""Scores of single predictions: one number for each row."""

from calibjax.scores._crps import crps, crps_of_data
from calibjax.scores._log_score import log_score, log_score_of_data
from calibjax.scores._pit import pit, pit_of_data, pit_range_of_data
from calibjax.scores._pit_interval import (
    PITInterval,
    mass_below,
    pit_interval,
    pit_interval_of_data,
)
from calibjax.scores._places import places_of_targets
from calibjax.scores._rows import check_numbers, score_rows
