"""A fitted map from predictions to predictions, and its file."""

import dataclasses
import functools
import os
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.compile import first_rows, quick_jit
from calibjax._base.files import digest_of, json_of, read_json, write_file
from calibjax._base.struct import (
    is_array,
    is_floating,
    on_host,
    static,
    struct,
    widened,
    widest_dtype,
    with_fields,
)
from calibjax._data.checks import valid_rows
from calibjax._data.column_encoding import ColumnCode
from calibjax._data.data import in_dtype
from calibjax._data.distribution import Binary, Distribution, as_labels
from calibjax._data.padding import can_be_filled, filled
from calibjax._data.row_columns import CovariatesLike
from calibjax._data.typed_column import NamedColumns
from calibjax.distributions import Bernoulli, Categorical, Ordinal
from calibjax.estimators.labels import check_classes
from calibjax.recalibration._conditional_pit_map import ConditionalPITMap, covariates_of
from calibjax.recalibration._fit_groups import GroupCurve
from calibjax.recalibration._group_scales import GroupScale
from calibjax.recalibration._groups import Coding
from calibjax.recalibration._pit_map import PITMap, apply_pit_map, check_numbers, in_form
from calibjax.recalibration._probability_maps import Chosen, Fitted, Step, apply, of_present

# The number of the version changes with what a file holds.
_KIND = {"schema": "calibjax.Recalibrator", "version": 9}
_PARTS = "fit", "steps", "groups"


def _as_json(node: Any) -> Any:
    if isinstance(node, Coding):
        columns = [x._asdict() for x in node.columns]
        for column in columns:  # JSON has no infinity.
            levels = column["levels"]
            column["levels"] = [str(x) if x in (-np.inf, np.inf) else x for x in levels]
        return {"columns": columns, "pairs": node.pairs}
    if isinstance(node, tuple):
        return [_as_json(x) for x in node]
    if is_array(node) and not isinstance(node, (bool, int, float)):
        array = np.asarray(node)
        values = array.astype(float).ravel().tolist()
        return {"dtype": str(array.dtype), "shape": array.shape, "values": values}
    if not isinstance(node, Step):
        return node
    return {"step": type(node).__name__} | {name: _as_json(x) for name, x in vars(node).items()}


def _of_json(node: Any) -> Any:
    if isinstance(node, list):
        return tuple(_of_json(x) for x in node)
    if not isinstance(node, dict):
        return node
    if "step" in node:
        step: Any = {x.__name__: x for x in Step.__subclasses__()}[node["step"]]
        names = [field.name for field in dataclasses.fields(step)]
        return step(**{name: _of_json(node[name]) for name in names})
    if "columns" in node:
        return Coding(tuple(map(_code_of, node["columns"])), _of_json(node["pairs"]))
    return np.array(node["values"], float).astype(node["dtype"]).reshape(node["shape"])


def _code_of(node: dict[str, Any]) -> ColumnCode:
    is_float = np.dtype(node["dtype"]).kind == "f"
    levels = tuple(map(float, node["levels"]) if is_float else node["levels"])
    return ColumnCode(node["name"], node["dtype"], levels, tuple(node["cuts"]))


class Fit(NamedTuple):
    """Results of a fit, part of the structure of a `Recalibrator`, without arrays."""

    method: str
    description: str
    converged: bool
    n_rows: int
    n_classes: int | None = None
    n_zero_probability: int = 0
    losses: tuple[tuple[str, float], ...] = ()
    covariates: tuple[str, ...] = ()
    lower: float | None = None
    threshold: float | None = None
    is_whole: bool = False
    score: str = "log loss"
    change: tuple[float, float, float] | None = None


