r"""Random features of a kernel: what stands for h is an average over features.

With frequencies w of the prediction kernel and v of the target kernel,

    h((p, y), (q, z)) = E psi(p, y) conj(psi(q, z)),
    psi(p, y) = exp(i <w, phi(p)>) (exp(i <v, y>) - E exp(i <v, Z>)),  Z ~ p,

of which a feature is one pair (w, v).  Where targets are labels there is no need of v: with the
matrix K of the target kernel and the residual r = e_y - p, the second factors of psi and psi'
become r^T K r' (Rahimi and Recht, Random features for large-scale kernel machines, NeurIPS 2007).
"""

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._numerics import dot
from calibjax._struct import struct
from calibjax._waves import wave
from calibjax.discrepancy import Sample
from calibjax.features._spectra import prediction_frequency, target_frequency
from calibjax.kernels import (
    FormulaDispatch,
    Product,
    Scaled,
    Sum,
    TensorProduct,
    class_of_formula,
    embedding,
    pairwise,
)


@struct
class Features:
    """D random features of a multiple of one tensor product.

    Args:
        factor: of the kernel.
        distances: of the prediction kernels, which are multiplied.
        frequencies: w, for each distance ``[D, …]``.
        target_frequencies: v, ``[D]`` or ``[D, d]``; None for labels.
        metric: K for labels, ``[m, m]``, else 1 in the shape ``[1, 1]``.
    """

    factor: Any
    distances: list[Any]
    frequencies: list[jax.Array]
    target_frequencies: jax.Array | None
    metric: jax.Array

    @property
    def n_features(self) -> int:
        """D."""
        return self.frequencies[0].shape[0]

    def __call__(self, a: Sample) -> tuple[jax.Array, jax.Array]:
        """Both factors of psi of one sample: ``[D]``, and ``[D, 1]`` or, for labels, ``[1, m]``."""
        p, y = a
        angles = [
            dot(w, embedding(distance, p).astype(w.dtype))
            for w, distance in zip(self.frequencies, self.distances, strict=True)
        ]
        waves = wave(_added(angles))
        if self.target_frequencies is None:
            return waves, _label_residual(p, y)[None, :].astype(waves.dtype)

        def residual(v):
            return wave(jnp.sum(v * y.astype(v.dtype))) - p.characteristic(v)

        return waves, jax.vmap(residual)(self.target_frequencies)[:, None]


def draw_features(key: jax.Array, kernel: Any, a: Sample, n_features: int) -> list[Features]:
    """Features of each product in a kernel that is a sum of tensor products.

    A sample `a` tells shapes and dtype.  TypeError where the spectrum of a part is not known.
    """
    products = list(_products(kernel, a[0]))
    keys = jax.random.split(key, len(products))
    return [_draw(k, *product, a, n_features) for k, product in zip(keys, products, strict=True)]


def one_feature(kernel: Any, a: Sample, b: Sample) -> jax.Array:
    """The real part of a feature of a sample: what is evaluated to check a kernel."""
    return draw_features(jax.random.key(0), kernel, a, 1)[0](b)[0][0].real


def _draw(
    key: jax.Array,
    factor: Any,
    prediction_kernels: list[Any],
    target_kernels: list[Any],
    a: Sample,
    n_features: int,
) -> Features:
    (p, y), (prediction_key, target_key) = a, jax.random.split(key)
    dtype = jax.tree.leaves(p)[0].dtype

    def draw(frequency, key, kernels, like):
        keys = jax.random.split(key, (len(kernels), n_features))
        of_one = [lambda key, k=kernel: frequency(k, key, like, dtype) for kernel in kernels]
        return [jax.vmap(one)(key) for one, key in zip(of_one, keys, strict=True)]

    frequencies = draw(prediction_frequency, prediction_key, prediction_kernels, p)
    distances = [kernel.distance for kernel in prediction_kernels]
    if p.label_probabilities() is None:
        # Frequencies of a product add up.
        of_targets = _added(draw(target_frequency, target_key, target_kernels, y))
        return Features(factor, distances, frequencies, of_targets, jnp.ones((1, 1), dtype))
    (target_kernel,) = target_kernels
    metric = pairwise(target_kernel, _labels(p), _labels(p)).astype(dtype)
    return Features(factor, distances, frequencies, None, metric)


def _added(arrays: list[jax.Array]) -> jax.Array:
    return functools.reduce(jnp.add, arrays)


def _labels(p: Any) -> jax.Array:
    return jnp.arange(p.label_probabilities().shape[0], dtype=jnp.int32)


def _label_residual(p: Any, y: jax.Array) -> jax.Array:
    """e_y - p."""
    probabilities = p.label_probabilities()
    return (_labels(p) == y).astype(probabilities.dtype) - probabilities


def _products(kernel: Any, p: Any) -> Iterator[tuple[Any, list[Any], list[Any]]]:
    """(factor, prediction kernels, target kernels) of each product in the sum that a kernel is."""
    for factor, parts in _expanded(kernel):
        if len(parts) > 1 or class_of_formula(parts[0]) is not TensorProduct:
            names = " * ".join(type(part).__name__ for part in parts)
            raise TypeError(
                f"random features need a TensorProduct, or sums and multiples of them, got {names}."
            )
        of_predictions = _expanded(parts[0].prediction_kernel)
        target_kernel = parts[0].target_kernel
        # Where targets are labels its matrix is all that is needed.
        are_labels = p.label_probabilities() is not None
        of_targets = [(1.0, [target_kernel])] if are_labels else _expanded(target_kernel)
        for (left, ours), (right, theirs) in itertools.product(of_predictions, of_targets):
            yield factor * left * right, ours, theirs


@FormulaDispatch
def _expanded(kernel: Any) -> list[tuple[Any, list[Any]]]:
    """A kernel as a sum: for each term its factor, and the kernels whose product it is."""
    return [(1.0, [kernel])]


@_expanded.register
def _sum(kernel: Sum) -> list[tuple[Any, list[Any]]]:
    return _expanded(kernel.left) + _expanded(kernel.right)


@_expanded.register
def _scaled(kernel: Scaled) -> list[tuple[Any, list[Any]]]:
    return [(kernel.valid_factor() * f, kernels) for f, kernels in _expanded(kernel.kernel)]


@_expanded.register
def _product(kernel: Product) -> list[tuple[Any, list[Any]]]:
    pairs = itertools.product(_expanded(kernel.left), _expanded(kernel.right))
    return [(f * g, ours + theirs) for (f, ours), (g, theirs) in pairs]
