"""The figures of a report, with captions and text for those who do not see them."""

import functools
import io
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from calibjax import curves, plot
from calibjax._base.struct import with_fields
from calibjax._data.data import Data
from calibjax._data.distribution import Labels
from calibjax._data.padding import padded
from calibjax.evaluation._curves import worst_cell
from calibjax.evaluation._evaluation import Evaluation
from calibjax.evaluation._groups import worst_segment
from calibjax.evaluation._rows import ZERO_PROBABILITY
from calibjax.evaluation._section import N_RESAMPLES
from calibjax.evaluation._wording import shown_names
from calibjax.measures.labels import as_event
from calibjax.plot import NotebookFigure, SettledLayout
from calibjax.segments import Segment, SegmentTestResult

# The name of a plot and of its curve, the function that draws, and the field of values with the
# prefix of the fields of their band.
_CURVES: list[tuple[str, str, Callable[..., Any], str, str]] = [
    ("calibration", "calibration", plot.calibration, "predicted", "simultaneous_"),
    ("reliability", "reliability", plot.reliability, "frequency", "simultaneous_"),
    ("corp", "corp", plot.reliability, "recalibrated", "simultaneous_"),
    ("pit", "pit", plot.pit, "density", "density_"),
    ("ecdf", "pit", plot.pit_difference, "difference", "difference_"),
    ("coverage", "coverage", plot.coverage, "coverage", ""),
    ("risk", "risk", plot.risk, "predicted", ""),
    ("skill", "spread_skill", plot.spread_skill, "error", "error_"),
    ("witness", "witness", plot.witness, "", ""),
    ("location", "residuals", plot.residual_location, "", ""),
    ("spread", "residuals", plot.residual_spread, "", ""),
]


class Picture(NamedTuple):
    """A plot, of which the page says what it shows.

    Args:
        name: what the page knows it by.
        draw: draws it on axes of matplotlib.
        shown: the curve, or the segment.
        outside: how many values lie outside of a band, "2 of 10"; or empty.
    """

    name: str
    draw: Callable[..., Axes]
    shown: Any = None
    outside: str = ""

    def svg(self) -> str:
        """The figure as an SVG element."""
        figure = self.draw(ax=None).get_figure(root=True)
        assert figure is not None
        return svg_of(figure, self.name)


def known_curves(evaluation: Evaluation) -> dict[str, Any]:
    """The curves; one is NaN if a row has no cdf, which the table of numbers says."""
    found = evaluation.curves.items()
    return {name: curve for name, curve in found if not np.isnan(curve.confidence_level)}


def pictures_of(evaluation: Evaluation) -> list[Picture]:
    """A plot of each curve that the evaluation has, of segments, and of the test."""
    known, segments, found = known_curves(evaluation), evaluation.segments, []
    for name, of_curve, function, field, prefix in _CURVES:
        if of_curve in known:
            curve = known[of_curve]
            names = {"classes": shown_names(evaluation.classes)} if name == "witness" else {}
            draw = functools.partial(function, curve, **names)
            found.append(Picture(name, draw, curve, _outside(curve, field, prefix)))
    if segments is not None and segments.n_segments:
        found.append(Picture("segments", functools.partial(plot.segments, segments)))
    draw = functools.partial(plot.null_distribution, evaluation.test)
    return [*found, Picture("null", draw)]


def pictures_of_groups(evaluation: Evaluation) -> list[Picture]:
    """A plot of each level of the column of the worst segment, or of the first column.

    They run the programs of the plots of all rows.  Bands hold for all of them at once, by
    Bonferroni, and axes are the same.
    """
    result = evaluation.segments
    if result is None or evaluation.data.is_censored:
        return []
    groups, data = _groups_of_a_column(result, evaluation.level), padded(evaluation.data)
    drawn = [_drawn(evaluation, data, result.rows(group), len(groups)) for group in groups]
    top = max((ax.get_ylim()[1] for ax in drawn), default=1.0)
    pictures = []
    for number, (group, of_group) in enumerate(zip(groups, drawn, strict=True)):
        title = f"{group.name}, n = {group.n:,}"
        of_group.set_title(title, fontsize=9, loc="left", parse_math=False)
        of_group.set_ylim(None if of_group.get_yscale() == "log" else 0.0, top)
        pictures.append(Picture(f"group{number}", lambda ax, drawn=of_group: drawn, group))
    return pictures


def overview(evaluation: Evaluation) -> Figure:
    """All plots of an evaluation in one figure, two in a row."""
    pictures = pictures_of(evaluation)
    n_rows = (len(pictures) + 1) // 2
    figure = NotebookFigure(figsize=(8, 4 * n_rows), layout=SettledLayout())
    for number, picture in enumerate(pictures):
        picture.draw(ax=figure.add_subplot(n_rows, 2, number + 1))
    return figure


def where_seen(evaluation: Evaluation) -> str:
    """Where the maps show an error, and rows that no cell shows; the verdict says the same."""
    zero = ZERO_PROBABILITY.clause(evaluation)
    worst = worst_cell(known_curves(evaluation), evaluation.classes)
    said = [] if zero is None else [f"{zero}."]
    if worst is not None and not ZERO_PROBABILITY.is_all(evaluation):
        said.append(f"{worst[0].upper()}{worst[1:]}.")
    return " ".join(said) or "Nothing differs by more than chance."


def _outside(curve: object, field: str, prefix: str) -> str:
    """How many values lie outside of a band; of the CORP curve, where the band is known."""
    if not field:
        return ""
    names = field, f"{prefix}low", f"{prefix}high"
    values, low, high = (np.asarray(getattr(curve, name)) for name in names)
    if isinstance(curve, curves.CORPCurve):
        values = values[np.isin(np.asarray(curve.forecasts), np.asarray(curve.grid))]
    known = np.isfinite(values)
    outside = known & ((values < low) | (values > high))
    return f"{outside.sum()} of {known.sum()}"


def svg_of(figure: Figure, name: str) -> str:
    """The figure as an SVG element; the same figure always gives the same text.

    Args:
        figure: a figure of matplotlib.
        name: what makes identifiers different from those of other figures of the page.
    """
    text = io.StringIO()
    # Identifiers are random without a salt, and letters stay text, which is short and can be read.
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        # `savefig` would draw twice.
        FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None, "Creator": None})
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


# Maximum number of groups that are drawn: more plots are not compared by eye.
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


def _drawn(evaluation: Evaluation, data: Data, rows: np.ndarray, n_groups: int) -> Axes:
    # In front, so that sums do not visit all of the others.
    order = np.append(rows, np.setdiff1d(np.arange(data.n), rows))
    level = min(1 - evaluation.level / n_groups, N_RESAMPLES / (N_RESAMPLES + 1))
    options: dict[str, Any] = {"confidence_level": level, "n_resamples": N_RESAMPLES}
    key = evaluation.random_keys.curves
    has_labels = isinstance(data.predictions, Labels)
    of_group = (as_event(data) if has_labels else data).map(lambda x: np.asarray(x)[order])
    # All rows are valid, also those that are masked now: programs need no check.
    of_group = with_fields(of_group, where=np.arange(data.n) < rows.size)
    if has_labels:
        ax = plot.reliability(curves.reliability_curve(key, of_group, n_bins=15, **options))
        # Behind the plot, the numbers of forecasts have the same axis.
        for axes in (ax, *ax.child_axes):
            axes.set_xlim(None if axes.get_xscale() == "log" else 0.0, 1.0)
        return ax
    return plot.pit(curves.pit_curve(key, of_group, n_bins=20, **options))
