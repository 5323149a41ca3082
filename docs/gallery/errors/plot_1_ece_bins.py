"""
The ECE depends on its bins
===========================

The first model is calibrated, the second is over-confident. The expected calibration error (ECE) is
above 0 for both and grows with the number of bins, on the left: with 100 bins the calibrated model
has a larger one than the other model with 10. The unbiased kernel calibration error, on the right,
is scattered around 0 for the calibrated model. Bands cover 90 % of 200 data sets of 500 rows.

Made with :func:`calibjax.ece`, :class:`calibjax.UniformBinning` and :func:`calibjax.skce`.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

import calibjax as cj

logits = jax.random.normal(jax.random.key(0), (500,))
predictions = cj.Bernoulli.from_logits(logits)
models = {"calibrated": predictions, "over-confident": cj.apply_temperature(predictions, 1.7)}
kernel = cj.default_kernel(predictions)
n_bins = [2, 5, 10, 20, 50, 100]

figure, (left, right) = plt.subplots(1, 2)
for name, truth in models.items():
    labels = truth.sample(jax.random.key(1), (200,))
    values = [
        jax.vmap(lambda y, k=k: cj.ece(predictions, y, binning=cj.UniformBinning(k)))(labels)
        for k in n_bins
    ]
    left.fill_between(n_bins, *np.quantile(values, (0.05, 0.95), axis=1), alpha=0.2)
    left.plot(n_bins, np.mean(values, axis=1), "o-", label=name)
    errors = jax.vmap(lambda y: cj.skce(kernel, predictions, y))(labels)
    right.hist(errors, np.linspace(-0.001, 0.008, 31), alpha=0.6)
left.set(title="ECE", xlabel="number of bins", ylim=0)
right.axvline(0, color="0.35", linestyle="--", linewidth=0.8)
right.set(title="Unbiased SKCE", xlabel="estimate", ylabel="data sets")
left.legend()
