"""Random features of a kernel, which replace h by an average over features.

With random frequencies w of the prediction kernel and v of the target kernel,

    h((p, y), (q, z)) = E psi(p, y) conj(psi(q, z)),
    psi(p, y) = exp(i <w, phi(p)>) (exp(i <v, y>) - E exp(i <v, Z>)),  Z ~ p.

A feature is one pair (w, v), and one of the `cross_fit_pairs` of predictions if these are several:
phi(p) is the embedding of what is compared, and Z is drawn from what is subtracted.  For labels the
target kernel is exact, without any v: with the matrix K of the target kernel and the residuals r =
e_y - p and s = e_z - q, the product of the second factors of psi(p, y) and conj(psi(q, z)) becomes
r^T K s (Rahimi and Recht, Random features for large-scale kernel machines, NeurIPS 2007).
"""

import functools
import itertools
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from calibjax._base.struct import struct, type_name
from calibjax._data.capabilities import characteristic, cross_fit_pairs
from calibjax._data.distribution import Distribution, Labels
from calibjax._loops.fusion import wave
from calibjax._numbers.arithmetic import dot
from calibjax.discrepancy import SumOfTerms
from calibjax.expectations.dispatch import all_labels
from calibjax.kernels import DistanceKernel
from calibjax.kernels.base import KernelLike, Sample, pairwise, sum_of_products, times
from calibjax.kernels.predictions import DistanceLike, embedding
from calibjax.residuals.base import (
    FeatureResidual,
    FiniteResidual,
    Indicators,
    JointResidual,
    KernelResidual,
    TargetResidual,
    target_frequencies,
)
from calibjax.residuals.pit import PITResidual


def prediction_frequencies(
    kernel: KernelLike, key: jax.Array, n: int, p: Distribution, dtype: DTypeLike
) -> jax.Array:
    """n frequencies of a DistanceKernel, in the shape of the embedding of a prediction p."""
    if not isinstance(kernel, DistanceKernel):
        raise TypeError(
            "random features need prediction kernels that are DistanceKernels, or sums, products "
            f"and multiples of them, got {type_name(kernel)}."
        )
    return kernel.draw_frequencies(key, n, embedding(kernel.distance, p), dtype)


#: A factor, None for 1, kernels on predictions, and kernels on targets or a residual of PITs.
Product = tuple[jax.Array | None, list[KernelLike], list[KernelLike] | PITResidual]


