"""An evaluation as one page of HTML that needs nothing else."""

from calibjax.evaluation._report._page import page as page
