"""
Counts that vary more than Poisson
==================================

The mean of each forecast is right, but these counts are over-dispersed relative to Poisson: too
many are in the tails. A negative binomial distribution with the same means fits. The PIT of a count
is drawn at random within its step, so that it is uniform for a calibrated forecast, as for numbers.

Made with :class:`calibjax.Poisson`, :class:`calibjax.NegativeBinomial` and
:func:`calibjax.plot.pit`.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import calibjax as cj
from calibjax import plot

mean = jnp.exp(1 + 0.5 * jax.random.normal(jax.random.key(0), (1000,)))
overdispersed = cj.NegativeBinomial(mean, jnp.full(1000, 3.0))
counts = overdispersed.sample(jax.random.key(1))

forecasts = {"Poisson": cj.Poisson(mean), "negative binomial": overdispersed}
figure, axes = plt.subplots(1, 2, sharey=True)
for ax, (name, predictions) in zip(axes, forecasts.items(), strict=True):
    plot.pit(cj.pit_curve(jax.random.key(2), predictions, counts), ax=ax)
    ax.set(title=name)
    ax.label_outer()
    ax.get_legend().remove()
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
