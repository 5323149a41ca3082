"""Recompute extreme_scales.json, exact values and gradients for Laplace predictions, with mpmath.

All lengths are in lengthscales, and exact in float32. In 300 digits the textbook forms serve, which
cancel, overflow and divide by 0 in floating point:

* with the Laplacian kernel, E k(Z, Z') is twice the density, at the distance d of the locations, of
  a sum of Laplace variables with the scales of the predictions and 1. By partial fractions of its
  characteristic function prod_i 1 / (1 + s_i^2 w^2), it is
  sum_i e^{-d / s_i} / s_i prod_{j != i} s_i^2 / (s_i^2 - s_j^2); E k(Z, y) lacks one scale;
* with the Gaussian kernel, E k(Z, y) = M(beta) =
  sqrt(pi / 8) a e^{a^2 / 2} (e^{-a d} erfc((a - d) / sqrt(2)) + e^{a d} erfc((a + d) / sqrt(2)))
  with a = 1 / beta, and the same partial fractions give E k(Z, Z') from M(beta) and M(beta');
* equal scales are moved apart by 1e-80 of themselves, which the value feels in the 80th digit, and
  the quotients lose no more than 160 of the 300 digits;
* derivatives are central differences with a step of 1e-30 of the argument.

`python tests/golden/extreme_scales.py` (needs mpmath) writes the file anew.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import mpmath as mp
import numpy as np

REFERENCE = Path(__file__).with_name("extreme_scales.json")
SCALES = (1e-6, 1e-3, 0.3, 1.0, 1e2, 1e4, 1e6)
DISTANCES = (0.0, 1e-6, 1e-2, 1.0, 20.0, 640.0, 1e4, 1e6)

# The target part of h for two predictions with their targets: loc, scale, y, loc', scale', y', l.
PAIRS = {
    "gaussian": (
        (1.42, 0.8, 0.45, 0.65, 248.0, 310.0, 0.61),
        (250.0, 40.0, 260.0, 420.0, 55.0, 1700.0, 1.0),
        (0.3, 2e-4, 0.3, 0.3, 5e-4, 1e6, 1.0),
    ),
    "laplacian": ((0.0, 1e-10, 0.1, 2.0, 0.5, 1.5, 1.0), (0.0, 1e-6, 1e5, 2e5, 1e6, 0.3, 1.0)),
}


def partial_fractions(scales: Sequence[mp.mpf], term: Callable[[mp.mpf], mp.mpf]) -> mp.mpf:
    """sum_i term(s_i) prod_{j != i} s_i^2 / (s_i^2 - s_j^2)."""
    scales = [s * (1 + i * mp.mpf(10) ** -80) for i, s in enumerate(scales)]
    return mp.fsum(
        term(s) * mp.fprod(s**2 / (s**2 - t**2) for j, t in enumerate(scales) if j != i)
        for i, s in enumerate(scales)
    )


def gaussian(d: mp.mpf, *scales: mp.mpf) -> mp.mpf:
    """E k for one or two predictions at the distance d, for the Gaussian kernel."""
    d = abs(d)

    def one_prediction(scale):
        a, root = 1 / scale, mp.sqrt(2)
        below = mp.exp(a**2 / 2 - a * d) * mp.erfc((a - d) / root)
        above = mp.exp(a**2 / 2 + a * d) * mp.erfc((a + d) / root)
        return mp.sqrt(mp.pi / 8) * a * (below + above)

    return partial_fractions(scales, one_prediction)


def laplacian(d: mp.mpf, *scales: mp.mpf) -> mp.mpf:
    """E k for one or two predictions at the distance d, for the Laplacian kernel."""
    d = abs(d)
    return partial_fractions((*scales, mp.mpf(1)), lambda scale: mp.exp(-d / scale) / scale)


EXPECTATIONS = {"gaussian": gaussian, "laplacian": laplacian}
PROFILES = {"gaussian": lambda d: mp.exp(-(d**2) / 2), "laplacian": lambda d: mp.exp(-abs(d))}


def target_part(kernel: str, *pair: mp.mpf) -> mp.mpf:
    """k(y, y') - E k(Z, y') - E k(y, Z') + E k(Z, Z') of one of PAIRS."""
    *lengths, lengthscale = pair
    p_loc, p_scale, y, q_loc, q_scale, z = (x / lengthscale for x in lengths)
    expectation = EXPECTATIONS[kernel]
    means = expectation(p_loc - z, p_scale) + expectation(q_loc - y, q_scale)
    return PROFILES[kernel](y - z) - means + expectation(p_loc - q_loc, p_scale, q_scale)


def row(f: Callable[..., mp.mpf], arguments: Sequence[float]) -> list[float]:
    """The arguments, exact in float32, the value of f there, and its partial derivatives."""
    x = [mp.mpf(float(np.float32(a))) for a in arguments]

    def derivative(i):
        step = (x[i] or 1) * mp.mpf(10) ** -30
        up, down = ([*x[:i], x[i] + change, *x[i + 1 :]] for change in (step, -step))
        return (f(*up) - f(*down)) / (2 * step)

    return [float(a) for a in [*x, f(*x), *map(derivative, range(len(x)))]]


def main() -> None:
    mp.mp.dps = 300
    tables = {}
    for kernel, expectation in EXPECTATIONS.items():
        one = [row(expectation, (d, s)) for d in DISTANCES for s in SCALES]
        two = [
            row(expectation, (d, s, t)) for d in DISTANCES for s in SCALES for t in SCALES if t <= s
        ]
        pairs = [row(lambda *x, k=kernel: target_part(k, *x), pair) for pair in PAIRS[kernel]]
        tables[kernel] = {"one": one, "two": two, "pairs": pairs}
    REFERENCE.write_text(json.dumps(tables).replace("[[", "[\n[").replace("], [", "],\n[") + "\n")


if __name__ == "__main__":
    main()
