"""Improve the calibration of networks for Friedman 1 by the SKCE: in training, or afterwards.

    python iclr2021_friedman_calibrated.py [--quick] [--figures FOLDER]

The conclusion of ICLR 2021 imagines it, in training and post-hoc; here it is measured.  A network
of A.3 (`_friedman.py`) is trained for 5000 iterations on 100 rows, with the model N(f(x), sigma^2)
and sigma^2 the mean squared error of these rows.  It is compared with networks that have the same
initial parameters and training rows, and 50 validation rows for one of these uses (two in `stopped,
temperature`):

- they are 50 more training rows;
- the biased SKCE of their predictions, times a weight, is added to the mean squared error in
  training; or, for comparison, that of 50 of the training rows;
- training stops where their mean squared error, likelihood, or SKCE is best (`stopped by`);
- after training, or after stopping by mean squared error, one temperature scales the variance, by
  their likelihood or SKCE (`temperature by`, Appendix F).

All are evaluated on 1000 new rows: mean squared error, negative log likelihood, unbiased SKCE,
coverage of central 90 % intervals, and how often the bootstrap test rejects at level 0.05, for 20
blocks of 50 rows and for all 1000.  Means and their standard errors are over 20 draws of data and
initial parameters, changes are paired.  `_kernel.py` has the kernel.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from _experiment import (
    BLACK,
    BLUE,
    GREEN,
    RED,
    arguments,
    mean_and_error,
    panels,
    print_table,
    progress,
    save,
)
from _friedman import friedman1, init_network, network, train
from _kernel import KERNEL
from jax import lax
from jax.scipy.special import ndtri
from jax.tree_util import Partial

import calibjax as cj

# Data are these rows and, after them, those of the test.
N_TRAIN, N_SEEN = 100, 150
VALIDATION, TEST = slice(N_TRAIN, N_SEEN), slice(N_SEEN, None)
WEIGHTS = 10.0, 100.0, 1000.0
# By method: how many rows are fitted, from where 50 rows are penalised, and with what weight.
TRAINED = {
    "as is": (N_TRAIN, 0, 0.0),
    "50 more rows": (N_SEEN, 0, 0.0),
    **{f"penalty on training rows, {w:g}": (N_TRAIN, 0, w) for w in WEIGHTS},
    **{f"penalty on validation rows, {w:g}": (N_TRAIN, N_TRAIN, w) for w in WEIGHTS},
}
METRICS = "MSE", "NLL", "1000 SKCE", "90 % coverage", "rejected at 50", "rejected at 1000"


def normal(mean, scale):
    """One standard deviation for all."""
    return cj.Normal(mean, jnp.broadcast_to(scale, mean.shape))


@functools.partial(jax.jit, static_argnames=("iterations", "n_test"))
def trained(keys, n_fitted, penalised_from, weights, iterations, n_test):
    """Of M methods and R data sets: f(x) ``[M, R, T, n]`` and sigma ``[M, R, T]``; targets."""

    def data(key):
        return friedman1(key, N_SEEN + n_test)

    def of_method(method):
        n_fitted, penalised_from, weight = method

        def of_set(key):
            data_key, model_key = jax.random.split(key)
            x, y = data(data_key)
            fitted = jnp.arange(N_SEEN) < n_fitted
            penalised = penalised_from + jnp.arange(50)

            def predict(params, x):
                means = network(params, x)
                error = jnp.mean((means[:N_SEEN] - y[:N_SEEN]) ** 2, where=fitted)
                return means, jnp.sqrt(error)

            def loss(params):
                means, scale = predict(params, x[:N_SEEN])
                predictions = normal(means[penalised], scale)
                penalty = cj.skce(KERNEL, predictions, y[penalised], unbiased=False)
                return scale**2 + weight * penalty

            params = init_network(model_key)
            return train(loss, params, lambda params: predict(params, x), iterations)

        return lax.map(of_set, keys, batch_size=10)

    targets = lax.map(lambda key: data(jax.random.split(key)[0])[1], keys)
    return *lax.map(of_method, (n_fitted, penalised_from, weights)), targets


@jax.jit
def improved(means, scales, targets):
    """What 50 validation rows make of one network: (f(x), sigma) of the test rows, by method.

    `means` ``[T, n]`` and `scales` ``[T]`` are those in training.
    """
    y = targets[VALIDATION]

    def errors(mean, scale):
        predictions = normal(mean[VALIDATION], scale)
        return {
            "MSE": jnp.mean((predictions.loc - y) ** 2),
            "NLL": -jnp.mean(predictions.log_prob(y)),
            "SKCE": cj.skce(KERNEL, predictions, y),
        }

    def tempered(mean, scale, objective):
        # The variance of largest likelihood is the mean squared error.  The best temperature is
        # sought around it: from sigma itself it may be further than `fit_temperature` looks.
        start = cj.apply_temperature(
            normal(mean, scale), jnp.mean((mean[VALIDATION] - y) ** 2) / scale**2
        )
        rows = jax.tree.map(lambda x: x[VALIDATION], start)
        temperature = cj.fit_temperature(rows, y, objective=objective)
        return mean[TEST], cj.apply_temperature(start, temperature).scale[0]

    results = {}
    for name, values in jax.vmap(errors)(means, scales).items():
        best = jnp.argmin(values)
        results[f"stopped by {name}"] = means[best, TEST], scales[best]
        if name == "MSE":
            stopped = means[best], scales[best]
    objectives = {"NLL": None, "SKCE": Partial(cj.skce, KERNEL)}
    for name, objective in objectives.items():
        results[f"temperature by {name}"] = tempered(means[-1], scales[-1], objective)
        results[f"stopped, temperature by {name}"] = tempered(*stopped, objective)
    return results


@jax.jit
def evaluate(keys, means, scales, targets):
    """All metrics ``[N, 6]`` of N models, on their test rows."""

    def of_model(model):
        key, mean, scale, y = model

        def test(mean, y):
            return cj.asymptotic_skce_test(key, KERNEL, normal(mean, scale), y)

        blocks = jax.vmap(test)(mean.reshape(-1, 50), y.reshape(-1, 50))
        result = test(mean, y)
        errors = y - mean
        return jnp.stack(
            [
                jnp.mean(errors**2),
                -jnp.mean(normal(mean, scale).log_prob(y)),
                1000 * result.estimate,
                100 * jnp.mean(jnp.abs(errors) < ndtri(0.95) * scale),
                100 * jnp.mean(blocks.pvalue < 0.05),
                100.0 * (result.pvalue < 0.05),
            ]
        )

    return lax.map(of_model, (keys, means, scales, targets))


def print_tables(results) -> None:
    """`results` holds metrics ``[R, 6]`` by method."""

    def cell(name, values):
        # The NLL of a network that overfits has no mean to speak of.
        return f"{np.median(values):.3g}" if name == "NLL" else mean_and_error(values)

    header = [f"{name}, median" if name == "NLL" else name for name in METRICS]
    rows = [[method, *map(cell, METRICS, values.T)] for method, values in results.items()]
    print_table(["method", *header], rows)

    references = {"as is": ["MSE", "1000 SKCE"], "temperature by NLL": ["NLL", "1000 SKCE"]}
    header = [f"{name} against {other}" for other, names in references.items() for name in names]
    rows = []
    for method, values in results.items():
        changes = [
            cell(name, (values - results[other])[:, METRICS.index(name)])
            for other, names in references.items()
            for name in names
        ]
        rows.append([method, *changes])
    print_table(["change", *header], rows)


def style(method):
    """Color and marker."""
    styles = {"stopped": (GREEN, "s"), "temperature": (BLUE, "D"), "penalty": (RED, "^")}
    return next((s for start, s in styles.items() if method.startswith(start)), (BLACK, "o"))


def plot(folder, results) -> None:
    """A row for each method: means and standard errors, of NLL median and quartiles."""
    figure, axes = panels(1, 4, size=(2.7, 5.0), sharey=True)
    rows = -np.arange(len(results))
    labels = "MSE [noise variance]", "NLL [nats], quartiles", "1000 SKCE", "90 % coverage [%]"
    for column, (ax, label) in enumerate(zip(axes[0], labels, strict=True)):
        for row, (method, values) in zip(rows, results.items(), strict=True):
            x = values[:, column]
            if METRICS[column] == "NLL":
                center, low, high = np.quantile(x, [0.5, 0.25, 0.75])
            else:
                error = x.std(ddof=1) / np.sqrt(x.size)
                center, low, high = x.mean(), x.mean() - error, x.mean() + error
            color, marker = style(method)
            ax.plot([low, high], [row, row], color, linewidth=2)
            ax.plot(center, row, marker, color=color, markersize=5)
        ax.set_xlabel(label)
    axes[0, 0].set_yticks(rows, results)
    axes[0, 1].set_xscale("log")
    axes[0, 2].axvline(0, color=BLACK, linestyle=":")
    axes[0, 3].axvline(90, color=BLACK, linestyle=":")
    save(figure, folder, "iclr2021_friedman_calibrated.png")


def main() -> None:
    args = arguments(__doc__)
    n_sets, n_test, last, n_grid = (2, 50, 10, 3) if args.quick else (20, 1000, 5000, 60)
    iterations = tuple(np.unique(np.geomspace(10, last, n_grid).round().astype(int)).tolist())
    data_key, test_key = jax.random.split(jax.random.key(0))
    keys = jax.random.split(data_key, n_sets)
    methods = map(np.array, zip(*TRAINED.values(), strict=True))
    training = trained(keys, *methods, iterations, n_test)
    means, scales, targets = jax.block_until_ready(training)
    progress("trained")
    test_means, test_scales = means[:, :, -1, TEST], scales[:, :, -1]
    predictions = dict(zip(TRAINED, zip(test_means, test_scales, strict=True), strict=True))
    predictions |= jax.vmap(improved)(means[0], scales[0], targets)
    progress("stopped, and tempered")

    y = targets[:, TEST]
    results = {
        method: np.asarray(evaluate(jax.random.split(test_key, n_sets), *prediction, y))
        for method, prediction in predictions.items()
    }
    progress("evaluated")
    print_tables(results)
    plot(args.figures, results)


if __name__ == "__main__":
    main()
