"""A kernel, checked against data, for estimators and tests."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.sharding import on_one_device
from calibjax._base.struct import PyTree, as_pytree, is_floating, is_traced, type_name, widest_dtype
from calibjax._data.data import Data
from calibjax._data.distribution import Distribution
from calibjax._data.interval_censored import Between
from calibjax.discrepancy._normal_form import SteinResidual, SumOfTerms, h, normal_form
from calibjax.kernels import KernelLike, check_formula, check_kernel, check_symmetric


def check_kernel_of(
    kernel: KernelLike, data: Data, *, formula: Callable[..., jax.Array] = h
) -> SumOfTerms:
    """The kernel in normal form, checked against data that are checked already.

    `formula` is the function of (kernel, sample, sample) that the caller will evaluate.
    """
    kernel = as_pytree(kernel)
    users = check_kernel(kernel)
    terms = normal_form(kernel)
    if isinstance(data.targets, Between) and not terms.is_of_pit:
        raise TypeError(
            "kernel must be a PITKernel, or sums and multiples of them, for targets that are "
            f"Between, got {type_name(kernel)}."
        )
    if users:
        check_formula(kernel, terms, *_one_sample(data), formula)
        if data.where is None:
            # Masked rows may hold anything: there, and inside jit, an asymmetric kernel gives NaN.
            check_symmetric(kernel, *data.samples)
    for term in terms.terms:
        if isinstance(term.residual, SteinResidual):
            _check_stein_identity(data)
    return terms


def _one_sample(data: Data) -> tuple[Distribution, PyTree]:
    """An abstract prediction and target, in the dtypes that `clean` will give them."""
    dtype = widest_dtype(*jax.tree.leaves(data.samples))
    is_real = data.predictions.target_kind == "real"

    def abstract(x: jax.Array) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(x.shape[1:], dtype if is_real or is_floating(x) else jnp.int32)

    prediction = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], dtype), data.predictions)
    return prediction, jax.tree.map(abstract, data.targets)


def _check_stein_identity(data: Data) -> None:
    """A ValueError if the density of a kept row is not what a SteinKernel needs."""
    if data.predictions.target_kind != "real" or is_traced((data.predictions, data.where)):
        return
    with jax.ensure_compile_time_eval():
        words, valid = data.predictions.has_stein_identity()
        valid, where = on_one_device((valid, data.where))
        bad = ~np.asarray(valid)
        if where is not None:
            bad = bad & np.asarray(where)
        if bad.any():
            raise ValueError(
                f"predictions must have {words}, for a SteinKernel; row {bad.argmax()} has not."
            )
