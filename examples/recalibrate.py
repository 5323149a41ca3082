"""One number that makes an over-confident model calibrated, or less uncalibrated: its temperature.

    python examples/recalibrate.py [--split 0]

Two models and real data that come with scikit-learn.  Naive Bayes, which takes features for
independent, tells malignant from benign tumours by 30 of them.  A random forest predicts the
progression of diabetes: the mean and the standard deviation of its trees are read as those of a
normal distribution, which leaves out most of the noise.  A third of the data trains the model; on
the second a temperature is fitted, once by the negative log likelihood and once by the calibration
error itself; the tables are about the last third, which neither has seen.  No temperature changes a
decision between classes or a mean, hence accuracy and RMSE stay as they are.

Temperature helps both, and is not always enough: at the 5 % level `calibration_test` rejects both
models as trained in all of the splits 0 to 19, at the temperature by NLL naive Bayes in 7 and the
forest in 10 of them, and at that by SKCE in 11 and 11.  Twenty seconds on two CPU cores, nearly all
of it compilation.
"""

import argparse
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.naive_bayes import GaussianNB

import calibjax as cj

# In standard deviations of the target, and fixed.  The lengthscale of `default_kernel` for targets
# follows the predictions: at temperature 0 none is near any target, and the error vanishes.
KERNEL = cj.TensorProduct(cj.DistanceKernel(cj.Wasserstein(), 1.0), cj.GaussianKernel(1.0))


def naive_bayes(features: np.ndarray, labels: np.ndarray) -> Callable:
    model = GaussianNB().fit(features, labels)
    return lambda features: cj.Categorical(jnp.asarray(model.predict_proba(features), jnp.float32))


def forest(features: np.ndarray, targets: np.ndarray) -> Callable:
    model = RandomForestRegressor(200, min_samples_leaf=5, random_state=0).fit(features, targets)

    def predict(features: np.ndarray) -> cj.Normal:
        trees = jnp.asarray([tree.predict(features) for tree in model.estimators_], jnp.float32)
        return cj.Normal(trees.mean(axis=0), trees.std(axis=0))

    return predict


def tumours() -> tuple[np.ndarray, np.ndarray]:
    return load_breast_cancer(return_X_y=True)


def progression() -> tuple[np.ndarray, np.ndarray]:
    features, targets = load_diabetes(return_X_y=True)
    return features, ((targets - targets.mean()) / targets.std()).astype("float32")


def skce_of_classes(predictions, labels, unbiased=False) -> jax.Array:
    # Its kernel follows the predictions.  With a fixed one high temperatures make all predictions
    # alike, and predictions that say nothing are calibrated where classes are equally frequent.
    return cj.skce(cj.default_kernel(predictions), predictions, labels, unbiased=unbiased)


def skce_of_reals(predictions, targets, unbiased=False) -> jax.Array:
    return cj.skce(KERNEL, predictions, targets, unbiased=unbiased)


def accuracy(predictions: cj.Categorical, labels: jax.Array) -> jax.Array:
    return jnp.mean(jnp.argmax(predictions.probs, axis=1) == labels)


def rmse(predictions: cj.Normal, targets: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.mean((predictions.loc - targets) ** 2))


class Task(NamedTuple):
    load: Callable
    train: Callable
    skce: Callable
    error: Callable


TASKS = {
    "naive Bayes, breast cancer": Task(tumours, naive_bayes, skce_of_classes, accuracy),
    "random forest, diabetes": Task(progression, forest, skce_of_reals, rmse),
}


def thirds(features: np.ndarray, targets: np.ndarray, split: int) -> list[tuple]:
    order = np.random.default_rng(split).permutation(len(targets))
    return [(features[rows], targets[rows]) for rows in np.array_split(order, 3)]


def temperatures(task: Task, predictions: Any, targets: jax.Array) -> dict[str, Any]:
    return {
        "as trained": 1.0,
        "by NLL": cj.fit_temperature(predictions, targets),
        "by SKCE": cj.fit_temperature(predictions, targets, objective=task.skce),
    }


def report(task: Task, fitted: Mapping[str, Any], predictions: Any, targets: jax.Array) -> None:
    tempered = [cj.apply_temperature(predictions, temperature) for temperature in fitted.values()]
    tests = [cj.calibration_test(jax.random.key(0), p, targets) for p in tempered]
    table = {
        "temperature": [f"{temperature:.2f}" for temperature in fitted.values()],
        task.error.__name__: [f"{task.error(p, targets):.3f}" for p in tempered],
        "NLL": [f"{-jnp.mean(p.log_prob(targets)):.3f}" for p in tempered],
        "1000 unbiased SKCE": [f"{1000 * task.skce(p, targets, True):.2f}" for p in tempered],
        "p-value": [f"{test.pvalue:.3f}" for test in tests],
    }
    print(f"{'':<20}" + "".join(f"{name:>12}" for name in fitted))
    for name, cells in table.items():
        print(f"{name:<20}" + "".join(f"{cell:>12}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--split", type=int, default=0, help="seed of the split into thirds")
    args = parser.parse_args()

    for name, task in TASKS.items():
        training, recalibration, held_out = thirds(*task.load(), args.split)
        predict = task.train(*training)
        fitted = temperatures(task, predict(recalibration[0]), jnp.asarray(recalibration[1]))
        print(f"\n{name}: {len(held_out[1])} held-out rows")
        report(task, fitted, predict(held_out[0]), jnp.asarray(held_out[1]))


if __name__ == "__main__":
    main()
