"""The door of estimators and tests: it checks a kernel and data against each other."""

from collections.abc import Callable
from typing import Any

import jax
from jax.typing import ArrayLike

from calibjax._data import Data, check_data
from calibjax._distribution import Distribution
from calibjax._struct import as_pytree
from calibjax.discrepancy import h
from calibjax.kernels import KernelLike, check_formula, check_kernel


def check_inputs(
    kernel: KernelLike,
    predictions: Distribution,
    targets: ArrayLike,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    *,
    formula: Callable[..., jax.Array] = h,
) -> tuple[Any, Data]:
    """The kernel as a pytree, and the data; a ValueError or TypeError names a wrong argument.

    `formula` is the function of (kernel, sample, sample) that the caller will evaluate.
    """
    data = check_data(predictions, targets, where, weights)
    kernel = as_pytree(kernel)
    check_kernel(kernel)
    check_formula(kernel, data.samples, formula)
    return kernel, data
