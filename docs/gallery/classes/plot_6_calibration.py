"""
A smooth calibration curve of rare events
=========================================

The frequency of frauds as a smooth function of their score, by logistic regression on a restricted
cubic spline, with a confidence interval at each score and a band that covers the whole curve. Low
scores are too low; high ones are right. Axes are logarithmic since events are rare.

Made with :func:`calibjax.calibration_curve` and :func:`calibjax.plot.calibration`.
"""

import jax
import jax.numpy as jnp

import calibjax as cj
from calibjax import plot

logits = jax.random.normal(jax.random.key(0), (20_000,)) - 4
truth = cj.Bernoulli.from_logits(jnp.logaddexp(logits, -4.0))
fraud = truth.sample(jax.random.key(1))
plot.calibration(cj.calibration_curve(cj.Bernoulli.from_logits(logits), fraud))
