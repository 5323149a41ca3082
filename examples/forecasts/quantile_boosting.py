"""Gradient boosting of quantiles, as it is, and shifted by what other rows say about its errors.

    python examples/forecasts/quantile_boosting.py [split]

Split 2, the default, is a lucky one: on the splits 0 to 19, `calibration_test` rejects 19 of the 20
forecasts as they are and 10 of the 20 shifted ones, whose intervals of 80 % cover 79 % on average
(68 % to 89 %).  Coverage is a mean over all patients; the test compares those with similar
forecasts.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.model_selection import train_test_split

import calibjax as cj

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)

split = int(sys.argv[1]) if len(sys.argv) > 1 else 2
features, progression = load_diabetes(return_X_y=True)
x, test_x, y, test_y = train_test_split(features, progression, test_size=1 / 3, random_state=split)
train_x, shift_x, train_y, shift_y = train_test_split(x, y, test_size=0.5, random_state=split)

raw, shifted = [], []
for level in LEVELS:
    model = GradientBoostingRegressor(loss="quantile", alpha=level, random_state=0)
    model.fit(train_x, train_y)
    raw.append(model.predict(test_x))
    shifted.append(raw[-1] + np.quantile(shift_y - model.predict(shift_x), level))

key, targets = jax.random.key(0), jnp.asarray(test_y)
for name, values in {"as it is": raw, "shifted": shifted}.items():
    predictions = cj.Quantiles(np.stack(values, axis=1), LEVELS, sort=True)
    pit = cj.pit(key, predictions, targets)  # uniform if calibrated
    crps = jnp.mean(cj.crps(predictions, targets))
    inside = jnp.mean((LEVELS[0] < pit) & (pit < LEVELS[-1]))
    print(f"{name}: CRPS {crps:.1f}, {inside:.0%} of the patients in the interval of 80 %")
    result = cj.calibration_test(key, predictions, targets)
    verdict = "not calibrated" if result.pvalue <= 0.05 else "nothing speaks against calibration"
    print(f"  PIT in fifths {np.histogram(pit, 5, (0, 1))[0]}, p = {result.pvalue:.3f}: {verdict}")
