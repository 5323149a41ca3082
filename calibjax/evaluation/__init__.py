"""For people: from predictions in whatever form they have them to a verdict and a report."""

from calibjax.evaluation._by import GroupVerdicts as GroupVerdicts
from calibjax.evaluation._dependence import cluster_numbers as cluster_numbers
from calibjax.evaluation._dependence import read_times as read_times
from calibjax.evaluation._evaluate import evaluate as evaluate
from calibjax.evaluation._evaluate import evaluate_read as evaluate_read
from calibjax.evaluation._evaluation import Evaluation as Evaluation
from calibjax.evaluation._labels import LabelError as LabelError
from calibjax.evaluation._labels import Labels as Labels
from calibjax.evaluation._labels import read_events as read_events
from calibjax.evaluation._labels import read_labels as read_labels
from calibjax.evaluation._neighbours import Column as Column
from calibjax.evaluation._posterior import ParameterCheck as ParameterCheck
from calibjax.evaluation._posterior import PosteriorCheck as PosteriorCheck
from calibjax.evaluation._posterior import check_posterior as check_posterior
