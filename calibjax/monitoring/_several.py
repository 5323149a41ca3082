"""Several monitors at once, such as one for each region."""

import functools
from collections.abc import Hashable, Mapping
from typing import TypeVar

import jax
import jax.numpy as jnp

from calibjax._base.compile import quick_jit
from calibjax.monitoring._monitor import CalibrationMonitor

K = TypeVar("K", bound=Hashable)


def holm_pvalues(monitors: Mapping[K, CalibrationMonitor]) -> dict[K, jax.Array]:
    r"""The p-values of several monitors, adjusted by Holm for their number, valid at every look.

    Let p_(1) <= … <= p_(S) be ``pvalue`` of the S monitors, 1 / their largest e-values so far.  The
    adjusted p-value of the i-th is

    .. math::
        \max_{j \le i} \min(1, (S - j + 1) p_{(j)}).

    Each monitor whose adjusted p-value is at most a has an alarm.  The probability of any false
    alarm, ever, is at most a, under any dependence between the monitors, and also if others have
    true alarms: with a probability of at most u, p_s is ever at most u (Ville), as Holm's procedure
    requires, and p_s only falls, so that no alarm is withdrawn.  The targets of each monitor must
    be drawn from its predictions given *its own* past.  Means of e-values and e-BH, which controls
    the false discovery rate, do not guarantee this: at times that depend on all monitors they need
    e-values that are valid given the past of all, and for the largest e-values so far they fail
    (Wang et al., Tavyrikov et al.).

    Choose the monitors before the first row; all of them count, even without an update.

    Args:
        monitors: monitors by their names, such as those of regions, at least one.

    Returns:
        The adjusted p-values, scalars, by the same names.

    Raises:
        TypeError: monitors are not a mapping to monitors.
        ValueError: the mapping is empty.

    Complexity: O(S log S).

    See also:
        `CalibrationMonitor.pvalue`, of one monitor alone.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.full(200, 0.2))
        >>> start = cj.CalibrationMonitor.start(jax.random.key(0), predictions)
        >>> events = {"north": jnp.arange(200) % 5 == 0, "south": jnp.arange(200) % 2 == 0}
        >>> monitors = {name: start.update(predictions, y) for name, y in events.items()}
        >>> [name for name, p in cj.holm_pvalues(monitors).items() if p <= 0.05]
        ['south']

    Reference: Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal
    of Statistics 1979; Tavyrikov, Goeman and de Heide, Carefree multiple testing with e-processes,
    arXiv:2501.19360, 2025; Wang, Dandapanthula and Ramdas, Anytime-valid FDR control with the
    stopped e-BH procedure, 2025.
    """
    if not isinstance(monitors, Mapping):
        raise TypeError(
            f"monitors must be a mapping of names to monitors, got {type(monitors).__name__}."
        )
    if not monitors:
        raise ValueError("monitors must hold at least one monitor.")
    for name, monitor in monitors.items():
        if not hasattr(monitor, "log_max"):
            raise TypeError(f"monitors must hold monitors, got {type(monitor).__name__} as {name}.")
    adjusted = _adjusted([monitor.log_max for monitor in monitors.values()])
    return dict(zip(monitors, adjusted, strict=True))


@functools.partial(quick_jit, light=True)
def _adjusted(log_e_values: list[jax.Array]) -> list[jax.Array]:
    """Holm's p-values of 1 / e-values."""
    logs, n = -jnp.stack(log_e_values), len(log_e_values)
    order = jnp.argsort(logs)
    # In logarithms: the product of a tiny p-value with S may underflow in float32.
    scaled = logs[order] + jnp.log(jnp.arange(n, 0, -1, dtype=logs.dtype))
    adjusted = jnp.exp(jnp.minimum(jax.lax.cummax(scaled), 0.0))
    return list(jnp.zeros_like(adjusted).at[order].set(adjusted))
