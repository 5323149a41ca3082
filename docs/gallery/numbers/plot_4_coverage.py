"""
Coverage of boosted quantiles
=============================

An interval with a probability of 80 % should contain 80 % of the targets. Gradient boosting
predicts quantiles at seven levels. On its training rows most intervals are about right or too wide;
on new rows they are too narrow, and the curve is below the diagonal. Evaluate quantiles on held-out
rows.

Made with :class:`calibjax.Quantiles`, :func:`calibjax.coverage_curve` and
:func:`calibjax.plot.coverage`.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import GradientBoostingRegressor

import calibjax as cj
from calibjax import plot

random = np.random.default_rng(0)
x = random.uniform(-2, 2, (1000, 3))
y = np.sin(2 * x[:, 0]) + (0.3 + 0.2 * x[:, 1] ** 2) * random.normal(size=1000)

levels = (0.05, 0.125, 0.25, 0.5, 0.75, 0.875, 0.95)
models = [GradientBoostingRegressor(loss="quantile", alpha=level) for level in levels]
values = np.stack([model.fit(x[:200], y[:200]).predict(x) for model in models], axis=1)
forecasts = cj.Quantiles(values, levels, sort=True)

figure, axes = plt.subplots(1, 2, sharey=True)
parts = {"training rows": slice(200), "new rows": slice(200, None)}
for ax, (name, rows) in zip(axes, parts.items(), strict=True):
    plot.coverage(cj.coverage_curve(jax.random.key(0), forecasts[rows], y[rows]), ax=ax)
    ax.set(title=name)
    ax.label_outer()
