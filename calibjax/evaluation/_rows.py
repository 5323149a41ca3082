"""Rows of predictions: on the ladder, and their numbers in words."""

import numpy as np

from calibjax._distribution import Distribution
from calibjax._rows import Data, padded
from calibjax.expectations import has_log_prob
from calibjax.scores import log_score_of_data
from calibjax.segments import first_of

# Words name so many rows, and count the others.
_MOST_ROWS = 5


def without_targets(predictions: Distribution) -> Data:
    """Predictions that are checked already, on the ladder."""
    return padded(Data.unchecked(predictions))


def log_scores(data: Data) -> np.ndarray | None:
    """The log scores of the n kept rows, which come first, ``[n]``; None without a density."""
    if not has_log_prob(data.predictions):
        return None
    return np.asarray(log_score_of_data(data))[: data.n_kept()]


def named_rows(rows: np.ndarray) -> str:
    """Rows by their names: "row 17", or "rows 0, 1, 2, 3, 4 and 12 more"."""
    return f"{'row' if len(rows) == 1 else 'rows'} {first_of(rows.tolist(), _MOST_ROWS)}"
