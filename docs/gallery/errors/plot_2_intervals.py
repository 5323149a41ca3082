"""
How many rows do I need?
========================

A confidence interval for the squared kernel calibration error becomes narrower with more rows. For
the over-confident model its lower end moves away from 0, clearly from 800 rows on. For the
calibrated model the upper end falls towards 0: it bounds the error, which no p-value can do.

Made with :func:`calibjax.skce_confidence_interval`, with a mask so that all sizes share one
program.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import calibjax as cj

predictions = cj.Bernoulli.from_logits(2 * jax.random.normal(jax.random.key(0), (1600,)))
kernel = cj.default_kernel(predictions)
models = {"over-confident": cj.apply_temperature(predictions, 2.0), "calibrated": predictions}
sizes = np.array([100, 200, 400, 800, 1600])

figure, axes = plt.subplots(1, 2, sharey=True)
for ax, (name, truth) in zip(axes, models.items(), strict=True):
    y = truth.sample(jax.random.key(1))
    masks = jnp.arange(1600) < sizes[:, None]
    estimates = [cj.skce(kernel, predictions, y, where=mask) for mask in masks]
    key = jax.random.key(2)
    intervals = [
        cj.skce_confidence_interval(key, kernel, predictions, y, where=mask) for mask in masks
    ]
    ax.vlines(sizes, *np.transpose(intervals), linewidth=3, alpha=0.4, label="95 % interval")
    ax.plot(sizes, estimates, "o", label="estimate")
    ax.axhline(0, color="0.35", linestyle="--", linewidth=0.8)
    ax.set(title=name, xscale="log", xlabel="rows", ylabel="SKCE")
    ax.set_xticks(sizes, sizes)
    ax.minorticks_off()
    ax.label_outer()
axes[0].legend()
