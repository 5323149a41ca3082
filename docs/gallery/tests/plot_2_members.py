"""
What kind of error?
===================

The calibration test looks with several kernels at once, and their scores say what kind of error
there is. Two kernels each see a wrong location, a wrong shape or a wrong spread, among similar
predictions (narrow) or all of them (wide). Under a calibrated model each score is roughly standard
normal; the largest one decides, beside the largest ones of a calibrated model.

Made with :func:`calibjax.calibration_test`, whose result has ``members``, see
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

kinds = [f"{kind}, {at}" for kind in ("location", "shape", "spread") for at in ("narrow", "wide")]
figure, ax = plt.subplots()
for (name, predictions), marker in zip(forecasts.items(), "o^s", strict=True):
    result = cj.calibration_test(jax.random.key(2), predictions, y)
    ax.plot(result.members.scores, kinds, f"{marker}-", label=f"{name}, p = {result.pvalue:.2g}")
ax.axvspan(-2, 2, color="0.85", linewidth=0, zorder=0)
ax.invert_yaxis()
ax.set(title="Scores of the six kernels", xlabel="score")
ax.grid(axis="y", color="0.85", linewidth=0.5)
figure.legend(loc="outside lower center", ncols=3)
