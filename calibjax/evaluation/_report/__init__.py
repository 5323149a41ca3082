"""An evaluation as one figure, and as one page of HTML that needs nothing else."""
