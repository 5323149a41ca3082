"""A bootstrap ensemble: do its members spread as the targets do, or is noise to be added?

python examples/forecasts/bootstrap_ensemble.py
"""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import make_regression
from sklearn.ensemble import BaggingRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import train_test_split

import calibjax as cj

features, values = make_regression(600, n_features=30, noise=20.0, random_state=0)
train_x, test_x, train_y, test_y = train_test_split(features, values, test_size=0.5, random_state=0)
ensemble = BaggingRegressor(Ridge(), n_estimators=30, oob_score=True, random_state=0)
ensemble.fit(train_x, train_y)
members = np.stack([ridge.predict(test_x) for ridge in ensemble.estimators_], axis=1)  # [n, S]

# Errors on rows that a member was not trained on come from noise and from its own uncertainty.
error = np.mean(np.square(train_y - ensemble.oob_prediction_))
noise = np.sqrt(error - np.mean(np.var(members, axis=1)))
forecasts = {
    "members alone": cj.Empirical(members),
    "members and noise": cj.Mixture.ensemble(cj.Normal(members, noise)),
}
for name, predictions in forecasts.items():
    result = cj.calibration_test(jax.random.key(0), predictions, jnp.asarray(test_y))
    verdict = "not calibrated" if result.pvalue <= 0.05 else "nothing speaks against calibration"
    ratio = np.std(test_y - members.mean(axis=1)) / np.mean(predictions.standard_deviation())
    print(f"{name}: errors are {ratio:.1f} times the predicted ones")
    print(f"  p = {result.pvalue:.3f}: {verdict}")
