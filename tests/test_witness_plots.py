"""Pictures of maps, contributions and tests show the numbers of their data."""

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

import calibjax as cj
import calibjax.plot
from calibjax import plot
from calibjax.curves import ResidualMap, WitnessMap
from calibjax.hypothesis_tests import CalibrationTestResult


def class_map(m, significant, first=0):
    """A map of m classes and two bins, whose class c has the score c + 1 in its second bin."""
    score = jnp.stack([jnp.zeros(m), jnp.arange(1.0, m + 1)], axis=1)
    found = jnp.stack([jnp.zeros(m, bool), jnp.full(m, significant)], axis=1)
    return WitnessMap(
        classes=jnp.arange(first, first + m),
        probability_edges=jnp.array([0.0, 0.5, 1.0]),
        predicted=jnp.full((m, 2), 0.5),
        value=score / 100,
        count=jnp.ones((m, 2), int),
        score=score,
        significant=found,
        critical=jnp.array(0.5),
        confidence_level=jnp.array(0.95),
    )


def texts(ax):
    """The numbers and words of a map, without the numbers of rows."""
    return [text.get_text() for text in ax.texts if not text.get_text().isdigit()]


def names(ax):
    """The names of the rows, from the top."""
    return [label.get_text() for label in ax.get_yticklabels()][::-1]


def test_classes_stand_from_the_top_and_show_percentage_points():
    ax = plot.witness(class_map(3, True), classes=["a", "b", "c"])
    assert names(ax) == ["a", "b", "c"]
    # From the bottom.
    assert texts(ax) == ["+3.0", "+2.0", "+1.0"]
    # Every cell says how many rows it holds, also if it may be noise.
    assert [text.get_text() for text in ax.texts].count("1") == 6


def test_of_many_classes_the_worst_stand_on_top():
    ax = plot.witness(class_map(30, True))
    assert names(ax) == [str(c) for c in range(29, 17, -1)]
    assert ax.get_title(loc="left") == "Miscalibration: 12 worst of 30 classes"


def test_noise_has_no_colour_and_no_number():
    ax = plot.witness(class_map(2, False))
    (words,) = texts(ax)
    assert words.startswith("grey: not significant; white: no predictions\nsmall numbers: rows")
    assert len(ax.figure.axes) == 1
    assert "No significant" in ax.get_title(loc="left")


def test_infinite_scores_are_drawn():
    worst = class_map(13, True)
    ax = plot.witness(WitnessMap(**{**vars(worst), "score": worst.score.at[4, 1].set(jnp.inf)}))
    assert names(ax)[0] == "4"


def test_binary_classes_have_two_names():
    assert names(plot.witness(class_map(1, True, first=1), classes=["dry", "rain"])) == ["rain"]
    with pytest.raises(ValueError, match="names of 2 classes, got 1"):
        plot.witness(class_map(1, True, first=1), classes=["rain"])


def test_residuals_have_locations_from_left_to_right_and_spreads_upwards():
    found = ResidualMap(
        location_edges=jnp.array([-1.0, 0.0, 2.0]),
        # All spreads are equal: the second bin is empty.
        spread_edges=jnp.array([3.0, 3.0, 3.0]),
        count=jnp.array([[5, 0], [5, 0]]),
        value=jnp.array([[[0.5, jnp.nan], [-1.5, jnp.nan]], [[0.21, jnp.nan], [-0.75, jnp.nan]]]),
        score=jnp.ones((2, 2, 2)),
        significant=jnp.array([[[True, False]] * 2] * 2),
        critical=jnp.array(0.5),
        confidence_level=jnp.array(0.95),
    )
    ax = plot.residual_location(found)
    assert texts(ax) == ["+0.50", "−1.5"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["−1", "0", "2"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["3", "3"]
    # sqrt(1.21) and sqrt(0.25) of the predicted spread.
    assert texts(plot.residual_spread(found)) == ["+10", "−50"]


def test_the_statistic_stands_among_its_draws():
    draws = jnp.arange(99.0)
    result = CalibrationTestResult(
        jnp.array(120.0), jnp.array(0.01), jnp.array(0.1), null_distribution=draws
    )
    ax = plot.null_distribution(result)
    np.testing.assert_allclose(ax.lines[0].get_xdata(), 120.0)
    assert [t.get_text() for t in ax.get_legend().get_texts()][1] == "your model, p ≤ 0.01"
    with pytest.raises(ValueError, match="got that of a_test"):
        plot.null_distribution(
            CalibrationTestResult(jnp.array(1.0), jnp.array(1.0), jnp.array(1.0), method="a_test")
        )


def test_the_legend_does_not_hide_the_draws():
    draws = jnp.asarray(np.random.default_rng(0).normal(size=999))
    result = CalibrationTestResult(
        jnp.array(2.5), jnp.array(0.01), jnp.array(0.1), null_distribution=draws
    )
    ax = plot.null_distribution(result, ax=Figure((2.4, 1.9), layout="constrained").subplots())
    ax.figure.draw_without_rendering()
    legend = ax.get_legend().get_window_extent()
    outline = ax.patches[0].get_path().transformed(ax.patches[0].get_transform())
    assert not outline.intersects_bbox(legend)
    assert not ax.lines[0].get_window_extent().overlaps(legend)


def test_axes_of_the_caller_are_drawn_into():
    figure = Figure()
    axes = figure.subplots(1, 2)
    found = class_map(2, True)
    assert plot.witness(found, ax=axes[0]) is axes[0]
    figure.savefig(io.BytesIO())
    with pytest.raises(TypeError, match="ax must be the Axes"):
        plot.witness(found, ax=figure)


@pytest.mark.slow
def test_pictures_open_no_windows():
    import matplotlib.pyplot as plt

    predictions = cj.Bernoulli(jnp.linspace(0.1, 0.9, 50))
    found = cj.witness_map(jax.random.key(0), predictions, jnp.ones(50, int), n_resamples=99)
    plot.witness(found).figure.savefig(io.BytesIO())
    assert plt.get_fignums() == []


def test_a_dollar_in_a_name_is_no_formula():
    found = cj.witness_map(
        jax.random.key(0), cj.Bernoulli(jnp.array([0.1, 0.2, 0.7, 0.7])), jnp.array([0, 1, 1, 1])
    )
    axes = cj.plot.witness(found, classes=["no", r"$\frac{$"])
    axes.figure.savefig(io.StringIO(), format="svg")
    assert [label.get_text() for label in axes.get_yticklabels()] == [r"$\frac{$"]
