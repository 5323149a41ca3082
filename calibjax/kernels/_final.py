"""Formulas that no subclass may change."""


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
