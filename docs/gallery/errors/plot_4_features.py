"""
Fewer pairs, random features, or all pairs
==========================================

2000 rows have two million pairs. Blocks use fewer pairs, and random features approximate all of
them; both take linear time. Each box shows, on a log scale, the errors of 20 such estimates
relative to all pairs. For a nearly calibrated model, as here, features are much more accurate; far
from calibration the two differ less.

Made with :func:`calibjax.skce`, its ``block_size=``, and :func:`calibjax.random_feature_skce`.
"""

import functools

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import calibjax as cj

predictions = cj.Categorical.from_logits(2 * jax.random.normal(jax.random.key(0), (2000, 10)))
labels = cj.apply_temperature(predictions, 1.2).sample(jax.random.key(1))
kernel = cj.default_kernel(predictions)
keys = jax.random.split(jax.random.key(2), 20)


def of_blocks(size, key):
    rows = jax.random.permutation(key, 2000)
    return cj.skce(kernel, predictions[rows], labels[rows], block_size=size)


def of_features(count, key):
    found = cj.random_feature_skce(key, kernel, predictions, labels, n_features=count)
    return found.estimate


exact = cj.skce(kernel, predictions, labels)
figure, axes = plt.subplots(1, 2, sharey=True)
for ax, estimate, title in zip(axes, (of_blocks, of_features), ("blocks", "features"), strict=True):
    sizes = [32, 256]
    values = [jax.lax.map(functools.partial(estimate, size), keys) for size in sizes]
    ax.boxplot(abs(jnp.array(values).T - exact), tick_labels=sizes, medianprops={"color": "C1"})
    ax.set(title=title, yscale="log", ylabel="distance from all pairs")
    ax.label_outer()
axes[0].set_xlabel("block size")
axes[1].set_xlabel("number of features")
