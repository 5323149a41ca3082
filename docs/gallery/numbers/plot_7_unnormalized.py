"""
A density without its constant
==============================

An energy-based model gives exp(-energy), up to an unknown constant. Here the energy has two wells,
whose depth is divided by a temperature; the data, as grey bars, were drawn at temperature 1. A
Stein kernel needs only the slope of the energy, not the constant: the error on the right is close
to 0 at temperature 1, and its interval excludes 0 further away.

Made with :class:`calibjax.Unnormalized`, :class:`calibjax.SteinKernel` and
:func:`calibjax.asymptotic_skce_test`.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import calibjax as cj


def log_density(parameters, y):
    x, temperature = parameters
    return -(2 * (y**2 - 1) ** 2 + x * y) / temperature


x = jax.random.uniform(jax.random.key(0), (600,), minval=-1.0, maxval=1.0)
grid = jnp.linspace(-2.5, 2.5, 2001)
y = grid[jax.random.categorical(jax.random.key(1), log_density((x[:, None], 1.0), grid))]

between = cj.DistanceKernel(cj.EmbeddingDistance(lambda p: p.parameters[0]))
kernel = cj.SteinKernel(between, cj.GaussianKernel(0.5))
temperatures, errors, intervals = np.geomspace(0.5, 2, 9), [], []
for temperature in temperatures:
    parameters = (x, jnp.full(600, temperature))
    model = cj.Unnormalized.from_log_density(log_density, parameters)
    found = cj.asymptotic_skce_test(jax.random.key(2), kernel, model, y)
    errors.append(found.estimate)
    intervals.append(found.confidence_interval(0.95))

figure, (left, right) = plt.subplots(1, 2)
heights = left.hist(y, 30, color="0.85")[0]
for temperature, style in zip((0.5, 1.0, 2.0), ("--", "-", ":"), strict=True):
    density = jnp.exp(log_density((0.0, temperature), grid))
    left.plot(
        grid, 0.8 * heights.max() * density, f"C0{style}", label=f"temperature {temperature:g}"
    )
left.set(title="Data, and exp(−energy) at x = 0", xlabel="y", xlim=(-2.5, 2.5))
left.set(ylim=(0, 1.5 * heights.max()), yticks=[], ylabel="density, up to a constant")
left.legend()
right.fill_between(temperatures, *np.transpose(intervals), alpha=0.2, label="95 % interval")
right.plot(temperatures, errors, "o-", label="squared error")
right.axvline(1, color="0.35", linestyle="--", linewidth=0.8)
right.set(title="Which temperature?", xlabel="temperature of the model")
right.legend()
