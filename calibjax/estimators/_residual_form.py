"""Estimators that are functions of the residuals of labels alone, beside the predictions.

Residuals of rows that depend on each other can be given random signs and sizes, where targets
cannot be drawn.  So an estimator that is to be compared with such data sets says what it is of
residuals r_i = e_(y_i) - p_i, whatever numbers these are.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax

Estimator = TypeVar("Estimator", bound=Callable[..., Any])
#: ``form(predictions, residuals, weights, **options)`` of ``[n, m]`` and ``[n]``, a scalar.
Form = Callable[..., jax.Array]

_NAME = "_of_residuals"


def has_residual_form(form: Form) -> Callable[[Estimator], Estimator]:
    """Decorator: the estimator is `form` of residuals, with the same options."""

    def mark(estimator: Estimator) -> Estimator:
        setattr(estimator, _NAME, form)
        return estimator

    return mark


def residual_form(estimator: Callable[..., jax.Array]) -> Form | None:
    """The form of an estimator, or of a partial of one with options by name; None without one."""
    if not isinstance(estimator, jax.tree_util.Partial):
        return getattr(estimator, _NAME, None)
    form = getattr(estimator.func, _NAME, None)
    if form is None or estimator.args:
        return None
    return jax.tree_util.Partial(form, **estimator.keywords)
