"""Recalibrations with a few parameters."""

from collections.abc import Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._distribution import Distribution, location_refused
from calibjax._rows import valid_rows
from calibjax._struct import widened, widest_dtype
from calibjax.distributions import Bernoulli, Categorical, Ordinal

Family = TypeVar("Family", bound=Distribution)


def vector_scaling(
    parameters: tuple[ArrayLike, ArrayLike], predictions: Distribution
) -> Categorical | Bernoulli:
    """Class probabilities softmax(a log p + b), or of events 1 / (1 + exp(-(a logit p + b))).

    The shapes of the parameters choose the model:

    - ``(jnp.ones(m), jnp.zeros(m))``: vector scaling, a slope and an intercept for each of m
      classes;
    - ``(1.0, jnp.zeros(m))``: one temperature 1 / a, and a bias for each class;
    - ``(1.0, 0.0)`` for Bernoulli predictions: Platt scaling of their logits.

    These values are also the parameters that change nothing, where `fit_recalibration` starts.
    softmax does not see a number that is added to all b.  A temperature cannot make one class more
    frequent and another one less frequent; intercepts can.

    A probability 0 stays 0, with derivative 0, and so does one below the smallest normal number,
    1.2e-38 in float32; an invalid row stays invalid (NaN).
    Differentiable; O(size of predictions).

    Args:
        parameters: (a, b), real numbers or arrays ``[m]``; for Bernoulli predictions numbers.
        predictions: a batch of predictions of labels: Categorical, Ordinal, Bernoulli or mixtures
            of these.

    Returns:
        Bernoulli predictions of Bernoulli predictions, Ordinal ones of Ordinal ones, else
        Categorical predictions.

    Raises:
        TypeError: the targets of the predictions are no labels.
        ValueError: parameters are no pair, or of another shape.

    See also:
        `fit_recalibration` to find the parameters.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Categorical(jnp.array([[0.5, 0.25, 0.25]]))
        >>> b = jnp.log(jnp.array([1.0, 2.0, 4.0]))
        >>> cj.vector_scaling((1.0, b), predictions).probs.tolist()
        [[0.25, 0.25, 0.5]]
        >>> cj.vector_scaling((2.0, 0.0), cj.Bernoulli(jnp.array([0.5, 0.75]))).probs.tolist()
        [0.5, 0.9]

    Reference: Guo et al., On calibration of modern neural networks, ICML 2017, Section 4.2; Platt,
    Probabilistic outputs for support vector machines, 1999.
    """
    probs = _label_probabilities(predictions)
    shape = jnp.shape(probs)
    a_and_b = f"(1.0, jnp.zeros({shape[1]}))" if probs.ndim > 1 else "(1.0, 0.0)"
    _check_parameters(parameters, f"a pair (a, b) such as {a_and_b}", 2, shape)
    slope, intercept = (jnp.broadcast_to(jnp.asarray(x), shape) for x in parameters)
    valid = valid_rows(predictions)
    if probs.ndim == 1:
        both = jnp.where(valid[:, None], widened(predictions.label_probabilities()), 0.5)
        inside = jnp.all(both >= jnp.finfo(both.dtype).tiny, axis=1)
        logs = jnp.log(jnp.where(inside[:, None], both, 0.5))
        logits = slope * (logs[:, 1] - logs[:, 0]) + intercept
        scaled = jax.nn.sigmoid(jnp.stack([-logits, logits], axis=1))
        scaled = jnp.where(inside[:, None], scaled, both)
        of_zero, of_one = jnp.where(valid[:, None], scaled, jnp.nan).T
        return Bernoulli(of_one, complement=of_zero)
    p = jnp.where(valid[:, None], widened(probs), 1.0)
    # Devices disagree about comparisons and logarithms below the smallest normal number.
    positive = p >= jnp.finfo(p.dtype).tiny
    logits = slope * jnp.log(jnp.where(positive, p, 1.0)) + intercept
    scaled = jax.nn.softmax(jnp.where(positive, logits, -jnp.inf), axis=-1)
    family = Ordinal if isinstance(predictions, Ordinal) else Categorical
    return family(jnp.where(valid[:, None], scaled, jnp.nan))


def affine_scaling(
    parameters: tuple[ArrayLike, ArrayLike, ArrayLike], predictions: Family
) -> Family:
    """Predictions with the location a + b loc and the scale exp(c) scale.

    ``(0.0, 1.0, 0.0)`` changes nothing, and is where `fit_recalibration` starts.  For vectors each
    number may be an array ``[d]``.  Covariances become exp(c_i + c_j) covariance_ij.

    The location and the scale have their own factors: the law of a + b Y has the scale |b| scale,
    and a slope could not be mended without changing the spread.  Data determine all three numbers,
    unless the locations are all the same.  The scale has a logarithm for a parameter, so that it is
    positive at every step of a search.

    Differentiable; O(size of predictions).

    Args:
        parameters: (a, b, c), real numbers or arrays ``[d]``: a in units of the targets, b and c
            without units.
        predictions: a batch of predictions of a family with a location and a scale: Normal,
            Laplace, StudentT, multivariate normal predictions, or mixtures of these, in which every
            component is changed.

    Returns:
        Predictions of the same family and shapes.

    Raises:
        TypeError: the family of the predictions has no location and scale.
        ValueError: parameters are not three.

    See also:
        `fit_recalibration` to find the parameters.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.array([1.0, 3.0]), jnp.array([1.0, 2.0]))
        >>> scaled = cj.affine_scaling((0.5, 2.0, jnp.log(3.0)), predictions)
        >>> scaled.loc.tolist(), scaled.scale.tolist()
        ([2.5, 6.5], [3.0, 6.0])

    Reference: Gneiting, Raftery, Westveld and Goldman, Calibrated probabilistic forecasting using
    ensemble model output statistics, Monthly Weather Review 2005.
    """
    if not isinstance(predictions, Distribution):
        raise location_refused(type(predictions).__name__)
    _check_parameters(parameters, "three numbers (a, b, c) such as (0.0, 1.0, 0.0)", 3)
    return _affine_scaling(parameters, predictions)


@jax.jit
def _affine_scaling(parameters: Sequence[ArrayLike], predictions: Family) -> Family:
    dtype = widest_dtype(*jax.tree.leaves((predictions, parameters)))
    intercept, slope, log_factor = (jnp.asarray(x, dtype) for x in parameters)
    return predictions.shift_and_scale(intercept, slope, jnp.exp(log_factor))


def _check_parameters(
    parameters: Sequence[ArrayLike], words: str, count: int, shape: tuple[int, ...] | None = None
) -> None:
    """A ValueError unless there are so many parameters, which broadcast to a shape if given one."""
    try:
        shapes = [jnp.shape(x) for x in parameters]
        fits = len(shapes) == count
        if shape is not None:
            fits = fits and all(np.broadcast_shapes(x, shape) == shape for x in shapes)
    except (TypeError, ValueError):
        fits = False
    if not fits:
        shapes = [jnp.shape(x) for x in jax.tree.leaves(parameters)]
        raise ValueError(
            f"parameters must be {words}, which changes nothing, got numbers of shapes "
            f"{[list(x) for x in shapes]}."
        )


def _label_probabilities(predictions: Distribution) -> jax.Array:
    """The probabilities of all labels ``[n, m]``, or of the event ``[n]``."""
    if not (isinstance(predictions, Distribution) and predictions.has_labels):
        raise TypeError(
            "predictions must be predictions of labels, such as Categorical, got "
            f"{type(predictions).__name__}."
        )
    if predictions.is_binary:
        return predictions.binary_probability()
    return predictions.label_probabilities()
