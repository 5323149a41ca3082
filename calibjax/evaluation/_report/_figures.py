"""The figures of a report, with captions and text for those who do not see them."""

import functools
import io
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calibjax import curves, plot
from calibjax._data import Between, Data, padded
from calibjax.evaluation._curves import worst_cell
from calibjax.evaluation._groups import worst_segment
from calibjax.evaluation._keys import keys_of
from calibjax.evaluation._measures import judged
from calibjax.evaluation._sentences import impossible_in_words
from calibjax.evaluation._wording import event_name, shown_names
from calibjax.plot import NotebookFigure, SettledLayout
from calibjax.segments import Segment, SegmentTestResult


class FigureOfPage(NamedTuple):
    """A picture, what it shows, and what can be seen in it."""

    svg: str
    caption: str
    alternative: str


def figures_of(evaluation: Any) -> list[FigureOfPage]:
    """A figure for each curve that the evaluation has."""
    return [
        FigureOfPage(svg_of(draw(ax=None).figure, name), caption, alternative)
        for name, draw, caption, alternative in _pictures(evaluation)
    ]


def figures_of_groups(evaluation: Any) -> list[FigureOfPage]:
    """A figure for each level of the column of the worst segment, or of the first column.

    They run the programs of the pictures of all rows.  Bands hold for all of them at once, by
    Bonferroni, and axes are the same.
    """
    result = evaluation.segments
    if result is None or isinstance(evaluation.targets, Between):
        return []
    groups, data = _groups_of_a_column(result, evaluation.level), padded(evaluation.data)
    drawn = [_drawn(evaluation, data, result.rows(group), len(groups)) for group in groups]
    top = max((ax.get_ylim()[1] for ax in drawn), default=1.0)
    found = []
    for number, (group, ax) in enumerate(zip(groups, drawn, strict=True)):
        ax.set_title(f"{group.name}, n = {group.n:,}", fontsize=9, loc="left", parse_math=False)
        ax.set_ylim(0.0, top)
        figure = ax.get_figure(root=True)
        assert figure is not None
        caption = f"{group.words}; p = {group.pvalue:.3g}, adjusted for all segments."
        alternative = f"The rows of {group.name}: {group.words}."
        found.append(FigureOfPage(svg_of(figure, f"group{number}"), caption, alternative))
    return found


def overview(evaluation: Any) -> Figure:
    """All pictures of an evaluation in one figure, two in a row."""
    pictures = list(_pictures(evaluation))
    n_rows = (len(pictures) + 1) // 2
    figure = NotebookFigure(figsize=(8, 4 * n_rows), layout=SettledLayout())
    for number, (_, draw, _, _) in enumerate(pictures):
        draw(ax=figure.add_subplot(n_rows, 2, number + 1))
    return figure


def _pictures(evaluation: Any) -> Iterator[tuple[str, Callable[..., Any], str, str]]:
    """The name, the function that draws, the caption and the text alternative of each picture."""
    classes = evaluation.classes
    # A curve is NaN if a row has no cdf; the table says which.
    curves = {
        name: curve
        for name, curve in evaluation.curves.items()
        if not np.isnan(curve.confidence_level)
    }
    band = f"{100 * (1 - evaluation.level):.3g}\N{NO-BREAK SPACE}%"
    if "reliability" in curves:
        curve = curves["reliability"]
        event = _judged_event(evaluation.predictions.n_labels, classes)
        yield (
            "reliability",
            functools.partial(plot.reliability, curve),
            f"How often {event} against how often that was predicted. The band holds {band} of "
            "calibrated models, for all bins at once.",
            "Reliability diagram. " + _outside(curve.frequency, curve, "simultaneous", "bins"),
        )
    if "corp" in curves:
        corp = curves["corp"]
        grid = np.isin(np.asarray(corp.forecasts), np.asarray(corp.grid))
        yield (
            "corp",
            functools.partial(plot.reliability, corp),
            "The same without bins, by isotonic regression. Brier score of this event "
            f"{corp.score:.3g} = "
            f"miscalibration {corp.miscalibration:.3g} − discrimination "
            f"{corp.discrimination:.3g} + uncertainty {corp.uncertainty:.3g}.",
            "Isotonic reliability diagram. "
            + _outside(np.asarray(corp.recalibrated)[grid], corp, "simultaneous", "forecasts"),
        )
    if "pit" in curves:
        pit = curves["pit"]
        yield (
            "pit",
            functools.partial(plot.pit, pit),
            "Where targets lie in their predicted distributions. Flat: calibrated; U: too sure; "
            f"hump: not sure enough; slope: biased. Of calibrated models {band} stay in the band.",
            "Histogram of the probability integral transform. "
            + _outside(pit.density, pit, "density", "bars"),
        )
        yield (
            "ecdf",
            functools.partial(plot.pit_difference, pit),
            "The same as the difference of distribution functions, which needs no bins.",
            "Difference of the distribution function of the transform from the uniform one. "
            + _outside(pit.difference, pit, "difference", "points"),
        )
    if "coverage" in curves:
        coverage = curves["coverage"]
        yield (
            "coverage",
            functools.partial(plot.coverage, coverage),
            "How often targets lie in central intervals, against what these promise.",
            "Coverage of central intervals. " + _outside(coverage.coverage, coverage, "", "levels"),
        )
    seen = _seen(evaluation, worst_cell(curves, classes))
    chance = (
        "What chance explains is grey: a calibrated model has any colour with a probability of "
        f"{evaluation.level:.3g}."
    )
    if "witness" in curves:
        yield (
            "witness",
            functools.partial(plot.witness, curves["witness"], classes=shown_names(classes)),
            f"Which classes come more or less often than predicted, and at which probabilities. "
            f"{chance} {seen}",
            f"Map of classes and probabilities. {seen}",
        )
    if "residuals" in curves:
        yield (
            "location",
            functools.partial(plot.residual_location, curves["residuals"]),
            f"Where targets are higher or lower than predicted. {chance} {seen}",
            f"Map of predicted means and deviations, of the sign of errors. {seen}",
        )
        yield (
            "spread",
            functools.partial(plot.residual_spread, curves["residuals"]),
            f"Where targets vary more or less than predicted. {chance}",
            f"Map of predicted means and deviations, of the size of errors. {seen}",
        )
    if evaluation.segments is not None and evaluation.segments.n_segments:
        yield (
            "segments",
            functools.partial(plot.segments, evaluation.segments),
            "For whom it is wrong: what was observed in segments, with intervals, and in grey "
            "where it would lie if the model were calibrated; all hold at once.",
            f"Segments. {evaluation.segments.sentence(evaluation.level)}",
        )
    yield (
        "null",
        functools.partial(plot.null_distribution, evaluation.test),
        f"The statistic of the test, and where it lies for {evaluation.data_sets_under_h0}.",
        f"Histogram of the statistic of {evaluation.data_sets_under_h0}; "
        f"p = {evaluation.pvalue:.3g}.",
    )


