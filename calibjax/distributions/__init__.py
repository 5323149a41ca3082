"""Families of predictive distributions, a file or a folder each: the class and its closed forms.

`calibjax/__init__.py` imports every family from its own module; here are those that later rooms
make predictions of.
"""

from calibjax.distributions._categorical import Bernoulli as Bernoulli
from calibjax.distributions._categorical import Categorical as Categorical
