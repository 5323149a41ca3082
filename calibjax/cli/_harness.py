"""Logs of lm-evaluation-harness, an object for each question of multiple choice.

`filtered_resps` holds [log-likelihood, is it greedy] for each option, as texts, and `target` the
place of the right one.  The probabilities of the options are exp(log-likelihood), divided by their
sum, as the harness itself compares them for acc.  For acc_norm it compares log-likelihoods per
letter, of which a second column is made.  With acc_mutual_info the second half of the
log-likelihoods are those of the options without their question.
"""

from typing import Any

import numpy as np

# The columns that stand for what such a log says.
PROBS, TARGET = "option_probabilities", "target"
PROBS_PER_LETTER = f"{PROBS}_norm"
ANSWERS = "filtered_resps"
_KEYS = {"doc_id", ANSWERS, TARGET}


def with_probabilities(record: dict[str, Any]) -> dict[str, Any]:
    """The record, with the probabilities of the options if it is one of such a log.

    Mended ones stand in it already.  If no option has a finite log-likelihood they are None.
    """
    if not _KEYS <= record.keys() or PROBS in record:
        return record
    try:
        values = np.array([float(value) for value, _ in record[ANSWERS]])
    except (TypeError, ValueError):
        return record  # an answer in words
    if "acc_mutual_info" in record:
        values = values[: len(values) // 2]
    found = record | {PROBS: _shares(values)}
    texts = [str(record.get(f"arguments.gen_args_{k}.arg_1", "")) for k in range(len(values))]
    # A blank comes before the text of an option.
    letters = [len(text.removeprefix(" ")) for text in texts]
    if "acc_norm" in record and all(letters):
        found[PROBS_PER_LETTER] = _shares(values / letters)
    return found


def _shares(values: np.ndarray) -> list[float] | None:
    if not values.max(initial=-np.inf) > -np.inf:
        return None
    shares = np.exp(values - values.max())
    return (shares / shares.sum()).tolist()
