"""The page: a template, filled with the numbers and figures of an evaluation."""

import hashlib
from importlib import metadata
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax import kernels
from calibjax._base.text import class_name, named_rows, p_in_words, pvalue_text
from calibjax._data.distribution import Labels
from calibjax._data.interval_censored import IntervalCensored
from calibjax.evaluation import _wording as wording
from calibjax.evaluation._by_group import GroupVerdicts
from calibjax.evaluation._evaluation import Evaluation
from calibjax.evaluation._groups import SEGMENTS
from calibjax.evaluation._report._figures import pictures_of, pictures_of_groups, where_seen
from calibjax.evaluation._section import N_RESAMPLES
from calibjax.hypothesis_tests import CalibrationTestResult
from calibjax.kernels.base import KernelLike, Sum, describe
from calibjax.measures.families import moments

# Maximum number of lines of rows, and of the rows, equal ones among them, that the lines stand for.
_N_ROWS, _MOST_EQUAL_ROWS = 10, 100
# Ratio of the upper end of an interval to the estimate above which the interval says nothing.
_TOO_WIDE = 100.0
# What the features of the default kernels compare.
_FEATURES = {
    "is_top_label": "whether the most likely class occurs",
    "log_probability_of": "whether it is over-confident (log p of the observed class)",
    "squared_deviation": "the spread",
}
# Weights of the location and the spread of predictions in a kernel of numbers.
_PLACES = {(1.0, 0.0): "of similar location", (0.0, 1.0): "of similar spread"}


