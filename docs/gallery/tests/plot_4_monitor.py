"""
An alarm that you may wait for
==============================

A monitor bets against the model after every batch. While the forecasts are calibrated its wealth,
the e-value, does not grow in the long run; after day 30 the targets are 0.4 higher than predicted,
and it grows fast. An alarm at 20 is false for at most 5 % of calibrated models, for any duration
and number of looks.

Made with :class:`calibjax.CalibrationMonitor` and :func:`calibjax.plot.e_process`.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import calibjax as cj
from calibjax import plot

forecasts = cj.Normal(jax.random.normal(jax.random.key(0), (50,)), jnp.ones(50))
monitor = cj.CalibrationMonitor.start(jax.random.key(1), forecasts)
log_e_values = []
for day in range(45):
    error = 0.0 if day < 30 else 0.4
    y = forecasts.sample(jax.random.key(100 + day)) + error
    monitor = monitor.update(forecasts, y)
    log_e_values.append(monitor.log_e_value)

figure, ax = plt.subplots()
plot.e_process(log_e_values, ax=ax)
ax.axvline(30, color="0.35", linestyle=":", linewidth=0.8)
ax.set(xlabel="days", title="Forecasts that are too low from day 30 on")
