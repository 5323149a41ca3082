"""A temperature of the largest likelihood, with NumPy in float64."""

import numpy as np

from calibjax.recalibration._labels._rows import LabelRows

# Temperatures are from 0.01 to 100, as those of `fit_temperature`.
_LARGEST_SLOPE = 100.0


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities proportional to exp(logits), over the last axis."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def slope_of_likelihood(rows: LabelRows) -> tuple[np.ndarray, bool, str]:
    """The s = 1 / T of the least loss of softmax(s log p), if it is inside, and T in words.

    The loss is convex in s.  Newton's steps stay inside of an interval that has the minimum.
    """
    rows = rows.kept()
    share = rows.weights / rows.weights.sum()
    logs = np.log(rows.probs)
    of_target = share @ rows.of_targets(logs)
    low, high, s = 1 / _LARGEST_SLOPE, _LARGEST_SLOPE, 1.0
    # If no target has a smaller probability than another class, a larger s is always better.
    if np.all(rows.of_targets(logs) == logs.max(axis=1)) and not np.all(logs == logs[:, :1]):
        return np.array(high), False, f"T = {1 / high:.3g}"
    for _ in range(100):
        p = softmax(s * logs)
        means = np.einsum("nm,nm->n", p, logs)
        slope = share @ means - of_target
        curvature = share @ np.einsum("nm,nm->n", p, np.square(logs - means[:, None]))
        low, high = (low, s) if slope > 0 else (s, high)
        if abs(slope) <= 1e-13 * max(abs(of_target), 1e-30):
            break
        new = s - slope / curvature if curvature > 0 else np.inf
        # On the scale of logarithms the middle of an interval is its geometric mean.
        new = new if low < new < high else float(np.sqrt(low * high))
        if abs(new - s) < 1e-12 * s:
            break
        s = new
    inside = 1.01 / _LARGEST_SLOPE < s < _LARGEST_SLOPE / 1.01
    return np.array(s), bool(inside), f"T = {1 / s:.3g}"
