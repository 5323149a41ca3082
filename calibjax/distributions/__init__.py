"""Families of predictive distributions: a class and its closed forms in a file or folder each.

`calibjax/__init__.py` imports every family from its own module.  Later rooms import the families
that they construct, or know by their names, from this module.
"""

from calibjax.distributions._bernoulli import Bernoulli as Bernoulli
from calibjax.distributions._categorical import LEAST_OF_CLASS as LEAST_OF_CLASS
from calibjax.distributions._categorical import Categorical as Categorical
from calibjax.distributions._counts import Counts as Counts
from calibjax.distributions._empirical import Empirical as Empirical
from calibjax.distributions._foreign import as_predictions as as_predictions
from calibjax.distributions._foreign import is_foreign as is_foreign
from calibjax.distributions._normal import Normal as Normal
from calibjax.distributions._ordinal import Ordinal as Ordinal
from calibjax.distributions._quantiles import Quantiles as Quantiles
from calibjax.distributions._recalibrated import Recalibrated as Recalibrated
from calibjax.distributions._survival_curve import SurvivalCurve as SurvivalCurve
from calibjax.distributions._univariate import Univariate as Univariate
