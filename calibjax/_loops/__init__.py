"""What is one loop on a CPU and another one on an accelerator."""

from calibjax._loops._coordinates import double as double
from calibjax._loops._coordinates import sign as sign
from calibjax._loops._coordinates import sum_over_coordinates as sum_over_coordinates
from calibjax._loops._row_by_row import row_by_row as row_by_row
