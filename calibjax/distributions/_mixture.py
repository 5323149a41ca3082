"""Mixtures of predictions of one family, and the Wasserstein distance between mixtures."""

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.compile import on_cpu
from calibjax._base.sharding import as_varying
from calibjax._base.struct import PyTree, struct, widened, widest_dtype, with_fields
from calibjax._data.capabilities import (
    ClosedFormDifference,
    OwnPIT,
    characteristic,
    cross_fit_pairs,
    restricted,
    tempered,
)
from calibjax._data.distribution import CountLike, Distribution, Labels
from calibjax._numbers.arithmetic import complex_average, root_mean_square, sum_over_pairs
from calibjax._numbers.unit_interval import (
    integer_or_invalid,
    quantile_from_cdf,
    smallest_count_with,
)
from calibjax._numbers.validity import probability_vectors
from calibjax.distributions._categorical import label_log_prob
from calibjax.distributions._optimal_transport import transport
from calibjax.expectations.dispatch import inner_product, mean_embedding, residual_product
from calibjax.kernels import Wasserstein
from calibjax.kernels.base import KernelLike
from calibjax.kernels.predictions import NormDistance

# The log density of a component of weight 0 may exceed the others by more.  The difference is
# clipped, because its exponential must not overflow.
_LARGEST_LOG_RATIO = 80.0


def _said_by_components(name: str) -> Any:
    """A property of a mixture that its components have."""
    return property(lambda mixture: getattr(mixture.components, name))


