"""An evaluation as one figure, and as one self-contained page of HTML."""

# Without matplotlib its import is an error, which names the extra to install.

from calibjax import plot
