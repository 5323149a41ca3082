"""Figures as text of SVG that can stand within a page of HTML."""

import io
import re

import matplotlib
from matplotlib.figure import Figure


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
