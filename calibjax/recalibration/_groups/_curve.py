"""The logits of segments, moved from those of a map for all rows."""

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._struct import static, struct
from calibjax.recalibration._groups._coding import Coding
from calibjax.recalibration._labels import Numbers, from_logits, log_odds

#: Beyond so many standard deviations of logits a slope goes on no further.
FARTHEST = 4.0
#: Of a map of the unit line in a segment, beside that of all rows.
LEAST_SLOPE = 0.2


@struct
class GroupCurve:
    """logit q = l + sum_s (a_s + b_s x) over the segments s of a row, with l = logit p.

    x = (l - centre) / spread, cut off at -4 and 4.  Of more than two classes each one has its
    numbers, and rows are divided by their sums.  Of a map of the unit line l are the logits of G at
    its levels, with centre 0 and spread 1; b is in logits then, without ends.

    Args:
        shifts: a of each curve and segment, ``[c, S]``.
        slopes: b, ``[c, S]``.
        centres: of each curve, ``[c]``.
        spreads: of each curve, positive, ``[c]``.
        coding: what the segments are.
    """

    shifts: Numbers
    slopes: Numbers
    centres: Numbers
    spreads: Numbers
    coding: Coding = static()

    def __call__(self, probs: jax.Array, segments: np.ndarray | jax.Array) -> jax.Array:
        """New probabilities of rows in segments ``[n, J]``; the number S stands for none."""
        raised = jnp.maximum(probs, jnp.finfo(probs.dtype).tiny)
        logits = log_odds(jnp, raised)
        x = scaled_logits(logits, self.centres, self.spreads)
        a, b = (_sums_of(jnp.asarray(table), segments) for table in (self.shifts, self.slopes))
        # Options that a row does not have stay away.
        return jnp.where(probs > 0, from_logits(logits + a + b * x), 0.0)

    def of_line(self, g: jax.Array, segments: np.ndarray | jax.Array) -> jax.Array:
        """A map of the unit line at levels, ``[n, K]``, after what segments move it by."""
        raised = jnp.clip(g, jnp.finfo(g.dtype).tiny, 1 - jnp.finfo(g.dtype).epsneg)
        logits = jnp.log(raised) - jnp.log1p(-raised)
        a, b = (_sums_of(jnp.asarray(table), segments) for table in (self.shifts, self.slopes))
        # A map rises, whatever the segments of a row add up to.
        return jax.nn.sigmoid(a + jnp.maximum(1 + b, LEAST_SLOPE) * logits)

    def check(self) -> None:
        """A ValueError unless these are numbers of a map."""
        c, s = np.shape(self.shifts)
        shapes = [np.shape(x) for x in (self.slopes, self.centres, self.spreads)]
        if s != self.coding.n_segments or shapes != [(c, s), (c,), (c,)]:
            raise ValueError("shapes do not fit together")
        if not np.all(np.asarray(self.spreads) > 0):
            raise ValueError("spreads must be positive")


def scaled_logits(logits: jax.Array, centres: Numbers, spreads: Numbers) -> jax.Array:
    """Logits ``[n, c]`` in units of their spread."""
    x = (logits - jnp.asarray(centres)[None]) / jnp.asarray(spreads)[None]
    return jnp.clip(x, -FARTHEST, FARTHEST)


def _sums_of(table: jax.Array, segments: np.ndarray | jax.Array) -> jax.Array:
    """Sums over the segments of each row, of numbers ``[c, S]``: ``[n, c]``."""
    with_none = jnp.concatenate([table, jnp.zeros_like(table[:, :1])], axis=1)
    return jnp.sum(with_none[:, jnp.asarray(segments)], axis=2).T
