"""For people: from predictions in whatever form they have them to a verdict and a report."""

from calibjax.evaluation._evaluate import evaluate
from calibjax.evaluation._evaluate_columns import (
    evaluate_model,
    evaluate_read,
    remarks_on_independence,
)
from calibjax.evaluation._evaluation import Evaluation
from calibjax.evaluation._groups import GroupVerdicts
from calibjax.evaluation._posterior import ParameterCheck, PosteriorCheck, check_posterior
from calibjax.evaluation._serial_dependence import Column
