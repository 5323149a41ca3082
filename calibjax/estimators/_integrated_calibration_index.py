"""The integrated calibration index of survival predictions."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._between import Targets
from calibjax._compile import quick_jit
from calibjax._distribution import Distribution
from calibjax._rows import Data, padded
from calibjax._sharding import gathered
from calibjax.estimators._product_limit import (
    check_lifetimes,
    clean_lifetimes,
    numbers_below,
    predicted_risks,
    product_limit,
)

# The neighbourhood of a row is n^(-1/5) / 4 of the rows on either side of it.
_SPAN, _POWER = 0.25, -0.2
# The number of rows whose neighbourhoods are looked at together.
_TOGETHER = 64


def integrated_calibration_index(
    predictions: Distribution,
    targets: Targets,
    at: ArrayLike,
    *,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """How far predicted risks are from observed ones on average, at each time.

    .. math::
        \\mathrm{ICI}(t) = \\frac{1}{n} \\sum_i |F_i(t) - (1 - \\hat S(t \\mid F_i(t)))|,

    where S(t | r) is the Kaplan-Meier estimate of the rows whose predicted risks are near r: the
    nearest neighbour estimate of Akritas with the rows that are at most n^(4/5) / 4 ranks away.
    Austin et al. take a regression of the hazard on log(-log(1 - r)) instead.

    Noise of the observed risks adds to it: it is not 0 for a calibrated model, and larger for fewer
    rows.  Compare models on the same rows, and ask `calibration_test` whether a model is wrong.

    Args:
        predictions: n >= 1 predictions of numbers, with a cdf.
        targets: `Between.right_censored`, or an array ``[n]`` if nothing is censored.
        at: times t, ``[t]``, in units of the targets.
        where: boolean mask ``[n]``; masked rows may hold anything, and do not count.
        weights: how much each row counts, nonnegative numbers ``[n]``: in the mean, and in the
            Kaplan-Meier estimates.  Neighbourhoods are of so many rows, whatever these weigh.

    Returns:
        Numbers in [0, 1], ``[t]``.  They are NaN where nothing is known about t in a neighbourhood,
        because all its rows are censored before, and inside jit if a kept row is invalid.
        O(n^2) time for each t, O(n) memory.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value;
            rows that are censored on the left or binned.

    See also:
        `risk_curve` for a picture in groups.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Weibull(jnp.ones(400), jnp.linspace(0.5, 2.0, 400))
        >>> time, end = predictions.sample(jax.random.key(0)), jnp.full(400, 2.0)
        >>> targets = cj.Between.right_censored(jnp.minimum(time, end), time <= end)
        >>> late = cj.Weibull(predictions.concentration, 2 * predictions.scale)
        >>> index = [cj.integrated_calibration_index(p, targets, jnp.array([1.0]))
        ...          for p in (predictions, late)]
        >>> [float(x[0].round(2)) for x in index]
        [0.05, 0.2]

    Reference: Austin, Harrell and van Klaveren, Graphical calibration curves and the integrated
    calibration index (ICI) for survival models, Statistics in Medicine 2020; Akritas, Nearest
    neighbor estimation of a bivariate distribution under random censoring, Annals of Statistics
    1994; Heagerty, Lumley and Pepe, Time-dependent ROC curves for censored survival data and a
    diagnostic marker, Biometrics 2000, for the width.
    """
    data = check_lifetimes(predictions, targets, at, where, weights)
    return _ici(*gathered((padded(data), jnp.asarray(at))))


@quick_jit
def _ici(data: Data, at: jax.Array) -> jax.Array:
    data = clean_lifetimes(data)
    kept, dtype = data.weights != 0, data.weights.dtype
    n = jnp.sum(kept).astype(dtype)
    # Twice the distance of ranks, which are in the middle of equal risks.
    most = 2 * _SPAN * n ** (1 + _POWER)

    def of_time(t: jax.Array) -> jax.Array:
        risks = predicted_risks(data.predictions, t)
        below, up_to = numbers_below(risks, kept)
        places = (below + up_to).astype(dtype)

        def gap(row: tuple[jax.Array, jax.Array]) -> jax.Array:
            risk, place = row
            near = kept & (jnp.abs(places - place) <= most)
            near_weights = jnp.where(near, data.weights, 0.0)
            found = product_limit(near_weights[None], data.targets, t)
            return jnp.abs(risk - found.risk()[0])

        gaps = lax.map(gap, (risks, places), batch_size=_TOGETHER)
        return jnp.sum(jnp.where(kept, data.weights * gaps, 0.0)) / jnp.sum(data.weights)

    return lax.map(of_time, at.astype(dtype))
