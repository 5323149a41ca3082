"""For people: from predictions in whatever form they have them to a verdict and a report."""

from calibjax.evaluation._by import GroupVerdicts as GroupVerdicts
from calibjax.evaluation._dependence import as_iso as as_iso
from calibjax.evaluation._dependence import read_dependence as read_dependence
from calibjax.evaluation._evaluate import evaluate as evaluate
from calibjax.evaluation._evaluate_read import evaluate_model as evaluate_model
from calibjax.evaluation._evaluate_read import evaluate_read as evaluate_read
from calibjax.evaluation._evaluation import Evaluation as Evaluation
from calibjax.evaluation._frames import ColumnNames as ColumnNames
from calibjax.evaluation._frames import Model as Model
from calibjax.evaluation._frames import Place as Place
from calibjax.evaluation._frames import Table as Table
from calibjax.evaluation._frames import are_empty as are_empty
from calibjax.evaluation._frames import cells_of as cells_of
from calibjax.evaluation._frames import dependence_of as dependence_of
from calibjax.evaluation._frames import group_columns as group_columns
from calibjax.evaluation._frames import groups_of as groups_of
from calibjax.evaluation._frames import listed as listed
from calibjax.evaluation._independence import remarks_on_independence as remarks_on_independence
from calibjax.evaluation._neighbours import Column as Column
from calibjax.evaluation._posterior import ParameterCheck as ParameterCheck
from calibjax.evaluation._posterior import PosteriorCheck as PosteriorCheck
from calibjax.evaluation._posterior import check_posterior as check_posterior
