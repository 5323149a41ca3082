"""An evaluation as one figure, and as one page of HTML that needs nothing else."""

# It says which extra is missing.
from calibjax import plot as plot
