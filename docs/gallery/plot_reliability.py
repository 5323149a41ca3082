"""
Reliability diagram
===================

How often what was predicted happens, with a band for a calibrated model.
"""

import jax

import calibjax as cj
import calibjax.plot

probabilities = jax.random.uniform(jax.random.key(0), (1000,))
labels = jax.random.bernoulli(jax.random.key(1), probabilities**1.3)
curve = cj.reliability_curve(jax.random.key(2), cj.Bernoulli(probabilities), labels)
cj.plot.reliability(curve)
