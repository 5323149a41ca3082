"""
An ensemble is a mixture
========================

Ten trees each predict a normal distribution for patients with diabetes. Averages of their means and
standard deviations ignore the differences between trees, and the intervals become too narrow. The
mixture keeps the differences. It is closer to the diagonal, but still a little too narrow: the
trees estimate their standard deviations from training rows.

Made with :class:`calibjax.Mixture`, :class:`calibjax.Normal`, :func:`calibjax.coverage_curve` and
:func:`calibjax.plot.coverage`.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.tree import DecisionTreeRegressor

import calibjax as cj
from calibjax import plot

x, y = load_diabetes(return_X_y=True)
x_train, y_train, x, y = x[:200], y[:200], x[200:], y[200:]
loc, scale = np.zeros((2, len(y), 10))
for k in range(10):
    rows = np.random.default_rng(k).integers(0, 200, 200)  # a bootstrap sample for each tree
    tree = DecisionTreeRegressor(min_samples_leaf=10, random_state=k)
    tree.fit(x_train[rows], y_train[rows])
    leaves, loc[:, k] = tree.apply(x), tree.predict(x)
    scale[:, k] = np.sqrt(tree.tree_.impurity[leaves])

forecasts = {
    "averaged parameters": cj.Normal(loc.mean(axis=1), scale.mean(axis=1)),
    "mixture": cj.Mixture.ensemble(cj.Normal(loc, scale)),
}
figure, axes = plt.subplots(1, 2, sharey=True)
for ax, (name, predictions) in zip(axes, forecasts.items(), strict=True):
    plot.coverage(cj.coverage_curve(jax.random.key(0), predictions, y), ax=ax)
    ax.set(title=name)
    ax.label_outer()
