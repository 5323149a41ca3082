"""
Right on top, wrong below
=========================

Networks are often evaluated by their most likely class only. Here that looks fine, on the left,
while the probability of class 2 is far too small, on the right, and that of class 1 too large;
neither is ever the most likely class. The kernel calibration error uses all classes.

Made with :func:`calibjax.top_label`, :func:`calibjax.one_vs_rest` and
:func:`calibjax.plot.reliability`.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import calibjax as cj
from calibjax import plot

top = jax.random.uniform(jax.random.key(0), (3000,), minval=0.5, maxval=1.0)
rest = 1 - top
truth = cj.Categorical(jnp.stack([top, 0.3 * rest, 0.7 * rest], axis=1))
labels = truth.sample(jax.random.key(1))
predictions = cj.Categorical(jnp.stack([top, 0.7 * rest, 0.3 * rest], axis=1))

pairs = {
    "most likely class": cj.top_label(predictions, labels),
    "class 2 against the rest": cj.one_vs_rest(predictions, labels, 2),
}
figure, axes = plt.subplots(1, 2)
for ax, (name, pair) in zip(axes, pairs.items(), strict=True):
    plot.reliability(cj.reliability_curve(jax.random.key(2), *pair, n_bins=20), ax=ax)
    ax.set_title(name)
    ax.get_legend().remove()
figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=4)