@struct
class Recalibrator:
    """A fitted map from predictions to predictions of the same kind; `fit_recalibrator` makes it.

    Call ``recalibrator(predictions)``, or ``recalibrator(predictions, groups)`` if the map was
    fitted with groups, with any number of rows.  Bernoulli, Ordinal, Quantiles (same levels),
    SurvivalCurve (same times) and Empirical predictions keep their type.  Other labels become
    Categorical, counts Ordinal, other numbers `Recalibrated`, and Quantiles after "conformal".  The
    map can be traced and differentiated; derivatives of "venn_abers" are 0.  An invalid row, such
    as padding, stays invalid (NaN).  O(size of predictions), with a matrix O(n m^2).

    Groups are columns with the names of the fit, which are read outside of jit.  Levels unknown to
    the fit change nothing.  If the map was fitted with covariates, call
    ``recalibrator(predictions, covariates=covariates)``.

    Raises:
        TypeError, ValueError: predictions of another kind, or of another number of classes; groups
            that lack a column, or that are given to a map without groups.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> logits = jnp.linspace(-4, 4, 400)
        >>> targets = cj.Bernoulli.from_logits(logits / 2).sample(jax.random.key(0))
        >>> predictions = cj.Bernoulli.from_logits(logits)
        >>> recalibrator = cj.fit_recalibrator(predictions, targets, "temperature")
        >>> print(recalibrator)
        Recalibrator: temperature, T = 2. (logits are divided by T; above 1: over-confident)
          fitted to 400 rows of 2 classes; converged
        >>> recalibrator(predictions).probs[-2:].round(2).tolist()
        [0.88, 0.88]
    """

    steps: tuple
    group_map: GroupCurve | GroupScale | None
    fit: Fit = static()

    def __call__(
        self,
        predictions: Distribution,
        groups: NamedColumns | None = None,
        covariates: CovariatesLike | None = None,
    ) -> Any:
        n_classes, curve = self.fit.n_classes, self.group_map
        _check_given("groups", groups, self.names_of_groups)
        _check_given("covariates", covariates, self.fit.covariates)
        if n_classes is None:
            check_numbers(predictions)
        elif (actual := check_classes(predictions)) != n_classes:
            raise ValueError(
                f"predictions must have the {n_classes} classes of the fit, got {actual}."
            )
        segments, n = None, len(predictions)
        if curve is not None and groups is not None:
            segments = curve.coding.segments(groups, n)
        if n_classes is not None:
            rows = self.steps, curve, predictions.with_full_precision(), segments
            return (_recalibrated_on_host if can_be_filled(rows, n) else _recalibrated)(*rows)
        numbers = covariates_of(covariates, self.fit.covariates, n)
        given = filled((predictions, numbers, segments), n)
        # None is part of the structure, so that other maps do not ask for known quantiles.
        fit = self.fit
        form = fit.lower, True if fit.is_whole else None, fit.threshold
        if curve is not None:  # Programs are of shapes, and not of what segments are.
            curve = with_fields(curve, coding=Coding((), ()))
        return first_rows(_recalibrated_numbers((self.steps, curve, form), given), n)

    @property
    def names_of_groups(self) -> list[str]:
        """The names of the columns of groups that the map was fitted with."""
        return [] if self.group_map is None else self.group_map.coding.names

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file of JSON, which `load_recalibrator` reads; an old file is replaced."""
        write_file(path, json_of(content_of(self)))

    def __repr__(self) -> str:
        """Words, as `print` shows them."""
        fit = self.fit
        chosen = f"{fit.method}, {fit.description}" if fit.description else fit.method
        lines = [f"Recalibrator: {chosen}"]
        if fit.losses:
            least = sorted(fit.losses, key=lambda x: x[1])
            held_out = ", ".join(f"{name} {round(loss, 4) + 0.0:.4f}" for name, loss in least)
            lines.append(f"  held-out {fit.score}: {held_out}")
        if fit.change is not None:
            mean, low, high = fit.change
            change = f"{mean:+.3g} (95 % CI {low:+.3g} to {high:+.3g}); negative is better"
            lines.append(f"  change of held-out {fit.score.removesuffix(', change')}: {change}")
        ended = "converged" if fit.converged else "not converged"
        rows = "1 row" if fit.n_rows == 1 else f"{fit.n_rows} rows"
        classes = "" if fit.n_classes is None else f" of {fit.n_classes} classes"
        lines.append(f"  fitted to {rows}{classes}; {ended}")
        if fit.lower is not None:
            up_to = f"; values up to {fit.threshold:.3g} become it" if fit.threshold else ""
            lines.append(f"  lower bound of recalibrated values: {fit.lower:g}{up_to}")
        if fit.is_whole:
            lines.append("  recalibrated values are whole numbers, as those of the fit")
        if n_zero := fit.n_zero_probability:
            some = "1 target" if n_zero == 1 else f"{n_zero} targets"
            lines.append(f"  {some} had predicted probability 0; zeros were raised")
        return "\n".join(lines)


def numbers_of_classes(predictions: Distribution) -> jax.Array:
    """The probabilities of all labels; those of ragged rows as given, with their zeros."""
    labels = as_labels(predictions)
    return labels.parameter("probs") if labels.ragged else labels.label_probabilities()


def probabilities_on_host(predictions: Distribution) -> np.ndarray:
    """`numbers_of_classes` of concrete rows, as an array of NumPy."""
    if isinstance(predictions, Categorical):
        return on_host(predictions.probs)
    if isinstance(predictions, Bernoulli):
        probs, rest = on_host(predictions.probs), predictions.complement
        return np.stack([1 - probs if rest is None else on_host(rest), probs], axis=1)
    found = numbers_of_classes(filled(predictions, len(predictions)))
    return on_host(found)[: len(predictions)]


@functools.partial(quick_jit, light=True)
def _recalibrated_numbers(maps: tuple, rows: tuple) -> Distribution:
    """Predictions of numbers after the steps, the map of segments or None, and `in_form`.

    `rows` are predictions, covariates or None, and segments or None.
    """
    (steps, curve, form), (given, covariates, segments) = maps, rows
    found = given
    if isinstance(curve, GroupScale) and segments is not None:
        moving = in_dtype(curve, widest_dtype(*jax.tree.leaves(given)))
        found = in_form(moving.moved(given, segments), given, *form)
    for step in steps:
        if not isinstance(step, PITMap | ConditionalPITMap):
            found = in_form(step(found), given, *form)
            continue
        g = step.values(found, covariates)
        if isinstance(curve, GroupCurve) and segments is not None:
            g = jnp.broadcast_to(g, (len(found), g.shape[-1])).astype(widest_dtype(g))
            g = in_dtype(curve, g.dtype).of_pit_map(g, segments)
        found = apply_pit_map(found, g, step.levels)
    return in_form(found, given, *form)


def recalibrator_of(
    predictions: Distribution, chosen: Chosen, of_groups: Fitted | None, **known: Any
) -> Recalibrator:
    """Makes a recalibrator of a map and that of segments, in the floating dtype of predictions.

    Args:
        predictions: predictions of the fit.
        chosen: the map for all rows.
        of_groups: the map of segments, or None.
        known: the other fields of `Fit`.
    """
    method, (steps, converged, words), losses = chosen
    curve = None
    if of_groups is not None:
        words = "; ".join(filter(None, (words, of_groups.description)))
        converged, (curve,) = converged and of_groups.converged, of_groups.steps
    dtype = jnp.dtype(widest_dtype(*jax.tree.leaves(predictions)))
    steps, curve = jax.tree.map(lambda x: np.asarray(x, dtype), (steps, curve))
    fit = Fit(method, words, converged, losses=tuple(losses.items()), **known)
    return Recalibrator(steps, curve, fit)


def _check_given(argument: str, given: object, names: Sequence[str]) -> None:
    """Raises a ValueError unless columns are given exactly if the fit had some."""
    if given is not None and not names:
        raise ValueError(
            f"{argument} must be None for a map that was fitted without {argument}, got columns."
        )
    if given is None and names:
        raise ValueError(
            f"{argument} must be given, since the map was fitted with them: {', '.join(names)}."
        )


@jax.jit
def _recalibrated(
    steps: tuple, curve: Any, predictions: Distribution, segments: np.ndarray | None
) -> Distribution:
    probs = widened(numbers_of_classes(predictions))
    rows = predictions, segments, probs, valid_rows(predictions)
    return _new_labels(jnp, in_dtype((steps, curve), probs.dtype), rows)


def _recalibrated_on_host(
    steps: tuple, curve: Any, predictions: Distribution, segments: np.ndarray | None
) -> Distribution:
    """`_recalibrated` in NumPy, which compiles nothing."""
    probs = probabilities_on_host(predictions)
    predictions = jax.tree.map(on_host, predictions)
    dtype = widest_dtype(probs)

    def number(x: Any) -> Any:
        return np.asarray(x, dtype if is_floating(x) else None)

    maps = jax.tree.map(number, (steps, curve))
    with np.errstate(all="ignore"):  # of invalid rows, and of powers that are 0
        rows = predictions, segments, number(probs), np.asarray(valid_rows(predictions))
        found = _new_labels(np, maps, rows)
    return jax.device_put(jax.tree.map(number, found))


def _new_labels(xp: ModuleType, maps: tuple, rows: tuple) -> Distribution:
    """Labels after steps and a map of segments or None.

    `rows` are predictions, segments or None, probabilities, and a mask of valid rows.
    """
    (steps, curve), (predictions, segments, probs, valid) = maps, rows
    valid, ragged = valid[:, None], predictions.ragged
    # Equal probabilities take the place of invalid rows, so that no gradient becomes NaN.
    probs = xp.where(valid, probs, 1 / probs.shape[1])
    recalibrated = apply(steps, probs, xp)
    if ragged:
        recalibrated = of_present(xp, recalibrated, probs)
    if curve is not None and segments is not None:
        recalibrated = curve(recalibrated, segments, xp)
    recalibrated = xp.where(valid, recalibrated, xp.nan)
    if isinstance(predictions, Binary):
        return Bernoulli(recalibrated[:, 1], complement=recalibrated[:, 0])
    return (Ordinal if isinstance(predictions, Ordinal) else Categorical)(recalibrated, ragged)


def content_of(recalibrator: Recalibrator) -> dict[str, Any]:
    """The content of the file of a recalibrator, as JSON types; a file may have other keys."""
    parts = recalibrator.fit._asdict(), recalibrator.steps, recalibrator.group_map
    content = {name: _as_json(x) for name, x in zip(_PARTS, parts, strict=True)}
    return _KIND | content | {"digest": digest_of(content)}


def load_recalibrator(path: str | os.PathLike[str]) -> Recalibrator:
    """Loads a recalibrator from a file that `Recalibrator.save` has written.

    It makes the same predictions, bit by bit, in another process of the same machine.  The file is
    JSON, with a schema and a version; nothing in it is run.

    Raises:
        OSError: the file does not exist, or cannot be read.
        ValueError: the file holds something else, a part of a map, or one of another version.

    Example:
        >>> import os, tempfile, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.9, 0.8, 0.1, 0.3]))
        >>> recalibrator = cj.fit_recalibrator(predictions, jnp.array([1, 0, 0, 1]), "temperature")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "map.json")
        ...     recalibrator.save(path)
        ...     loaded = cj.load_recalibrator(path)
        >>> bool(jnp.all(loaded(predictions).probs == recalibrator(predictions).probs))
        True
    """
    found = read_json(path, _KIND, "Recalibrator.save")
    content: dict[str, Any] = {name: found.get(name) for name in _PARTS}
    if found.get("digest") != digest_of(content):
        raise ValueError(f"{path}: the map in the file is damaged, fit it again.")
    fit = {name: _of_json(x) for name, x in content["fit"].items()}
    return Recalibrator(_of_json(content["steps"]), _of_json(content["groups"]), Fit(**fit))