def _judged_event(n_labels: int, classes: list[Any] | None) -> str:
    """The event of which a reliability diagram of label predictions shows the probability."""
    return f"{event_name(classes)} came" if n_labels == 2 else "the most likely class came"


def _seen(evaluation: Any, worst: str | None) -> str:
    """Where the maps show an error, and rows that no cell shows; the verdict says the same."""
    impossible = impossible_in_words(evaluation)
    said = [] if impossible is None else [f"{impossible}."]
    if worst is not None and not evaluation.impossible.is_all(evaluation.level):
        said.append(f"{worst[0].upper()}{worst[1:]}.")
    return " ".join(said) or "Nothing differs by more than chance."


def _outside(values: Any, curve: Any, prefix: str, things: str) -> str:
    """How many values lie outside of a band."""
    ends = (f"{prefix}_{end}" if prefix else end for end in ("low", "high"))
    low, high = (np.asarray(getattr(curve, end)) for end in ends)
    values = np.asarray(values)
    known = np.isfinite(values)
    outside = known & ((values < low) | (values > high))
    return f"{outside.sum()} of {known.sum()} {things} lie outside of the band."


def svg_of(figure: Figure, name: str) -> str:
    """The figure as an SVG element; the same figure always gives the same text.

    Args:
        figure: a figure of matplotlib.
        name: what makes identifiers different from those of other figures of the page.
    """
    text = io.StringIO()
    # Identifiers are random without a salt, and letters stay text, which is short and can be read.
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    # The page sets the style: that of a figure would hold for the whole page.
    for element in "metadata", "style":
        svg = re.sub(rf"<{element}\b.*?</{element}>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{name}-", svg)
    # The page sets the width of a figure, whose own size is meant for print.
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    return re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)


# The groups of one column; more pictures are not compared by eye.
_MOST = 6


def _groups_of_a_column(result: SegmentTestResult, level: float) -> list[Segment]:
    """The levels of one column that are tested, the clearest ones first."""
    single = [x for x in result.segments if len(x.conditions) == 1]
    if not single:
        return []
    worst = worst_segment(result, level) or single[0]
    (column, *_) = worst.conditions
    levels: dict[str, Segment] = {}
    for segment in single:
        if column in segment.conditions:
            levels.setdefault(segment.name, segment)
    return list(levels.values())[:_MOST]


def _drawn(evaluation: Any, data: Data, rows: np.ndarray, n_groups: int) -> Axes:
    is_member = np.zeros(data.n, bool)
    is_member[rows] = True
    n_resamples = len(evaluation.test.null_distribution)
    level = min(1 - evaluation.level / n_groups, n_resamples / (n_resamples + 1))
    options: dict[str, Any] = {"confidence_level": level, "n_resamples": n_resamples}
    key = keys_of(evaluation.seed).curves
    if data.predictions.has_labels:
        of_group = judged(data).replace(where=is_member)
        curve = curves.reliability_curve(key, of_group, n_bins=15, **options)
        ax = plot.reliability(curve)
        # Behind the picture, the numbers of forecasts have the same axis.
        for axes in (ax, *ax.child_axes):
            axes.set_xlim(0.0, 1.0)
        return ax
    of_group = data.replace(where=is_member)
    return plot.pit(curves.pit_curve(key, of_group, n_bins=20, **options))
