"""Checks of kernels."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._check import check_values
from calibjax._struct import holds_function, is_array, is_traced, widest_dtype
from calibjax.kernels._base import Kernel
from calibjax.kernels._distances import Distance

_DOMAINS = {"prediction_kernel": "predictions", "target_kernel": "targets"}


def _is_python_number(x: Any) -> bool:
    return isinstance(x, (int, float))


# What type a parameter has, what it must be, in words, and whether it is.  An exponent is part of
# the structure, which must not hold arrays.
_PARAMETERS = {
    "lengthscale": (is_array, "positive and finite", lambda x: (x > 0) & jnp.isfinite(x)),
    "factor": (is_array, "nonnegative and finite", lambda x: (x >= 0) & jnp.isfinite(x)),
    "exponent": (_is_python_number, "a Python number in (0, 2]", lambda x: (x > 0) & (x <= 2)),
}


def check_kernel(kernel: Any, name: str = "kernel", domain: str = "pairs") -> None:
    """Checks the parameters of a kernel and of those that it is made of, and their domains."""
    if not callable(kernel) or isinstance(kernel, Distance):
        raise TypeError(f"{name} must be a kernel or a callable, got {type(kernel).__name__}.")
    if not isinstance(kernel, Kernel):
        return
    if kernel.domain not in (None, domain):
        raise TypeError(
            f"{name} must be a kernel on {domain}, got {type(kernel).__name__}, a kernel on "
            f"{kernel.domain}; TensorProduct(prediction_kernel, target_kernel) is on pairs of both."
        )
    for part, value in vars(kernel).items():
        if isinstance(value, Kernel) or part in _DOMAINS:
            check_kernel(value, part, _DOMAINS.get(part, domain))
        elif isinstance(value, Distance) and hasattr(value, "kernel"):
            check_kernel(value.kernel, f"kernel of {type(value).__name__}", "targets")
        elif part in _PARAMETERS:
            _check_parameter(f"{part} of {type(kernel).__name__}", value, *_PARAMETERS[part])


def _check_parameter(
    name: str, value: Any, has_type: Callable, words: str, is_valid: Callable
) -> None:
    if not has_type(value):
        raise TypeError(f"{name} must be {words}, got {type(value).__name__}.")
    if not is_traced(value):
        with jax.ensure_compile_time_eval():
            check_values(name, value, words, is_valid(jnp.asarray(value)))


def check_formula(kernel: Any, samples: Any, formula: Callable[..., jax.Array]) -> None:
    """A function in the kernel must not close over tracers: their gradients would be lost."""
    if not holds_function(kernel):
        return
    predictions, targets = samples
    dtype = widest_dtype(targets, *jax.tree.leaves(predictions))
    kind = dtype if predictions.target_kind == "real" else jnp.int32
    prediction = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], dtype), predictions)
    sample = prediction, jax.ShapeDtypeStruct(targets.shape[1:], kind)
    closed_over = jax.make_jaxpr(formula)(kernel, sample, sample).consts
    if any(is_traced(value) for value in closed_over):
        raise TypeError(
            "kernel holds a function that closes over a traced value; pass that value to the "
            "function as jax.tree_util.Partial(function, value) instead."
        )
