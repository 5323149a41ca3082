"""
The error at each temperature
=============================

The logits of this model are divided by a temperature, from left to right, and the squared kernel
calibration error is smallest near the true one, 2. A number such as 0.01 is hard to interpret. The
equivalent temperature translates it: the error of the original model, at temperature 1, is
equivalent to logits that are too large by this factor.

Made with :func:`calibjax.apply_temperature`, :func:`calibjax.skce` and
:func:`calibjax.equivalent_temperature`.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

import calibjax as cj

logits = 2 * jax.random.normal(jax.random.key(0), (1000, 5))
predictions = cj.Categorical.from_logits(logits)
labels = cj.apply_temperature(predictions, 2.0).sample(jax.random.key(1))
kernel = cj.default_kernel(predictions)

temperatures = np.geomspace(0.7, 5, 30)
errors = jax.jit(
    lambda ts: jax.lax.map(
        lambda t: cj.skce(kernel, cj.apply_temperature(predictions, t), labels), ts
    )
)(temperatures)
found = cj.equivalent_temperature(jax.random.key(2), kernel, predictions, labels, n_resamples=299)
low, high = found.confidence_interval

figure, ax = plt.subplots()
ax.axvline(found.temperature, color="C1", label=f"equivalent temperature {found.temperature:.2f}")
ax.axvspan(low, high, color="0.85", zorder=0, label="its 95 % interval")
ax.plot(temperatures, errors, label="SKCE of the tempered model")
ax.plot(1, cj.skce(kernel, predictions, labels), "o", color="C0", label="the model as it is")
ax.axhline(0, color="0.35", linestyle="--", linewidth=0.8)
ax.set(title="SKCE against temperature", xlabel="temperature", ylabel="SKCE")
ax.legend(frameon=True, edgecolor="white")
