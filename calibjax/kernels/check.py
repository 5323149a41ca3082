"""Checks of kernels and distances of users.

Types, domains and parameters are those that the classes state.  The output of a user's own function
is found by abstract evaluation of one pair, once for each structure, and its symmetry by the values
of a few pairs.
"""

import functools
import math
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from calibjax._base.check import check_values
from calibjax._base.struct import (
    PyTree,
    as_pytree,
    indexed,
    is_array,
    is_floating,
    is_traced,
    on_host,
    unwrapped,
    widest_dtype,
)
from calibjax._data.distribution import Distribution
from calibjax.kernels.base import Kernel, KernelLike, vmap_pairs
from calibjax.kernels.predictions import Distance, DistanceLike

#: A function in a kernel: its name, the function, and its domain or role.
Part = tuple[str, PyTree, str]


def functions_in(function: PyTree, name: str = "kernel", role: str = "pairs") -> Iterator[Part]:
    """A kernel, a distance or another function, and then all functions inside it."""
    yield name, function, role
    for field, inner_role in getattr(function, "inner_functions", {}).items():
        owner = "" if isinstance(function, Kernel) else f" of {type(function).__name__}"
        yield from functions_in(getattr(function, field), field + owner, inner_role or role)


_DOMAINS = "pairs", "predictions", "targets"
#: What a function of other roles must be, in words, and what it must not be.
_KINDS: dict[str, tuple[str, type | tuple[()]]] = {
    "a distance": ("a distance between predictions", Kernel),
    "an embedding": ("a function", ()),
    "a feature": ("a function", ()),
}


def check_kernel(kernel: Callable[..., Any], name: str = "kernel", role: str = "pairs") -> None:
    """Types, domains and parameters in a kernel.

    It is a kernel on "pairs", "predictions" or "targets", or has the role "a distance".
    """
    for part_name, function, part_role in functions_in(kernel, name, role):
        plain, actual = unwrapped(function), type(function).__name__
        if isinstance(plain, type) and issubclass(plain, (Kernel, Distance)):
            raise TypeError(
                f"{part_name} must be an instance, got the class {plain.__name__}: call it, "
                f"{plain.__name__}(…)."
            )
        what, others = _KINDS.get(part_role, ("a kernel or a callable", Distance))
        if not callable(function) or isinstance(function, others):
            raise TypeError(f"{part_name} must be {what}, got {actual}.")
        is_kernel = isinstance(function, Kernel) and part_role in _DOMAINS
        if is_kernel and function.domain not in (None, part_role):
            raise TypeError(
                f"{part_name} must be a kernel on {part_role}, got {actual}, a kernel on "
                f"{function.domain}; TensorProduct(prediction_kernel, target_kernel) is on pairs "
                "of both."
            )
        for parameter, constraint in getattr(function, "parameter_constraints", {}).items():
            value, words = getattr(function, parameter), constraint.words
            of_owner = f"{parameter} of {actual}"
            if value is None:  # The class knows a value for it.
                continue
            if not (isinstance(value, (int, float)) if constraint.is_static else is_array(value)):
                raise TypeError(f"{of_owner} must be {words}, got {type(value).__name__}.")
            if not is_traced(value):
                check_values(of_owner, value, words, constraint.is_valid(on_host(value)))


def users_functions(kernel: PyTree, name: str = "kernel", role: str = "pairs") -> list[Part]:
    """The functions in a kernel that are not the library's."""
    found = []
    for part in functions_in(kernel, name, role):
        function = unwrapped(part[1])
        definition = function if isinstance(function, FunctionType) else type(function)
        is_ours = definition.__module__.partition(".")[0] == __name__.partition(".")[0]
        if callable(function) and not is_ours:
            found.append(part)
    return found


#: One prediction or target, or a batch; for abstract evaluation, of `jax.ShapeDtypeStruct`.
Points = PyTree
#: The shape and the dtype of an array.
Shape = tuple[tuple[int, ...], DTypeLike]


def check_formula(
    kernel: KernelLike, terms: PyTree, sample: Points, formula: Callable[..., jax.Array]
) -> None:
    """What users' functions in a kernel return must be one number for one pair.

    `sample` is a prediction and a target, abstract or not; `formula`, the function of
    (terms, sample, sample) that will be evaluated, must return a number too.  No function may close
    over a traced value, whose gradient would be lost.
    """
    _check_once((kernel, terms), sample, "kernel", "pairs", formula)


def check_distance_formula(distance: DistanceLike, prediction: Points) -> None:
    """What users' functions in a distance return must be one number for one pair."""
    kind = "distance", "a distance"
    if users_functions(distance, *kind):
        _check_once((distance, None), (prediction, None), *kind, None)


