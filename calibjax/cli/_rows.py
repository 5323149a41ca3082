"""Columns that say what else is known of rows."""

import numpy as np

from calibjax._between import Between
from calibjax.cli._columns import Model
from calibjax.cli._terminal import BadInput
from calibjax.distributions import Normal


def censored_targets(model: Model, name: str) -> Between:
    """The targets, of which some are only known to be larger."""
    if not isinstance(model.predictions, Normal):
        raise BadInput("--censored can be used only together with --mean.")
    is_censored = model.table.truths(name)
    if len(is_censored) != len(model.targets):
        raise BadInput(
            f"{model.table.path}, column {name}: expected one value for each of "
            f"{len(model.targets)} rows, got {len(is_censored)}."
        )
    return Between(model.targets, np.where(is_censored, np.inf, model.targets))
