"""Logs of lm-evaluation-harness, an object for each question of multiple choice.

`filtered_resps` holds [log-likelihood, is it greedy] for each option, as texts, and `target` the
place of the right one.  The probabilities of the options are exp(log-likelihood), divided by their
sum, as the harness itself compares them.
"""

from typing import Any

import numpy as np

# The columns that stand for what such a log says.
PROBS, TARGET = "option_probabilities", "target"
ANSWERS = "filtered_resps"
_KEYS = {"doc_id", ANSWERS, TARGET}


def with_probabilities(record: dict[str, Any]) -> dict[str, Any]:
    """The record, with the probabilities of the options if it is one of such a log.

    Mended ones stand in it already.
    """
    if not _KEYS <= record.keys() or PROBS in record:
        return record
    try:
        values = np.array([float(value) for value, _ in record[ANSWERS]])
    except (TypeError, ValueError):
        return record  # an answer in words
    shares = np.exp(values - values.max(initial=-np.inf))
    return record | {PROBS: (shares / shares.sum()).tolist()}
