"""Published numbers, one module for each script.

They are of David Widmann, Fredrik Lindsten and Dave Zachariah: "Calibration tests beyond
classification", ICLR 2021, and "Calibration tests in multi-class classification: a unifying
framework", NeurIPS 2019, and of the data that come with these papers.  Those beside UAI 2023 come
from the program of its authors.
"""

# Of labels that are not drawn from the prediction, NeurIPS 2019: always the first, or any.
FIRST, UNIFORM = "first class", "uniform"
