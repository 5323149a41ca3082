"""Pictures of the PIT, of coverage and of evidence."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import calibjax as cj
from calibjax import plot
from calibjax.plot import _style as style

GRID = jnp.linspace(0.0, 1.0, 5)
# Two bins leave the simultaneous band, one only the pointwise one.
HISTOGRAM = cj.PITCurve(
    edges=GRID,
    count=jnp.array([50, 15, 30, 5]),
    density=jnp.array([2.0, 0.6, 1.2, 0.2]),
    pointwise_low=jnp.full(4, 0.7),
    pointwise_high=jnp.full(4, 1.3),
    density_low=jnp.full(4, 0.5),
    density_high=jnp.full(4, 1.5),
    grid=GRID,
    difference=jnp.array([0.0, 0.25, 0.15, 0.2, 0.0]),
    difference_low=jnp.array([0.0, -0.2, -0.2, -0.2, 0.0]),
    difference_high=jnp.array([0.0, 0.2, 0.2, 0.2, 0.0]),
    confidence_level=jnp.array(0.95),
)
COVERAGE = cj.CoverageCurve(
    levels=jnp.array([0.25, 0.5, 0.9]),
    coverage=jnp.array([0.2, 0.3, 0.6]),
    low=jnp.array([0.15, 0.4, 0.8]),
    high=jnp.array([0.35, 0.6, 0.95]),
    width=jnp.array([0.64, 1.35, 3.29]),
    confidence_level=jnp.array(0.95),
)


def alarms(ax):
    """The y of the line in the colour of alarms, without the points that are not drawn."""
    [line] = [line for line in ax.lines if to_hex(line.get_color()) == style.VERMILLION.lower()]
    y = np.asarray(line.get_ydata(), float)
    return y[~np.isnan(y)]


def words(ax):
    return [text.get_text() for text in (*ax.texts, *ax.get_legend().get_texts())]


def test_bars_outside_of_the_band_have_another_colour():
    ax = plot.pit(HISTOGRAM)
    red = [bar for bar in ax.patches if to_hex(bar.get_facecolor()) == style.VERMILLION.lower()]
    assert [(bar.get_x(), round(bar.get_height(), 5)) for bar in red] == [(0.0, 2.0), (0.75, 0.2)]
    assert (
        "95 % range if calibrated" in words(ax)
        and ax.get_title(loc="left") == "Histogram of the PIT, 100 rows"
    )


@pytest.mark.parametrize("draw", [plot.pit, plot.pit_difference])
def test_pictures_side_by_side_keep_all_in_sight(draw):
    flat = dataclasses.replace(HISTOGRAM, density=jnp.ones(4), difference=jnp.zeros(5))
    for curves in ([HISTOGRAM, flat], [flat, HISTOGRAM]):
        axes = Figure().subplots(1, 2, sharey=True)
        for ax, curve in zip(axes, curves, strict=True):
            draw(curve, ax=ax)
        assert axes[0].get_ylim() == axes[1].get_ylim() == draw(HISTOGRAM).get_ylim()


def test_lines_outside_of_the_band_have_another_colour():
    np.testing.assert_allclose(alarms(plot.pit_difference(HISTOGRAM)), [0.25])
    ax = plot.coverage(COVERAGE)
    np.testing.assert_allclose(alarms(ax), [0.3, 0.6])
    assert "median width\n50 %: 1.35\n90 %: 3.29" in words(ax)


def test_unknown_widths_are_not_written():
    unknown = COVERAGE.__class__(**{**vars(COVERAGE), "width": jnp.full(3, jnp.nan)})
    assert not any("width" in text for text in words(plot.coverage(unknown)))


@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e6])
def test_nothing_is_cut_off_at_any_scale(scale):
    """The axes of a figure of its own are placed before their numbers are known."""
    ends = scale * jnp.array([1.01, 1.02, 1.04])
    skill = cj.SpreadSkillCurve(
        edges=scale * jnp.ones(4),
        count=jnp.full(3, 1000),
        spread=ends,
        error=1.01 * ends,
        error_low=0.99 * ends,
        error_high=1.02 * ends,
        confidence_level=jnp.array(0.95),
    )
    drawn = [plot.pit(HISTOGRAM), plot.pit_difference(HISTOGRAM), plot.coverage(COVERAGE)]
    for ax in (*drawn, plot.spread_skill(skill), plot.e_process(jnp.array([900.0]))):
        figure = ax.figure
        figure.draw_without_rendering()
        box, size = figure.get_tightbbox(), figure.get_size_inches()
        assert np.all(box.min >= 0) and np.all(box.max <= size), ax.get_title(loc="left")


def test_the_first_crossing_is_an_alarm():
    log_e = np.log([2.0, 19.0, 21.0, 5.0, 1e3])
    ax = plot.e_process(log_e)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), np.r_[0, log_e] / np.log(10))
    assert words(ax) == ["alarm line, 1 / 0.05", "alarm at 3"]
    (alarm,) = [line for line in ax.lines if line.get_label().startswith("alarm at")]
    assert not alarm.get_clip_on()  # at the last update one half of it is beyond the axes
    assert words(plot.e_process(log_e[:2])) == ["alarm line, 1 / 0.05"]
    # Beyond the largest float64.
    ax = plot.e_process(jnp.array([900.0]), level=0.01)
    assert words(ax) == ["alarm line, 1 / 0.01", "alarm at 1"]


def test_updates_have_names():
    log_e = np.log([2.0, 19.0, 21.0])
    days = ["1 May", "2 May", "3 May"]
    ax = plot.e_process(log_e, names=days, alarm=2, onset=1)
    assert words(ax) == ["alarm line, 1 / 0.05", "estimated onset 1 May", "alarm at 2 May"]
    (alarm,) = [line for line in ax.lines if line.get_label().startswith("alarm at")]
    np.testing.assert_allclose(alarm.get_xydata(), [[2, np.log10(19)]])
    name_of = ax.xaxis.get_major_formatter()
    assert [name_of(x) for x in (0, 1, 3, 4)] == ["", "1 May", "3 May", ""]
    with pytest.raises(ValueError, match="names must be 3 names of updates, got 2"):
        plot.e_process(log_e, names=days[:2])
    with pytest.raises(ValueError, match="alarm must be from 1 to 3, got 4"):
        plot.e_process(log_e, alarm=4)


def test_pictures_are_drawn_into_given_axes():
    axes = Figure(figsize=style.SIZE).subplots(4)
    drawn = [
        plot.pit(HISTOGRAM, ax=axes[0]),
        plot.pit_difference(HISTOGRAM, ax=axes[1]),
        plot.coverage(COVERAGE, ax=axes[2]),
        plot.e_process(jnp.zeros(3), ax=axes[3]),
    ]
    assert all(a is b for a, b in zip(drawn, axes, strict=True))
    axes[0].figure.canvas.draw()


def test_errors_name_the_argument():
    for picture in plot.pit, plot.pit_difference:
        with pytest.raises(TypeError, match="curve must be a PITCurve, got CoverageCurve"):
            picture(COVERAGE)
    with pytest.raises(TypeError, match="curve must be a CoverageCurve, got PITCurve"):
        plot.coverage(HISTOGRAM)
    with pytest.raises(ValueError, match="log_e_values must have shape"):
        plot.e_process(jnp.zeros((2, 2)))
    with pytest.raises(ValueError, match="the value 1 is nan"):
        plot.e_process(np.array([0.0, np.nan]))
    with pytest.raises(ValueError, match="level must be in"):
        plot.e_process(np.zeros(3), level=1.0)


@pytest.mark.slow
def test_curves_without_numbers_are_no_picture():
    unknown = dataclasses.replace(HISTOGRAM, confidence_level=jnp.array(jnp.nan))
    for draw in (plot.pit, plot.pit_difference):
        with pytest.raises(ValueError, match="curve must hold numbers, got NaN"):
            draw(unknown)


def test_a_calibrated_curve_is_drawn_from_end_to_end():
    predictions = cj.Poisson(jnp.full(30, 3.0), max_count=64)
    targets = predictions.sample(jax.random.key(0))
    for data, pictures in (
        (cj.pit_curve, (plot.pit, plot.pit_difference)),
        (cj.coverage_curve, (plot.coverage,)),
    ):
        curve = data(jax.random.key(1), predictions, targets)
        for picture in pictures:
            picture(curve).figure.canvas.draw()
