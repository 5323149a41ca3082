"""Numbers that say how good predictions are, of all rows and of groups, with intervals."""

from calibjax.measures.sampling import Estimate

__all__ = ["Estimate"]
__dir__ = __all__.copy