def _check_once(functions: tuple[PyTree, PyTree], points: Points, *options: Any) -> None:
    dtype = widest_dtype(*jax.tree.leaves(points))

    def abstract(x: jax.Array) -> Shape:
        return getattr(x, "shape", ()), dtype if is_floating(x) else jnp.result_type(x)

    leaves, structure = jax.tree.flatten((as_pytree(functions), points))
    _evaluate_once(structure, tuple(map(abstract, leaves)), *options)


@functools.lru_cache(maxsize=512)
def _evaluate_once(
    structure: jax.tree_util.PyTreeDef,
    avals: tuple[Shape, ...],
    name: str,
    role: str,
    formula: Callable[..., jax.Array] | None,
) -> None:
    def evaluated(leaves: list[jax.Array]) -> None:
        (function, terms), sample = jax.tree.unflatten(structure, leaves)
        for part in users_functions(function, name, role):
            _evaluate(*part, sample)
        if formula is not None:
            _check_number("h of one pair", formula(terms, sample, sample))

    leaves = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in avals]
    if is_traced(jax.make_jaxpr(evaluated)(leaves).consts):
        raise TypeError(
            "kernel holds a function that closes over a traced value; pass that value to the "
            "function as jax.tree_util.Partial(function, value) instead."
        )


def _evaluate(name: str, function: Callable[..., Any], role: str, sample: Points) -> None:
    """What one function of the user returns must be what its role asks for."""
    point = _points(role, sample)
    if role == "an embedding":
        _check_real(name, "a scalar or a vector", function(point))
    elif role == "a feature":
        _check_real(name, "a scalar or a vector", function(*sample))
    else:
        _check_number(name, function(point, point))


def _points(role: str, sample: Points) -> Points:
    """What a function of this role takes, one or two of them."""
    return {"pairs": sample, "targets": sample[1]}.get(role, sample[0])


def _check_number(name: str, value: PyTree) -> None:
    _check_real(name, "a number", value)
    if jnp.ndim(value) > 0:
        raise ValueError(
            f"{name} must return a number, of shape [], for one pair, got shape "
            f"{list(jnp.shape(value))}."
        )


def _check_real(name: str, what: str, value: PyTree) -> None:
    if not is_array(value):
        raise TypeError(f"{name} must return {what}, got {type(value).__name__}.")
    dtype = jnp.result_type(value)
    if not any(jnp.issubdtype(dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
        raise TypeError(f"{name} must return real numbers, got dtype {dtype}.")


# The number of rows of which all pairs are compared.
_FEW = 8


def check_symmetric(kernel: PyTree, predictions: Distribution, targets: PyTree) -> None:
    """Users' functions of two points must be symmetric: ValueError if k(a, b) is not k(b, a).

    Looked at are all pairs of the first few rows of a batch, where they are concrete.
    """
    functions = _functions_of_pairs(kernel)
    if not functions or is_traced((kernel, predictions, targets)):
        return
    with jax.ensure_compile_time_eval():
        symmetric = _are_symmetric(as_pytree(kernel), predictions, targets)
        for (name, *_), is_symmetric in zip(functions, symmetric, strict=True):
            if not bool(is_symmetric):
                raise ValueError(
                    f"{name} must be symmetric, k(a, b) = k(b, a), and is not for some of the "
                    f"first {_FEW} rows."
                )


def is_symmetric(kernel: PyTree, predictions: Distribution, targets: PyTree) -> jax.Array:
    """Whether `check_symmetric` would find no asymmetry, as a boolean that may be traced."""
    symmetric = _are_symmetric(as_pytree(kernel), predictions, targets)
    return functools.reduce(jnp.logical_and, symmetric, jnp.array(True))


def _functions_of_pairs(kernel: PyTree) -> list[Part]:
    functions = users_functions(kernel)
    return [function for function in functions if function[2] not in ("an embedding", "a feature")]


@jax.jit
def _are_symmetric(kernel: PyTree, predictions: Distribution, targets: PyTree) -> list[jax.Array]:
    sample = indexed((predictions, targets), slice(_FEW))

    def check(function: Callable[..., Any], role: str) -> jax.Array:
        points = _points(role, sample)
        values = vmap_pairs(function)(points, points)
        values = jnp.asarray(values, widest_dtype(values))
        rounding = math.sqrt(jnp.finfo(values.dtype).eps)
        # Comparisons with NaN are false: a NaN is not an asymmetry.
        return ~jnp.any(jnp.abs(values - values.T) > rounding * jnp.nanmax(jnp.abs(values)))

    return [check(function, role) for _, function, role in _functions_of_pairs(kernel)]
