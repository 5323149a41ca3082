"""Train an energy-based model with a calibration penalty: its scores at the targets are enough.

    python examples/energy_based_penalty.py [--quick] [--splits 10]

The photograph and the network of energy_based.py, for which few pixels are too few, with the loss

    score matching + weight * SKCE(predictions, targets).

A `SteinKernel` with a distance of the inputs needs the score of each row at its own target only,
which score matching has computed anyway.

On 10 random splits a weight of 10 lowers the median loss of score matching on pixels that are held
out from -1.6 to -14.1, which fewer epochs do as well, and a weight of 100 is too much.  None of
these models gets calibrated: the test rejects 7 of 10 without the penalty and all of them with
weight 10, because scores that are less wild let it see more.  What helps is more pixels: with 4000
the loss is -27.8, and the test rejects none.  Half a minute on two CPU cores.
"""

import argparse

import jax
import numpy as np
from energy_based import COLOURS, ENERGY, N_POINTS, energy, fit, load, predict, score_matching, test

import calibjax as cj

N_TRAIN, N_TEST, WEIGHTS = 400, 500, (0.0, 1.0, 10.0, 100.0)
BRIGHTNESS = cj.EmbeddingDistance(lambda p: p.parameters["brightness"])
KERNEL = cj.SteinKernel(cj.DistanceKernel(BRIGHTNESS, 1.0), COLOURS)


def loss(params, brightness, colours, weight):
    predictions = predict(energy, params, brightness)
    known = {"score": predictions.score(colours), "brightness": brightness[:, None]}
    at_targets = cj.Unnormalized(lambda theta, colour: theta["score"], known)
    penalty = cj.skce(KERNEL, at_targets, colours, unbiased=False)
    return score_matching(predictions, colours) + weight * penalty


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a run of seconds, only to try it")
    parser.add_argument("--splits", type=int, default=10)
    args = parser.parse_args()
    n_splits, epochs = (2, 10) if args.quick else (args.splits, 60)

    brightness, colours, _ = load()
    keys = jax.random.split(jax.random.key(0), n_splits)
    orders = jax.vmap(lambda key: jax.random.permutation(key, len(colours)))(keys)
    few, held_out = orders[:, :N_TRAIN], orders[:, N_TRAIN : N_TRAIN + N_TEST]
    data = brightness[few], colours[few]
    asked = brightness[held_out], colours[held_out], colours[few[:, :N_POINTS]]
    measure = jax.jit(jax.vmap(lambda params, *asked: test(ENERGY, params, *asked)))
    lines = []
    for weight in WEIGHTS:
        params = fit(keys, ENERGY._replace(loss=loss), data, epochs, weight)
        p, matching = measure(params, *asked)
        words = f"weight {weight:>4g}: rejected {np.sum(p <= 0.05)} of {n_splits}, median p "
        lines.append(words + f"{np.median(p):.3f}, score matching {np.median(matching):.1f}")
    print("\nHeld-out pixels; medians over splits:", *lines, sep="\n")


if __name__ == "__main__":
    main()
