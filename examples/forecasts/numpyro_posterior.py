"""Bayesian regressions in numpyro: posterior predictives as draws, and as mixtures.

    python examples/forecasts/numpyro_posterior.py

The noise of the data has heavy tails.  One of the two regressions takes it for normal.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, Predictive

import calibjax as cj

NOISES = {
    "normal": (dist.Normal, cj.Normal),
    "Student t": (partial(dist.StudentT, 3.0), partial(cj.StudentT, 3.0)),
}


def regression(x, y=None, *, noise):
    slope, intercept = (numpyro.sample(name, dist.Normal(0, 10)) for name in ("slope", "intercept"))
    scale = numpyro.sample("scale", dist.HalfNormal(10))
    numpyro.sample("y", noise(slope * x + intercept, scale), obs=y)


x_key, noise_key, *keys = jax.random.split(jax.random.key(0), 5)
x = jax.random.normal(x_key, (600,))
y = 1 + 2 * x + jax.random.t(noise_key, 3.0, (600,))
for name, (noise, family) in NOISES.items():
    mcmc = MCMC(NUTS(regression), num_warmup=100, num_samples=10, progress_bar=False)
    mcmc.run(keys[0], x[:300], y[:300], noise=noise)
    posterior = mcmc.get_samples()
    draws = Predictive(regression, posterior)(keys[1], x[300:], noise=noise)["y"]  # [S, n]
    means = x[300:, None] * posterior["slope"] + posterior["intercept"]  # [n, S]
    laws = family(means, jnp.broadcast_to(posterior["scale"], means.shape))
    for predictions in cj.Empirical(draws.T), cj.Mixture.ensemble(laws):
        result = cj.calibration_test(keys[2], predictions, y[300:])
        verdict = "not calibrated" if result.pvalue <= 0.05 else "nothing speaks against it"
        print(f"{name} noise, {predictions}, p = {result.pvalue:.3f}: {verdict}")
