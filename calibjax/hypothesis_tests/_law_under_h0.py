"""The data sets that a test compares with: redrawn targets, or residuals with multipliers."""

from calibjax._between import Between
from calibjax._rows import Data, describe_units

# Up to so many rows that are censored by an unknown law have Webb's multipliers, as clusters have.
_FEW_ROWS = 50


def law_under_h0(data: Data) -> str:
    """The law: "redrawn", or that of multipliers, "webb" or "normal"."""
    is_coarse = isinstance(data.targets, Between) and data.targets.censored_at is None
    if data.clusters is None and data.times is None:
        if not is_coarse:
            return "redrawn"
        return "webb" if data.n_kept() <= _FEW_ROWS else "normal"
    return "webb" if data.predictions.label_probabilities() is None else "normal"


def describe_law(data: Data, law: str) -> str:
    """The law in words, such as "multipliers of 60 clusters", to stand behind a number."""
    if law == "redrawn":
        return "draws from the model"
    if data.clusters is None and data.times is None:
        return "multipliers of rows, as the law of the censoring is not known"
    return f"multipliers of {describe_units(data)}"
