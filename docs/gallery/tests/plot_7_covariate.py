"""
What the error depends on
=========================

Blood values of 442 patients, and the course of diabetes in a year. A regression that was not shown
the body mass index is too low for the heaviest tenth of them. Points are how far targets are above
predictions, in tenths of the patients; those beyond chance are red, and the band holds for all of
them together, with 95 %.

Made with :func:`calibjax.covariate_curve` and :func:`calibjax.plot.covariate`;
:doc:`/covariates` has the test that finds the column.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_predict

import calibjax as cj
from calibjax import plot

columns, course = load_diabetes(as_frame=True, scaled=False, return_X_y=True)
course = course.to_numpy(np.float32)
known = columns.drop(columns="bmi")
mean = cross_val_predict(LinearRegression(), known, course, cv=5).astype(np.float32)
spread = np.full(len(mean), np.std(course - mean), np.float32)
forecasts = cj.Normal(mean, spread)

curve = cj.covariate_curve(jax.random.key(0), forecasts, course, columns[["bmi"]])

figure, ax = plt.subplots(layout="constrained")
plot.covariate(curve, ax=ax)
