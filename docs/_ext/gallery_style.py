"""Pictures of the gallery look like those of `calibjax.plot`, whoever draws them."""

import matplotlib
from matplotlib import pyplot

from calibjax.plot import _style as style

STYLE = {
    "figure.figsize": (5.4, 3.6),
    "figure.dpi": 180,
    "figure.constrained_layout.use": True,
    "axes.prop_cycle": matplotlib.cycler(color=[style.BLUE, style.VERMILLION, style.SKY]),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": style.TITLE,
    "axes.labelsize": style.LABEL,
    "figure.titlesize": style.TITLE,
    "xtick.labelsize": style.TICK,
    "ytick.labelsize": style.TICK,
    "legend.fontsize": style.NOTE,
    "legend.frameon": False,
    "lines.linewidth": style.LINE,
    "lines.markersize": 4,
}


def reset(gallery_conf, file):
    """Called before each script, after matplotlib has its defaults."""
    pyplot.rcParams.update(STYLE)
