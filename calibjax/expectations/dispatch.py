"""The functions of a distribution and a target kernel, chosen by the types of both.

Dispatch happens while tracing and costs nothing in compiled code.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp

from calibjax._base.compile import RULES_OF_USERS
from calibjax._base.sharding import Axis
from calibjax._base.struct import PyTree, struct, type_name
from calibjax._data.distribution import Distribution
from calibjax._loops.coordinate_sums import row_by_row
from calibjax.kernels.base import KernelLike, Scaled, Sum, vmap_pairs
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
        "Empirical(jnp.moveaxis(predictions.sample(key, (1000,)), 0, 1), split=True)."
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
