"""
Which of four models is best calibrated?
========================================

Four classifiers read the same digits without half of their pixels. Each dot is the squared kernel
calibration error of a model minus that of logistic regression with its usual regularisation. The
intervals are simultaneous: one that excludes 0 is of a model that is worse calibrated, or better on
the left.

Made with :func:`calibjax.compare_calibration`.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB
from sklearn.neural_network import MLPClassifier

import calibjax as cj

images, digits = load_digits(return_X_y=True)
images = images / 16 * (np.random.default_rng(0).random(images.shape) < 0.5)
reference = LogisticRegression()
models = {
    "random forest": RandomForestClassifier(100, random_state=0),
    "network": MLPClassifier((32,), learning_rate_init=0.01, tol=0.01, random_state=0),
    "naive Bayes": BernoulliNB(),
}
of_reference, *predictions = (
    cj.Categorical(
        model.fit(images[:800], digits[:800]).predict_proba(images[800:]), normalize=True
    )
    for model in (reference, *models.values())
)
found = cj.compare_calibration(jax.random.key(0), None, of_reference, predictions, digits[800:])
low, high = found.confidence_interval(0.95)

figure, ax = plt.subplots()
ax.hlines(list(models), -np.array(high), -np.array(low), linewidth=3, alpha=0.4)
ax.plot(-found.difference, list(models), "o")
ax.axvline(0, color="0.35", linestyle="--", linewidth=0.8)
ax.set(title="Compared with logistic regression", ylim=(2.5, -0.5))
ax.set_xlabel("← better calibrated · difference of the SKCE · worse →")
