"""The normal form of a kernel on pairs, a sum of terms, and h and deviations of it.

h((p, y), (q, z)) = k((p, y), (q, z)) - E k((p, Z), (q, z)) - E k((p, y), (q, Z'))
+ E k((p, Z), (q, Z')) with independent Z ~ p and Z' ~ q
(Widmann, Lindsten and Zachariah, ICLR 2021, Lemma 2 and Eq. 5).

The deviation of (p, y) at a location t = (q, z) is k((p, y), t) - E k((p, Z), t) with Z ~ p, the
first half of h (Definition C.1 there).

Both are linear in k, so that a kernel is taken apart once, where it comes from the user, into
terms factor k_P(p, q) <f(p, y), f(q, z)>.  With the residual r(p, y) = f(p, y) - E f(p, Z),

h = factor k_P(p, q) <r(p, y), r(q, z)>.

Draws from a distribution P_i may stand for it: two halves A_i and B_i, with the mean embeddings
mu(A_i) and mu(B_i).  The halves have two roles (`cross_fit_pairs`), and h_ij is the mean of

k_P(A_i, A_j) <k_Y(y_i, .) - mu(B_i), k_Y(y_j, .) - mu(B_j)>

and the same with A and B exchanged.

Given the distributions, rows are independent, and so are A_i and (B_i, y_i).  For i != j the mean
of a term is therefore K(P_i, P_j) <mu(Y | P_i) - mu(P_i), mu(Y | P_j) - mu(P_j)> with the positive
definite kernel K(P_i, P_j) = E k_P(A_i, A_j).  The mean over i != j is unbiased for the SKCE of the
distributions with the kernel K k_Y: for a calibrated model its mean is 0, however few the draws, if
the kernel does not depend on them.  The mean of a deviation is 0 too, at a location that does not
depend on A_i.  The matrix of h is a sum of two positive semidefinite ones, so that the mean over
all i and j is not negative.  On its diagonal a half meets itself: for a calibrated model and
k_P(p, p) = 1 the mean of |k_Y(y, .) - mu(B)|^2 is (1 + 1 / |B|) (E k_Y(Z, Z) - E k_Y(Z, Z')), where
P_i itself has the factor 1.
"""

import functools
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.sharding import Axis, on_one_device
from calibjax._base.struct import (
    PyTree,
    as_pytree,
    is_floating,
    is_traced,
    static,
    struct,
    type_name,
    widest_dtype,
)
from calibjax._data.capabilities import cross_fit_pairs
from calibjax._data.data import Data
from calibjax._data.distribution import Distribution
from calibjax.kernels import FeatureKernel, PITKernel, SteinKernel, TensorProduct
from calibjax.kernels.base import (
    KernelLike,
    Product,
    Sample,
    kernel_value,
    pairwise,
    sum_of_products,
    times,
    vmap_pairs,
)
from calibjax.kernels.check import check_formula, check_kernel, check_symmetric, users_functions
from calibjax.kernels.predictions import VectorFeature
from calibjax.residuals.base import (
    FeatureResidual,
    JointResidual,
    KernelResidual,
    SteinResidual,
    TargetResidual,
)
from calibjax.residuals.pit import PITResidual


@struct
class Term:
    """factor k_P(p, q) <f(p, y), f(q, z)>.

    Args:
        factor: a nonnegative number, or None for 1.
        prediction_kernel: k_P, a kernel on predictions.
        residual: what h keeps of f.
    """

    factor: jax.Array | None
    prediction_kernel: KernelLike
    residual: TargetResidual

    inner_functions = {"prediction_kernel": "predictions", "residual": "a residual"}

    def h(self, a: Sample, b: Sample) -> jax.Array:
        """h of one pair of samples."""
        a, b = map(self.residual.pooled, (a, b))
        return self._mean(
            kernel_value(self.prediction_kernel, p, q) * self.residual.product((r, a[1]), (s, b[1]))
            for (p, r), (q, s) in zip(cross_fit_pairs(a[0]), cross_fit_pairs(b[0]), strict=True)
        )

    def h_with_itself(self, a: Sample) -> jax.Array:
        """h of a sample and itself."""
        a = self.residual.pooled(a)
        return self._mean(
            kernel_value(self.prediction_kernel, p, p) * self.residual.square((r, a[1]))
            for p, r in cross_fit_pairs(a[0])
        )

    def h_tile(self, a: Sample, b: Sample) -> jax.Array:
        """h of all pairs of two batches of prepared samples, ``[S, T]``."""
        pairs, tiles = (jax.vmap(cross_fit_pairs)(a[0]), jax.vmap(cross_fit_pairs)(b[0])), []
        for (p, r), (q, s) in zip(*pairs, strict=True):
            products = self.residual.tile((r, a[1]), (s, b[1]))
            tiles.append(pairwise(self.prediction_kernel, p, q) * products)
        return self._mean(tiles)

    def deviation(self, a: Sample, location: Sample) -> jax.Array:
        """The deviation of one sample at one location."""
        a, location = map(self.residual.pooled, (a, location))
        return self._mean(
            kernel_value(self.prediction_kernel, p, location[0])
            * self.residual.deviation((r, a[1]), location)
            for p, r in cross_fit_pairs(a[0])
        )

    def _mean(self, of_pairs: Iterable[jax.Array]) -> jax.Array:
        """factor times the mean over the cross-fit pairs."""
        values = list(of_pairs)
        total = functools.reduce(jnp.add, values)
        # A division by 1 would be one more operation in every loop.
        return times(self.factor, total if len(values) == 1 else total / len(values))


