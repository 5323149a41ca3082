"""
Images that cause the error
===========================

The squared kernel calibration error is a mean of contributions of rows. These images have the
largest contributions, one for each confusion, for a network trained on only 150 images. The titles
have the digit, the predicted digit, and its probability.

Made with :func:`calibjax.contributions`.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import calibjax as cj

images, digits = load_digits(return_X_y=True)
network = MLPClassifier((32,), learning_rate_init=0.01, tol=0.01, random_state=0)
network.fit(images[:150], digits[:150])
images, digits = images[150:], digits[150:]
predictions = cj.Categorical(network.predict_proba(images))

parts = cj.contributions(cj.default_kernel(predictions), predictions, digits)
order = np.argsort(-parts)
confusions = 10 * digits + predictions.probs.argmax(axis=1)
worst = order[np.sort(np.unique(confusions[order], return_index=True)[1])[:10]]

figure, axes = plt.subplots(2, 5)
for ax, row in zip(axes.flat, worst, strict=True):
    read, probability = predictions.probs[row].argmax(), predictions.probs[row].max()
    ax.imshow(images[row].reshape(8, 8), cmap="Greys")
    ax.set_title(f"{digits[row]} read as {read}\nwith {probability:.0%}", loc="center")
    ax.set_axis_off()
