"""
Who loses by a bad forecast
===========================

To act costs a part of the damage that an event does, and whoever believes a forecast acts where it
is above this part, the threshold. The left picture has the mean loss at each threshold of a model
that is too sure, beside that of a forecast which is the base rate for everybody. The right one has
the difference to the same model behind a temperature: where the band is above 0, decision makers
lose by the first one.

Made with :func:`calibjax.murphy_curve` and :func:`calibjax.plot.murphy`.
"""

import jax
import matplotlib.pyplot as plt

import calibjax as cj
from calibjax import plot

logits = jax.random.normal(jax.random.key(0), (3000,)) - 0.5
happened = jax.random.bernoulli(jax.random.key(1), jax.nn.sigmoid(logits))
too_sure = cj.Bernoulli(jax.nn.sigmoid(3 * logits))
mended = cj.cross_fit(too_sure, happened, "temperature", 5)

figure, axes = plt.subplots(1, 2)
key = jax.random.key(2)
plot.murphy(cj.murphy_curve(key, too_sure, happened), ax=axes[0])
plot.murphy(cj.murphy_curve(key, too_sure, happened, other=mended), ax=axes[1])
axes[1].set_title("Too sure minus mended", loc="left", fontsize=9)
