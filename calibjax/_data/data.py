"""A data set: predictions, their targets, and how rows count and depend on each other.

`Data` are checked once, when they are made.  `Rows` are the arrays of them that programs hold,
which `clean` brings to one floating dtype, with valid numbers in masked rows and a weight for each
row.  If a kept row is invalid, which only a traced value can be at this point, all weights are NaN,
and so is every result.
"""

import functools
from collections.abc import Callable
from typing import Any, Self, TypedDict, TypeVar, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike, DTypeLike

from calibjax._base.check import check_array, check_shapes
from calibjax._base.sharding import (
    Axis,
    all_max,
    all_of,
    all_sum,
    axis_size,
    devices_of,
    global_offset,
    index_on,
    rows_at,
)
from calibjax._base.struct import (
    is_floating,
    is_traced,
    on_host,
    outside,
    rows_of,
    static,
    struct,
    widest_dtype,
    with_fields,
)
from calibjax._data.checks import (
    check_shapes_of_predictions,
    check_shapes_of_targets,
    check_values_of_rows,
    compared_in_one_precision,
    too_few_rows,
    valid_rows,
)
from calibjax._data.distribution import Distribution, as_labels
from calibjax._data.interval_censored import IntervalCensored, Targets
from calibjax._data.row_columns import (
    Covariates,
    CovariatesLike,
    coded_covariates,
    coded_dependence,
    kept_rows,
    weights_of_labels,
)
from calibjax._data.typed_column import named_columns
from calibjax._loops.coordinate_sums import row_at
from calibjax._numbers.arithmetic import fast_where, fractions_of

T = TypeVar("T")

#: The fields of `Data` by which rows depend on each other.
DEPENDENCE = "clusters", "times"
#: The fields of `Data` without which rows are independent and weigh the same.
NOT_PLAIN = ("weights", *DEPENDENCE)
#: The fields of `Data` that no program needs.
_METADATA = "horizon", "groups", "classes", "row_names"
#: The fields that `Rows.valid` looks at.
_WITH_VALUES = {*"predictions targets where weights times covariates outcome_weights".split()}
# Minimum average number of rows that share a weight, where weights follow labels.
_LEAST_REPEATS = 8
#: An array with a row for each sample, or None; targets may be `IntervalCensored`.  The type does
#: not say which: `clean` makes weights of None, and a public function refuses intervals before its
#: core.
PerRow = Any


class RowOptions(TypedDict, total=False):
    """How rows count and depend on each other, as `Data` documents it."""

    where: ArrayLike | None
    weights: ArrayLike | None
    clusters: ArrayLike | None
    times: ArrayLike | None
    horizon: float | None


class DataOptions(RowOptions, total=False):
    """The options of `as_data` that functions of one kind of predictions pass on."""

    intervals: bool
    without: tuple[str, ...]


