"""
Risks of survival curves by one time
====================================

Ten groups of predicted risk by two years, against the Kaplan-Meier risk of each with Greenwood's
interval. The predicted risks of this model are too extreme: low ones are under-estimated, and high
ones are over-estimated.

Made with :class:`calibjax.SurvivalCurve`, :class:`calibjax.IntervalCensored`,
:func:`calibjax.risk_curve` and :func:`calibjax.plot.risk`.
"""

import numpy as np

import calibjax as cj
from calibjax import plot

rng, years = np.random.default_rng(0), np.arange(0.5, 5.5, 0.5)
score = rng.normal(size=1500)
lifetime = rng.exponential(4 * np.exp(-0.6 * score))
follow_up = rng.uniform(1, 5, 1500)
targets = cj.IntervalCensored.right_censored(np.minimum(lifetime, follow_up), lifetime <= follow_up)
curves = np.exp(-years / (4 * np.exp(-1.2 * score[:, None])))
plot.risk(cj.risk_curve(cj.SurvivalCurve(years, curves), targets, time=2.0))
