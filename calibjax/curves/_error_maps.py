"""Where predictions are wrong: cells of classes, or of locations and spreads."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from calibjax._base.check import check_choice, check_integer, check_key
from calibjax._base.sharding import on_all_rows
from calibjax._base.struct import rows_of, struct
from calibjax._data.capabilities import restricted
from calibjax._data.data import NOT_PLAIN, Data, Rows, as_data, clean
from calibjax._data.distribution import Binary, Distribution, Labels, as_labels
from calibjax._numbers.arithmetic import dot, fast_where
from calibjax._numbers.derivatives import absolute
from calibjax.curves._residual_sums import Resamples, resamples_of
from calibjax.estimators.binning import STRATEGIES, UniformBinning, bin_means, intervals_of
from calibjax.nulls.bands import Bins, is_beyond
from calibjax.nulls.engine import under_model
from calibjax.nulls.event_sums import redrawn_label_counts
from calibjax.nulls.ranks import critical_value
from calibjax.nulls.sampler import pooled
from calibjax.scores import numbers_as_data


@struct
class WitnessMap:
    """Where predictions of classes are wrong; see `witness_map`.

    The rows of the arrays ``[m, b]`` are classes, of Bernoulli predictions only the class 1.

    Args:
        classes: the label of each row of the arrays, ``[m]``.
        probability_edges: the ends of the bins of the predicted probability, ``[b + 1]``.
        predicted: the mean probability of the class in the cell, ``[m, b]``, NaN where it is empty.
        value: by how much more often the class happened, ``[m, b]``, NaN where the cell is empty.
        count: the number of rows in each cell, ``[m, b]``.
        score: the value on a scale on which it is nearly standard normal under a calibrated model,
            ``[m, b]``, with its sign.
        significant: whether the score is farther from 0 than the critical score, ``[m, b]``.
        critical: a calibrated model has a score beyond it, in any of the cells, with a probability
            of at most 1 - confidence_level.
        confidence_level: this level.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Categorical(jnp.tile(jnp.array([0.25, 0.05, 0.7]), (1000, 1)))
        >>> targets = jnp.repeat(jnp.arange(3), jnp.array([250, 50, 700]))
        >>> found = cj.witness_map(jax.random.key(0), predictions, targets)
        >>> found.worst_cell() is None, found.count[1, 0].tolist()
        (True, 1000)
    """

    classes: jax.Array
    probability_edges: jax.Array
    predicted: jax.Array
    value: jax.Array
    count: jax.Array
    score: jax.Array
    significant: jax.Array
    critical: jax.Array
    confidence_level: jax.Array

    def worst_cell(self) -> tuple[int, ...] | None:
        """The index (row, bin) of the significant cell with the largest score; None if none is.

        It is where the model is most clearly wrong, often a cell of many rows.
        """
        return worst_cell(self.score, self.significant)

    def largest_cell(self) -> tuple[int, ...] | None:
        """The index (row, bin) of the significant cell with the largest value; None if none is.

        It is where the model is most wrong, often a cell of few rows.
        """
        return worst_cell(self.value, self.significant)


def witness_map(
    key: jax.Array,
    predictions: Distribution | Data,
    targets: ArrayLike | None = None,
    *,
    n_bins: int = 10,
    strategy: str = "uniform",
    confidence_level: float = 0.95,
    n_resamples: int = 999,
    where: ArrayLike | None = None,
) -> WitnessMap:
    """Which classes are more frequent or rarer than predicted, and at which probabilities.

    .. math::
        \\text{value}_{cb} = \\frac{1}{n_{cb}} \\sum_{i : p_{ic} \\in b} (1\\{y_i = c\\} - p_{ic})

    A cell is a class c and one of n_bins intervals b of its predicted probability, as those of
    `reliability_curve`.  A row has a cell for each class, so that it counts m times.  Scores are

    .. math::
        z_{cb} = \\pm \\sqrt{T_{cb}}, \\qquad T_{cb} = 2 n_{cb}\\, \\mathrm{KL}(
        \\bar y_{cb} \\| \\bar p_{cb}) \\,
        \\frac{n_{cb} \\bar p_{cb} (1 - \\bar p_{cb})}{\\sum_{p_{ic} \\in b} p_{ic} (1 - p_{ic})},

    which are on one scale for frequent and for rare events.  All targets are redrawn from the
    predictions R = n_resamples times, and a cell is significant if its score
    is farther from 0 than all scores of a data set are in a share confidence_level of these data
    sets.  So, if rows are independent given the predictions, a calibrated model has *any*
    significant cell with a probability of at most 1 - confidence_level, for every n and any number
    of classes.

    Args:
        key: a key of `jax.random`.
        predictions, targets, where: as in `Data`, or one `Data` with `where` alone: n >= 2
            Bernoulli or Categorical predictions.
        n_bins: the number of bins b, from 1 to 2^24.
        strategy: "uniform" or "quantile", over the probabilities of all classes.
        confidence_level: the probability that no cell is wrongly significant, a number in
            (0, R / (R + 1)].
        n_resamples: R, the number of redrawn data sets; each depends only on (key, r).

    Returns:
        WitnessMap.  Inside jit its numbers are NaN if a kept row is invalid, and no cell is
        significant.  O(n R + n m) time; O(n m + m b R) memory.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value.

    See also:
        `residual_map` for numbers, `calibjax.plot.witness` for a plot.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> probs = jnp.tile(jnp.array([0.25, 0.05, 0.7]), (1000, 1))
        >>> targets = jnp.repeat(jnp.arange(3), jnp.array([240, 120, 640]))
        >>> found = cj.witness_map(jax.random.key(0), cj.Categorical(probs), targets)
        >>> row, b = found.worst_cell()
        >>> row, found.value[row, b].round(2).tolist(), found.probability_edges[b:b + 2].tolist()
        (1, 0.07, [0.0, 0.10000000149011612])

    Reference: Bröcker and Smith, Increasing the reliability of reliability diagrams, Weather and
    Forecasting 2007, for redrawn targets; Westfall and Young, Resampling-based multiple testing,
    Wiley 1993, for the largest of many scores.
    """
    check_key(key)
    data = as_data(predictions, targets, where=where, without=NOT_PLAIN)
    if not isinstance(data.predictions, Labels):
        raise TypeError(
            "predictions must be Bernoulli or Categorical, got "
            f"{type(data.predictions).__name__}; residual_map takes counts and real numbers."
        )
    n_bins = UniformBinning(n_bins).n_bins
    of_band = resamples_of(data, confidence_level, n_resamples)
    check_choice("strategy", strategy, STRATEGIES)
    return _witness_map(key, *of_band, strategy=strategy, n_bins=n_bins)


@on_all_rows
def _witness_map(
    key: jax.Array, data: Rows, resamples: Resamples, *, strategy: str, n_bins: int
) -> WitnessMap:
    data = clean(data)
    level, dtype = resamples.level, data.weights.dtype
    probs, complements = _with_complements(as_labels(data.predictions))
    m, first = probs.shape[1], 1 if isinstance(data.predictions, Binary) else 0
    row_of_class = jnp.arange(m, dtype=jnp.int32) - first
    # The labels before the first class have no cell, nor have masked rows.
    has_cell = (data.weights[:, None] != 0) & (row_of_class >= 0)[None]
    bins, edges = intervals_of(strategy, n_bins, probs, has_cell)

    def bins_of_class(columns: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array, jax.Array]:
        p, complement, bins, happened = columns
        both = jnp.stack([jnp.ones(data.n, jnp.int32), happened], axis=1)
        here = jnp.zeros((n_bins, 2), jnp.int32).at[bins]
        sizes, events = here.add(both, mode="drop", wrap_negative_indices=False).T
        moments = jnp.stack([p, complement, p * complement], axis=1)
        return sizes, events, bin_means(moments, bins, sizes)

    happened = (data.targets[:, None] == jnp.arange(m, dtype=jnp.int32)[None]).astype(jnp.int32)
    columns = jax.tree.map(lambda x: x.T[first:], (probs, complements, bins, happened))
    sizes, events, means = lax.map(bins_of_class, columns)
    mean, complement, variance = jnp.moveaxis(means, -1, 0).reshape(3, -1)
    cell = Bins(mean, complement, variance * sizes.reshape(-1).astype(dtype), sizes.reshape(-1))

    n_cells = sizes.size
    cells = fast_where(has_cell, (row_of_class * n_bins)[None] + bins, n_cells)
    redrawn = redrawn_label_counts(
        key, data.predictions, data.weights, cells, n_cells, resamples.number
    )
    every = jax.vmap(cell.distances)(jnp.concatenate([redrawn, events.reshape(1, -1)]))
    distances, critical = every[-1], critical_value(jnp.max(every[:-1], axis=1), level)

    value = events.reshape(-1).astype(dtype) / jnp.maximum(cell.size, 1).astype(dtype) - cell.mean
    valid = fast_where(jnp.any(jnp.isnan(data.weights)), jnp.nan, 1.0).astype(dtype)
    of_filled = fast_where(cell.size > 0, valid, jnp.nan)
    score = jnp.sign(value) * jnp.sqrt(distances) * of_filled
    critical = jnp.sqrt(critical) * valid

    def shaped(x: jax.Array) -> jax.Array:
        return x.reshape(sizes.shape)

    return WitnessMap(
        classes=jnp.arange(first, m, dtype=jnp.int32),
        probability_edges=edges.astype(dtype),
        predicted=shaped(cell.mean * of_filled),
        value=shaped(value * of_filled),
        count=sizes,
        score=shaped(score),
        significant=shaped(is_beyond(score, critical)),
        critical=critical,
        confidence_level=level.astype(dtype) * valid,
    )


def _with_complements(predictions: Labels) -> tuple[jax.Array, jax.Array]:
    """The probability of each label, and of all other labels with all its digits, ``[n, m]``.

    Probabilities are divided by their sum, which may differ a little from 1, as draws are.
    """
    probs = predictions.label_probabilities()
    total = jnp.sum(probs, axis=1, keepdims=True)
    is_mode = jnp.arange(probs.shape[1])[None] == jnp.argmax(probs, axis=1)[:, None]
    off_mode = predictions.off_mode_probability()[:, None]
    return probs / total, fast_where(is_mode, off_mode, total - probs) / total


def worst_cell(size: ArrayLike, significant: ArrayLike) -> tuple[int, ...] | None:
    """The index of the significant cell whose size is farthest from 0; None if none is.

    The size is a score, for the clearest error, or a value, for the largest one.  The arrays must
    be concrete.
    """
    distances = np.where(np.asarray(significant), np.abs(np.asarray(size)), -1.0)
    index = np.unravel_index(np.argmax(distances), distances.shape)
    return tuple(map(int, index)) if distances[index] >= 0 else None


# The number of residuals in memory at a time.
_RESIDUALS = 2**18


@struct
class ResidualMap:
    """Where predictions of numbers are wrong; see `residual_map`.

    Arrays ``[2, l, s]`` have two layers: the location of the targets, and their spread.

    Args:
        location_edges: the ends of the bins of the predicted location, ``[l + 1]``.
        spread_edges: the ends of the bins of the predicted spread, ``[s + 1]``.
        count: the number of rows in each cell, ``[l, s]``.
        value: the mean of r and the mean of r^2 - 1, where r is the residual in units of the
            predicted spread, ``[2, l, s]``; NaN where the cell is empty.
        score: the values on a scale on which they have mean 0 and variance 1 under a calibrated
            model, ``[2, l, s]``; NaN where the cell is empty.
        significant: whether the score is farther from 0 than the critical score, ``[2, l, s]``.
        critical: a calibrated model has a score beyond it, in any of the cells of both layers, with
            a probability of at most 1 - confidence_level.
        confidence_level: this level.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.linspace(0.0, 10.0, 2000), 1.0)
        >>> found = cj.residual_map(jax.random.key(0), predictions, predictions.loc + 1)
        >>> found.value[:, :, 0].round(2).tolist(), found.count[:, 0].tolist()
        ([[1.0, 1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0, 0.0]], [400, 400, 400, 400, 400])
    """

    location_edges: jax.Array
    spread_edges: jax.Array
    count: jax.Array
    value: jax.Array
    score: jax.Array
    significant: jax.Array
    critical: jax.Array
    confidence_level: jax.Array

    def worst_cell(self) -> tuple[int, ...] | None:
        """The index (layer, location bin, spread bin) of the significant cell with the largest
        score; None if no cell is significant.

        It is where the model is most clearly wrong, often a cell of many rows.
        """
        return worst_cell(self.score, self.significant)

    def largest_cell(self) -> tuple[int, ...] | None:
        """The index (layer, location bin, spread bin) of the significant cell with the largest
        error in units of the predicted spread; None if no cell is significant.

        It is where the model is most wrong, often a cell of few rows.  In the second layer the
        error is that of the spread, sqrt(1 + value) - 1.
        """
        location, square = np.asarray(self.value)
        errors = np.stack([location, np.sqrt(np.maximum(1 + square, 0.0)) - 1])
        return worst_cell(errors, self.significant)


def residual_map(
    key: jax.Array,
    predictions: Distribution | Data,
    targets: ArrayLike | None = None,
    *,
    n_bins: int = 5,
    confidence_level: float = 0.95,
    n_resamples: int = 999,
    where: ArrayLike | None = None,
) -> ResidualMap:
    """Where targets are higher or lower, or more or less dispersed, than predicted.

    .. math::
        r_i = \\frac{y_i - \\mu_i}{\\sigma_i}, \\qquad
        \\text{value}_{1c} = \\frac{1}{n_c} \\sum_{i \\in c} r_i, \\qquad
        \\text{value}_{2c} = \\frac{1}{n_c} \\sum_{i \\in c} r_i^2 - 1

    A cell c is one of n_bins bins of the predicted location mu, which is the mean, and one of
    n_bins bins of the predicted spread sigma, which is the standard deviation; families that may
    lack moments, such as `Univariate` ones, have the median and half of a central interval.  The
    ends of the bins are quantiles of what was predicted.  Equal predictions are in one bin, so that
    bins may be empty.

    All targets are redrawn from the predictions R = n_resamples times.  Scores are, in each cell,
    the mean of r and the cubic root of the mean of r^2, which is nearly symmetric, less their
    mean and divided by their standard deviation over all R + 1 data sets.  A cell is significant if
    its score is farther from 0 than all scores of a data set are in a share confidence_level of the
    redrawn data sets.  So, if rows are independent given the predictions, a calibrated model has
    *any* significant cell with a probability of at most 1 - confidence_level, at every n.

    Args:
        key: a key of `jax.random`.
        predictions, targets, where: as in `Data`, or one `Data` with `where` alone: n >= 1
            predictions of counts or of real numbers.
        n_bins: the number of bins of the location, and of the spread.
        confidence_level: the probability that no cell is wrongly significant, a number in
            (0, R / (R + 1)].
        n_resamples: R, the number of redrawn data sets; each depends only on (key, r).

    Returns:
        ResidualMap.  Its numbers are NaN if the residual of a kept row is not known or infinite,
        or, inside jit, if a kept row is invalid; then no cell is significant.  O(n n_bins^2 R)
        time, O(n n_bins^2) memory.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value.

    See also:
        `witness_map` for classes, `calibjax.plot.residual_location` for a plot.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> loc = jnp.linspace(0.0, 10.0, 2000)
        >>> truth = cj.Normal(loc, jnp.where(loc > 8, 1.5, 1.0))
        >>> targets = truth.sample(jax.random.key(0))
        >>> found = cj.residual_map(jax.random.key(1), cj.Normal(loc, 1.0), targets)
        >>> layer, location, spread = found.worst_cell()
        >>> layer, found.location_edges[location].round(2).tolist()
        (1, 8.0)
        >>> bool(found.value[layer, location, spread] > 1)
        True

    Reference: Dwass, Modified randomization tests for nonparametric hypotheses, Annals of
    Mathematical Statistics 1957; Wilson and Hilferty, The distribution of chi-square, Proceedings
    of the National Academy of Sciences 1931, for the cubic root.
    """
    check_key(key)
    data = numbers_as_data(predictions, targets, where=where, without=NOT_PLAIN)
    if isinstance(data.predictions, Labels):
        raise TypeError(
            "predictions must be of counts or real numbers, got "
            f"{type(data.predictions).__name__}; witness_map takes classes."
        )
    n_bins = check_integer("n_bins", n_bins, 1)
    return _residual_map(key, *resamples_of(data, confidence_level, n_resamples), n_bins=n_bins)


@on_all_rows
def _residual_map(key: jax.Array, data: Rows, resamples: Resamples, *, n_bins: int) -> ResidualMap:
    data = pooled(clean(data))
    level, dtype, predictions = resamples.level, data.weights.dtype, data.predictions
    location, spread = predictions.location(), predictions.spread()
    kept = data.weights != 0
    (location_edges, spread_edges), (location_bins, spread_bins) = jax.vmap(
        lambda x: quantile_bins(x, kept, n_bins)
    )(jnp.stack([location, spread]))
    cells = location_bins * n_bins + spread_bins
    is_in = (cells[:, None] == jnp.arange(n_bins**2, dtype=jnp.int32)[None]) & kept[:, None]
    count = jnp.sum(is_in, axis=0, dtype=jnp.int32)
    size = jnp.maximum(count, 1).astype(dtype)
    is_in = is_in.astype(dtype)
    # A spread of 0 predicts one value: all draws are it, and any other target stands out.
    divisor = jnp.where(spread > 0, spread, 1.0)

    def means(targets: jax.Array) -> jax.Array:
        """The means of the residuals and of their squares in each cell, ``[2, l s]``."""
        residuals = (restricted(predictions, targets).astype(dtype) - location) / divisor
        return dot(jnp.stack([residuals, jnp.square(residuals)]), is_in) / size[None]

    values = under_model(means, key, data, resamples.number, _RESIDUALS // data.n)
    score = _standardised(jnp.stack([values[:, 0], jnp.cbrt(values[:, 1])], axis=1), count)
    critical = critical_value(jnp.max(absolute(score[:-1]), axis=(1, 2)), level)

    # One residual that is not known, or infinite, makes the sums of all cells NaN.
    unknown = jnp.any(jnp.isnan(data.weights)) | jnp.any(jnp.isnan(values))
    valid = jnp.where(unknown, jnp.nan, 1.0)
    of_filled = jnp.where(count > 0, valid, jnp.nan).astype(dtype)
    score = score[-1] * of_filled[None]
    value = (values[-1] - jnp.array([[0], [1]], dtype)) * of_filled[None]

    def shaped(x: jax.Array) -> jax.Array:
        return x.reshape(*x.shape[:-1], n_bins, n_bins)

    return ResidualMap(
        location_edges=location_edges,
        spread_edges=spread_edges,
        count=shaped(count),
        value=shaped(value),
        score=shaped(score),
        significant=shaped(is_beyond(score, critical)),
        critical=critical * valid,
        confidence_level=level.astype(dtype) * valid,
    )


def quantile_bins(x: jax.Array, kept: jax.Array, n_bins: int) -> tuple[jax.Array, jax.Array]:
    """The ends ``[n_bins + 1]`` of bins that hold equally many kept rows, and the bin of each row.

    Bins are closed on the right, and equal numbers are in one bin.
    """
    # NaN is behind all numbers.
    ordered = jnp.sort(jnp.where(kept, x, jnp.nan))
    n = jnp.sum(~jnp.isnan(ordered), dtype=jnp.int32)
    levels = np.linspace(0.0, 1.0, n_bins + 1, dtype=x.dtype)
    ranks = jnp.ceil(levels * n.astype(x.dtype)).astype(jnp.int32)
    edges = rows_of(ordered, jnp.maximum(jnp.minimum(ranks, n) - 1, 0))
    return edges, jnp.sum(edges[None, 1:-1] < x[:, None], axis=1, dtype=jnp.int32)


def _standardised(values: jax.Array, count: jax.Array) -> jax.Array:
    """The values ``[R + 1, 2, c]`` less their means, in units of their standard deviations.

    Values that are the same in all data sets, and values of empty cells, become 0.
    """
    centred = values - jnp.mean(values, axis=0, keepdims=True)
    deviation = jnp.sqrt(jnp.mean(jnp.square(centred), axis=0))
    least = 100 * jnp.finfo(values.dtype).eps * jnp.max(absolute(values), axis=0)
    varies = (deviation > least) & (count > 0)[None]
    return jnp.where(varies[None], centred / jnp.where(varies, deviation, 1.0)[None], 0.0)
