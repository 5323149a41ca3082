"""Predictions given by a few quantiles, or by an interval."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.check import check_flag
from calibjax._base.struct import rows_of, static, struct, widened, widest_dtype
from calibjax._data.capabilities import KnownLevels, KnownQuantiles, OwnPIT
from calibjax._data.distribution import Distribution, of_part
from calibjax._numbers.arithmetic import fast_where
from calibjax._numbers.unit_interval import UnitInterval, interval
from calibjax._numbers.validity import PROBABILITY, is_finite
from calibjax.distributions._univariate import Univariate, checked_levels
from calibjax.kernels import EmbeddingDistance

# Points in each tail, and the least number of points between the first and the last quantile.
_TAIL_ATOMS, _LEAST_ATOMS = 8, 48


@struct
class Quantiles(KnownLevels, KnownQuantiles, Univariate):
    """Predictions given by quantiles at K >= 2 levels, as from quantile regression.

    Between two levels the quantile function is linear.  Beyond the first and the last level the
    targets have exponential tails, whose density continues the density of the piece beside them:
    with the slope s of the quantile function between the first two levels u_1 and u_2,

    .. math::
        F^{-1}(u) = v_1 + s u_1 \\log(u / u_1) \\quad\\text{for}\\quad u < u_1,

    and likewise above the last level.  `calibration_test` with its default kernels, `pit`, the PIT
    curves and `CalibrationMonitor` use only what was predicted: how often targets lie between two
    quantiles.  The rules for pieces and tails do not change the p-value on average, but they do
    change the SKCE, `crps` and `log_prob`.

    A distribution with atoms, such as the amount of rain, has the quantile v at level u if
    P(Y < v) <= u <= P(Y <= v).  All of these resolve a target that is equal to a quantile in favour
    of the predictions: an error is one that no atom explains.  Where targets and values have two
    precisions, both are rounded to the coarser one: 0.1 in float32 and in float64 are equal.

    Args:
        values: quantiles ``[n, K]``, nondecreasing along the levels, in units of the targets.
        levels: K increasing numbers in (0, 1), the same for all predictions.
        sort: whether to sort the values of each row first; without it quantiles that cross are an
            error.

    Targets are real numbers of shape ``[n]``.  Expectations of kernels are sums over 64 to
    16 + 2 K points: Gauss' rules of each piece and of the tails.

    Raises:
        ValueError: levels are not at least 2 increasing numbers in (0, 1), or values do not have
            one column for each of them; at the first use outside of jit, values that are not
            finite, or that cross.

    See also:
        `Empirical` for independent draws.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Quantiles(jnp.array([[0.0, 1.0, 3.0]]), levels=(0.1, 0.5, 0.9))
        >>> predictions.cdf(jnp.array([2.0])).tolist(), predictions.quantile(0.3).tolist()
        ([0.7], [0.5])
    """

    values: jax.Array
    levels: Sequence[float] = static()

    shapes = {"values": "n k"}
    compared_with_targets = ("values",)
    has_continuous_density = False

    def __init__(self, values: jax.Array, levels: Sequence[float], sort: bool = False) -> None:
        levels = checked_levels(levels)
        if check_flag("sort", sort):
            values = jnp.sort(jnp.asarray(values), axis=-1)
        if jnp.ndim(values) > 0 and jnp.shape(values)[-1] != len(levels):
            raise ValueError(
                f"values must have one column for each of {len(levels)} levels, got shape "
                f"{list(jnp.shape(values))}."
            )
        vars(self).update(values=values, levels=levels)

    @classmethod
    def from_interval(cls, lower: ArrayLike, upper: ArrayLike, coverage: float) -> "Quantiles":
        """Central intervals ``[n]`` with a probability `coverage`, as two quantiles.

        Args:
            lower: lower ends ``[n]``, in units of the targets.
            upper: upper ends ``[n]``, none below its lower end.
            coverage: a number in (0, 1), such as 0.9 for intervals of 90 %.  Half of the rest lies
                below the interval and half above.

        Raises:
            ValueError: coverage is not in (0, 1); at the first use outside of jit, an upper end is
                below its lower end.

        Example:
            >>> import jax.numpy as jnp, calibjax as cj
            >>> intervals = cj.Quantiles.from_interval(jnp.zeros(2), jnp.ones(2), coverage=0.9)
            >>> [round(level, 3) for level in intervals.levels]
            [0.05, 0.95]
        """
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must be in (0, 1), such as 0.9, got {coverage}.")
        tail = (1 - coverage) / 2
        return cls(jnp.stack([jnp.asarray(lower), jnp.asarray(upper)], axis=-1), (tail, 1 - tail))

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        ordered = (self.values[:, 1:] >= self.values[:, :-1]).all(axis=1)
        words = "finite and nondecreasing along the levels (sort=True sorts them)"
        return {"values": (words, ordered & is_finite(self.values).all(axis=1))}

    def tails(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.vmap(lambda p, y: p._piece(y)[:2])(self, targets)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n]``, ``[n]``."""
        return jax.vmap(lambda p, y: p._piece(y)[2])(self, targets)

    def quantile(self, level: jax.Array) -> jax.Array:
        """The quantiles ``[n]``; at the levels 0 and 1 they are infinite if there is a tail."""
        return jax.vmap(Quantiles._quantile)(self, level)

    def cdf_jump(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The limits of the cdf, which jumps where values are equal."""
        return jax.vmap(Quantiles._jump)(self, targets)

    def pit_intervals(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The levels on both sides of a target: a forecast does not say where between them.

        A distribution with the quantiles v_k, …, v_l at one value has P(Y < v) <= u_k and u_l <=
        P(Y <= v), and no more is known of its jump at v: the jump begins between u_(k-1) and u_k
        and ends between u_l and u_(l+1).  A target at v is even in this jump, and so in a mixture
        of the four intervals between the ends of these ranges.
        """
        levels = jnp.array([0.0, *self.levels, 1.0], targets.dtype)
        n_below = jnp.sum(self.values < targets[:, None], axis=1, dtype=jnp.int32)
        n_equal = jnp.sum(self.values == targets[:, None], axis=1, dtype=jnp.int32)
        outer_low, outer_high = levels[n_below], levels[n_below + n_equal + 1]
        inner_low = levels[n_below + jnp.minimum(n_equal, 1)]
        inner_high = levels[n_below + jnp.maximum(n_equal, 1)]
        # One value alone leaves open whether there is a jump at all.
        is_open = n_equal == 1
        inner = jnp.where(is_open, outer_low, inner_low), jnp.where(is_open, outer_high, inner_high)
        low = outer_low, inner_low, outer_low, inner[0]
        high = inner_high, outer_high, outer_high, inner[1]
        return jnp.stack(low, axis=1), jnp.stack(high, axis=1)

    def unit_interval(self, targets: jax.Array) -> UnitInterval:
        """The levels on both sides; of a target at a value the middle of the ends that may be."""
        low, high = self.pit_intervals(targets)
        return interval(jnp.mean(low, axis=1), jnp.mean(high, axis=1))

    def known_quantiles(self) -> tuple[jax.Array, jax.Array]:
        """The values, at their levels."""
        values = widened(self.values)
        return jnp.asarray(self.levels, values.dtype), values

    def with_quantiles(self, values: jax.Array) -> "Quantiles":
        return Quantiles(values, self.levels)

    @property
    def pit_partition(self) -> tuple[float, ...]:
        return tuple(self.levels)

    def pit_distribution(self) -> "PITOfQuantiles":
        return PITOfQuantiles(self, self.levels)

    def crps_closed_form(self, targets: jax.Array) -> jax.Array:
        """The continuous ranked probability score, ``[n]``: the cdf is linear in each piece."""
        return jax.vmap(Quantiles._crps)(self, targets)

    def default_distance(self) -> EmbeddingDistance:
        return EmbeddingDistance(mean_square_of_values)

    def atoms(self) -> tuple[jax.Array, jax.Array]:
        """The points and weights of Gauss' rules for *one* prediction."""
        dtype = self.values.dtype
        first, _, last = self._tails()
        tail, tail_weights = np.polynomial.laguerre.laggauss(_TAIL_ATOMS)
        size = max(2, -(-_LEAST_ATOMS // (len(self.levels) - 1)))
        piece, piece_weights = np.polynomial.legendre.leggauss(size)
        share = jnp.asarray((1 + piece) / 2, dtype)
        inner = self.values[:-1, None] + jnp.diff(self.values)[:, None] * share[None, :]
        below = self.values[0] - first * jnp.asarray(tail, dtype)
        above = self.values[-1] + last * jnp.asarray(tail, dtype)
        of_pieces = np.outer(np.diff(self.levels), piece_weights / 2).ravel()
        of_tails = self.levels[0] * tail_weights, (1 - self.levels[-1]) * tail_weights
        weights = np.concatenate([of_tails[0], of_pieces, of_tails[1]])
        return jnp.concatenate([below, inner.ravel(), above]), jnp.asarray(weights, dtype)

    def _tails(self) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The mean excess of the lower tail, the slopes of all pieces, and that of the upper."""
        # Levels may differ by less than the dtype of the values can tell.
        slopes = jnp.diff(self.values) / jnp.asarray(np.diff(self.levels), self.values.dtype)
        return slopes[0] * self.levels[0], slopes, slopes[-1] * (1 - self.levels[-1])

    def _piece(self, y: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """P(Y <= y), P(Y > y) and the log density of *one* prediction at one target."""
        levels = jnp.asarray(self.levels, self.values.dtype)
        rests = jnp.asarray(1 - np.asarray(self.levels), self.values.dtype)
        first, slopes, last = self._tails()
        # A target on two equal values belongs to the piece above them.
        piece = jnp.sum(self.values <= y, dtype=jnp.int32) - 1
        is_below, is_above = piece < 0, piece >= slopes.size
        piece = jnp.clip(piece, 0, slopes.size - 1)
        slope, of_first, of_last = (jnp.where(x > 0, x, 1.0) for x in (slopes[piece], first, last))
        inside = levels[piece] + jnp.clip(y - self.values[piece], 0.0) / slope
        rest = rests[piece + 1] + jnp.clip(self.values[piece + 1] - y, 0.0) / slope
        below = jnp.where(is_below, (y - self.values[0]) / of_first, 0.0)
        above = jnp.where(is_above, (self.values[-1] - y) / of_last, 0.0)
        # Without a tail, all that is beyond the last value is impossible.
        below, above = (
            jnp.where(x > 0, excess, jnp.where(excess < 0, -jnp.inf, 0.0))
            for excess, x in ((below, first), (above, last))
        )
        of_below, of_above = levels[0] * jnp.exp(below), rests[-1] * jnp.exp(above)
        cdf = jnp.where(is_below, of_below, jnp.where(is_above, 1 - of_above, inside))
        survival = jnp.where(is_below, 1 - of_below, jnp.where(is_above, of_above, rest))
        outside = below + above
        # The density is 0 beyond a missing tail, also if the piece beside it is a jump.
        log_density = jnp.where(jnp.isneginf(outside), outside, outside - jnp.log(slopes[piece]))
        return cdf, survival, log_density

    def _jump(self, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        """P(Y < y) and P(Y <= y) of *one* prediction."""
        at = self._piece(y)[0]
        levels = jnp.asarray(self.levels, at.dtype)
        first, _, last = self._tails()
        # The lowest and the highest level at a value; without a tail, all levels beyond it.
        lowest = jnp.where((y == self.values[0]) & (first == 0), 0.0, levels[0])
        lowest = jnp.min(jnp.where(self.values == y, levels.at[0].set(lowest), at))
        return lowest, jnp.where((y == self.values[-1]) & (last == 0), 1.0, at)

    def _crps(self, y: jax.Array) -> jax.Array:
        """The integral of (F - 1{y <= x})^2 for *one* prediction.

        Where F is linear, the integral of F^2 from a to b is (b - a) (F(a)^2 + F(a) F(b) +
        F(b)^2) / 3.
        """
        (first, slopes, last), values = self._tails(), self.values
        levels = jnp.asarray(self.levels, y.dtype)
        low, high = values[:-1], values[1:]
        cut = jnp.clip(y, low, high)
        at_cut = levels[:-1] + (cut - low) / jnp.where(slopes > 0, slopes, 1.0)
        below = (cut - low) * mean_square(levels[:-1], at_cut)
        above = (high - cut) * mean_square(1 - at_cut, 1 - levels[1:])
        tails = _tail(levels[0], first, values[0] - y) + _tail(1 - levels[-1], last, y - values[-1])
        return jnp.sum(below + above) + tails

    def _quantile(self, level: jax.Array) -> jax.Array:
        """The quantile of *one* prediction."""
        levels = np.asarray(self.levels, self.values.dtype)
        (first, slopes, last), at = self._tails(), jnp.asarray(levels)
        n_below = jnp.sum(at < level, dtype=jnp.int32)
        piece = jnp.minimum(jnp.maximum(n_below - 1, 0), slopes.size - 1)
        # At a level the quantile is its value, which a product with the slope may miss by rounding.
        nearest = piece + (level == rows_of(at, piece + 1)).astype(jnp.int32)
        inside = rows_of(slopes, piece) * (level - rows_of(at, nearest))
        inside = rows_of(self.values, nearest) + inside
        is_below, is_above = level < levels[0], level > levels[-1]
        # A tail without width ends at the outer value.
        below = fast_where(is_below & (first > 0), level / levels[0], 1.0)
        above = fast_where(is_above & (last > 0), (1 - level) / (1 - levels[-1]), 1.0)
        outer = fast_where(is_below, self.values[0], self.values[-1])
        inside = fast_where(is_below | is_above, outer, inside)
        inside = inside + first * jnp.log(below) - last * jnp.log(above)
        return fast_where(jnp.isnan(level), jnp.nan, inside)


def mean_square_of_values(p: Quantiles) -> jax.Array:
    """The values, so that a distance is the root of a mean square over the levels."""
    return p.values / len(p.levels) ** 0.5


def mean_square(start: jax.Array, end: jax.Array) -> jax.Array:
    """The mean of the square of what is linear, from its values at both ends."""
    return (jnp.square(start) + start * end + jnp.square(end)) / 3


def _tail(mass: jax.Array, scale: jax.Array, excess: jax.Array) -> jax.Array:
    """The integral over a tail with P(excess > t) = mass exp(-t / scale).

    Without a target in the tail it is that of the square of this probability, mass^2 scale / 2.  A
    target at e > 0 adds the integral of 1 - 2 mass exp(-t / scale) over t from 0 to e.
    """
    excess = jnp.maximum(excess, 0.0)
    fallen = jnp.where(scale > 0, -jnp.expm1(-excess / jnp.where(scale > 0, scale, 1.0)), 1.0)
    return jnp.square(mass) * scale / 2 + excess - 2 * mass * scale * fallen


@struct
class PITOfQuantiles(OwnPIT):
    """U = F(Y), uniform in [0, 1], known up to the levels on both sides.

    Args:
        quantiles: the predictions, which kernels on predictions compare.
        levels: their K levels.
    """

    quantiles: Distribution
    levels: Sequence[float] = static()

    shapes = {"quantiles.values": "n k"}
    condition_on_targets = PROBABILITY

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        return of_part("quantiles", self.quantiles.constraints())

    def mean(self) -> jax.Array:
        return jnp.full_like(self.quantiles.location(), 1 / 2)

    def variance(self) -> jax.Array:
        return jnp.full_like(self.quantiles.location(), 1 / 12)

    def location(self) -> jax.Array:
        """The location of the quantiles."""
        return self.quantiles.location()

    def spread(self) -> jax.Array:
        """The spread of the quantiles."""
        return self.quantiles.spread()

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        (values,) = jax.tree.leaves(self)
        return jax.random.uniform(key, (*shape, values.shape[0]), widest_dtype(values))

    @property
    def pit_partition(self) -> tuple[float, ...]:
        return tuple(self.levels)

    @property
    def pit_ends(self) -> np.ndarray:
        return np.array([0.0, *self.levels, 1.0])

    def cdf(self, targets: jax.Array) -> jax.Array:
        """P(U <= u) = u."""
        return targets

    def unit_interval(self, targets: jax.Array) -> UnitInterval:
        """The levels on both sides of a PIT: a forecast says no more about it."""
        levels = jnp.array([0.0, *self.levels, 1.0], targets.dtype)
        cell = jnp.sum(targets[:, None] > levels[None, 1:-1], axis=1, dtype=jnp.int32)
        return interval(levels[cell], levels[cell + 1])
