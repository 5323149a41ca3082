"""Is it calibrated?  Every test of calibjax, on two models that make the same decisions.

    python examples/is_it_calibrated.py [--quick] [--split 0] [--figure is_it_calibrated.png]

The data are scikit-learn's diabetes patients: is the progression of the disease one year later
above the median?  One model is naive Bayes, which takes the ten features for independent, counts
what they share several times, and so is over-confident.  The other is the same one after
temperature scaling: a single number, fitted on the training half, that divides all log
probabilities.  It changes no decision, hence no accuracy, and makes the model calibrated as far
as the held-out half can tell.  That is not the luck of split 0: at the 5 % level
`calibration_test` rejects naive Bayes in 100 of the splits 0 to 99, and the scaled one in 8.
Half a minute on two CPU cores, nearly all of it compilation.
"""

import argparse
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

import calibjax as cj

MODELS = {
    "naive Bayes": GaussianNB(),
    "temperature-scaled": CalibratedClassifierCV(
        GaussianNB(), method="temperature", ensemble=False
    ),
}
# The laws of these tests are asymptotic: at n = 221 two locations and 31 blocks of 7 suit them.
N_LOCATIONS, BLOCK_SIZE = 2, 7

Results = Mapping[str, cj.CalibrationTestResult]


def held_out(split: int) -> tuple[dict[str, cj.Categorical], jax.Array]:
    """The predictions of each model, trained on one half of the data, for the other, and labels."""
    features, progression = load_diabetes(return_X_y=True)
    labels = (progression > np.median(progression)).astype(int)
    train_x, test_x, train_y, test_y = train_test_split(
        features, labels, test_size=0.5, stratify=labels, random_state=split
    )
    predictions = {
        name: cj.Categorical(jnp.asarray(model.fit(train_x, train_y).predict_proba(test_x)))
        for name, model in MODELS.items()
    }
    return predictions, jnp.asarray(test_y)


def all_tests(
    key: jax.Array, predictions: cj.Categorical, labels: jax.Array, n_resamples: int
) -> Results:
    key, location_key = jax.random.split(key)
    kernel = cj.default_kernel(predictions)
    data = kernel, predictions, labels
    results = {"calibration_test": cj.calibration_test(key, predictions, labels)}
    for method in "bootstrap", "spectrum", "gamma", "pearson":
        results[f"asymptotic_skce_test, {method}"] = cj.asymptotic_skce_test(
            key, *data, n_resamples=n_resamples, method=method
        )
    for variance in "blocks", "null":
        results[f"asymptotic_block_skce_test, variance {variance}"] = cj.asymptotic_block_skce_test(
            *data, block_size=BLOCK_SIZE, variance=variance
        )
    locations = cj.sample_test_locations(location_key, predictions, N_LOCATIONS)
    results["asymptotic_cme_test"] = cj.asymptotic_cme_test(*data, *locations)
    results["consistency_test"] = cj.consistency_test(
        key, jax.tree_util.Partial(cj.skce, kernel), predictions, labels, n_resamples=n_resamples
    )
    bounds = {
        "unbiased": {},
        "biased": {"unbiased": False},
        f"blocks of {BLOCK_SIZE}": {"block_size": BLOCK_SIZE},
    }
    for name, options in bounds.items():
        results[f"distribution_free_skce_test, {name}"] = cj.distribution_free_skce_test(
            *data, **options
        )
    return results


def report(
    predictions: Mapping[str, cj.Categorical], labels: jax.Array, results: Mapping[str, Results]
) -> None:
    def row(name, cells):
        print(f"{name:<44}" + "".join(f"{cell:>24}" for cell in cells))

    print(f"{len(labels)} held-out patients\n")
    row("", predictions)
    probs = [p.probs for p in predictions.values()]
    row("accuracy", [f"{jnp.mean(jnp.argmax(p, axis=1) == labels):.3f}" for p in probs])
    row("NLL", [f"{-jnp.mean(p.log_prob(labels)):.3f}" for p in predictions.values()])
    estimates = [tests["asymptotic_skce_test, bootstrap"] for tests in results.values()]
    row(
        "1000 unbiased SKCE",
        [f"{1000 * r.estimate:.1f} ± {1000 * r.standard_error:.1f}" for r in estimates],
    )
    print()
    row("test", [f"{'statistic':>12}{'p-value':>12}"] * len(results))
    for name, *tests in zip(
        next(iter(results.values())), *(tests.values() for tests in results.values()), strict=True
    ):
        row(name, [f"{r.statistic:>12.3g}{r.pvalue:>12.2g}" for r in tests])


def plot(path: str, results: Mapping[str, Results]) -> None:
    """The law of the SKCE of a calibrated model, and the SKCE that the model has."""
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    figure.suptitle("Held-out diabetes patients: consistency_test")
    panels = figure.subplots(1, len(results), sharex=True, sharey=True)
    for axes, (name, tests) in zip(panels, results.items(), strict=True):
        result = tests["consistency_test"]
        draws = 1000 * np.asarray(result.null_distribution)
        axes.hist(draws, bins=30, density=True, alpha=0.5, label="if it were calibrated")
        axes.axvline(1000 * float(result.statistic), color="C1", label="as it is")
        axes.set(title=f"{name}: p = {result.pvalue:.2g}", xlabel="unbiased SKCE × 1000")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("density")
    panels[0].legend()
    figure.savefig(path, dpi=150)
    print(f"\nFigure: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer resamples, only to try it")
    parser.add_argument("--split", type=int, default=0, help="seed of the split into halves")
    parser.add_argument("--figure", default="is_it_calibrated.png")
    args = parser.parse_args()

    predictions, labels = held_out(args.split)
    n_resamples = 100 if args.quick else 1000
    results = {
        name: all_tests(jax.random.key(0), p, labels, n_resamples)
        for name, p in predictions.items()
    }
    report(predictions, labels, results)
    plot(args.figure, results)


if __name__ == "__main__":
    main()