@struct
class Rows:
    """The arrays of n rows, as programs take them: nothing is checked.

    Args:
        predictions, targets, where, weights, clusters, times, covariates: as in `Data`; targets are
            None for predictions alone.
        outcome_weights: the weight of each row with each of its m labels, ``[n, m]``, if weights
            depend on the targets; of clean rows in units of the weight of the observed label.
        is_checked: whether kept rows were checked outside of jit.  Transformations of jax drop it:
            a user may change a pytree.
        is_valid: whether all rows, masked ones too, are known to be valid, so that programs can
            skip the check.  Only data that a public function has checked are known.
    """

    predictions: Distribution
    targets: PerRow = None
    where: PerRow = None
    weights: PerRow = None
    clusters: PerRow = None
    times: PerRow = None
    covariates: Covariates | None = None
    outcome_weights: PerRow = None
    is_checked: bool = outside(default=False)
    is_valid: bool = static(default=False)

    def replace(self, **fields: Any) -> Self:
        """The same rows with other fields, which are not known to be valid."""
        is_other = any(fields[x] is not getattr(self, x) for x in _WITH_VALUES & fields.keys())
        unknown = dict(is_checked=False, is_valid=False) if is_other else {}
        return with_fields(self, **unknown | fields)

    @property
    def n(self) -> int:
        """The number of rows, masked ones included."""
        rows = self.predictions if self.targets is None else self.targets
        return jax.tree.leaves(rows)[0].shape[0]

    @property
    def samples(self) -> tuple[Any, PerRow]:
        """The batch of samples (predictions, targets), the argument of `h_tile`."""
        return self.predictions, self.targets

    @property
    def is_censored(self) -> bool:
        """Whether targets are `IntervalCensored`, and so may not be known exactly."""
        return isinstance(self.targets, IntervalCensored)

    @property
    def is_dependent(self) -> bool:
        """Whether rows may depend on each other, in clusters or over times."""
        return self.clusters is not None or self.times is not None

    @property
    def is_plain(self) -> bool:
        """Whether all rows weigh the same and none depends on others."""
        return self.weights is None and not self.is_dependent

    def weights_depend_on_labels(self) -> bool:
        """Whether there are `outcome_weights`, or no weight occurs with two labels."""
        if self.outcome_weights is not None:
            return True
        given = self.weights, self.targets, self.where
        is_known = not is_traced(given) and devices_of(given) is None
        has_labels = self.predictions.n_labels is not None and not self.is_censored
        if self.weights is None or not (is_known and has_labels):
            return False
        kept = self.counted_rows()
        pairs = np.unique(np.asarray(self.weights)[kept] + 1j * np.asarray(self.targets)[kept])
        is_one, n_weights = np.unique(pairs.imag).size < 2, np.unique(pairs.real).size
        return not is_one and pairs.size == n_weights <= kept.sum() / _LEAST_REPEATS

    def n_kept(self) -> int:
        """The number of kept rows, or n if the mask is traced."""
        return _count(self.where, self.n)

    def n_counted(self) -> int:
        """The number of kept rows whose weight is not 0, or n if that is traced."""
        if self.weights is None or is_traced((self.where, self.weights)):
            return self.n_kept()
        counts = jnp.asarray(self.weights) > 0 if devices_of(self) else on_host(self.weights) > 0
        return _count(counts if self.where is None else counts & self.where, self.n)

    def counted_rows(self) -> np.ndarray:
        """Which rows are kept and have a weight above 0, ``[n]``, as far as that is known."""
        where = None if is_traced(self.where) else self.where
        found = kept_rows(self.n, where, None if is_traced(self.weights) else self.weights)
        assert found is not None
        return found

    def counted(self) -> tuple[np.ndarray, np.ndarray]:
        """`counted_rows`, and how much each of them counts, in units of the largest weight."""
        kept = self.counted_rows()
        every = np.ones(self.n) if self.weights is None else np.asarray(self.weights, float)
        return kept, (every / every[kept].max())[kept]

    def n_units(self) -> int | None:
        """The number of clusters, or of times; None if it is traced or nothing depends."""
        units = self._known(self.clusters if self.times is None else self.times)
        return None if units is None else np.unique(units).size

    def n_stretches(self) -> float | None:
        """How many horizons the times cover, a gap counting as one; None without, or if traced."""
        times = self._known(self.times)
        if times is None:
            return None
        gaps = np.diff(np.unique(times))
        return float(np.minimum(gaps, 1).sum() * (gaps.size + 1) / max(gaps.size, 1))

    def check_unrelated(self) -> None:
        """A ValueError if all kept rows are less than a horizon apart: no pair would be left."""
        times = self._known(self.times)
        if times is not None and times.size and np.ptp(times) < 1:
            raise ValueError(
                "times must be more than one horizon apart for some rows, got all within "
                f"{np.ptp(times):.3g} horizons, where rows may depend on each other; add rows of "
                "other times."
            )

    def _known(self, column: PerRow) -> np.ndarray | None:
        """What counted rows have in a column; None if there is none, or it is traced."""
        kept = kept_rows(self.n, self.where, self.weights)
        if column is None or kept is None or is_traced(column):
            return None
        with jax.ensure_compile_time_eval():
            return np.asarray(column)[kept]

    def valid(self) -> jax.Array | None:
        """Which rows are masked or have valid numbers, ``[n]``; None if all are known to have."""
        if self.is_valid:
            return None
        weights = self.weights if self.outcome_weights is None else self.outcome_weights
        valid = valid_rows(self.predictions, self.targets, weights)
        if self.times is not None:
            valid = valid & jnp.isfinite(self.times)
        if self.covariates is not None:
            valid = valid & ~jnp.any(jnp.isnan(self.covariates.values), axis=1)
        return valid if self.where is None else valid | ~self.where


#: `Data` of `Data`, and `Rows` of `Rows`.
AnyRows = TypeVar("AnyRows", bound=Rows)


