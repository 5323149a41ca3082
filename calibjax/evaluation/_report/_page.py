"""The page: a template, filled with the numbers and figures of an evaluation."""

import hashlib
from importlib import metadata
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._between import Between
from calibjax.evaluation._hidden import target_in_words
from calibjax.evaluation._report._figures import figures_of
from calibjax.evaluation._summary import interval_text, number, rows_of_summary, value_text
from calibjax.evaluation._words import class_name, shown_names
from calibjax.kernels import describe

_N_ROWS = 10
# What the page says about each number of the summary.
_MEANINGS = {
    "p-value": "of the test that it is calibrated",
    "effective rows": "so many rows of equal weight would say as much",
    "SKCE": "squared kernel calibration error, unbiased: 0 on average if calibrated",
    "equivalent temperature": "logits too large by this factor would make as large an error; it "
    "does not say which way the model is wrong",
    "best temperature": "the temperature between 0.01 and 100 that suits these rows best; above "
    "1: too sure",
    "accuracy": "how often the most likely class is the target",
    "log score": "mean of −log p(target), in nats; smaller is better",
    "Brier score": "mean squared distance of probabilities and outcome, of two classes one half of "
    "it; smaller is better",
    "RPS": "ranked probability score, the sum of squared errors of the probabilities up to each "
    "class; smaller is better",
    "ECE": "expected calibration error of the second class, ten bins; biased upwards",
    "smooth ECE": "the same without bins",
    "top-label ECE": "expected calibration error of the most likely class, ten bins; biased "
    "upwards",
    "top-label smooth ECE": "the same without bins",
    "mean place of targets": "mean share of the predicted probability below the target, or of what "
    "is known of it; above 1/2: targets are higher than predicted",
    "CRPS": "continuous ranked probability score, in units of the target; smaller is better",
    "squared error / variance": "1 if the standard deviations are right",
}


def page(evaluation: Any) -> str:
    """An `Evaluation` as the text of one HTML file.

    The same evaluation gives the same text: it says no date.

    Args:
        evaluation: what `evaluate` returns.
    """
    try:
        import jinja2
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "to_html needs jinja2 and matplotlib: pip install 'calibjax[report]'"
        ) from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("calibjax.evaluation._report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    numbers = _numbers(evaluation)
    return environment.get_template("page.html.j2").render(
        evaluation=evaluation,
        number=number,
        confidence=f"{100 * (1 - evaluation.level):.3g}\N{NO-BREAK SPACE}%",
        classes=shown_names(evaluation.classes),
        numbers=numbers,
        has_pvalues=any(line["pvalue"] for line in numbers),
        figures=figures_of(evaluation),
        kernels=_kernels(evaluation),
        remedies=evaluation.remedies,
        rows=_rows(evaluation),
        fingerprint=fingerprint(evaluation),
        versions={name: metadata.version(name) for name in ("calibjax", "jax", "numpy")},
    )


def fingerprint(evaluation: Any) -> str:
    """The first 16 digits of SHA-256 of the predictions and the targets."""
    digest = hashlib.sha256(evaluation.family.encode())
    for array in jax.tree.leaves((evaluation.predictions, evaluation.targets)):
        array = np.ascontiguousarray(array)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]


def _numbers(evaluation: Any) -> list[dict[str, str]]:
    return [
        {
            "name": name,
            "meaning": _MEANINGS.get(name, ""),
            "value": value_text(name, measure),
            "interval": measure.note or interval_text(measure.interval),
            "if_calibrated": interval_text(measure.if_calibrated),
            "pvalue": "" if measure.pvalue is None else number(measure.pvalue),
        }
        for name, measure in rows_of_summary(evaluation)
    ]


def _kernels(evaluation: Any) -> list[dict[str, str]]:
    members = evaluation.test.members
    lows, highs = members.confidence_interval(1 - evaluation.level)
    columns = members.estimates, lows, highs, members.scores, members.pvalues
    return [
        {
            "name": describe(kernel),
            "estimate": number(float(estimate)),
            "interval": interval_text((float(low), float(high))),
            "score": number(float(score)) if np.isfinite(score) else "",
            "pvalue": number(float(pvalue)),
        }
        for kernel, estimate, low, high, score, pvalue in zip(
            members.kernels, *columns, strict=True
        )
    ]


def _rows(evaluation: Any) -> list[dict[str, str]]:
    """The rows that contribute most, with what was predicted and what came."""
    predictions = evaluation.predictions
    probabilities = predictions.label_probabilities() if predictions.has_labels else None
    found = []
    for row in evaluation.worst_rows(_N_ROWS):
        if probabilities is None:
            said = _vector_text(_middle(predictions[row : row + 1]))
        else:
            of_row = np.asarray(probabilities[row])
            best = int(of_row.argmax())
            said = f"{class_name(evaluation.classes, best)}: {of_row[best]:.3g}"
        if isinstance(evaluation.targets, Between):
            ends = evaluation.targets.low[row], evaluation.targets.high[row]
            came = target_in_words(*map(float, ends))
        elif probabilities is None:
            came = _vector_text(evaluation.targets[row])
        else:
            target = int(evaluation.targets[row])
            came = f"{class_name(evaluation.classes, target)}: {of_row[target]:.3g}"
        shares = evaluation.contributions
        share = "" if shares is None else number(float(shares[row]))
        found.append({"row": str(row), "predicted": said, "observed": came, "share": share})
    return found


def _middle(prediction: Any) -> np.ndarray:
    """The mean of one prediction, or its median if it has no finite mean."""
    mean = np.asarray(prediction.mean())[0]
    if mean.ndim > 0 or np.isfinite(mean):
        return mean
    return np.asarray(prediction.quantile(jnp.full(1, 0.5)))[0]


def _vector_text(value: Any) -> str:
    return ", ".join(number(float(x)) for x in np.atleast_1d(value)[:4])
