"""What a reader must know before trusting the intervals of an evaluation."""

import math
from typing import Any

import numpy as np

from calibjax.evaluation._rows import without_targets
from calibjax.intervals import FEW_EVENTS, expected_rare_events

# With fewer rows intervals of means, and of the SKCE, miss more often than they say.
_FEW_ROWS = 50


def remarks(predictions: Any, targets: np.ndarray) -> list[str]:
    """Sentences about intervals that may be too narrow; none where there are data enough."""
    found, n = [], len(targets)
    if n < _FEW_ROWS:
        found.append(
            f"Few rows: with fewer than {_FEW_ROWS}, intervals of the SKCE and of means may be too "
            "narrow."
        )
    # Data that happen to lack a rare event look as if there were none: the model counts, too.
    rows = without_targets(predictions)
    expected = float(expected_rare_events(None, (rows.predictions, rows.where)))
    # Where no number has a positive probability, nothing is a rare event.
    observed = _uncommon(targets) if math.isfinite(expected) else math.inf
    if min(expected, observed) < FEW_EVENTS:
        differ = "target differs" if observed == 1 else "targets differ"
        found.append(
            f"Few events: {observed} {differ} from the most common one, and {expected:.2g} are "
            "expected not to be the most probable one; intervals may be too narrow, above all "
            "where none came."
        )
    return found


def _uncommon(targets: np.ndarray) -> int:
    """How many targets differ from the most common one."""
    return len(targets) - int(np.unique(targets, return_counts=True)[1].max())
