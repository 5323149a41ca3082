"""
For whom it is wrong
====================

One of five stations has larger errors than predicted.  `segment_test` tests all stations, all lead
times and their pairs; significant points are red, and the 95 % intervals and grey bars are
simultaneous.  The same plot is in the report of `evaluate(..., groups=...)`.

Made with :func:`calibjax.segment_test` and :func:`calibjax.plot.segments`.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

import calibjax as cj
from calibjax import plot

rng = np.random.default_rng(0)
station, lead = rng.choice(list("ABCDE"), 1000), rng.integers(1, 4, 1000)
errors = rng.normal(size=1000) * np.where(station == "C", 1.4, 1.0)
forecasts = cj.Normal(np.zeros(1000), np.ones(1000))

result = cj.segment_test(jax.random.key(0), forecasts, errors, {"station": station, "lead": lead})
print(result)

figure, ax = plt.subplots(layout="constrained")
plot.segments(result, ax=ax)
