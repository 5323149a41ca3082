"""An evaluation as one figure, and as one page of HTML that needs nothing else."""

from calibjax.evaluation._report._figures import overview as overview
from calibjax.evaluation._report._page import page as page
