"""
Lifetimes
=========

A model of lifetimes expects events too late. Of the rows 60 % are censored, and still groups
of rows with similar risks show it: the Kaplan-Meier estimates of their risks, with intervals at
95 %, are above the diagonal.

Made with :class:`calibjax.Between`, :func:`calibjax.risk_curve` and :func:`calibjax.plot.risk`.
"""

import jax
import jax.numpy as jnp

import calibjax as cj
from calibjax import plot

of_x, of_life, of_end = jax.random.split(jax.random.key(0), 3)
x = jax.random.normal(of_x, (1000,))
lifetimes = cj.Weibull(jnp.full(1000, 1.5), jnp.exp(0.5 * x))
life = lifetimes.sample(of_life)
end = 0.7 * jax.random.exponential(of_end, (1000,))
targets = cj.Between.right_censored(jnp.minimum(life, end), life <= end)

late = cj.Weibull(lifetimes.concentration, 1.4 * lifetimes.scale)
plot.risk(cj.risk_curve(late, targets, jnp.array([0.3, 0.9]), n_bins=5))
