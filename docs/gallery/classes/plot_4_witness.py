"""
Where a classifier is wrong
===========================

Each row is a class and each column a range of its predicted probability. Numbers are percentage
points by which the class was more or less frequent than predicted. Grey cells are not significant:
a calibrated model has any coloured cell with a probability of at most 5 %. This forecast is
over-confident about snow, and under-estimates rain.

Made with :func:`calibjax.witness_map` and :func:`calibjax.plot.witness`.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import calibjax as cj
from calibjax import plot

weather = ["sun", "cloud", "rain", "snow"]
logits = 1.5 * jax.random.normal(jax.random.key(0), (4000, 4))
predictions = cj.Categorical.from_logits(logits)

sun, cloud, rain, snow = predictions.probs.T
melted = 0.3 * snow**2
truth = cj.Categorical(jnp.stack([sun, cloud, rain + melted, snow - melted], axis=1))
labels = truth.sample(jax.random.key(1))

figure, ax = plt.subplots()
plot.witness(cj.witness_map(jax.random.key(2), predictions, labels), classes=weather, ax=ax)
