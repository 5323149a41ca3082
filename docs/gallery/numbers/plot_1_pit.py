"""
Too narrow, too low, and right
==============================

The probability integral transform (PIT) is the rank of a target within its forecast, from 0 to 1.
It is uniform if the forecasts are calibrated. Under-dispersive forecasts have too many targets at
both ends, and forecasts biased low have too many at the upper end. Bars outside the band are red;
the band is simultaneous.

Made with :class:`calibjax.Normal`, :func:`calibjax.pit_curve` and :func:`calibjax.plot.pit`.
"""

import jax
import matplotlib.pyplot as plt

import calibjax as cj
from calibjax import plot

mean = jax.random.normal(jax.random.key(0), (1000,))
truth = cj.Normal(mean, jax.numpy.ones(1000))
y = truth.sample(jax.random.key(1))

forecasts = {
    "too narrow": cj.Normal(mean, 0.6 * truth.scale),
    "too low": cj.Normal(mean - 0.5, truth.scale),
    "right": truth,
}
figure, axes = plt.subplots(1, 3, sharex=True, sharey=True)
for ax, (name, predictions) in zip(axes, forecasts.items(), strict=True):
    plot.pit(cj.pit_curve(jax.random.key(2), predictions, y), ax=ax)
    ax.set(title=name, xlabel="PIT", xticks=[0, 0.5, 1])
    ax.label_outer()
    ax.get_legend().remove()
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
