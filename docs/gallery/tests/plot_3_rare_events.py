"""
Exact where events are rare
===========================

The p-values of a calibrated model must be uniform: at most 5 % of them below 0.05, on the diagonal
or below it. These events have a probability of 0.5 %, so that one or two occur in 300 rows. The
asymptotic test has far too many small p-values and would reject calibrated models. The test that
draws its labels from the model keeps its level for any event rate.

Made with :func:`calibjax.aggregated_skce_test` and :func:`calibjax.asymptotic_skce_test`.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import calibjax as cj

predictions = cj.Bernoulli(jnp.linspace(0.0, 0.01, 300))
kernel = cj.default_kernel(predictions)


@jax.vmap
def pvalues(key):
    labels = predictions.sample(key)
    exact = cj.aggregated_skce_test(key, [kernel], predictions, labels, n_resamples=99)
    asymptotic = cj.asymptotic_skce_test(key, kernel, predictions, labels, n_resamples=199)
    return exact.pvalue, asymptotic.pvalue


exact, asymptotic = pvalues(jax.random.split(jax.random.key(0), 150))
share = (np.arange(150) + 1) / 150

figure, ax = plt.subplots()
ax.step(np.sort(exact), share, where="post", label="exact: aggregated_skce_test")
ax.step(np.sort(asymptotic), share, where="post", label="asymptotic_skce_test")
ax.plot([0, 1], [0, 1], "--", color="0.35", linewidth=0.8, label="uniform")
ax.set(xlabel="p-value", ylabel="share of calibrated models with a smaller one")
ax.set(title="p-values of calibrated models, 0.5 % events", xlim=(0, 1), ylim=(0, 1))
ax.legend()