@struct
class Data(Rows):
    """A data set of n predictions and targets, checked once, which every function takes.

    ``f(predictions, targets, weights=w)`` is ``f(Data(predictions, targets, weights=w))``.

    Args:
        predictions: a batch of n predictions of one family.
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.  `IntervalCensored`
            where they are censored, rounded or binned.
        where: boolean mask ``[n]``.  Masked rows may hold anything, NaN included; they change
            neither results nor gradients.
        weights: how much each row counts, nonnegative numbers ``[n]`` that are known before the
            targets; None for equal weights.  Weights are not counts: a row of weight 2 varies as
            one observation does.  If they depend on the target, such as 1 for an event and 20 for
            a row without one, of which 5 % were kept: for m labels the weight that each row would
            have had with each of them, ``[n, m]``.
        clusters: integers ``[n]``: rows of one cluster may depend on each other in any way, such as
            the rows of one patient.
        times: numbers ``[n]``: rows of one time may depend on each other in any way.
        horizon: a number in units of the times: rows whose times differ by less may depend on each
            other, such as overlapping forecasts for h steps ahead; None for rows of one time only.
        covariates: other columns of the rows, known before the targets: numbers ``[n, d]``, or a
            mapping of names to columns ``[n]`` (a dict, or a frame) of numbers, times or
            categories.

    With `weights` w ``[n, m]`` a row that was sampled has the label c with a probability that is
    proportional to p_c / w_c.  Tests draw from these probabilities, each draw with the weight of
    its label, and remain exact.  The `weights` of the `Data` are those of the observed labels
    ``[n]``, and `outcome_weights` are all of them.

    A `Data` is a pytree, and can be an argument of jit.  Its `times` are in units of the horizon,
    and its `clusters` are numbered.  Metadata for display are not part of the pytree: `horizon` as
    it was given, 0 for times without one, and None without times; and `groups`, columns ``[n]`` by
    their names, the names of the `classes`, and `row_names` ``[n]``, which are None unless
    `read_data` or `replace` has set them.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value.
            Inside jit a bad value makes results NaN.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.linspace(0.05, 0.95, 100))
        >>> targets = predictions.sample(jax.random.key(0))
        >>> data = cj.Data(predictions, targets, clusters=jnp.arange(100) // 5)
        >>> float(cj.calibration_test(jax.random.key(1), data).pvalue) > 0.05
        True
    """

    horizon: float | None = outside(default=None)
    groups: Any = outside(default=None)
    classes: Any = outside(default=None)
    row_names: Any = outside(default=None)

    def __init__(
        self,
        predictions: Distribution,
        targets: Targets,
        *,
        where: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        clusters: ArrayLike | None = None,
        times: ArrayLike | None = None,
        horizon: float | None = None,
        covariates: CovariatesLike | None = None,
    ) -> None:
        sizes = check_shapes_of_predictions(predictions, where, at_least=0)
        targets = check_shapes_of_targets(predictions, targets, sizes)
        outcome_weights = None
        if weights is not None:
            check_array("weights", weights, "real")
            n_labels = None if isinstance(targets, IntervalCensored) else predictions.n_labels
            shape = "n" if n_labels is None or jnp.ndim(weights) != 2 else "n m"
            check_shapes({"weights": (weights, shape)}, sizes | {"m": n_labels or 0})
            outcome_weights = weights if shape == "n m" else None
        predictions = predictions.with_full_precision()
        predictions, targets = compared_in_one_precision(predictions, targets)
        check_values_of_rows(predictions, targets, where, weights)
        if outcome_weights is not None:
            weights = weights_of_labels(outcome_weights, targets)
        n, columns, is_of_times = sizes["n"], None, times is not None
        if clusters is not None or times is not None or horizon is not None:
            kept = kept_rows(n, where, weights)
            clusters, times = coded_dependence(clusters, times, horizon, n, where, kept)
        if covariates is not None:
            columns = coded_covariates(covariates, n, kept_rows(n, where, weights))
        rows = weights, clusters, times, columns, outcome_weights
        Rows.__init__(self, predictions, targets, where, *rows)
        vars(self).update(dict.fromkeys(_METADATA), is_checked=not is_traced(self))
        if is_of_times:
            vars(self)["horizon"] = float(horizon or 0)

    def take(self, rows: np.ndarray) -> Self:
        """Some of the rows, by their indices, with all metadata."""
        groups = None if self.groups is None else named_columns("groups", self.groups)
        return self.map(lambda x: x[rows]).replace(
            groups=groups and {name: np.asarray(x)[rows] for name, x in groups.items()},
            row_names=self.names_of_rows()[rows],
        )

    def map(self, function: Callable[[Any], Any]) -> Self:
        """A function of each array; metadata stay as they are."""
        names = {name: getattr(self, name) for name in _METADATA}
        return jax.tree.map(function, self).replace(**names)

    def names_of_rows(self) -> np.ndarray:
        """What rows are called, ``[n]``: `row_names`, or numbers from 0."""
        return np.arange(self.n) if self.row_names is None else np.asarray(self.row_names)

    def describe_units(self) -> str:
        """What rows depend on each other in, such as "60 clusters"; "rows" if they do not."""
        if not self.is_dependent:
            return "rows"
        number = self.n_units()
        count = "" if number is None else f"{number} "
        return f"{count}{'clusters' if self.times is None and self.horizon is None else 'times'}"


