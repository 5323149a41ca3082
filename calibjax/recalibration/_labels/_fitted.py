"""What a fit of a map returns."""

from typing import NamedTuple


class Fitted(NamedTuple):
    """The steps of a map, whether the search for them found a minimum, and its numbers in words."""

    steps: tuple
    converged: bool
    words: str
