"""Families of predictive distributions: a class and its closed forms in a file or folder each.

`calibjax/__init__.py` imports every family from its own module.  Later rooms import the two
families that they construct themselves from this module.
"""

from calibjax.distributions._categorical import Bernoulli as Bernoulli
from calibjax.distributions._categorical import Categorical as Categorical
