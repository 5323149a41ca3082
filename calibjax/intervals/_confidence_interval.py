"""Two ends of a confidence interval."""

from typing import NamedTuple

import jax


class ConfidenceInterval(NamedTuple):
    """The lower and the upper bound of a confidence interval."""

    low: jax.Array
    high: jax.Array