def _count(kept: PerRow, n: int) -> int:
    """The number of rows of a mask, or n if it is None or traced."""
    if kept is None or is_traced(kept):
        return n
    # A mask that lies on devices of several processes is counted there.
    return int(jnp.sum(kept)) if devices_of(kept) else int(np.sum(np.asarray(kept)))


def as_data(
    predictions: Distribution | Data,
    targets: Targets | None = None,
    *,
    covariates: CovariatesLike | None = None,
    at_least: int = 2,
    intervals: bool = False,
    without: tuple[str, ...] = (),
    **rows: Unpack[RowOptions],
) -> Data:
    """The arguments of a public function as `Data`, whose arrays are returned as they are.

    Args:
        predictions, targets, covariates, rows: as in `Data`, or one `Data` and None.
        at_least: how many rows must be kept, and how many clusters or times there must be.
        intervals: whether targets may be `IntervalCensored`.
        without: the fields of `Data` that the caller does not use and would be wrong to ignore.
    """
    for name in rows.keys() - RowOptions.__annotations__.keys():
        raise TypeError(f"unknown argument {name}; there are {[*RowOptions.__annotations__]}.")
    if isinstance(predictions, Data):
        data = predictions
        check_none_beside_data(targets=targets, covariates=covariates, **rows)
    else:
        if targets is None:
            check_shapes_of_predictions(predictions, None, at_least=at_least)
            raise TypeError("targets must be an array, got None.")
        data = Data(predictions, targets, covariates=covariates, **rows)
    if data.n < at_least:
        raise too_few_rows("predictions", data.n, at_least)
    if data.is_censored and not intervals:
        raise TypeError("targets must be an array; IntervalCensored is not supported here.")
    for name in without:
        if getattr(data, name) is not None:
            said = "weights [n, m]" if name == "outcome_weights" else name
            raise ValueError(
                f"{said} of Data must be None: this function does not use them; "
                f"data.replace({name}=None) leaves them out."
            )
    if data.where is not None or data.weights is not None:
        n_counted = data.n_counted()
        if n_counted < at_least:
            count = "1 row" if at_least == 1 else f"{at_least} rows"
            raise ValueError(f"where and weights must keep at least {count}, got {n_counted}.")
    if at_least > 1 and data.is_dependent and data.n_units() == 1:
        words = "at least 2 different values, got 1; pass none if rows are independent"
        raise ValueError(f"clusters or times must have {words}.")
    return with_fields(data, is_valid=True) if data.is_checked and data.where is None else data


def check_none_beside_data(**given: Any) -> None:
    """A TypeError if an argument is given that `Data` has."""
    for name, value in given.items():
        if value is not None:
            raise TypeError(f"{name} must be None beside Data, which has it, got both.")


def fill_masked(rows: T, where: jax.Array, axis: Axis = None) -> T:
    """Replaces masked rows by a copy of the first kept row, or by ones if no row is kept.

    A masked row may hold anything.  Its replacement is valid and passes no gradient on.  The first
    kept row may lie on another device than `rows`.
    """
    first = jnp.argmax(where)
    is_here = is_any = jnp.any(where)
    if axis is not None:
        on_device = all_of(is_here, axis)
        is_any = jnp.any(on_device)
        is_here &= jnp.argmax(on_device).astype(jnp.int32) == index_on(axis)

    def fill(x: jax.Array) -> jax.Array:
        row = lax.stop_gradient(row_at(x, first))
        if axis is not None:
            # A sum of booleans is an integer.
            row = all_sum(lax.select(is_here, row, jnp.zeros_like(row)), axis).astype(x.dtype)
        row = lax.select(is_any, row, jnp.ones_like(row))
        mask = lax.broadcast_in_dim(where, x.shape, (0,))
        return lax.select(mask, x, lax.broadcast(row, x.shape[:1]))

    return jax.tree.map(fill, rows)


