"""A linear regression whose predicted quantiles look calibrated, though the model is not.

    python iclr2021_ols.py [--quick] [--figures FOLDER]

ICLR 2021, Appendix A.1, Figures 1, 4 and 5.  X ~ U(-1, 1) and Y ~ N(sin(pi X), 0.15^2 |1 + X|^2);
ordinary least squares of 100 pairs predicts N(a + b X, s^2), and 50 new pairs validate it.  Over
all X the predicted cumulative probabilities of Y are not far from uniform, as they should be; given
a prediction they are nothing like it.  The test of the SKCE sees that in most data sets; a
Kolmogorov-Smirnov test of uniformity rejects far less often.

The published model is one draw of the data.  Here there are many, which say how often the tests
reject; the one in the figure is, of those whose calibration is rejected, the one with the median
Kolmogorov-Smirnov p-value.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from _comparison import of_mean, report
from _experiment import BLUE, GREEN, ORANGE, arguments, panels, print_table, progress, save
from _kernel import KERNEL
from jax.scipy.special import ndtr
from published import iclr2021_ols as published

import calibjax as cj

LEVEL = 0.05
UNIFORMITY = "uniform quantile levels (Kolmogorov-Smirnov)"
VALIDATION_SIZES = 25, 50, 100, 200


def mean_and_scale(x):
    """Of the data: Y given X = x is normal."""
    return jnp.sin(jnp.pi * x), 0.15 * jnp.abs(1 + x)


def sample(key, n):
    keys = jax.random.split(key)
    x = jax.random.uniform(keys[0], (n,), minval=-1, maxval=1)
    mean, scale = mean_and_scale(x)
    return x, mean + scale * jax.random.normal(keys[1], (n,))


def least_squares(x, y):
    """Intercept, slope, standard deviation of the residuals."""
    slope = jnp.sum((x - x.mean()) * y) / jnp.sum((x - x.mean()) ** 2)
    intercept = y.mean() - slope * x.mean()
    return intercept, slope, jnp.std(y - intercept - slope * x, ddof=1)


def predict(model, x) -> cj.Normal:
    intercept, slope, scale = model
    return cj.Normal(intercept + slope * x, jnp.full_like(x, scale))


@functools.partial(jax.jit, static_argnames=("n_validation", "n_resamples"))
def experiment(key, n_validation, n_resamples):
    """Training data, model, validation data, cumulative probabilities, test of calibration."""
    training_key, validation_key, test_key = jax.random.split(key, 3)
    training = sample(training_key, published.N_TRAINING)
    model = least_squares(*training)
    x, y = sample(validation_key, n_validation)
    predictions = predict(model, x)
    probabilities = ndtr((y - predictions.loc) / predictions.scale)
    test = cj.asymptotic_skce_test(test_key, KERNEL, predictions, y, n_resamples=n_resamples)
    return training, model, (x, y), jnp.sort(probabilities), test.pvalue


def kolmogorov_smirnov(probabilities: np.ndarray) -> np.ndarray:
    """P-values ``[N]`` of uniformity, of sorted probabilities ``[N, n]``."""
    n = probabilities.shape[1]
    above, below = np.arange(1, n + 1) / n - probabilities, probabilities - np.arange(n) / n
    return scipy.stats.kstwo.sf(np.maximum(above, below).max(axis=1), n)


def plot(folder, one, pvalues: dict[str, np.ndarray]) -> None:
    training, model, _, probabilities, pvalue = one
    figure, axes = panels(2, 2, size=(3.8, 3.0))
    x = jnp.linspace(-1, 1, 200)
    predictions = predict(model, x)
    laws = {
        "the data": (*mean_and_scale(x), BLUE),
        f"the model, p = {pvalue:.3f}": (predictions.loc, predictions.scale, GREEN),
    }
    for ax, (title, (mean, scale, color)) in zip(axes[0], laws.items(), strict=True):
        ax.plot(x, mean, color=color, label="mean")
        for width, alpha in (1, 0.35), (2, 0.2):
            band = mean - width * scale, mean + width * scale
            label = f"± {width} standard deviations"
            ax.fill_between(x, *band, color=color, alpha=alpha, linewidth=0, label=label)
        ax.plot(*training, ".", color=ORANGE, markersize=5, label="training data")
        ax.set(title=title, xlabel="X", ylabel="Y", ylim=(-2, 2))
        ax.legend(fontsize=7, loc="lower right")
    ax = axes[1, 0]
    levels = np.concatenate([[0], np.repeat(probabilities, 2), [1]])
    steps = np.repeat(np.linspace(0, 1, len(probabilities) + 1), 2)
    ax.plot(levels, steps, color=ORANGE, label="validation data")
    ax.plot([0, 1], [0, 1], "--", color=GREEN, label="quantile-calibrated model")
    ax.set(xlabel="quantile level", ylabel="cumulative probability")
    ax.legend(fontsize=8)
    ax = axes[1, 1]
    styles = {"color": BLUE, "linestyle": "-"}, {"color": ORANGE, "linestyle": "--"}
    for (name, values), style in zip(pvalues.items(), styles, strict=True):
        ax.ecdf(values, label=name, **style)
    ax.axvline(LEVEL, color="black", linewidth=0.8, linestyle=":", label=f"level {LEVEL}")
    ax.set(xlabel="p-value", ylabel="share of data sets", xlim=(0, 1))
    ax.legend(fontsize=8, title="test of")
    save(figure, folder, "iclr2021_ols.png")


def main() -> None:
    args = arguments(__doc__)
    n_sets, n_resamples = (20, 1000) if args.quick else (2000, published.N_RESAMPLES)
    sizes = VALIDATION_SIZES[:2] if args.quick else VALIDATION_SIZES
    keys = jax.random.split(jax.random.key(0), n_sets)
    rates = {}
    for n in sizes:
        _, model, _, probabilities, pvalues = jax.lax.map(
            lambda key, n=n: experiment(key, n, 1000), keys, batch_size=100
        )
        both = {
            "calibration": np.asarray(pvalues),
            UNIFORMITY: kolmogorov_smirnov(np.asarray(probabilities)),
        }
        rates[n] = [np.mean(values < LEVEL) for values in both.values()]
        progress(f"{n_sets} draws, {n} validation pairs each")
        if n == published.N_VALIDATION:
            names = "intercept", "slope", "standard deviation"
            values = published.INTERCEPT, published.SLOPE, published.SCALE
            cells = [
                of_mean(name, "published / mean of ours", value, 1, ours)
                for name, value, ours in zip(names, values, model, strict=True)
            ]
            rejected = np.flatnonzero(both["calibration"] < LEVEL)
            order = np.argsort(both[UNIFORMITY][rejected])
            one = experiment(keys[rejected[order[len(order) // 2]]], n, n_resamples)
            plot(args.figures, one, both)
            rank = np.mean(both["calibration"] <= published.PVALUE)
    print(f"The data set in the figure, {n_resamples} resamples: p = {one[-1]:.5f}.")
    print(
        f"\n{rank:.1%} of the data sets have a p-value of at most the published {published.PVALUE}."
    )
    print(f"\nRejection rates at level {LEVEL} of {n_sets} data sets:")
    rows = [
        [name, *(f"{rate[row]:.3f}" for rate in rates.values())] for row, name in enumerate(both)
    ]
    print_table(["test of", *(f"n = {n}" for n in rates)], rows)
    report({"parameter": cells}, check=not args.quick)


if __name__ == "__main__":
    main()