def page(evaluation: Evaluation, by: GroupVerdicts | None = None) -> str:
    """An `Evaluation` as the text of one HTML file.

    The same evaluation gives the same text: it says no date.

    Args:
        evaluation: what `evaluate` returns.
        by: the verdict of each group, for a table, or None.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("calibjax.evaluation._report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # The event of which a reliability diagram shows the probability.
    event = "the most likely class"
    if evaluation.predictions.n_labels == 2:
        event = wording.event_name(evaluation.classes)
    badge = "NOT CALIBRATED" if evaluation.rejected else "NOT REJECTED"
    if not evaluation.rejected and SEGMENTS.clause(evaluation):
        badge = "WRONG FOR SOME"
    return environment.get_template("page.html.j2").render(
        evaluation=evaluation,
        badge=badge,
        wording=wording,
        pvalue_text=pvalue_text,
        p_in_words=p_in_words,
        n_draws=N_RESAMPLES,
        confidence=f"{100 * (1 - evaluation.level):.3g}\N{NO-BREAK SPACE}%",
        classes=wording.shown_names(evaluation.classes),
        numbers=evaluation.rows(),
        figures=pictures_of(evaluation),
        event=event,
        data_sets="targets drawn from the predictions"
        if evaluation.test.is_exact
        else "the observed errors with random signs and sizes",
        seen=where_seen(evaluation),
        kernels=lines_of_kernels(evaluation.test, evaluation.level),
        segments=evaluation.segments.segments[:_N_ROWS] if evaluation.segments else [],
        groups=pictures_of_groups(evaluation),
        by=by,
        rows=rows_of_page(evaluation),
        fingerprint=fingerprint(evaluation),
        versions={name: metadata.version(name) for name in ("calibjax", "jax", "numpy")},
    )


def fingerprint(evaluation: Evaluation) -> str:
    """The first 16 digits of SHA-256 of the predictions and the targets."""
    digest = hashlib.sha256(evaluation.family.encode())
    for array in jax.tree.leaves((evaluation.predictions, evaluation.targets)):
        array = np.ascontiguousarray(array)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]


def rows_of_page(evaluation: Evaluation) -> list[dict[str, str]]:
    """The rows that contribute most, with their predictions and targets.

    Rows that are equal in all of it are one line.
    """
    rows: dict[tuple[str, str, str], list[int]] = {}
    for row in evaluation.influential_indices(_MOST_EQUAL_ROWS).tolist():
        line = _line(evaluation, row)
        if line not in rows and len(rows) == _N_ROWS:
            break
        rows.setdefault(line, []).append(row)
    fields = "predicted", "observed", "share"
    return [
        {"row": _names_of_rows(evaluation.row_names[equal])} | dict(zip(fields, line, strict=True))
        for line, equal in rows.items()
    ]


def _line(evaluation: Evaluation, row: int) -> tuple[str, str, str]:
    """The prediction, the target and the contribution of a row."""
    # With NumPy: a row of jax would be compiled for each number of rows.
    prediction = jax.tree.map(np.asarray, evaluation.predictions)[row : row + 1]
    has_labels = isinstance(prediction, Labels)
    if has_labels:
        of_row = np.asarray(prediction.label_probabilities())[0]
        best = int(of_row.argmax())
        said = f"{class_name(evaluation.classes, best)}: {of_row[best]:.3g}"
    else:
        said = _vector_text(_middle(prediction))
    if isinstance(evaluation.targets, IntervalCensored):
        ends = evaluation.targets.low[row], evaluation.targets.high[row]
        observed = wording.target_in_words(*map(float, ends))
    elif has_labels:
        target = int(evaluation.targets[row])
        observed = f"{class_name(evaluation.classes, target)}: {of_row[target]:.3g}"
    else:
        observed = _vector_text(evaluation.targets[row])
    shares = evaluation.contributions
    return said, observed, "" if shares is None else wording.number(float(np.asarray(shares)[row]))


def _names_of_rows(names: np.ndarray) -> str:
    if len(names) == 1:
        return str(names[0])
    return f"{len(names)} equal rows: {named_rows(names).removeprefix('rows ')}"


def _middle(prediction: Any) -> np.ndarray:
    """The mean of one prediction, or its median if it has no finite mean."""
    mean = np.asarray(moments(prediction)[0])[0]
    if mean.ndim > 0 or np.isfinite(mean):
        return mean
    return np.asarray(prediction.quantile(jnp.full(1, 0.5)))[0]


def _vector_text(value: ArrayLike) -> str:
    return ", ".join(wording.number(float(x)) for x in np.atleast_1d(value)[:4])


def lines_of_kernels(test: CalibrationTestResult, level: float) -> list[dict[str, str]]:
    """A line of the page for each kernel."""
    found = test.kernels
    assert found is not None
    lows, highs = found.confidence_interval(1 - level)
    columns = map(np.asarray, (found.estimates, lows, highs, found.scores, found.pvalues))
    return [
        {
            "name": kernel_in_words(kernel),
            "technical": describe(kernel),
            "estimate": wording.number(float(estimate)),
            "interval": _interval(*map(float, (estimate, low, high))),
            "score": wording.number(float(score)) if np.isfinite(score) else "",
            "pvalue": pvalue_text(float(pvalue), N_RESAMPLES),
        }
        for kernel, estimate, low, high, score, pvalue in zip(found.kernels, *columns, strict=True)
    ]


def _interval(estimate: float, low: float, high: float) -> str:
    """The interval; a few targets of tiny probabilities make that of log p useless."""
    if high > _TOO_WIDE * max(abs(estimate), abs(low)) and low <= 0:
        return "too wide to report"
    return wording.interval_text((low, high))


def kernel_in_words(kernel: KernelLike) -> str:
    """What a default kernel compares, among which predictions; else its `describe`."""
    part = kernel.left if isinstance(kernel, Sum) else kernel
    if isinstance(part, Sum):
        return "location, spread and shape together"
    of_pit = kernels.PITKernel, kernels.VectorPITKernel
    if not isinstance(part, (kernels.TensorProduct, kernels.FeatureKernel, *of_pit)):
        return describe(kernel)
    among = part.prediction_kernel
    if not isinstance(among, kernels.DistanceKernel):
        return describe(kernel)
    if isinstance(part, kernels.TensorProduct):
        what = "class frequencies"
    elif isinstance(part, kernels.FeatureKernel):
        what = _FEATURES.get(describe(part.feature), "the shape")
    else:
        # The first two weights are those of the location and of the spread.
        weights = [] if part.weights is None else np.asarray(part.weights).tolist()
        what = {(1.0,): "the location", (0.0, 1.0): "the spread"}.get(tuple(weights), "the shape")
    return f"{what}, {_among(among)}"


def _among(kernel: kernels.DistanceKernel) -> str:
    """Which predictions are compared."""
    distance = kernel.distance
    weights = None
    if isinstance(distance, kernels.EmbeddingDistance):
        weights = getattr(distance.phi, "weights", None)
    if weights is not None:
        return f"among predictions {_PLACES.get(weights, 'at all distances')}"
    return f"among predictions within {float(np.asarray(kernel.lengthscale)):.2g}"
