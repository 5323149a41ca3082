"""Natural cubic splines of one variable, and their basis with a diagonal penalty."""

from types import ModuleType

import numpy as np

from calibjax._numbers import ArrayT


def natural_spline(
    xp: ModuleType, x: ArrayT, knots: ArrayT, values: ArrayT, curvatures: ArrayT
) -> ArrayT:
    """The natural cubic spline at x ``[n]``, linear beyond its knots ``[k]``.

    Values and second derivatives at the knots are ``[k, …]``; the result is ``[n, …]``.
    """
    inside = xp.clip(x, knots[0], knots[-1])
    i = xp.clip(xp.searchsorted(knots, inside) - 1, 0, knots.shape[0] - 2)
    width = knots[i + 1] - knots[i]
    # Fractions of the way to the two knots; beyond the ends the slope there goes on.
    b = (inside - knots[i]) / width
    a = 1 - b
    cubic_a, cubic_b = (a**3 - a) * width**2 / 6, (b**3 - b) * width**2 / 6
    slope_a = -1 / width, -(3 * a**2 - 1) * width / 6
    slope_b = 1 / width, (3 * b**2 - 1) * width / 6
    beyond = x - inside
    of_values = a + beyond * slope_a[0], b + beyond * slope_b[0]
    of_curvatures = cubic_a + beyond * slope_a[1], cubic_b + beyond * slope_b[1]
    axes = (slice(None), *[None] * (values.ndim - 1))
    return (
        of_values[0][axes] * values[i]
        + of_values[1][axes] * values[i + 1]
        + of_curvatures[0][axes] * curvatures[i]
        + of_curvatures[1][axes] * curvatures[i + 1]
    )


def smooth_basis(knots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Natural splines with knots ``[k]``: their values and second derivatives there, ``[k, k]``.

    The first two are 1 and x, and of all others the integral of f_i'' f_j'' is 1 if i = j, else 0.
    """
    k, width = len(knots), np.diff(knots)
    differences = np.zeros((k - 2, k))
    overlaps = np.zeros((k - 2, k - 2))
    for i in range(k - 2):
        a, b = 1 / width[i], 1 / width[i + 1]
        differences[i, i : i + 3] = a, -a - b, b
        overlaps[i, i] = (width[i] + width[i + 1]) / 3
        if i:
            overlaps[i, i - 1] = overlaps[i - 1, i] = width[i] / 6
    second = np.linalg.solve(overlaps, differences)
    roughness = differences.T @ second
    sizes, directions = np.linalg.eigh(roughness)
    # Two eigenvalues are 0, those of straight lines.
    rough = directions[:, 2:] / np.sqrt(np.maximum(sizes[2:], 1e-300))
    values = np.concatenate([np.ones((k, 1)), knots[:, None], rough], axis=1)
    inner = second @ values
    return values, np.concatenate([np.zeros((1, k)), inner, np.zeros((1, k))])