@struct
class Mixture(OwnPIT):
    """The mixture of K components, P = sum_k weights[k] components[k].

    Args:
        weights: probabilities ``[n, K]``, nonnegative with rows that sum to one (within 1e-3);
            None means equal weights, as in `Mixture.ensemble`.
        components: one distribution of any family with the batch ``[n, K]``, for example
            ``Normal(loc, scale)`` with arrays ``[n, K]``; arrays ``[K, n]`` must be transposed.

    Targets are the targets of the components' family.  A target kernel that has a closed form for
    the components also has one for the mixture: the sum over all K^2 pairs of components.

    See also:
        `Empirical` for draws.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> components = cj.Normal(jnp.array([[-1.0, 1.0]]), jnp.array([[1.0, 1.0]]))
        >>> cj.Mixture(jnp.array([[0.25, 0.75]]), components).mean().tolist()
        [0.5]
        >>> cj.Mixture.ensemble(components).variance().tolist()
        [2.0]

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Appendix D.
    """

    weights: jax.Array | None
    components: Distribution

    n_axes_of_parts = 1
    target_shape = _said_by_components("target_shape")
    target_kind = _said_by_components("target_kind")
    is_ordered = _said_by_components("is_ordered")

    def __new__(cls, weights: jax.Array | None = None, components: Any = None) -> "Mixture":
        """A mixture knows of labels and counts what its components know."""
        if cls is Mixture:
            kinds = {Labels: _MixtureOfLabels, CountLike: _MixtureOfCounts}
            cls = next((of for kind, of in kinds.items() if isinstance(components, kind)), Mixture)
        return super().__new__(cls)

    def _complete(self) -> None:
        if isinstance(self.components, Distribution):
            vars(self)["components"] = self.components.with_batch_axes(2)

    @classmethod
    def ensemble(cls, components: Distribution) -> "Mixture":
        """The mixture of components with the batch ``[n, K]`` and equal weights."""
        return cls(None, components)

    @property
    def shapes(self) -> dict[str, str]:
        weights = {} if self.weights is None else {"weights": "n k"}
        component_shapes = _first_components(self).shapes.items()
        return weights | {
            f"components.{name}": _component_axes(axes) for name, axes in component_shapes
        }

    def probabilities(self) -> jax.Array:
        """The weights of the components of *one* prediction, ``[K]``."""
        if self.weights is not None:
            return self.weights
        leaves = jax.tree.leaves(self.components)
        n_components = leaves[0].shape[0]
        return jnp.full(n_components, 1 / n_components, widest_dtype(*leaves))

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        weights = {} if self.weights is None else {"weights": probability_vectors(self.weights)}
        return weights | {
            f"components.{name}": (words, valid.all(axis=1))
            for name, (words, valid) in _of_components(self, lambda c: c.constraints()).items()
        }

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        return _first_components(self).supports(targets)

    def restricted(self, targets: jax.Array) -> jax.Array:
        return restricted(_first_components(self), targets)

    def mean(self) -> jax.Array:
        """The means, ``[n]`` or ``[n, d]``."""
        return _average(self, _of_components(self, lambda c: c.mean()))

    def location(self) -> jax.Array:
        return _average(self, _of_components(self, lambda c: c.location()))

    def standard_deviation(self) -> jax.Array:
        """The roots of the mean variance of the components plus the variance of their means."""
        return _width(self, *_of_components(self, lambda c: (c.mean(), c.standard_deviation())))

    def spread(self) -> jax.Array:
        return _width(self, *_of_components(self, lambda c: (c.location(), c.spread())))

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws ``[*shape, n]`` or ``[*shape, n, d]``."""
        choice_key, key = jax.random.split(key)
        probabilities = widened(_weights_of(self))
        logits = jnp.broadcast_to(jnp.log(probabilities), (*shape, *probabilities.shape))
        chosen = jax.random.categorical(choice_key, logits)
        if all(jnp.ndim(x) == 2 for x in jax.tree.leaves(self.components)):
            rows = jnp.broadcast_to(jnp.arange(chosen.shape[-1]), chosen.shape)
            drawn_from = jax.tree.map(lambda x: jnp.asarray(x)[rows, chosen], self.components)
            flat = jax.tree.map(jnp.ravel, drawn_from)
            return flat.sample(key).reshape(chosen.shape)
        # Every component makes a draw, and one of the K draws is chosen: the parameters of a
        # component may be more than a draw.
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), self.components)
        draws = flat.sample(key, shape)
        draws = draws.reshape(*logits.shape, *draws.shape[len(shape) + 1 :])
        chosen = chosen.reshape(*logits.shape[:-1], *(1,) * (draws.ndim - logits.ndim + 1))
        return jnp.take_along_axis(draws, chosen, axis=len(shape) + 1).squeeze(len(shape) + 1)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density or log probability at targets ``[n]`` or ``[n, d]``, ``[n]``."""
        probabilities = _weights_of(self)
        values = _of_components(self, lambda c, y: c.log_prob(y), targets)
        largest = jnp.max(jnp.where(probabilities > 0, values, -jnp.inf), axis=1, keepdims=True)
        largest = lax.stop_gradient(jnp.where(jnp.isfinite(largest), largest, 0.0))
        # Components of weight 0 take part, because the derivative in their weight is not 0.
        ratios = jnp.exp(jnp.minimum(values - largest, _LARGEST_LOG_RATIO))
        return jnp.log(jnp.sum(probabilities * ratios, axis=1)) + largest[:, 0]

    def has_stein_identity(self) -> tuple[str, jax.Array]:
        words, of_components = _of_components(self, lambda c: c.has_stein_identity())
        return words, jnp.all(of_components, axis=1)

    def tails(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The weighted sums of those of the components."""
        return _average_at(self, lambda c, y: c.tails(y), targets)

    def cdf_jump(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _average_at(self, lambda c, y: c.cdf_jump(y), targets)

    @property
    def has_atoms(self) -> bool:
        return isinstance(self.components, OwnPIT) and self.components.has_atoms

    @property
    def compared_with_targets(self) -> tuple[str, ...]:
        parts = self.components
        names = parts.compared_with_targets if isinstance(parts, OwnPIT) else ()
        return tuple(f"components.{name}" for name in names)

    def quantile(self, level: jax.Array) -> jax.Array:
        """The quantiles ``[n]``, where the cdf reaches the level, by bisection.

        At the levels 0 and 1 they are the ends of the supports of components with a positive
        weight.
        """
        inside = (level > 0) & (level < 1)
        inner_level = jnp.where(inside, level, 0.5)
        ends = _ends_of_support(self, level)
        if self.target_kind == "real":
            found = jnp.where(inside, quantile_from_cdf(self, inner_level), ends)
            return jnp.where(jnp.isnan(level), jnp.nan, found)
        found = smallest_count_with(lambda y: self.cdf(y) >= inner_level, level)
        return integer_or_invalid(level, jnp.where(inside, found, ends))

    def crps_closed_form(self, targets: jax.Array) -> jax.Array | None:
        """sum_k w_k s_k - sum_kl w_k w_l (d_kl - (d_kk + d_ll) / 2) / 2, ``[n]``.

        s_k is the score of component k, and d_kl = E|Z_k - Z_l|.  None if components have no
        formulas.
        """
        if not isinstance(self.components, ClosedFormDifference):
            return None

        def divergence(c: Any, d: Any) -> jax.Array:
            own = c.mean_absolute_difference(c) + d.mean_absolute_difference(d)
            return c.mean_absolute_difference(d) - own / 2

        of_components = _average_at(self, lambda c, y: c.crps_closed_form(y), targets)
        between = jax.vmap(lambda p: _sum_over_pairs(p, p, divergence, ()))(self)
        total = jax.vmap(lambda p: jnp.sum(p.probabilities()))(self)
        return of_components - between / (2 * jnp.square(total))

    def cross_fit_pairs(self) -> tuple[tuple[Self, Self], ...]:
        """What h compares and subtracts of *one* prediction, as `CrossFit` has it."""
        of_components = jax.vmap(cross_fit_pairs)(self.components)
        return tuple(
            (with_fields(self, components=compared), with_fields(self, components=subtracted))
            for compared, subtracted in of_components
        )

    def characteristic(self, v: jax.Array) -> jax.Array:
        """E exp(i <v, Z>) for Z from *one* prediction, a complex number."""
        probabilities = self.probabilities()
        return complex_average(probabilities, self.components, lambda c: characteristic(c, v))

    def tempered(self, temperature: jax.Array) -> Self:
        """The predictions with densities proportional to p^(1 / temperature)."""
        return dataclasses.replace(self, components=tempered(self.components, temperature))


class _MixtureOfLabels(Mixture, Labels):
    components: Labels

    def log_prob(self, targets: jax.Array) -> jax.Array:
        # The log probability of a component may be -inf, where it has no derivative.
        return label_log_prob(self.label_probabilities(), targets)

    def label_probabilities(self) -> jax.Array:
        """The probabilities of all labels, ``[n, m]``."""
        component_probs = self.components.label_probabilities()
        if self.weights is None:
            return jnp.mean(component_probs, axis=-2)
        weights = self.weights[..., None, :]
        return jnp.matmul(weights, component_probs, precision=lax.Precision.HIGHEST)[..., 0, :]


class _MixtureOfCounts(Mixture, CountLike):
    components: CountLike
    max_count = _said_by_components("max_count")

    def probability(self, count: jax.Array) -> jax.Array:
        values = jax.vmap(lambda c: c.probability(count))(self.components)
        probabilities = self.probabilities()
        return jnp.sum(probabilities * values) / jnp.sum(probabilities)

    def off_mode_probability(self) -> jax.Array:
        """A lower bound: the mean of the components' probabilities.

        Components that are nearly certain are certain of the same count, 0, if they are Poisson,
        and the bound is sharp.
        """
        return _average(self, _of_components(self, lambda c: c.off_mode_probability()))


# Both have the public name.
_MixtureOfLabels.__name__ = _MixtureOfCounts.__name__ = "Mixture"


def _first_components(mixture: Mixture) -> Distribution:
    """The first component of each mixture, a batch ``[n]``."""
    components = mixture.components
    leaves = jax.tree.leaves(components)
    if not isinstance(components, Distribution) or any(jnp.ndim(x) < 2 for x in leaves):
        shapes = [list(jnp.shape(x)) for x in leaves]
        raise ValueError(
            "components must be one distribution of calibjax with arrays of shape [n, K, …], "
            f"got {type(components).__name__} with shapes {shapes}."
        )
    return jax.tree.map(lambda x: x[:, 0], components)


def _weights_of(mixture: Mixture) -> jax.Array:
    """The weights of the components, ``[n, K]``."""
    return jax.vmap(Mixture.probabilities)(mixture)


def _of_components(
    mixture: Mixture, function: Callable[..., Any], targets: jax.Array | None = None
) -> Any:
    """A function of all components as one batch of n K predictions, its results ``[n, K, …]``.

    With targets ``[n]`` it is a function of each component and the target of its row.
    """
    n, k = jax.tree.leaves(mixture.components)[0].shape[:2]
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), mixture.components)
    given = () if targets is None else (jnp.repeat(targets, k, axis=0),)
    return jax.tree.map(
        lambda x: x if isinstance(x, str) else x.reshape(n, k, *x.shape[1:]), function(flat, *given)
    )


def _average(mixture: Mixture, values: jax.Array) -> jax.Array:
    """The weighted sums of values ``[n, K, …]`` over the components, ``[n, …]``."""
    return jax.vmap(lambda p, x: jnp.tensordot(p.probabilities(), x, axes=1))(mixture, values)


def _average_at(mixture: Mixture, function: Callable[..., Any], targets: jax.Array) -> Any:
    """The weighted means of what a function of the components and targets returns, ``[n]``."""
    weights = _weights_of(mixture)
    values = _of_components(mixture, function, targets)
    return jax.tree.map(lambda x: jnp.sum(weights * x, axis=1) / jnp.sum(weights, axis=1), values)


def _width(mixture: Mixture, centers: jax.Array, widths: jax.Array) -> jax.Array:
    """The root of the mean square of widths ``[n, K, …]`` and of deviations of centers."""
    total = jnp.hypot(widths, centers - _average(mixture, centers)[:, None])
    # Weights of an ensemble are not rows, and would lie on other devices than these.
    return jax.vmap(lambda p, x: root_mean_square(p.probabilities(), x))(mixture, total)


def _ends_of_support(mixture: Mixture, level: jax.Array) -> jax.Array:
    """The largest possible target where the level is 1, else the smallest one."""
    weights = _weights_of(mixture)
    at_end = jnp.where(level >= 1, 1.0, 0.0).astype(weights.dtype)
    ends = _of_components(mixture, lambda c, level: c.quantile(level), at_end)
    ends = lax.stop_gradient(ends)
    likeliest = jnp.take_along_axis(ends, jnp.argmax(weights, axis=1)[:, None], axis=1)
    ends = jnp.where(weights > 0, ends, likeliest)
    return jnp.where(level >= 1, jnp.max(ends, axis=1), jnp.min(ends, axis=1))


def _sum_over_pairs(
    p: Mixture, q: Mixture, function: Callable[[Any, Any], jax.Array], captured: PyTree
) -> jax.Array:
    """sum_kl w_k v_l function(c_k, d_l), over the components of *two* mixtures.

    `captured` holds the arrays that the function uses besides its arguments.
    """
    ours, theirs = ((x.probabilities(), x.components) for x in (p, q))

    def term(left, right):
        return left[0] * right[0] * function(left[1], right[1])

    zero = as_varying(jnp.zeros((), ours[0].dtype), (ours, theirs, captured))
    return sum_over_pairs(term, ours, theirs, zero)


def _component_axes(axes: str) -> str:
    """The symbolic shape of a component's parameter, with the axis "k" of components inserted.

    If the components are mixtures themselves, their own axis "k" becomes "k'".
    """
    batch, *others = axes.split()
    return " ".join([batch, "k", *(f"{axis}'" if axis[0] == "k" else axis for axis in others)])


@mean_embedding.register(Mixture, object)
def mixture_mean(p: Mixture, kernel: KernelLike, y: jax.Array) -> jax.Array:
    values = jax.vmap(lambda c: mean_embedding(c, kernel, y))(p.components)
    return jnp.sum(p.probabilities() * values)


@inner_product.register(Mixture, object)
def mixture_inner(p: Mixture, kernel: KernelLike, q: Mixture) -> jax.Array:
    return _sum_over_pairs(p, q, lambda c, d: inner_product(c, kernel, d), kernel)


@residual_product.register(Mixture, object)
def mixture_residual(
    p: Mixture, kernel: KernelLike, y: jax.Array, q: Mixture, z: jax.Array
) -> jax.Array:
    # The weights sum to one, so that delta_y - p = sum_k weights[k] (delta_y - p_k).  The residual
    # product of two components may have a form that does not cancel.
    captured = kernel, y, z
    return _sum_over_pairs(p, q, lambda c, d: residual_product(c, kernel, y, d, z), captured)


@struct
class MixtureWasserstein(NormDistance):
    """The mixture Wasserstein distance between two Mixture predictions, in units of the targets.

    MW(p, q)^2 = min sum_ij w_ij W(p_i, q_j)^2 over couplings w of the two vectors of weights, where
    W is the `Wasserstein` distance of components.  The minimum is exact optimal transport.  MW is
    at least the Wasserstein distance of the mixtures themselves, which has no formula.

    MW is *not* known to be Hilbertian: a DistanceKernel of it may be indefinite.  A DistanceKernel
    of `MeanEmbeddingDistance` is always positive definite.

    One pair of mixtures of K components costs about O(K^3).  In tiles on one core a pair takes
    0.2 µs at K = 3 and 6 µs at K = 10 with equal weights, and 0.5 µs and 28 µs with other weights.
    Only first derivatives are right; derivatives in the weights are along the simplex.

    Raises:
        TypeError: the predictions are not mixtures, or `Wasserstein` is not defined for their
            components.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> components = cj.Normal(jnp.array([[0.0, 4.0], [3.0, 0.0]]), jnp.ones((2, 2)))
        >>> predictions = cj.Mixture(jnp.array([[0.5, 0.5], [0.25, 0.75]]), components)
        >>> (cj.MixtureWasserstein().pairwise(predictions, predictions) ** 2).tolist()
        [[0.0, 4.25], [4.25, 0.0]]

    Reference: Delon and Desolneux, A Wasserstein-type distance in the space of Gaussian mixture
    models, SIAM J. Imaging Sciences 2020, Section 4; Widmann, Lindsten and Zachariah, Calibration
    tests beyond classification, ICLR 2021, Appendix D.
    """

    def squared(self, p: Distribution, q: Distribution) -> jax.Array:
        _check_mixtures(p, q)
        return _squared_to_batch(p, jax.tree.map(lambda x: x[None], q))[0]

    def pairwise_squared(self, ps: Distribution, qs: Distribution) -> jax.Array:
        _check_mixtures(ps, qs)
        return _squared_tile(ps, qs)


def _check_mixtures(p: Distribution, q: Distribution) -> None:
    if not (isinstance(p, Mixture) and isinstance(q, Mixture)):
        raise TypeError(
            "MixtureWasserstein is defined for Mixture predictions, got "
            f"{type(p).__name__} and {type(q).__name__}."
        )


@jax.jit
def _squared_tile(ps: Mixture, qs: Mixture) -> jax.Array:
    """MW(p, q)^2 for all pairs of two batches, ``[S, T]``."""
    # One row of the tile fits into the cache of a CPU; elsewhere one loop over all pairs is faster.
    if on_cpu():
        return lax.map(lambda p: _squared_to_batch(p, qs), ps)
    return jax.vmap(_squared_to_batch, (0, None))(ps, qs)


@jax.jit
def _squared_to_batch(p: Mixture, qs: Mixture) -> jax.Array:
    """MW(p, q)^2 from one mixture to a batch, ``[T]``."""
    over_batch = jax.vmap(Wasserstein().squared, (None, 0))
    over_component_pairs = jax.vmap(jax.vmap(over_batch, (None, 1)), (0, None))
    costs = over_component_pairs(p.components, qs.components)
    a = p.probabilities()
    b = jax.vmap(Mixture.probabilities, out_axes=1)(qs)
    a = jnp.broadcast_to(a[:, None], (len(a), b.shape[1]))
    return transport(costs, a.astype(costs.dtype), b.astype(costs.dtype))
