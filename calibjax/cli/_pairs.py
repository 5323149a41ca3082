"""Rows that come in pairs, such as both teams of a game."""

import numpy as np

from calibjax.evaluation import Model

_PAIRS, _MOST, _ROUNDING = 10, 0.9, 2e-3


def say_if_pairs(model: Model) -> None:
    """Says so if rows 1 and 2, 3 and 4 and so on say the same of an event and of its complement.

    The second row of such a pair is known from the first one, and evidence would count it twice.
    """
    n = len(model.targets) // 2 * 2
    if not model.predictions.has_labels or n < 2 * _PAIRS:
        return
    probabilities = np.asarray(model.predictions.label_probabilities())
    if probabilities.shape[1] != 2:
        return
    stated = probabilities[:n, 1].reshape(-1, 2).sum(axis=1)
    events = model.targets[:n].reshape(-1, 2).sum(axis=1)
    n_pairs = np.sum((np.abs(stated - 1) <= _ROUNDING) & (events == 1))
    if 2 * n_pairs >= _MOST * n:
        model.table.say(
            f"{model.table.source}: rows come in pairs whose probabilities and events add up to 1, "
            "such as both teams of a game. The second one is known from the first, which makes "
            "alarms false: keep one row of each, or name a column of pairs with --cluster."
        )
