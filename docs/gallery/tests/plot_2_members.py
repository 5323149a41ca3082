"""
What kind of error?
===================

The calibration test uses several kernels, and their scores show the kind of error. Three kernels
each detect a wrong location, a wrong spread or a wrong shape: among predictions of similar means,
of similar SDs, or among all. Under a calibrated model each score is roughly standard normal; the
largest is compared with the largest scores of a calibrated model.

Made with :func:`calibjax.calibration_test`, whose result has ``kernels``, see
:class:`calibjax.CalibrationTestResult`.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import calibjax as cj

mean = jax.random.normal(jax.random.key(0), (500,))
truth = cj.Normal(mean, jnp.ones(500))
y = truth.sample(jax.random.key(1))
forecasts = {
    "right": truth,
    "too low": cj.Normal(mean - 0.2, truth.scale),
    "too narrow": cj.Normal(mean, 0.8 * truth.scale),
}

among = "similar means", "similar deviations", "all"
kinds = [f"{kind}, {rows}" for rows in among for kind in ("location", "spread", "shape")]
figure, ax = plt.subplots()
for (name, predictions), marker in zip(forecasts.items(), "o^s", strict=True):
    result = cj.calibration_test(jax.random.key(2), predictions, y)
    ax.plot(result.kernels.scores, kinds, f"{marker}-", label=f"{name}, p = {result.pvalue:.2g}")
ax.axvspan(-2, 2, color="0.85", linewidth=0, zorder=0)
ax.invert_yaxis()
ax.set(title="Scores of the nine kernels", xlabel="score")
ax.grid(axis="y", color="0.85", linewidth=0.5)
figure.legend(loc="outside lower center", ncols=3)
