"""From predictions in many forms to a verdict and a report."""

from calibjax.evaluation._by_group import GroupVerdicts
from calibjax.evaluation._evaluate import evaluate, evaluate_data
from calibjax.evaluation._evaluation import Evaluation
from calibjax.evaluation._posterior import ParameterCheck, PosteriorCheck, check_posterior
from calibjax.evaluation._rows import notes_on_few_units, notes_on_independence
from calibjax.evaluation._section import keys_of
from calibjax.evaluation._serial_dependence import columns_of_rows
from calibjax.evaluation._wording import BIAS_LABEL, aligned_numbers, numbers_with_intervals

__all__ = ["Evaluation", "PosteriorCheck", "check_posterior", "evaluate"]
__dir__ = __all__.copy
