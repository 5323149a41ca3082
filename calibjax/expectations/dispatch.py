"""The functions of a distribution and a target kernel, chosen by the types of both.

Dispatch happens while tracing and costs nothing in compiled code.

**Expectations of any target kernel as sums**: over all labels, and over points with weights.  For
finitely many labels, with the matrix K of the kernel at all of them, E k(Z, y) = (K p)_y and E
k(Z, Z') = p^T K q.  The residual product is r^T K s with the residuals r = e_y - p and s = e_z - q.
With K = I, a tile of residual products is one product of matrices.

For points with weights each function is a double sum sum_st a_s b_t k(x_s, z_t) over the points and
weights of two measures.  A measure is a prediction, a point, or the signed measure delta_y - p.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.compile import RULES_OF_USERS, on_cpu
from calibjax._base.sharding import Axis, as_varying
from calibjax._base.struct import PyTree, indexed, struct, type_name
from calibjax._data.distribution import Binary, Distribution, Labels
from calibjax._loops.coordinate_sums import row_by_row
from calibjax._numbers.arithmetic import dot, sum_over_pairs
from calibjax.kernels import WhiteKernel
from calibjax.kernels.base import KernelLike, Scaled, Sum, pairwise, vmap_pairs
from calibjax.kernels.predictions import NormDistance

Rule = TypeVar("Rule", bound=Callable[..., Any])
Family = TypeVar("Family", bound=Distribution)
K = TypeVar("K", bound=KernelLike)
Special = TypeVar("Special", bound=Callable[..., Any])


class PairDispatch(Generic[Rule]):
    """A function of (distribution, kernel, *args) with one rule for each pair of types.

    The most specific distribution wins, then the most specific kernel; types without a rule fall
    back to the decorated function.

    Args:
        fallback: the function without a rule.
        n_axes: the number of axes of what a rule returns, 2 for a tile; None if not an array.
        of: the function that the fallback calls.  Where it has a rule for more specific types than
            this one, such as a closed form of a subclass, this one falls back.
    """

    def __init__(
        self, fallback: Rule, n_axes: int | None = 0, of: "PairDispatch | None" = None
    ) -> None:
        functools.update_wrapper(self, fallback)
        self.fallback, self.n_axes, self.of = fallback, n_axes, of
        self.rules: dict[tuple[type, type], Callable[..., jax.Array]] = {}

    def register(self, distribution: type, kernel: type) -> Callable[[Special], Special]:
        """Decorator: makes a function the rule for a distribution and a kernel type."""

        def decorate(rule: Special) -> Special:
            if (distribution, kernel) in self.rules:
                raise ValueError(
                    f"{self.fallback.__name__} already has a rule for "
                    f"({distribution.__name__}, {kernel.__name__})."
                )
            self.rules[distribution, kernel] = rule
            package, *types = (x.__module__.split(".")[0] for x in (rule, distribution, kernel))
            if package != "calibjax" and {*types} <= {"calibjax", "builtins"}:
                RULES_OF_USERS.append(rule)
            return rule

        return decorate

    def rule(self, p: Distribution, kernel: KernelLike) -> Callable[..., jax.Array]:
        """The function for these types."""
        for types in itertools.product(type(p).__mro__, type(kernel).__mro__):
            if types in self.rules:
                return self.rules[types]
            if self.of is not None and types in self.of.rules:
                break
        return self.fallback

    def __call__(self, p: Distribution, kernel: KernelLike, *args: PyTree) -> jax.Array:
        for q in args:
            if isinstance(q, Distribution) and type(q) is not type(p):
                raise TypeError(
                    "both predictions must be of one family, got "
                    f"{type(p).__name__} and {type(q).__name__}."
                )
        rule = self.rule(p, kernel)
        value = rule(p, kernel, *args)
        is_checked = rule is not self.fallback and self.n_axes is not None
        if is_checked and jnp.ndim(value) != self.n_axes:
            raise ValueError(
                f"{self.fallback.__name__} of {type(p).__name__} and {type_name(kernel)} must "
                f"return an array of {self.n_axes} axes, got shape {list(jnp.shape(value))}."
            )
        return value


def _no_closed_form(function: str, p: Distribution, kernel: KernelLike) -> NotImplementedError:
    family = type(p).__name__
    known = sorted(k.__name__ for d, k in mean_embedding.rules if isinstance(p, d))
    return NotImplementedError(
        f"{function} has no closed form for {family} predictions with a target kernel of type "
        f"{type_name(kernel)}; {family} has one for: {', '.join(known) or 'none'}. Register "
        f"one with calibjax.{function}.register({family}, {type_name(kernel)}), or let many "
        "samples stand for the predictions, which works with every kernel: "
        "Empirical(jnp.moveaxis(predictions.sample(key, (1000,)), 0, 1), fair=True)."
    )


@PairDispatch
def mean_embedding(p: Distribution, kernel: KernelLike, y: jax.Array) -> jax.Array:
    """E k(Z, y) for Z ~ p: the mean embedding of one prediction at one target, a scalar.

    See also:
        `inner_product`; `Univariate` for families without closed forms.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> p = cj.Normal(jnp.array(0.0), jnp.array(1.0))
        >>> float(cj.mean_embedding(p, cj.GaussianKernel(1.0), jnp.array(0.0)))
        0.7071
    """
    raise _no_closed_form("mean_embedding", p, kernel)


@PairDispatch
def inner_product(p: Distribution, kernel: KernelLike, q: Distribution) -> jax.Array:
    """E k(Z, Z') for independent Z ~ p and Z' ~ q: the inner product of two mean embeddings.

    See also:
        `mean_embedding`.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> p = cj.Normal(jnp.array(0.0), jnp.array(1.0))
        >>> float(cj.inner_product(p, cj.GaussianKernel(1.0), p))
        0.5774
    """
    raise _no_closed_form("inner_product", p, kernel)


@functools.partial(PairDispatch, of=mean_embedding)
def residual_product(
    p: Distribution, kernel: KernelLike, y: jax.Array, q: Distribution, z: jax.Array
) -> jax.Array:
    """<k(y, .) - mu_p, k(z, .) - mu_q>, the target part of h: a difference of four terms.

    k(y, z) - E k(Z, z) - E k(y, Z') + E k(Z, Z') with Z ~ p and Z' ~ q.  A pair registers its own
    form where the four terms cancel or where one product gives them all.
    """
    ours, theirs = mean_embedding(p, kernel, z), mean_embedding(q, kernel, y)
    # A kernel of integers has no dtype to follow.
    of_targets = jnp.asarray(kernel(y, z)).astype(ours.dtype)
    return (of_targets - ours) - (theirs - inner_product(p, kernel, q))


@functools.partial(PairDispatch, n_axes=2, of=mean_embedding)
def residual_product_tile(
    ps: Distribution, kernel: KernelLike, ys: jax.Array, qs: Distribution, zs: jax.Array
) -> jax.Array:
    """`residual_product` for all pairs of two batches, ``[S, T]``; some types have a faster way."""

    return vmap_pairs(lambda a, b: residual_product(a[0], kernel, a[1], *b))((ps, ys), (qs, zs))


@functools.partial(PairDispatch, of=mean_embedding)
def squared_embedding_distance(p: Distribution, kernel: KernelLike, q: Distribution) -> jax.Array:
    """|mu_p - mu_q|^2; a pair registers a form that does not cancel, if it has one."""
    own = inner_product(p, kernel, p), inner_product(q, kernel, q)
    return squared_distance_of(own[0] + own[1], inner_product(p, kernel, q))


@functools.partial(PairDispatch, n_axes=2, of=mean_embedding)
def squared_embedding_distance_tile(
    ps: Distribution, kernel: KernelLike, qs: Distribution
) -> jax.Array:
    """`squared_embedding_distance` for all pairs of two batches, ``[S, T]``."""
    return vmap_pairs(lambda p, q: squared_embedding_distance(p, kernel, q))(ps, qs)


@functools.partial(PairDispatch, n_axes=None, of=mean_embedding)
def prepare_rows(ps: Distribution, kernel: KernelLike, ys: jax.Array, axis: Axis) -> PyTree:
    """The predictions of n rows with what their tiles share, by default as they are.

    It is computed once for each row, before a sum over pairs.  The result has the `cross_fit_pairs`
    of a prediction, and rules for its residual products.
    """
    return ps


def squared_distance_of(own: jax.Array, inner: jax.Array) -> jax.Array:
    """The squared distance of two points, from the sum of their squares and their inner product."""
    squared = own - 2 * inner
    # What rounding leaves of equal predictions has no meaning, and its root has a steep slope.
    return jnp.where(squared <= 8 * jnp.finfo(squared.dtype).eps * own, 0.0, squared)


def squared_distance_tile(
    ps: Family, kernel: K, qs: Family, inner_tile: Callable[[Family, K, Family], jax.Array]
) -> jax.Array:
    """`squared_embedding_distance_tile` from a tile of inner products."""
    ours, theirs = (
        jax.vmap(lambda p: inner_product(p, kernel, p))(predictions) for predictions in (ps, qs)
    )
    return squared_distance_of(ours[:, None] + theirs[None, :], inner_tile(ps, kernel, qs))


def register_rules(family: type, kernel_type: type, **rules: Callable[..., jax.Array]) -> None:
    """Registers the rules of a family and a type of kernel, each by the name of its function."""
    functions = mean_embedding, inner_product, residual_product, residual_product_tile
    distances = squared_embedding_distance, squared_embedding_distance_tile
    by_name = {function.fallback.__name__: function for function in (*functions, *distances)}
    for name, rule in rules.items():
        by_name[name].register(family, kernel_type)(rule)


def register_row_by_row(
    family: type,
    kernel_type: type,
    moments: Callable[..., Sequence[jax.Array]],
    residual: Callable[..., jax.Array],
) -> None:
    """Registers a residual product, of pairs and of tiles, that is a function of a few numbers.

    Args:
        family: the family of the predictions.
        kernel_type: the type of the target kernel.
        moments: ``moments(p, kernel, y)``, the numbers of one row.
        residual: ``residual(*of_one, *of_another)``, for arrays with any axes of pairs behind.
    """

    def of_pair(p: Any, kernel: Any, y: jax.Array, q: Any, z: jax.Array) -> jax.Array:
        return residual(*moments(p, kernel, y), *moments(q, kernel, z))

    def of_tile(ps: Any, kernel: Any, ys: jax.Array, qs: Any, zs: jax.Array) -> jax.Array:
        of_rows = jax.vmap(moments, (0, None, 0))
        return row_by_row(residual, of_rows(ps, kernel, ys), of_rows(qs, kernel, zs))

    register_rules(family, kernel_type, residual_product=of_pair, residual_product_tile=of_tile)


def _register_linear(function: PairDispatch) -> None:
    @function.register(Distribution, Sum)
    def sum_rule(p: Distribution, kernel: Sum, *args: PyTree) -> jax.Array:
        return function(p, kernel.left, *args) + function(p, kernel.right, *args)

    @function.register(Distribution, Scaled)
    def multiple_rule(p: Distribution, kernel: Scaled, *args: PyTree) -> jax.Array:
        return kernel.valid_factor() * function(p, kernel.kernel, *args)


for _function in (mean_embedding, inner_product, residual_product):
    _register_linear(_function)


@struct
class MeanEmbeddingDistance(NormDistance):
    """The maximum mean discrepancy (MMD) between two predictions, |mu_p - mu_q|.

    mu_p = E k(Z, .) with Z ~ p is the mean embedding of p, and the squared distance is
    E k(Z, Z') + E k(W, W') - 2 E k(Z, W) with independent Z, Z' ~ p and W, W' ~ q.  It is defined
    for every family that has closed forms with k.  It is the distance of a Hilbert space, so that
    a DistanceKernel of it is positive definite for every exponent in (0, 2].

    The three terms are subtracted: distances below some 1e-3 sqrt(k(y, y)) in float32 (2e-8 in
    float64) are noise, and distances within rounding of 0 are 0.  Categorical and Bernoulli
    predictions, and Normal and MultivariateNormalDiag predictions with a GaussianKernel, have
    forms that keep all digits.

    Args:
        kernel: a target kernel k, such as a GaussianKernel.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.array([0.0, 3.0]), jnp.array([1.0, 5.0]))
        >>> distance = cj.MeanEmbeddingDistance(cj.GaussianKernel(1.0))
        >>> float(distance.pairwise(predictions, predictions)[0, 1])
        0.6258

    Reference: Gretton et al., A kernel two-sample test, JMLR 2012, Lemma 6.
    """

    kernel: KernelLike

    inner_functions = {"kernel": "targets"}

    def squared(self, p: Distribution, q: Distribution) -> jax.Array:
        return squared_embedding_distance(p, self.kernel, q)

    def pairwise_squared(self, ps: Distribution, qs: Distribution) -> jax.Array:
        return squared_embedding_distance_tile(ps, self.kernel, qs)


FamilyClass = TypeVar("FamilyClass", bound=type[Distribution])


def all_labels(p: Labels) -> jax.Array:
    """The labels 0 … m-1."""
    return jnp.arange(p.label_probabilities().shape[-1], dtype=jnp.int32)


def _kernel_matrix(kernel: KernelLike, p: Labels) -> jax.Array:
    """K, the kernel at all pairs of labels, ``[m, m]``."""
    labels = all_labels(p)
    return vmap_pairs(kernel)(labels, labels).astype(p.label_probabilities().dtype)


def label_residual(p: Labels, y: jax.Array) -> jax.Array:
    """e_y - p for a label y, ``[m]``."""
    probabilities = p.label_probabilities()
    is_target = jnp.arange(probabilities.shape[-1], dtype=jnp.int32) == y
    return is_target.astype(probabilities.dtype) - probabilities


def finite_mean(p: Labels, kernel: KernelLike, y: jax.Array) -> jax.Array:
    at_labels = jax.vmap(kernel, in_axes=(0, None))(all_labels(p), y)
    probabilities = p.label_probabilities()
    return dot(probabilities, at_labels.astype(probabilities.dtype))


def finite_inner(p: Labels, kernel: KernelLike, q: Labels) -> jax.Array:
    return dot(p.label_probabilities(), dot(_kernel_matrix(kernel, q), q.label_probabilities()))


def finite_residual(
    p: Labels, kernel: KernelLike, y: jax.Array, q: Labels, z: jax.Array
) -> jax.Array:
    return dot(label_residual(p, y), dot(_kernel_matrix(kernel, q), label_residual(q, z)))


def finite_squared_distance(p: Labels, kernel: KernelLike, q: Labels) -> jax.Array:
    difference = p.label_probabilities() - q.label_probabilities()
    return dot(difference, dot(_kernel_matrix(kernel, q), difference))


def white_residual(
    p: Labels, kernel: WhiteKernel, y: jax.Array, q: Labels, z: jax.Array
) -> jax.Array:
    # K is the identity, and the residuals of two labels differ in their signs only.
    if isinstance(p, Binary) and isinstance(q, Binary):
        ours, theirs = p.binary_probability(), q.binary_probability()
        return 2 * ((y == 1).astype(ours.dtype) - ours) * ((z == 1).astype(theirs.dtype) - theirs)
    return dot(label_residual(p, y), label_residual(q, z))


def white_residual_tile(
    ps: Labels, kernel: WhiteKernel, ys: jax.Array, qs: Labels, zs: jax.Array
) -> jax.Array:
    if isinstance(ps, Binary) and isinstance(qs, Binary):
        return residual_product_tile.fallback(ps, kernel, ys, qs, zs)
    r, s = jax.vmap(label_residual)(ps, ys), jax.vmap(label_residual)(qs, zs)
    if on_cpu() or r.shape[1] > _FEW_CLASSES:
        # Fused into the product they would be recomputed for each of its blocks. jax 0.12 derives
        # no barrier of two arrays of which one has a derivative.  Classes are first, as in the
        # distances of the same rows: 4096 rows take a tenth less time.  A product of few rows with
        # many classes takes half of the time with rows first.
        axis = 1 if r.shape[1] > _FEW_CLASSES and r.size <= _SMALL_PRODUCT else 0
        r = lax.optimization_barrier(jnp.moveaxis(r, 1, axis))
        s = lax.optimization_barrier(jnp.moveaxis(s, 1, axis))
        over_classes = ((axis,), (axis,)), ((), ())
        return lax.dot_general(r, s, over_classes, precision=lax.Precision.HIGHEST)
    return _sum_of_outer_products(r.T, s.T)


# Up to this number of classes an accelerator sums outer products, which the compiler fuses into the
# code that uses them: the tile is never in memory.
_FEW_CLASSES = 32
# The largest number of residuals, rows times classes, of a product with rows first.
_SMALL_PRODUCT = 2**15


@jax.custom_jvp
def _sum_of_outer_products(r: jax.Array, s: jax.Array) -> jax.Array:
    """r^T s for factors ``[m, S]`` and ``[m, T]``."""
    return sum(a[:, None] * b[None, :] for a, b in zip(r, s, strict=True))


@_sum_of_outer_products.defjvp
def _sum_of_outer_products_jvp(factors, tangents):
    # The same derivative, as products of matrices: backwards they read the cotangents of the tile
    # once for each factor, and not once for each class.
    (r, s), (dr, ds) = factors, tangents
    return _sum_of_outer_products(r, s), dot(dr.T, s) + dot(r.T, ds)


def finite_sums(family: FamilyClass) -> FamilyClass:
    """Class decorator: registers these sums for a family that has `label_probabilities`."""
    mean_embedding.register(family, object)(finite_mean)
    inner_product.register(family, object)(finite_inner)
    residual_product.register(family, object)(finite_residual)
    squared_embedding_distance.register(family, object)(finite_squared_distance)
    residual_product.register(family, WhiteKernel)(white_residual)
    residual_product_tile.register(family, WhiteKernel)(white_residual_tile)
    return family


# The least number of kernel values in one step of the loop.  A tile of many pairs of predictions
# takes one pair of points at a time; for a few pairs a step takes more points together.
_KERNEL_VALUES_PER_STEP = 64


#: Points ``[S, …]``, an array or a pytree of arrays, and weights ``[S]``.
Measure = tuple[PyTree, jax.Array]


def sums_over_atoms(family: FamilyClass) -> FamilyClass:
    """Class decorator: registers sums over atoms for a family that has `atoms`, for any kernel."""
    register_sums(
        family,
        object,
        measure=lambda p, kernel: p.atoms(),
        point=lambda kernel, y: y[None],
        of_points=lambda kernel: kernel,
    )
    return family


def register_sums(
    family: type[Distribution],
    kernel_type: type,
    measure: Callable[[Any, Any], Measure],
    point: Callable[[Any, jax.Array], PyTree],
    of_points: Callable[[Any], KernelLike],
) -> None:
    """Registers sums over pairs of points for a family and a kernel type.

    A residual product of one pair is four sums, of which many targets of one prediction share the
    one over its own points.

    Args:
        family: the family of the predictions.
        kernel_type: the type of the target kernel.
        measure: ``measure(p, kernel)``, the points and weights of one prediction.
        point: ``point(kernel, y)``, one target as points with a leading axis of length 1.
        of_points: ``of_points(kernel)``, the function of two points that is summed.
    """

    def residual_measure(p: Distribution, kernel: KernelLike, y: jax.Array) -> Measure:
        return measure_of_residual(measure(p, kernel), point(kernel, y))

    @mean_embedding.register(family, kernel_type)
    def measure_mean(p: Distribution, kernel: KernelLike, y: jax.Array) -> jax.Array:
        points, weights = measure(p, kernel)
        at_target = point(kernel, y), jnp.ones(1, weights.dtype)
        return double_sum(of_points(kernel), (points, weights), at_target)

    @inner_product.register(family, kernel_type)
    def measure_inner(p: Distribution, kernel: KernelLike, q: Distribution) -> jax.Array:
        return double_sum(of_points(kernel), measure(p, kernel), measure(q, kernel))

    @residual_product_tile.register(family, kernel_type)
    def measure_residual_tile(
        ps: Distribution, kernel: KernelLike, ys: jax.Array, qs: Distribution, zs: jax.Array
    ) -> jax.Array:
        measures = jax.vmap(residual_measure, (0, None, 0))
        left, right = measures(ps, kernel, ys), measures(qs, kernel, zs)
        return double_sum_tile(of_points(kernel), left, right)

    @squared_embedding_distance_tile.register(family, kernel_type)
    def measure_squared_distance_tile(
        ps: Distribution, kernel: KernelLike, qs: Distribution
    ) -> jax.Array:
        def inner_tile(ps: Distribution, kernel: KernelLike, qs: Distribution) -> jax.Array:
            measures = jax.vmap(measure, (0, None))
            return double_sum_tile(of_points(kernel), measures(ps, kernel), measures(qs, kernel))

        return squared_distance_tile(ps, kernel, qs, inner_tile)


def measure_of_residual(measure: Measure, target: PyTree) -> Measure:
    """The signed measure delta_y - p, ``[1 + S, …]`` and ``[1 + S]``, from p and the point y.

    h is the inner product of the embeddings of two such measures.
    """
    points, weights = measure
    points = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), target, points)
    return points, jnp.concatenate([jnp.ones(1, weights.dtype), -weights])


def double_sum(kernel: KernelLike, left: Measure, right: Measure) -> jax.Array:
    """sum_st a_s b_t k(x_s, z_t) for one pair of measures."""
    left, right = indexed((left, right), None)
    return double_sum_tile(kernel, left, right)[0, 0]


def double_sum_tile(kernel: KernelLike, left: Measure, right: Measure) -> jax.Array:
    """sum_st a_is b_jt k(x_is, z_jt) for all pairs of measures i and j, ``[R, R']``.

    The loops over points are outside, and each step makes a whole tile of pairs: on a CPU this is
    ten times faster than a sum over points for each pair.
    """
    shape = left[1].shape[0], right[1].shape[0]
    per_side = max(1, round((_KERNEL_VALUES_PER_STEP / (shape[0] * shape[1])) ** 0.5))
    left, right = _chunks(left, per_side), _chunks(right, per_side)

    def terms(left: Measure, right: Measure) -> jax.Array:
        (x, a), (z, b) = left, right
        return pairwise(kernel, x, z).astype(a.dtype) * a[:, None] * b[None, :]

    def sum_of_chunks(left: Measure, right: Measure) -> jax.Array:
        return jnp.sum(vmap_pairs(terms)(left, right), axis=(0, 1))

    zeros = as_varying(jnp.zeros(shape, left[1].dtype), (kernel, left, right))
    return sum_over_pairs(sum_of_chunks, left, right, zeros)


def _chunks(measures: Measure, size: int) -> Measure:
    """Points and weights ``[R, S, …]`` cut along their points, ``[chunks, size, R, …]``.

    Copies of the last point with weight 0 fill the last chunk.
    """
    points, weights = measures
    n_points = weights.shape[1]
    size = min(size, n_points)
    n_chunks = -(-n_points // size)
    index = jnp.arange(n_chunks * size)

    def cut(values: jax.Array) -> jax.Array:
        values = jnp.moveaxis(values, 1, 0)[jnp.minimum(index, n_points - 1)]
        return values.reshape(n_chunks, size, *values.shape[1:])

    is_point = (index < n_points).reshape(n_chunks, size, 1)
    return jax.tree.map(cut, points), jnp.where(is_point, cut(weights), 0.0)
