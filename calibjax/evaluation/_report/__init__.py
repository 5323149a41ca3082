"""An evaluation as one figure, and as one page of HTML that needs nothing else."""

# Without matplotlib its import is an error, which names the extra to install.

from calibjax import plot
