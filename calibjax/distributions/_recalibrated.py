"""Predictions of one real number whose cdf is a function of the cdf of others."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri

from calibjax._base.parameters import family_name
from calibjax._base.struct import static, struct
from calibjax._data.distribution import Distribution, of_part
from calibjax._numbers.unit_interval import normal_score
from calibjax.distributions._mixture import Mixture
from calibjax.distributions._univariate import LocationScale, Univariate, checked_levels


@struct
class Recalibrated(Univariate):
    """Predictions with the cdf G(F(y)), for the cdf F of the base and a map G of the unit interval.

    At K levels u_k of the base the map is given, G(u_k) = P(Y <= F^{-1}(u_k)).  Between them, and
    beyond, it is linear in normal scores: with the standard normal cdf Phi,
    Phi^{-1}(G(Phi(z))) is linear in z.  A map of a calibrated model is G(u) = u.  The density is
    g(F(y)) f(y), and jumps by a factor at the levels; quantiles are F^{-1}(G^{-1}(u)), and none is
    beyond those of the base at the first and the last number in (0, 1), 1e-38 and 1 - 6e-8 in
    float32.  Where F(y) or 1 - F(y) is less than 1e-38 there is nothing.

    Args:
        base: predictions of a `Univariate` family, or Normal or Laplace, or a Mixture of these.
        probabilities: G at the levels, increasing numbers in (0, 1), ``[n, K]``.
        levels: K >= 2 increasing numbers in (0, 1), the same for all predictions.

    Targets are those of the base, real numbers of shape ``[n]``.

    Raises:
        TypeError: base is not of one of these families: counts and vectors are refused.
        ValueError: levels are not at least 2 increasing numbers in (0, 1); at the first use outside
            of jit, probabilities that are not.

    See also:
        `fit_recalibrator`, which makes these predictions.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> base = cj.Normal(jnp.array([0.0, 5.0]), jnp.array([1.0, 2.0]))
        >>> wider = jnp.array([[0.25, 0.5, 0.75]] * 2)  # at the quantiles for 0.1, 0.5 and 0.9
        >>> predictions = cj.Recalibrated(base, wider, levels=(0.1, 0.5, 0.9))
        >>> predictions.quantile(0.75).round(2).tolist(), predictions.cdf(base.loc).tolist()
        ([1.28, 7.56], [0.5, 0.5])

    Reference: Kuleshov, Fenner and Ermon, Accurate uncertainties for deep learning using calibrated
    regression, ICML 2018.
    """

    base: Distribution
    probabilities: jax.Array
    levels: Sequence[float] = static()

    # It jumps at the levels.
    has_continuous_density = False

    def _complete(self) -> None:
        self.check_base("base", self.base)
        vars(self)["levels"] = checked_levels(self.levels)
        super()._complete()

    @staticmethod
    def check_base(name: str, base: Any) -> None:
        """A TypeError unless an argument of this name is predictions of a number with a density."""
        is_known = isinstance(base, (Univariate, LocationScale, Mixture))
        if not is_known or base.target_shape != "n" or base.target_kind != "real":
            actual = family_name(base) if isinstance(base, Distribution) else type(base).__name__
            raise TypeError(
                f"{name} must be predictions of one real number with a density, such as "
                f"Normal(loc, scale), got {actual}."
            )

    @property
    def shapes(self) -> dict[str, str]:
        # A base may be recalibrated, with other levels.
        base = {x: axes.replace("levels", "levels_of_base") for x, axes in self.base.shapes.items()}
        return of_part("base", base) | {"probabilities": "n levels"}

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        p = self.probabilities
        inside = ((p > 0) & (p < 1)).all(axis=-1)
        increasing = (p[..., 1:] > p[..., :-1]).all(axis=-1)
        own = {"probabilities": ("increasing and in (0, 1)", inside & increasing)}
        return of_part("base", self.base.constraints()) | own

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        return self.base.supports(targets)

    def tails(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        below, above = self.base.tails(targets)
        score = self._score_of(below, above)[1]
        # Nothing is beyond all numbers that the base knows; else a steep map would have some of its
        # mass at infinity.
        least = jnp.finfo(below.dtype).tiny
        before, after = below <= least, above <= least
        return (
            jnp.where(before, 0.0, jnp.where(after, 1.0, ndtr(score))),
            jnp.where(before, 1.0, jnp.where(after, 0.0, ndtr(-score))),
        )

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n]``, ``[n]``."""
        z, moved, slope = self._score_of(*self.base.tails(targets))
        return self.base.log_prob(targets) + (z**2 - moved**2) / 2 + jnp.log(slope)

    def quantile(self, level: jax.Array) -> jax.Array:
        """The quantiles at a level, a number or ``[n]``."""
        scores = jnp.broadcast_to(self._scores(), self._moved().shape)
        z, _ = line_through(self._moved(), scores, normal_score(level, 1 - level))
        # A steep map leads to levels that round to 0 or 1, where quantiles may be infinite.
        limits = jnp.finfo(level.dtype)
        inside = jnp.clip(ndtr(z), limits.tiny, 1 - limits.epsneg)
        return self.base.quantile(jnp.where((level > 0) & (level < 1), inside, level))

    def _score_of(self, below: jax.Array, above: jax.Array) -> tuple[jax.Array, ...]:
        """Normal scores of F(y) and of G(F(y)), and the slope of one in the other, ``[n]``."""
        z = normal_score(below, above)
        scores = jnp.broadcast_to(self._scores(), self._moved().shape)
        return z, *line_through(scores, self._moved(), z)

    def _scores(self) -> jax.Array:
        return ndtri(jnp.asarray(self.levels, self.probabilities.dtype))[None]

    def _moved(self) -> jax.Array:
        return normal_score(self.probabilities, 1 - self.probabilities)


def line_through(x: jax.Array, y: jax.Array, at: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The line through increasing points ``[n, K]``, at ``[n]``, and its slope there.

    Beyond the points the first and the last piece go on.
    """
    piece = jnp.clip(jnp.sum(x <= at[:, None], axis=1, dtype=jnp.int32) - 1, 0, x.shape[1] - 2)

    def at_piece(values: jax.Array, offset: int) -> jax.Array:
        return jnp.take_along_axis(values, piece[:, None] + offset, axis=1)[:, 0]

    left, low = at_piece(x, 0), at_piece(y, 0)
    slope = (at_piece(y, 1) - low) / (at_piece(x, 1) - left)
    return low + slope * (at - left), slope
