"""Numbers that say how good predictions are, of all rows and of groups, with intervals."""

from calibjax.measures._intervals import (
    Estimate,
    Interval,
    Sampling,
    mean_interval,
    share_bound,
    wilson_interval,
)
from calibjax.measures._measure import OBSERVED, PREDICTED, Measure, MeasureResult, Subset
from calibjax.measures._measures import (
    draws_for_intervals,
    few_draws,
    log_scores,
    measures,
    moments,
    ratio_of_means,
    shares_of_levels,
)
from calibjax.measures._survival import EVENTS, MEAN_PIT

__all__ = ["Estimate"]
__dir__ = __all__.copy
