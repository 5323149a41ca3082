"""
A network before and after temperature scaling
==============================================

Digits predicted with a confidence of 80 % should be right in 80 % of cases. This network is
over-confident: its curve is below the diagonal and leaves the light band, in which a calibrated
model stays everywhere with a probability of 95 %. Dividing its logits by one number, fitted on
other images, corrects the curve and changes no decision.

Made with :func:`calibjax.top_label`, :func:`calibjax.reliability_curve`,
:func:`calibjax.fit_temperature`, :func:`calibjax.apply_temperature` and
:func:`calibjax.plot.reliability`.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import calibjax as cj
from calibjax import plot

images, digits = load_digits(return_X_y=True)
images = images / 16 * (np.random.default_rng(0).random(images.shape) < 0.4)  # hard to read
network = MLPClassifier((32,), learning_rate_init=0.01, tol=0.01, random_state=0)
network.fit(images[:700], digits[:700])

fit = cj.Categorical(network.predict_proba(images[700:1000]))
held_out = cj.Categorical(network.predict_proba(images[1000:]))
temperature = cj.fit_temperature(fit, digits[700:1000])

models = {
    "network": held_out,
    f"divided by {temperature:.1f}": cj.apply_temperature(held_out, temperature),
}
figure, axes = plt.subplots(1, 2)
for ax, (name, predictions) in zip(axes, models.items(), strict=True):
    top = cj.top_label(predictions, digits[1000:])
    plot.reliability(cj.reliability_curve(jax.random.key(0), *top, n_bins=10), ax=ax)
    ax.set_title(name)
    ax.get_legend().remove()
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
