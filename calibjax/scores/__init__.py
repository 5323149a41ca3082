"""Scores of single predictions: one number for each row."""

from calibjax.scores._crps import crps as crps
from calibjax.scores._crps import crps_of_data as crps_of_data
from calibjax.scores._log_score import log_score as log_score
from calibjax.scores._log_score import log_score_of_data as log_score_of_data
from calibjax.scores._pit import pit as pit
from calibjax.scores._pit import pit_of_data as pit_of_data
from calibjax.scores._pit import pit_range_of_data as pit_range_of_data
from calibjax.scores._pit_interval import PITInterval as PITInterval
from calibjax.scores._pit_interval import mass_below as mass_below
from calibjax.scores._pit_interval import pit_interval as pit_interval
from calibjax.scores._pit_interval import pit_interval_of_data as pit_interval_of_data
from calibjax.scores._places import places_of_targets as places_of_targets
from calibjax.scores._rows import check_numbers as check_numbers
from calibjax.scores._rows import score_rows as score_rows
