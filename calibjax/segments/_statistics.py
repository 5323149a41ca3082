r"""What is tested of a segment: residuals of rows that a person can read, with mean 0 under H0.

**Events** (two classes), with the residual r = y - p:

- rate: r;
- sureness: r (l - c) with the logit l of p and the centre c = sum w^2 v l / sum w^2 v of the
  segment, v = p (1 - p).  It is the derivative of the log likelihood in the slope of logits, and
  under the model it is not correlated with the rate.  Logits count as no further from their mean
  over all rows than 2 deviations, both weighted by v: a wrong row at p = 1 is not all there is.

**Classes**, with the indicators e of the target and its probabilities p:

- the frequency of each class, e_c - p_c, of up to 20 classes;
- top label: whether the most probable class came, minus its probability;
- sureness: log p_y - E log p_Y, the derivative of the log likelihood in the inverse temperature,
  where log p - E log p is cut off at -2 deviations of all rows, each row weighted as for events by
  the variance of its most probable class.

**Numbers**, counts and ordered classes, with the normal score z of U = F(y):

- location: z;
- spread: (z^2 - 1) / sqrt(2), whose sum is taken around the location of the segment: with the sum
  S, the variance V and the information I of the location, and I' of the spread, it loses
  I' (S^2 - V) / (sqrt(2) I^2), which is what a shift alone would add.  Then targets that are only
  shifted are no sign of a wrong spread;
- coverage: whether U is in [0.05, 0.95], minus 0.9; of quantiles the two levels take the place of
  0.05 and 0.95 that are nearest to them.

Of an interval of U, each is the mean over the interval.
"""

import jax

from calibjax._distribution import Distribution
from calibjax._sharding import Axis
from calibjax.segments._label_statistics import (
    ClassStatistics,
    EventStatistics,
    class_statistics,
    event_statistics,
    names_of_classes,
)
from calibjax.segments._number_statistics import NumberStatistics, central_interval

#: The statistics of a family.
Statistics = EventStatistics | ClassStatistics | NumberStatistics


def statistics_of(
    predictions: Distribution, weights: jax.Array, is_exact: bool, axis: Axis
) -> Statistics:
    """The statistics for a family; `is_exact` says whether all targets are known."""
    if predictions.is_ordered:
        return NumberStatistics(
            knows_moments=is_exact and not predictions.has_atoms,
            central=central_interval(predictions.pieces_of_pit),
        )
    make = class_statistics if (predictions.n_labels or 0) > 2 else event_statistics
    return make(predictions, weights, axis)


def names_of_statistics(predictions: Distribution) -> tuple[str, ...]:
    """What the statistics for a family are called."""
    if predictions.is_ordered:
        return NumberStatistics.names
    n_classes = predictions.n_labels or 0
    return names_of_classes(n_classes) if n_classes > 2 else EventStatistics.names
