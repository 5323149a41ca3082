"""Venn-Abers probabilities for every place of a new score, in nearly linear time.

With counts c_1, …, c_u of rows and e_1, …, e_u of events, in the order of their scores, isotonic
regression is the slope of the lower convex hull of the points (sum c, sum e).  A new row between
them adds one segment, and its probability is the slope of the line that carries the segment: the
one that touches the hull of all points before it and the hull of all points behind it.
"""

import numpy as np


def venn_abers(events: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities p_1 / (1 - p_0 + p_1) at each score ``[u]``, and between them ``[u + 1]``.

    p_y is the probability that isotonic regression gives to a new row of label y, which is among
    the other rows of its score, or alone.
    """
    x = np.concatenate([[0.0], np.cumsum(count)])
    y = np.concatenate([[0.0], np.cumsum(events)])
    before, behind = _hull_before(x, y), _hull_before(-x[::-1], y[::-1])
    last = len(x) - 1
    # Seen from the right, the same hull: of point i it is point last - i.
    after = last - behind[::-1]

    def merged(left: int, right: int) -> float:
        p0, p1 = (_touching_slope(x, y, before, after, left, right, z) for z in (0.0, 1.0))
        return p1 / (1 - p0 + p1)

    at = np.array([merged(i, i + 1) for i in range(last)])
    between = np.array([merged(i, i) for i in range(last + 1)])
    return at, between


def _hull_before(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """For each point, its neighbour in the lower convex hull of it and all points before it.

    The first point is its own neighbour.
    """
    neighbour = np.zeros(len(x), int)
    for i in range(1, len(x)):
        j = i - 1
        # The slope to a neighbour must not be smaller than that from the neighbour on.
        while j > 0 and (y[i] - y[j]) * (x[j] - x[neighbour[j]]) <= (y[j] - y[neighbour[j]]) * (
            x[i] - x[j]
        ):
            j = neighbour[j]
        neighbour[i] = j
    return neighbour


def _touching_slope(
    x: np.ndarray,
    y: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    left: int,
    right: int,
    label: float,
) -> float:
    """The slope of the line below all points up to `left`, and below those from `right` on, moved.

    Points from `right` on are moved by the new row: by 1 to the right, and by its label upwards.
    """
    last = len(x) - 1

    def slope(i: int, j: int) -> float:
        return (y[j] + label - y[i]) / (x[j] + 1 - x[i])

    while True:
        moved = False
        # A point further away touches if it is below the line.
        while left > 0 and slope(before[left], right) >= slope(left, right):
            left, moved = before[left], True
        while right < last and slope(left, after[right]) <= slope(left, right):
            right, moved = after[right], True
        if not moved:
            return slope(left, right)
