"""Train a classifier with and without a calibration penalty, and see what it gains and costs.

    python examples/train_digits.py [--quick] [--block-size 16] [--figure train_digits.png]
    python examples/train_digits.py --epochs 20 --warm-up 0.5  # a short run

The data are scikit-learn's handwritten digits, 8 x 8 pixels, of which every image keeps a random
40 %: complete digits are so easy that there is little to calibrate (try ``--pixels 1``).  A small
network that is trained on 1000 of them until it knows them by heart is over-confident.  The loss is

    cross-entropy + weight * SKCE(predictions, targets)

for several weights, and several seeds (each its own missing pixels, split, initial parameters and
batches), all in one jitted computation.  What the penalty gains and costs is measured on the
images that are held out.  Stopping after some 15 epochs, the best moment by those images, gains
about as much; the penalty does not need to know it.  Half a minute on two CPU cores.

In a short run large weights cost accuracy.  With ``--warm-up 0.5`` the weight grows from 0 during
the first half of all steps, which costs less and gains less; see ``python -m benchmarks.warm_up``.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax
from _common import init_mlp, mlp, over_grid, plot, report, train
from sklearn.datasets import load_digits

import calibjax as cj

N_CLASSES = 10
N_TRAIN = 1000
METRICS = "accuracy", "NLL", "1000 biased SKCE", "1000 unbiased SKCE"
WEIGHTS = [0.0, 3.0, 10.0, 30.0, 100.0, 300.0]

# The kernel is fixed before training, since one that follows the predictions can be gamed by them.
# The median heuristic would fail here: untrained predictions all look alike.  1 is the largest
# total variation, and close to the median one between the trained classifier's predictions, 0.98.
KERNEL = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), 1.0), cj.WhiteKernel())


def load(key: jax.Array, kept_pixels: float):
    """(images, labels) for training and, the rest, for evaluation."""
    images, labels = load_digits(return_X_y=True)
    key_pixels, key_split = jax.random.split(key)
    images = images / 16 * jax.random.bernoulli(key_pixels, kept_pixels, images.shape)
    order = jax.random.permutation(key_split, len(labels))
    data = images[order].astype(jnp.float32), jnp.asarray(labels, jnp.int32)[order]
    return jax.tree.map(lambda x: x[:N_TRAIN], data), jax.tree.map(lambda x: x[N_TRAIN:], data)


def evaluate(params, images, labels):
    logits = mlp(params, images)
    predictions = cj.Categorical.from_logits(logits)
    return (
        jnp.mean(jnp.argmax(logits, axis=-1) == labels),
        optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(),
        1000 * cj.skce(KERNEL, predictions, labels, unbiased=False),
        1000 * cj.skce(KERNEL, predictions, labels),
    )


def measure(
    weights: list[float],
    seeds: int,
    epochs: int,
    *,
    pixels: float = 0.4,
    batch_size: int = 64,
    unbiased: bool = False,
    block_size: int | None = None,
    learning_rate: float = 3e-3,
    warm_up: float = 0.0,
) -> dict[str, np.ndarray]:
    """What held-out images show, ``[weights, seeds]`` for each of METRICS."""

    def loss(params, images, labels, weight):
        logits = mlp(params, images)
        nll = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
        predictions = cj.Categorical.from_logits(logits)
        # The biased estimate is never negative, and kinder to accuracy at large weights.
        penalty = cj.skce(KERNEL, predictions, labels, unbiased=unbiased, block_size=block_size)
        return nll + weight * penalty

    keys = jax.random.split(jax.random.key(0), (3, seeds))
    training_data, test_data = jax.vmap(lambda key: load(key, pixels))(keys[0])
    sizes = training_data[0].shape[-1], 128, N_CLASSES
    params = train(
        loss,
        optax.adam(learning_rate),
        jax.vmap(lambda key: init_mlp(key, sizes))(keys[1]),
        training_data,
        jnp.asarray(weights),
        keys[2],
        epochs=epochs,
        batch_size=batch_size,
        warm_up=warm_up,
    )
    results = over_grid(evaluate, (0, None, None), (0, 0, 0))(params, *test_data)
    return dict(zip(METRICS, map(np.asarray, results), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a run of seconds, only to try it")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--pixels", type=float, default=0.4, help="fraction of pixels kept")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--unbiased", action="store_true", help="unbiased estimate as penalty")
    parser.add_argument("--block-size", type=int, help="block_size of the penalty")
    parser.add_argument("--epochs", type=int, help="a multiple of 10, if not 60")
    parser.add_argument("--warm-up", type=float, default=0.0, help="see above")
    parser.add_argument("--figure", default="train_digits.png")
    args = parser.parse_args()
    weights, seeds, epochs = ([0.0, 30.0], 2, 10) if args.quick else (WEIGHTS, args.seeds, 60)
    metrics = measure(
        weights,
        seeds,
        args.epochs or epochs,
        pixels=args.pixels,
        batch_size=args.batch_size,
        unbiased=args.unbiased,
        block_size=args.block_size,
        warm_up=args.warm_up,
    )
    report(weights, metrics)
    panels = {
        "squared calibration error × 1000": METRICS[2:],
        "NLL [nats]": ["NLL"],
        "accuracy": ["accuracy"],
    }
    title = f"Held-out digits with {args.pixels:.0%} of their pixels"
    plot(args.figure, title, weights, metrics, panels)


if __name__ == "__main__":
    main()
