"""What `import calibjax` offers, and where it is: __init__.py imports it when it is used."""

from calibjax import curves as curves
from calibjax import discrepancy as discrepancy
from calibjax import distributions as distributions
from calibjax import estimators as estimators
from calibjax import evaluation as evaluation
from calibjax import expectations as expectations
from calibjax import features as features
from calibjax import frames as frames
from calibjax import hub as hub
from calibjax import hypothesis_tests as hypothesis_tests
from calibjax import intervals as intervals
from calibjax import kernels as kernels
from calibjax import measures as measures
from calibjax import monitoring as monitoring
from calibjax import nulls as nulls
from calibjax import operators as operators
from calibjax import plot as plot
from calibjax import recalibration as recalibration
from calibjax import residuals as residuals
from calibjax import scores as scores
from calibjax import segments as segments
from calibjax import sklearn as sklearn
from calibjax._data.data import Data as Data
from calibjax._data.distribution import Distribution as Distribution
from calibjax._data.interval_censored import IntervalCensored as IntervalCensored
from calibjax.curves import *
from calibjax.distributions import *
from calibjax.estimators import *
from calibjax.evaluation import *
from calibjax.expectations import *
from calibjax.frames import *
from calibjax.hypothesis_tests import *
from calibjax.intervals import *
from calibjax.kernels import *
from calibjax.measures import *
from calibjax.monitoring import *
from calibjax.recalibration import *
from calibjax.scores import *
from calibjax.segments import *

__version__: str