@struct
class SumOfTerms:
    """A kernel on pairs as a sum of terms.

    Args:
        terms: the summands.
        is_ours: whether all functions in it are the library's, which are symmetric.
    """

    terms: tuple[Term, ...]
    is_ours: bool = static()

    def total(self, function: Callable[[Term], jax.Array]) -> jax.Array:
        """The sum of a function of each term."""
        return functools.reduce(jnp.add, map(function, self.terms))

    @property
    def is_of_pit(self) -> bool:
        """Whether it depends on a target through its PIT alone."""
        return all(term.residual.is_of_pit for term in self.terms)


@struct
class One:
    """The kernel that is 1 everywhere."""

    def __call__(self, p: Distribution, q: Distribution) -> jax.Array:
        return jnp.ones(())


def normal_form(kernel: KernelLike) -> SumOfTerms:
    """A kernel on pairs, which is checked already, as a sum of terms."""
    products = sum_of_products(kernel)
    terms = (Term(factor, *separate(functools.reduce(Product, x))) for factor, x in products)
    return SumOfTerms(tuple(terms), not users_functions(kernel))


@functools.singledispatch
def separate(kernel: KernelLike) -> tuple[KernelLike, TargetResidual]:
    """The prediction kernel and the residual of a kernel on pairs that is not a sum or multiple.

    A class of kernels registers its two parts; by default it is a joint kernel.
    """
    return One(), JointResidual(kernel)


separate.register(TensorProduct, lambda k: (k.prediction_kernel, KernelResidual(k.target_kernel)))
separate.register(SteinKernel, lambda k: (k.prediction_kernel, SteinResidual(k.target_kernel)))
separate.register(PITKernel, lambda k: (k.prediction_kernel, PITResidual(k.unit_feature())))
separate.register(
    FeatureKernel, lambda k: (k.prediction_kernel, FeatureResidual(VectorFeature(k.feature)))
)


@struct
class PreparedRows:
    """Rows as the terms of a kernel want them.

    Args:
        variants: the rows with what different terms need.
        of_term: which of the variants each term takes.
    """

    variants: list[Sample]
    of_term: tuple[int, ...] = static()


def prepared(kernel: SumOfTerms, rows: Sample, axis: Axis) -> PreparedRows:
    """The rows with what the tiles of each term share, so that it is computed once."""
    # Equal rows would go through all tiles, and all derivatives, more than once.
    variants: dict[int, Sample] = {}
    made = []
    for term in kernel.terms:
        predictions = term.residual.prepare(term.prediction_kernel, rows, axis)
        variants.setdefault(id(predictions), (predictions, rows[1]))
        made.append(id(predictions))
    return PreparedRows(list(variants.values()), tuple(map(list(variants).index, made)))


def h(kernel: SumOfTerms, a: Sample, b: Sample) -> jax.Array:
    """h of one pair of samples, a scalar."""
    return kernel.total(lambda term: term.h(a, b))


def h_with_itself(kernel: SumOfTerms, a: Sample) -> jax.Array:
    """h of a sample and itself, a scalar; what `h` computes of both samples is computed once."""
    return kernel.total(lambda term: term.h_with_itself(a))


def h_tile(kernel: SumOfTerms, a: PreparedRows, b: PreparedRows) -> jax.Array:
    """h of all pairs of two batches of rows, ``[S, T]``."""
    rows = ((a.variants[i], b.variants[i]) for i in a.of_term)
    tiles = (term.h_tile(*x) for term, x in zip(kernel.terms, rows, strict=True))
    return functools.reduce(jnp.add, tiles)


def deviation(kernel: SumOfTerms, a: Sample, location: Sample) -> jax.Array:
    """The deviation of one sample at one location, a scalar."""
    return kernel.total(lambda term: term.deviation(a, location))


def deviation_tile(kernel: SumOfTerms, a: Sample, locations: Sample) -> jax.Array:
    """The deviations of a batch of samples at a batch of locations, ``[S, J]``."""
    return vmap_pairs(functools.partial(deviation, kernel))(a, locations)


def check_kernel_of(
    kernel: KernelLike, data: Data, *, formula: Callable[..., jax.Array] = h
) -> SumOfTerms:
    """The kernel in normal form, checked against data that are checked already.

    `formula` is the function of (kernel, sample, sample) that the caller will evaluate.
    """
    kernel = as_pytree(kernel)
    check_kernel(kernel)
    terms = normal_form(kernel)
    if data.is_censored and not terms.is_of_pit:
        raise TypeError(
            "kernel must be a PITKernel, or sums and multiples of them, for targets that are "
            f"IntervalCensored, got {type_name(kernel)}."
        )
    if not terms.is_ours:
        check_formula(kernel, terms, _one_sample(data), formula)
        if data.where is None:
            # Masked rows may hold anything: there, and inside jit, an asymmetric kernel gives NaN.
            check_symmetric(kernel, *data.samples)
    for term in terms.terms:
        if term.residual.needs_stein_identity:
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
                f"predictions must have {words}, for a SteinKernel; row {bad.argmax()} does not."
            )
