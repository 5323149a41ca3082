"""Formulas that no subclass may change."""

from collections.abc import Sequence


def check_final(cls: type, formulas: Sequence[str], known: Sequence[str]) -> None:
    """A TypeError for a class that overrides what is final in another class.

    The `formulas` of a class are final, and so are the methods `known`, which compute the same
    function in another way: they belong to the class that has the formula.  What is registered for
    a class, such as closed forms, would be wrong for another function.
    """
    for method in formulas:
        if len(authors := _authors(cls, method)) > 1:
            raise _is_final(method, authors[1], cls)
    order = cls.__mro__
    places = [order.index(x) for method in formulas for x in _authors(cls, method)]
    if any(_is_abstract(getattr(cls, method, None)) for method in formulas):
        return  # The formula is still to come.
    for method in known:
        if any(method in vars(base) for base in order[: min(places)]):
            raise _is_final(method, order[min(places)], cls)


def _authors(cls: type, method: str) -> list[type]:
    """The classes with the method, not as an abstract one, the most derived one first."""
    return [x for x in cls.__mro__ if method in vars(x) and not _is_abstract(vars(x)[method])]


def _is_abstract(method: object) -> bool:
    return getattr(method, "__isabstractmethod__", False)


def _is_final(method: str, author: type, cls: type) -> TypeError:
    return TypeError(
        f"{method} of {author.__name__} is final, and {cls.__name__} must not override it with "
        f"another function: derive {cls.__name__} from calibjax.Kernel or calibjax.Distance, "
        f"and let it hold {author.__name__} in a field if it needs one."
    )