@struct
class Features:
    """D random features of one tensor product times a factor.

    Args:
        factor: the number that multiplies the tensor product, or None for 1.
        distances: the distances of the prediction kernels whose product is the first factor.
        frequencies: the frequencies w, ``[D, …]`` for each distance.
        target_frequencies: the frequencies v, ``[D]`` or ``[D, d]``; None for labels.
        metric: the matrix K ``[m, m]`` for labels, else the number 1 in the shape ``[1, 1]``.
        pair_index: which of the `cross_fit_pairs` of a prediction each feature sees, ``[D]``; None
            if all have one.
        residual: what is exact of targets: e_y - p for labels, or functions of the PIT; else None.
    """

    factor: jax.Array | None
    distances: list[DistanceLike]
    frequencies: list[jax.Array]
    target_frequencies: jax.Array | None
    metric: jax.Array
    pair_index: jax.Array | None
    residual: FiniteResidual | None = None

    @property
    def n_features(self) -> int:
        """The number of features D."""
        return self.frequencies[0].shape[0]

    def __call__(self, a: Sample) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        """Factors of psi for one sample: the real and the imaginary part of one, and a real one.

        The parts are ``[D]`` each.  The real factor is the residual e_y - p ``[m]`` for labels,
        the features of U ``[m]``, or the number 1 ``[1]``.
        """
        if self.residual is not None:
            return wave(self._angles(self.residual.pooled(a)[0])), self.residual.of_one(a)
        parts = [self._psi(pair, a[1]) for pair in cross_fit_pairs(a[0])]
        if self.pair_index is None:
            (psi,) = parts
        else:
            chosen = self.pair_index, jnp.arange(self.n_features)
            psi = jax.tree.map(lambda *of_pairs: jnp.stack(of_pairs)[chosen], *parts)
        return psi, jnp.ones(1, psi[0].dtype)

    def _psi(
        self, pair: tuple[Distribution, Distribution], y: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """The parts of psi for a real target, ``[D]`` each."""
        (compared, subtracted), v = pair, self.target_frequencies
        # XLA would compute both parts of complex numbers again wherever it uses one.
        cosine, sine = wave(self._angles(compared))
        ours, ours_imag = wave(jax.vmap(lambda v: jnp.sum(v * y.astype(v.dtype)))(v))
        mean = jax.vmap(lambda v: characteristic(subtracted, v))(v)
        real, imag = ours - mean.real, ours_imag - mean.imag
        return cosine * real - sine * imag, cosine * imag + sine * real

    def _angles(self, compared: Distribution) -> jax.Array:
        """<w, phi(p)> for each feature, ``[D]``."""
        angles = [
            dot(embedding(distance, compared).astype(w.dtype), w.T)
            for w, distance in zip(self.frequencies, self.distances, strict=True)
        ]
        return functools.reduce(jnp.add, angles)


def draw_features(key: jax.Array, kernel: SumOfTerms, a: Sample, n_features: int) -> list[Features]:
    """Random features of each tensor product in the sum that a kernel is.

    The sample `a` gives the shapes and the dtype.  TypeError if the spectrum of a kernel in a
    product is not known.
    """
    products = list(_tensor_products(kernel, a[0]))
    pairs = zip(_keys(key, len(products)), products, strict=True)
    return [_draw_product_features(*pair, a, n_features) for pair in pairs]


def one_feature(kernel: SumOfTerms, a: Sample, b: Sample) -> jax.Array:
    """The real part of one feature of the sample `b`: the formula that `check_formula` traces."""
    (part, _), _ = draw_features(jax.random.key(0), kernel, a, 1)[0](b)
    return part[0]


def _draw_product_features(
    key: jax.Array, product: Product, a: Sample, n_features: int
) -> Features:
    """Random features of a factor times a product of prediction kernels and target kernels."""
    (factor, prediction_kernels, on_targets), (p, y) = product, a
    dtype = jax.tree.leaves(p)[0].dtype
    (compared, _), *other_pairs = cross_fit_pairs(p)
    # Labels and PITs have no frequencies.
    n_targets = 0
    if not isinstance(p, Labels) and not isinstance(on_targets, PITResidual):
        n_targets = len(on_targets)
    keys = iter(_keys(key, len(prediction_kernels) + n_targets + bool(other_pairs)))

    def draw_frequencies(frequencies, kernels, like):
        return [frequencies(kernel, next(keys), n_features, like, dtype) for kernel in kernels]

    frequencies = draw_frequencies(prediction_frequencies, prediction_kernels, compared)
    # `prediction_frequencies` has refused all others.
    distances = [k.distance for k in prediction_kernels if isinstance(k, DistanceKernel)]
    if isinstance(on_targets, PITResidual):
        metric = jnp.eye(jax.eval_shape(on_targets.of_one, a).size, dtype=dtype)
        return Features(factor, distances, frequencies, None, metric, None, on_targets)
    if not isinstance(p, Labels):
        # A frequency of a product of kernels is the sum of one frequency of each.
        v = functools.reduce(jnp.add, draw_frequencies(target_frequencies, on_targets, y))
        pair_index = None
        if other_pairs:
            n_pairs = 1 + len(other_pairs)
            pair_index = jax.random.randint(next(keys), (n_features,), 0, n_pairs, jnp.int32)
        return Features(factor, distances, frequencies, v, jnp.ones((1, 1), dtype), pair_index)
    (target_kernel,) = on_targets
    metric = pairwise(target_kernel, all_labels(p), all_labels(p)).astype(dtype)
    return Features(factor, distances, frequencies, None, metric, None, Indicators())


def _keys(key: jax.Array, count: int) -> list[jax.Array]:
    """Keys of `count` independent draws; XLA makes as much code of a split as of a draw."""
    return [key] if count == 1 else list(jax.random.split(key, count))


def _tensor_products(kernel: SumOfTerms, p: Distribution) -> Iterator[Product]:
    """A kernel as a sum of products: factor, prediction kernels, and target kernels of each.

    A PITKernel has its residual instead of target kernels.
    """
    for term in kernel.terms:
        residual = term.residual
        on_targets: Sequence[tuple[jax.Array | None, list[KernelLike] | PITResidual]]
        if isinstance(residual, PITResidual):
            on_targets = [(None, residual)]
        elif isinstance(residual, KernelResidual):
            # For labels a target kernel is its matrix, and is not multiplied out.
            are_labels, on_label = isinstance(p, Labels), [residual.kernel]
            on_targets = [(None, on_label)] if are_labels else sum_of_products(residual.kernel)
        else:
            raise TypeError(
                "random features need a TensorProduct or PITKernel, or sums and multiples of them, "
                f"got {_name(residual)}."
            )
        on_predictions = sum_of_products(term.prediction_kernel)
        for (f, ours), (g, theirs) in itertools.product(on_predictions, on_targets):
            yield times(term.factor, times(f, g)), ours, theirs


def _name(residual: TargetResidual) -> str:
    """The user's kernel in a few words."""
    if isinstance(residual, JointResidual):
        products = sum_of_products(residual.kernel)
        return " * ".join(type_name(kernel) for _, kernels in products for kernel in kernels)
    return "FeatureKernel" if isinstance(residual, FeatureResidual) else "SteinKernel"
