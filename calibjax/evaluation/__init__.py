"""For people: from predictions in whatever form they have them to a verdict and a report."""

from calibjax.evaluation._evaluate import evaluate as evaluate
from calibjax.evaluation._evaluation import Evaluation as Evaluation
