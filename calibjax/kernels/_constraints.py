"""What must hold of kernels and distances: constraints on parameters, and final formulas."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from calibjax._numbers import is_nonnegative, is_positive
from calibjax._struct import is_array


class Constraint(NamedTuple):
    """A condition on a parameter.

    Args:
        has_type: tells whether a value has the right type.
        words: the condition in words, for error messages.
        is_valid: tells which elements of an array, of NumPy or of jax, satisfy the condition.
    """

    has_type: Callable[[Any], bool]
    words: str
    is_valid: Callable[[Any], Any]


def _is_python_number(x: Any) -> bool:
    return isinstance(x, (int, float))


POSITIVE = Constraint(is_array, "positive and finite", is_positive)
NONNEGATIVE = Constraint(is_array, "nonnegative and finite", is_nonnegative)
#: Points ``[M, …]``.
FINITE_POINTS = Constraint(
    is_array, "finite, and at least one", lambda x: np.isfinite(x).all() & (np.size(x) > 0)
)
#: An exponent is part of the structure, which must not hold arrays.
EXPONENT = Constraint(_is_python_number, "a Python number in (0, 2]", lambda x: (x > 0) & (x <= 2))


def check_final(cls: type, formula: str) -> None:
    """A TypeError for a class that overrides the `formula` of another class: it is final there.

    The other methods of a class, and closed forms that are registered for it, are what is known
    about its formula, and would be wrong for another one.
    """
    authors = [
        base.__name__
        for base in cls.__mro__
        if formula in vars(base) and not getattr(vars(base)[formula], "__isabstractmethod__", False)
    ]
    if len(authors) > 1:
        raise TypeError(
            f"{formula} of {authors[1]} is final, and {cls.__name__} must not override it with "
            f"another function: derive {cls.__name__} from calibjax.Kernel or calibjax.Distance, "
            f"and let it hold {authors[1]} in a field if it needs one."
        )
