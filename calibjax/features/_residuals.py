r"""Residuals of features, r = f(p, y) - E f(p, Z) with Z ~ p, for many targets of a prediction.

A kernel k_P(p, q) <f(p, y), f(q, z)> has h = k_P(p, q) <r, s> with the residuals r and s of both
samples.  With weights w_a(p), a = 1, …, F, such as coordinates with respect to landmarks, a test
needs the sums

    G_a = sum_i w_a(p_i) r_i

for each of D data sets of targets with the same predictions, and the squares |r_i|^2 for the first
one, the observed targets.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from calibjax._numbers import UnitInterval, dot
from calibjax._struct import struct
from calibjax.expectations import all_labels
from calibjax.kernels import UnitFeature


class ResidualSums(NamedTuple):
    """G ``[F, D, M]``, and the squares for the first data set, ``[n]``."""

    sums: jax.Array
    squares: jax.Array


class DrawnPlaces(NamedTuple):
    """Where U = F(y) lies for the observed targets ``[n]``, and its draws ``[n, D]`` under H0.

    ``above_drawn`` is 1 - drawn, with all digits near 1.
    """

    observed: UnitInterval
    drawn: jax.Array
    above_drawn: jax.Array


@struct
class DrawnFeature:
    """A feature f of any family, whose expectation is the mean over targets drawn for it.

    Args:
        feature: a function of one prediction and one target that returns a vector ``[M]``.
    """

    feature: Any

    def sums(self, weights: jax.Array, predictions: Any, targets: Any, others: Any) -> ResidualSums:
        """The sums for targets ``[n, D, …]``; `others` ``[n, D', …]`` are drawn independently.

        The mean over the other draws is not the expectation itself, but it is the same in all data
        sets: their order, and with it the level of a test, does not depend on it.
        """

        def row_residuals(p, targets, others):
            values = jax.vmap(self.feature, (None, 0))
            return _difference(values(p, targets), jnp.mean(values(p, others), axis=0))

        return _dense_sums(weights, jax.vmap(row_residuals)(predictions, targets, others))


@struct
class CentredFeature:
    """A feature f of any family, whose expectation is 0.

    Args:
        feature: a function of one prediction and one target that returns a vector ``[M]``.
    """

    feature: Any

    def sums(self, weights: jax.Array, predictions: Any, targets: Any, others: Any) -> ResidualSums:
        """The sums for targets ``[n, D, …]``."""
        row_residuals = jax.vmap(self.feature, (None, 0))
        return _dense_sums(weights, jax.vmap(row_residuals)(predictions, targets))


@struct
class PITFeature:
    """The means of functions of U = F(y), whose expectations are 0."""

    feature: UnitFeature

    def sums(self, weights: jax.Array, predictions: Any, targets: Any, others: Any) -> ResidualSums:
        """The sums for targets ``[n, D]``, or for intervals of U ``[n]`` and draws of U."""
        if isinstance(targets, DrawnPlaces):
            observed = self.feature.of_intervals(targets.observed)[:, None]
            drawn = self.feature.of_points(targets.drawn, targets.above_drawn)
            return _dense_sums(weights, jnp.concatenate([observed, drawn], axis=1))
        of_row = jax.vmap(self.feature, (None, 0))
        return _dense_sums(weights, jax.vmap(of_row)(predictions, targets))


@struct
class LabelFeature:
    """A feature f of labels, whose expectation is a finite sum."""

    feature: Any

    def sums(self, weights: jax.Array, predictions: Any, targets: Any, others: Any) -> ResidualSums:
        """The sums for labels ``[n, D]``."""

        def row_residuals(p, labels):
            table = jax.vmap(self.feature, (None, 0))(p, all_labels(p))
            probabilities = p.label_probabilities()
            # A feature such as log p(y) may be infinite at labels that never occur.
            possible = jnp.where(probabilities[:, None] > 0, table, 0.0)
            return _difference(table[labels], dot(probabilities, possible))

        return _dense_sums(weights, jax.vmap(row_residuals)(predictions, targets))


@struct
class Indicators:
    """The feature e_y of labels: its kernel is the WhiteKernel."""

    def sums(self, weights: jax.Array, predictions: Any, targets: Any, others: Any) -> ResidualSums:
        """The sums for labels ``[n, D]``, whose residuals are e_y - p."""
        probabilities = predictions.label_probabilities()
        n_labels = probabilities.shape[1]
        if n_labels <= _MANY_CLASSES:
            indicators = jax.nn.one_hot(targets, n_labels, dtype=probabilities.dtype)
            return _dense_sums(weights, indicators - probabilities[:, None])
        # |e_y - p|^2 = 1 - 2 p_y + |p|^2.
        of_first = jnp.take_along_axis(probabilities, targets[:, :1], axis=1)[:, 0]
        norms = jnp.sum(jnp.square(probabilities), axis=1)
        counts = _sums_by_label(weights, targets, n_labels)
        sums = counts - dot(weights.T, probabilities)[:, None]
        return ResidualSums(sums, 1 - 2 * of_first + norms)


#: How a test takes the residual of a target.
Feature = DrawnFeature | CentredFeature | PITFeature | LabelFeature | Indicators

# Up to this number of classes a product of matrices with indicators is faster than sums over the
# rows of each class.
_MANY_CLASSES = 32


def numbers_of_row(feature: Feature, n_sets: int, size: int) -> int:
    """How many numbers of a row are in memory for sums of `size` numbers in each data set."""
    return n_sets if isinstance(feature, Indicators) and size > _MANY_CLASSES else n_sets * size


# In units of the precision of the dtype.
_ROUNDING = 64


def _difference(values: jax.Array, mean: jax.Array) -> jax.Array:
    """f - E f for values ``[D, M]``, and 0 where it is below its rounding error."""
    residuals = values - mean[None]
    rounding = _ROUNDING * jnp.finfo(values.dtype).eps * jnp.abs(values)
    return jnp.where(jnp.abs(residuals) <= rounding, 0.0, residuals)


def _dense_sums(weights: jax.Array, residuals: jax.Array) -> ResidualSums:
    """The sums of residuals ``[n, D, M]``."""
    n, *shape = residuals.shape
    sums = dot(weights.T, residuals.reshape(n, -1)).reshape(-1, *shape)
    return ResidualSums(sums, jnp.sum(jnp.square(residuals[:, 0]), axis=1))


def _sums_by_label(weights: jax.Array, targets: jax.Array, n_labels: int) -> jax.Array:
    """sum_i w_a(p_i) e_{y_i} for labels ``[n, D]``, ``[F, D, m]``."""
    n_sets = targets.shape[1]
    first = jnp.arange(n_sets, dtype=jnp.int32) * n_labels

    def add_row(sums, row):
        weights, labels = row
        return sums.at[first + labels].add(weights[None, :]), None

    zeros = jnp.zeros((n_sets * n_labels, weights.shape[1]), weights.dtype)
    sums, _ = jax.lax.scan(add_row, zeros, (weights, targets))
    return sums.T.reshape(-1, n_sets, n_labels)