def kept_first(rows: T, where: jax.Array | None) -> tuple[T, jax.Array | int]:
    """The rows in a new order, kept rows first, and the number of kept rows."""
    if where is None:
        return rows, jax.tree.leaves(rows)[0].shape[0]
    _, order = lax.sort((~where, jnp.arange(where.size, dtype=jnp.int32)), num_keys=1)
    return jax.tree.map(lambda x: rows_of(x, order), rows), jnp.sum(where, dtype=jnp.int32)


def spaced_rows(rows: T, where: jax.Array | None, most: int, axis: Axis) -> tuple[T, jax.Array]:
    """Kept rows of all devices, regularly spaced, and which of them there are, ``[most]`` or fewer.

    Beyond the last row they are copies of the first one, which is as valid as all others.
    """
    size = min(jax.tree.leaves(rows)[0].shape[0] * axis_size(axis), most)
    rows, n_kept = kept_first(rows, where)
    n_rows = global_offset(n_kept, axis)[1]
    # The global index of every k-th row, for the largest k with as many of them.
    step = jnp.maximum(lax.div(n_rows, jnp.asarray(size, jnp.int32)), 1)
    index = jnp.arange(size, dtype=jnp.int32) * step
    return rows_at(rows, n_kept, fast_where(index < n_rows, index, 0), axis), index < n_rows


def clean(data: Rows, axis: Axis = None) -> Rows:
    """The rows in the widest floating dtype of their arrays, at least float32, ready for use.

    Masked rows hold valid numbers and have weight 0.  Weights are divided by the largest one: a
    common factor cancels in every estimate, and squares of weights must not overflow.  If a kept
    row is invalid, all weights are NaN.  `outcome_weights` are in units of the weight of the
    observed label.
    """
    dtype = widest_dtype(*jax.tree.leaves((data.targets, data.predictions)))

    def cast(x: jax.Array, whole: DTypeLike = dtype) -> jax.Array:
        return x.astype(dtype if is_floating(x) else whole)

    predictions = jax.tree.map(cast, data.predictions)
    # Open ends of counts are infinite.
    whole = dtype if predictions.target_kind == "real" else jnp.int32
    targets = jax.tree.map(functools.partial(cast, whole=whole), data.targets)
    others: tuple[Any, ...] = data.clusters, data.times, data.covariates, data.outcome_weights
    valid = data.valid()
    if data.where is not None and valid is not None:
        rows = predictions, targets, others
        predictions, targets, others = fill_masked(rows, data.where, axis)
    if data.weights is None:
        weights = jnp.ones(data.n, dtype) if data.where is None else data.where.astype(dtype)
    else:
        weights = data.weights.astype(dtype)
        weights = weights if data.where is None else fast_where(data.where, weights, 0.0)
        largest = all_max(jnp.max(weights), axis)
        weights = fractions_of(fast_where(largest > 0, largest, 1.0), weights)
    if (of_labels := others[-1]) is not None:
        own = weights_of_labels(of_labels, targets)[:, None]
        ratio = fast_where(own > 0, of_labels / fast_where(own > 0, own, 1.0), 1.0)
        others = *others[:-1], ratio.astype(dtype)
    if valid is not None:
        weights = weights * fast_where(jnp.all(valid), jnp.ones((), dtype), jnp.nan)
    return Rows(predictions, targets, data.where, weights, *others)


def with_known_weights(rows: Rows) -> Rows:
    """Clean rows with weights that do not depend on the targets: their means in sampled rows.

    `outcome_weights` are then in units of these.
    """
    weights = rows.outcome_weights
    if weights is None:
        return rows
    probabilities = as_labels(rows.predictions).label_probabilities()
    unit = jnp.sum(probabilities / weights, axis=1)
    return rows.replace(weights=rows.weights / unit, outcome_weights=weights * unit[:, None])


def clean_kept_first(data: Rows, axis: Axis) -> tuple[Rows, jax.Array | int]:
    """The clean rows, kept rows first, and how many of the rows of this device are kept.

    All weights are NaN if fewer than two rows of all devices are: one row alone gives 0 / 0.
    """
    data, n_kept = kept_first(clean(data, axis), data.where)
    enough = all_sum(jnp.asarray(n_kept), axis) > 1
    weights = fast_where(enough, data.weights, jnp.nan)
    return data.replace(where=None, weights=weights), n_kept


def in_dtype(tree: T, dtype: DTypeLike) -> T:
    """The tree with all floating leaves in one dtype."""
    return jax.tree.map(lambda x: jnp.asarray(x, dtype) if is_floating(x) else x, tree)
