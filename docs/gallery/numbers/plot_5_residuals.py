"""
Where a regression is wrong
===========================

Patients with diabetes are sorted by the progression that a random forest predicts, from left to
right, and by how much its trees disagree, from bottom to top. Coloured cells show by how many
percent the targets vary more than the trees, which differ in the mean and ignore the noise. Grey
cells are not significant.

Made with :func:`calibjax.residual_map` and :func:`calibjax.plot.residual_spread`;
:func:`calibjax.plot.residual_location` shows where the means are wrong.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

import calibjax as cj
from calibjax import plot

x, y = load_diabetes(return_X_y=True)
forest = RandomForestRegressor(100, min_samples_leaf=3, random_state=0).fit(x[:200], y[:200])
trees = np.stack([tree.predict(x[200:]) for tree in forest.estimators_])
predictions = cj.Normal(trees.mean(axis=0), trees.std(axis=0))

found = cj.residual_map(jax.random.key(0), predictions, y[200:], n_bins=3)
figure, ax = plt.subplots()
plot.residual_spread(found, ax=ax)
