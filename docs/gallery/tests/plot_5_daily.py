"""
Why a test must not be repeated every day
=========================================

All of these 50 models are calibrated. A test at level 5 % of each day's 50 new events rejects
nearly every model at least once in two months. The monitor is checked as often, and its false
alarms stay below 5 % forever.

Made with :class:`calibjax.CalibrationMonitor` and :func:`calibjax.asymptotic_skce_test`.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import calibjax as cj

example = cj.Bernoulli(jnp.linspace(0.05, 0.95, 50))
kernel = cj.default_kernel(example)
start = cj.CalibrationMonitor.start(jax.random.key(0), example)


def day(monitor, key):
    predictions = cj.Bernoulli(jax.random.uniform(key, (50,)))
    labels = predictions.sample(jax.random.fold_in(key, 1))
    monitor = monitor.update(predictions, labels)
    test = cj.asymptotic_skce_test(key, kernel, predictions, labels, n_resamples=99)
    return monitor, (test.pvalue <= 0.05, monitor.log_e_value >= jnp.log(20))


@jax.jit
@jax.vmap
def alarms(key):
    return jax.lax.scan(day, start, jax.random.split(key, 60))[1]


rings = alarms(jax.random.split(jax.random.key(1), 50))
figure, ax = plt.subplots()
for ring, name in zip(rings, ["a test every day", "a monitor"], strict=True):
    ever = jax.lax.cummax(ring.astype(int), axis=1).mean(axis=0)
    ax.step(jnp.arange(61), jnp.append(0, 100 * ever), where="post", label=name)
ax.axhline(5, color="0.35", linestyle="--", linewidth=0.8, label="5 %")
ax.set(title="False alarms", xlabel="days", ylabel="models with an alarm so far (%)")
ax.set(xlim=(0, 60), ylim=(0, 100))
ax.legend(loc="center right")
