"""The Kaplan-Meier estimate of sets of rows, and the checks of lifetimes."""

from typing import NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.check import check_array, check_shapes, check_values
from calibjax._base.struct import is_traced
from calibjax._data import Between, Data, Distribution, RowOptions, Targets, as_targets, clean
from calibjax._numbers import ArrayT, is_finite
from calibjax.scores import numbers_as_data


class ProductLimit(NamedTuple):
    """S(t) of several sets of rows, ``[k]`` each.

    `before` is S without the event of the last row at risk, and `greenwood` is the sum of
    d / (r (r - d)) without it, for d events of r rows at risk.  `at_risk` is the number of rows
    that are known to have had no event before t; without any, and S > 0, S(t) is not known.
    """

    survival: jax.Array
    before: jax.Array
    greenwood: jax.Array
    at_risk: jax.Array

    def risk(self) -> jax.Array:
        """1 - S(t), NaN where it is not known."""
        known = (self.at_risk > 0) | (self.survival <= 0)
        return jnp.where(known, 1 - self.survival, jnp.nan)


def product_limit(sets: jax.Array, targets: Between, at: jax.Array) -> ProductLimit:
    """The estimates at time t of sets of rows, 0 or 1 ``[k, n]``."""
    time, is_event = targets.low, targets.is_exact()
    # At one time events come first: who is censored there was at risk.
    order = jnp.lexsort((1 - is_event.astype(jnp.int32), time))
    happened = (is_event & (time <= at))[order]
    ordered = sets[:, order]
    left = jnp.cumsum(ordered[:, ::-1], axis=1)[:, ::-1]
    events = jnp.where(happened[None], ordered, 0.0)
    rest = left - events
    counts = (events > 0) & (rest > 0)
    # The product over single events of one time is that of Kaplan and Meier, and so is the sum.
    rest, left = jnp.where(counts, rest, 1.0), jnp.where(counts, left, 1.0)
    before = jnp.exp(jnp.sum(jnp.log(rest / left), axis=1))
    is_over = jnp.any((events > 0) & ~counts, axis=1)
    return ProductLimit(
        jnp.where(is_over, 0.0, before),
        before,
        jnp.sum(jnp.where(counts, events / (left * rest), 0.0), axis=1),
        jnp.sum(jnp.where((time >= at)[None], sets, 0.0), axis=1),
    )


def lifetimes_as_data(
    predictions: Distribution | Data,
    targets: Targets | None,
    at: ArrayLike,
    *,
    without: tuple[str, ...] = (),
    **rows: Unpack[RowOptions],
) -> Data:
    """Rows with `Between` targets that are known or censored on the right, and times ``[t]``."""
    data = numbers_as_data(predictions, targets, intervals=True, without=without, **rows)
    check_array("at", at, "real")
    check_shapes({"at": (at, "t")})
    if not is_traced(at):
        check_values("at", at, "finite", np.isfinite(np.asarray(at)))
    if not isinstance(data.targets, Between):
        return data.replace(targets=Between(data.targets, data.targets))
    if not is_traced((data.targets, data.where)):
        low, high = (np.asarray(x) for x in (data.targets.low, data.targets.high))
        masked = False if data.where is None else ~np.asarray(data.where)
        words = "low of targets where the event was seen, else inf"
        check_values("high of targets", high, words, _is_lifetime(low, high) | masked)
    return data


def _is_lifetime(low: ArrayT, high: ArrayT) -> ArrayT:
    return (low == high) | ~is_finite(high)


def clean_lifetimes(data: Data) -> Data:
    """`clean` rows; all weights are NaN if one is censored in another way."""
    data = clean(data)
    valid = jnp.all(_is_lifetime(data.targets.low, data.targets.high))
    low, high = (x.astype(data.weights.dtype) for x in (data.targets.low, data.targets.high))
    weights = data.weights * jnp.where(valid, 1.0, jnp.nan)
    return data.replace(targets=Between(low, high), weights=weights)


def predicted_risks(predictions: Distribution, at: jax.Array) -> jax.Array:
    """P(Y <= t) of each prediction, ``[n]``."""
    at = jnp.floor(at) if predictions.target_kind == "integer" else at
    return predictions.cdf(as_targets(predictions, jnp.broadcast_to(at, (len(predictions),))))


def numbers_below(risks: jax.Array, kept: jax.Array) -> tuple[jax.Array, jax.Array]:
    """How many kept rows have a smaller risk than each row, and a risk that is not larger."""
    ordered = jnp.sort(jnp.where(kept, risks, jnp.inf))
    below, up_to = (jnp.searchsorted(ordered, risks, side=side) for side in ("left", "right"))
    return below.astype(jnp.int32), up_to.astype(jnp.int32)
