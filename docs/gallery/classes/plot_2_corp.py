"""
A reliability diagram without bins
==================================

The number of bins is a choice that changes a reliability diagram. CORP needs none: it fits the best
increasing curve through the outcomes. Both plots are of the same over-confident model: with 200
rows the curve stays in the band, and the error is not significant; with 3000 rows it leaves the
band. MCB is the part of the Brier score that recalibration would gain; few rows inflate it.

Made with :func:`calibjax.corp_curve` and :func:`calibjax.plot.reliability`.
"""

import jax
import matplotlib.pyplot as plt

import calibjax as cj
from calibjax import plot

logits = 1.5 * jax.random.normal(jax.random.key(0), (3000,))
happened = jax.random.bernoulli(jax.random.key(1), jax.nn.sigmoid(0.7 * logits))
predictions = cj.Bernoulli(jax.nn.sigmoid(logits))

figure, axes = plt.subplots(1, 2)
for ax, n in zip(axes, [200, 3000], strict=True):
    curve = cj.corp_curve(predictions[:n], happened[:n], key=jax.random.key(2))
    plot.reliability(curve, ax=ax)
    ax.set_title(f"{n} rows, MCB {curve.miscalibration:.3f}")
    ax.get_legend().remove()
figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=4)
