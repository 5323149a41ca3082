"""Doctor visits as Poisson or negative binomial counts: which regression is calibrated?

    python examples/forecasts/negative_binomial_glm.py

The data are from the RAND health insurance experiment, and come with statsmodels.  With the rows
of seed 0 nothing speaks against the negative binomial; with those of two other seeds its p-values
were 0.005 and 0.057: it is much better than Poisson, but not quite right.
"""

import jax
import jax.numpy as jnp
import numpy as np
import statsmodels.api as sm

import calibjax as cj

data = sm.datasets.randhie.load_pandas()
rows = np.random.default_rng(0).permutation(len(data.endog))
train, test = rows[:2000], rows[2000:2500]
features, visits = sm.add_constant(data.exog).to_numpy(), data.endog.to_numpy()
targets = jnp.asarray(visits[test], dtype=int)

poisson = sm.Poisson(visits[train], features[train]).fit(disp=False, maxiter=100)
negative_binomial = sm.NegativeBinomial(visits[train], features[train]).fit(disp=False, maxiter=100)
dispersion = negative_binomial.params[-1]  # the variance is mean + dispersion mean^2
forecasts = {
    "Poisson": cj.Poisson(poisson.predict(features[test])),
    "negative binomial": cj.NegativeBinomial(
        negative_binomial.predict(features[test]), concentration=1 / dispersion
    ),
}
for name, predictions in forecasts.items():
    result = cj.calibration_test(jax.random.key(0), predictions, targets)
    verdict = "not calibrated" if result.pvalue <= 0.05 else "nothing speaks against calibration"
    log_score = jnp.mean(cj.log_score(predictions, targets))
    print(f"{name}: log score {log_score:.3f}, p = {result.pvalue:.3f}: {verdict}")
