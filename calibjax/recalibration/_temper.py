"""Predictions made more or less confident by a temperature."""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._check import check_array, check_values
from calibjax._distribution import Distribution, tempering_refused
from calibjax._struct import is_array, is_traced, widest_dtype

Family = TypeVar("Family", bound=Distribution)


def temper(predictions: Family, temperature: ArrayLike) -> Family:
    """Predictions with densities proportional to p^(1/T): less confident for T > 1, more for T < 1.

    - Categorical, Bernoulli: probs^(1/T), normalised, which is softmax(logits / T).  Classes keep
      their order, and a probability 0 stays 0, with derivative 0.
    - Normal, MultivariateNormalDiag, MultivariateNormalFullCovariance: variances and covariances
      are multiplied by T, and means do not change.
    - Laplace: the scale is multiplied by T, and the mean does not change.
    - Mixture: each component is tempered and the weights do not change, because a power of a
      mixture is no mixture.  The mean does not change if the means of the components do not.

    If a softmax has underflowed to 0, use its logits: ``Categorical.from_logits(logits / T)``.
    Differentiable; O(size of predictions).

    Args:
        predictions: a batch of predictions.  An invalid row, such as padding, stays invalid
            (NaN, for probabilities).
        temperature: T, a positive number without units.

    Returns:
        Predictions of the same family, shapes and floating dtypes.

    Raises:
        TypeError: the family of the predictions has no tempering, or temperature is no number.
        ValueError: temperature is not a positive and finite scalar.  Inside jit a bad temperature
            makes the tempered parameters NaN.

    See also:
        `fit_temperature` to find the temperature.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> cj.temper(cj.Categorical(jnp.array([[0.9, 0.1, 0.0]])), 2.0).probs.tolist()
        [[0.75, 0.25, 0.0]]
        >>> cj.temper(cj.Normal(jnp.zeros(1), jnp.ones(1)), 4.0).scale.tolist()
        [2.0]

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Definition F.1; Guo et al., On calibration of modern neural networks, ICML 2017.
    """
    if not isinstance(predictions, Distribution):
        actual = "an array" if is_array(predictions) else type(predictions).__name__
        raise tempering_refused(actual)
    _check_temperature(temperature)
    return _temper(predictions.keeping_digits(), temperature)


def _check_temperature(temperature: ArrayLike) -> None:
    """TypeError or ValueError unless the temperature is a positive and finite scalar."""
    if not is_array(temperature):
        raise TypeError(f"temperature must be a number, got {type(temperature).__name__}.")
    with jax.ensure_compile_time_eval():
        value = jnp.asarray(temperature)
        check_array("temperature", value, "real")
        if value.ndim:
            raise ValueError(f"temperature must be a scalar, got shape {list(value.shape)}.")
        if not is_traced(value):
            check_values("temperature", temperature, "positive and finite", _is_valid(value))


def _is_valid(temperature: jax.Array) -> jax.Array:
    return (temperature > 0) & jnp.isfinite(temperature)


@jax.jit
def _temper(predictions: Family, temperature: ArrayLike) -> Family:
    temperature = jnp.asarray(temperature, widest_dtype(*jax.tree.leaves(predictions)))
    return predictions.tempered(jnp.where(_is_valid(temperature), temperature, jnp.nan))
