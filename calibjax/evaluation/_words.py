"""Classes, events and places of errors in words, for sentences, tables and pictures."""

from statistics import NormalDist
from typing import Any

import numpy as np

from calibjax._distribution import Distribution
from calibjax.distributions import Quantiles
from calibjax.evaluation._measures import shares_of_levels
from calibjax.evaluation._number import number

# Longer names of classes are cut in sentences, tables and pictures.
_MOST_LETTERS = 40


def class_name(classes: list[Any] | None, label: int) -> str:
    """The name of a class in quotes, or its number if classes have no names."""
    name = label if classes is None else classes[label]
    return repr(_cut(name)) if isinstance(name, str) else f"class {name}"


def event_name(classes: list[Any] | None) -> str:
    """The second of two classes: its name in quotes, or the event if classes have no names."""
    return "the event" if classes is None else class_name(classes, 1)


def shown_names(classes: list[Any] | None) -> list[str] | None:
    """The names of the classes as pages and pictures can show them."""
    if classes is None:
        return None
    return [_printable(_cut(str(name))) for name in classes]


def _cut(name: str) -> str:
    return name if len(name) <= _MOST_LETTERS else name[: _MOST_LETTERS - 1] + "…"


def _printable(name: str) -> str:
    """Lines and control characters as Python writes them."""
    return "".join(x if x.isprintable() else repr(x)[1:-1] for x in name)


def judged_event(predictions: Distribution, classes: list[Any] | None) -> str:
    """The event of which a reliability diagram of label predictions shows the probability."""
    if predictions.n_labels == 2:
        return f"{event_name(classes)} came"
    return "the most likely class came"


def worst_place(curves: dict[str, Any], classes: list[Any] | None) -> str | None:
    """Where the maps of an evaluation show an error, in words with the number of rows.

    The clearest error and the largest one may be at two places; None if no place is significant.
    """
    for name, in_words in ("witness", _place_of_class), ("residuals", _place_of_number):
        if name in curves:
            cells = curves[name].worst_cell(), curves[name].largest_cell()
            if None in cells:
                return None
            clearest, largest = (in_words(curves[name], cell, classes) for cell in cells)
            return _clearest_and_largest(clearest, largest)
    return None


def _clearest_and_largest(clearest: str, largest: str) -> str:
    if clearest == largest:
        return f"worst where {clearest}"
    return f"clearest where {clearest}; largest where {largest}"


def worst_level(predictions: Distribution, targets: Any, confidence_level: float) -> str | None:
    """Of quantile forecasts the levels with the clearest and the largest error, in words, or None.

    An error is clear if more targets are below, or fewer at or below, than by chance, at all K
    levels with the probability `confidence_level`, by the normal law and Bonferroni.
    """
    if not isinstance(predictions, Quantiles):
        return None
    levels, below, up_to = shares_of_levels(predictions, targets)
    excess, lack = below.mean(axis=0) - levels, levels - up_to.mean(axis=0)
    gaps = np.maximum(excess, lack)
    scores = gaps / np.sqrt(levels * (1 - levels) / len(below))
    critical = NormalDist().inv_cdf(1 - (1 - confidence_level) / (2 * len(levels)))
    if scores.max() < critical:
        return None

    def in_words(worst: int) -> str:
        is_lack = lack[worst] > excess[worst] and np.any(below[:, worst] != up_to[:, worst])
        counted, where = (up_to, "at or below") if is_lack else (below, "below")
        return (
            f"quantiles have the level {levels[worst]:.4g}: {counted[:, worst].mean():.1%} of the "
            f"targets lie {where} them"
        )

    largest = np.argmax(np.where(scores < critical, -1.0, gaps))
    return _clearest_and_largest(in_words(int(np.argmax(scores))), in_words(int(largest)))


def _place_of_class(witness: Any, cell: tuple[int, int], classes: list[Any] | None) -> str:
    # With NumPy: programs of XLA would be compiled for the indices.
    edges, means, values, counts, labels = (
        np.asarray(x)
        for x in (
            witness.probability_edges,
            witness.predicted,
            witness.value,
            witness.count,
            witness.classes,
        )
    )
    row, place = cell
    low, high, predicted = float(edges[place]), float(edges[place + 1]), float(means[cell])
    is_event = labels.tolist() == [1]
    name = event_name(classes) if is_event else class_name(classes, int(labels[row]))
    return (
        f"{name} gets {low:.2g} to {high:.2g}: predicted {predicted:.1%} on average, "
        f"observed {predicted + float(values[cell]):.1%} ({int(counts[cell])} rows)"
    )


def _from_to(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _place_of_number(residuals: Any, cell: tuple[int, int, int], _: Any) -> str:
    layer, place, width = cell
    locations, spreads = map(np.asarray, (residuals.location_edges, residuals.spread_edges))
    edges = locations[place : place + 2], spreads[width : width + 2]
    means, deviations = (_from_to(number(float(low)), number(float(high))) for low, high in edges)
    value = float(np.asarray(residuals.value)[cell])
    if layer == 0:
        found = f"targets are {abs(value):.2g} deviations {'higher' if value > 0 else 'lower'}"
    else:
        found = f"errors are {(1 + value) ** 0.5:.2g} times as large as predicted"
    n = int(np.asarray(residuals.count)[place, width])
    return f"means are {means} and deviations {deviations}: {found} ({n} rows)"
