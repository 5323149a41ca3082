"""
PIT without bins
================

The distribution function of the PIT, less the diagonal, shows the same errors as the histogram
without a choice of bins. A wave that is first above and then below 0 indicates under-dispersive
forecasts, an arch below 0 forecasts that are biased low. Parts outside the band are red.

Made with :func:`calibjax.pit_curve` and :func:`calibjax.plot.pit_difference`.
"""

import jax
import matplotlib.pyplot as plt

import calibjax as cj
from calibjax import plot

mean = jax.random.normal(jax.random.key(0), (1000,))
truth = cj.Normal(mean, jax.numpy.ones(1000))
y = truth.sample(jax.random.key(1))

forecasts = {
    "too narrow": cj.Normal(mean, 0.8 * truth.scale),
    "too low": cj.Normal(mean - 0.2, truth.scale),
    "right": truth,
}
figure, axes = plt.subplots(1, 3, sharex=True, sharey=True)
for ax, (name, predictions) in zip(axes, forecasts.items(), strict=True):
    plot.pit_difference(cj.pit_curve(jax.random.key(2), predictions, y), ax=ax)
    ax.set(title=name, xticks=[0, 0.5, 1])
    ax.label_outer()
    ax.get_legend().remove()
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
