"""
Your model among calibrated ones
================================

Even a perfect model has an estimated calibration error. The test draws 999 sets of labels from the
predictions, for which the model is calibrated, and computes its statistic for each: the histogram.
The line is the statistic of the observed labels. Inside the histogram the error is not significant;
far to the right the model is not calibrated.

Made with :func:`calibjax.calibration_test` and :func:`calibjax.plot.null_distribution`.
"""

import jax
import matplotlib.pyplot as plt

import calibjax as cj
from calibjax import plot

logits = jax.random.normal(jax.random.key(0), (500, 3))
predictions = cj.Categorical.from_logits(logits)
labels = {
    "calibrated": predictions.sample(jax.random.key(1)),
    "over-confident": cj.apply_temperature(predictions, 1.5).sample(jax.random.key(1)),
}
figure, axes = plt.subplots(1, 2, sharex=True)
for ax, (name, observed) in zip(axes, labels.items(), strict=True):
    result = cj.calibration_test(jax.random.key(2), predictions, observed)
    plot.null_distribution(result, ax=ax)
    ax.set_title(name)
