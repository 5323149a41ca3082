"""The picture of a reliability curve shows the numbers of the curve."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

import calibjax as cj
from calibjax import plot

KEY = jax.random.key(0)


def data(n=400):
    rng = np.random.default_rng(0)
    p = rng.uniform(size=n)
    return cj.Bernoulli(jnp.asarray(p, "float32")), rng.uniform(size=n) < p**3


def points(ax, label):
    (line,) = [line for line in ax.lines if line.get_label() == label]
    return line.get_xydata()


def test_bins():
    curve = cj.reliability_curve(KEY, *data(), n_bins=10, n_resamples=99)
    figure = Figure()
    ax = figure.subplots()
    assert plot.reliability(curve, ax=ax) is ax
    outside = (curve.frequency < curve.simultaneous_low) | (
        curve.frequency > curve.simultaneous_high
    )
    assert outside.any()
    expected = np.stack([curve.forecast, curve.frequency], axis=1)[outside]
    np.testing.assert_allclose(points(ax, "outside"), expected)
    wide, narrow = ax.containers
    assert wide.get_label() == "95 %, all bins at once"
    for bars, low, high in (
        (wide, curve.simultaneous_low, curve.simultaneous_high),
        (narrow, curve.pointwise_low, curve.pointwise_high),
    ):
        np.testing.assert_allclose([bar.get_y() for bar in bars], low, atol=1e-6)
        np.testing.assert_allclose(
            [bar.get_y() + bar.get_height() for bar in bars], high, rtol=1e-5
        )
    (below,) = ax.child_axes
    assert [bar.get_height() for bar in below.patches] == curve.count.tolist()


def test_isotonic():
    curve = cj.corp_curve(*data(), key=KEY, n_resamples=99)
    ax = plot.reliability(curve)
    assert ax.figure.get_size_inches()[0] == 3.3
    at = np.isin(curve.forecasts, curve.grid)
    outside = (curve.recalibrated[at] < curve.simultaneous_low) | (
        curve.recalibrated[at] > curve.simultaneous_high
    )
    assert outside.any()
    expected = np.stack([curve.grid, curve.recalibrated[at]], axis=1)[outside]
    np.testing.assert_array_equal(points(ax, "outside"), expected)
    (below,) = ax.child_axes
    assert sum(bar.get_height() for bar in below.patches) == 400
    assert (
        len(ax.collections) == 2
        and f"MCB {curve.miscalibration:.2g}" in ax.get_legend().get_title().get_text()
    )


def test_without_bands_and_without_events():
    predictions = cj.Bernoulli(jnp.zeros(3))
    ax = plot.reliability(cj.corp_curve(predictions, jnp.zeros(3, int)))
    assert not ax.collections
    ax = plot.reliability(cj.reliability_curve(KEY, predictions, jnp.zeros(3, int)))
    ax.figure.savefig("/dev/null", format="svg")


def test_other_curves():
    with pytest.raises(TypeError, match="curve must be what reliability_curve or corp_curve"):
        plot.reliability(np.zeros(3))


@pytest.mark.parametrize("layout", [None, "constrained"])
@pytest.mark.parametrize(("columns", "size"), [(2, (6.4, 4.8)), (3, (9.0, 3.6))])
def test_nothing_is_cut_off_in_panels(layout, columns, size):
    figure = Figure(size, layout=layout)
    axes = figure.subplots(1, columns)
    plot.reliability(cj.reliability_curve(KEY, *data(), n_resamples=99), ax=axes[0])
    plot.reliability(cj.corp_curve(*data(), key=KEY, n_resamples=99), ax=axes[1])
    figure.draw_without_rendering()
    for ax in axes[:2]:
        below = ax.child_axes[0].get_tightbbox()
        words = ax.get_legend().get_window_extent()
        assert words.y1 <= below.y0 + 1
        assert below.y1 <= ax.get_window_extent().y0 + 15
        for part in (ax.title, ax.get_legend(), ax.child_axes[0].xaxis.label):
            box = part.get_window_extent()
            assert box.y0 >= 0
            assert box.y1 <= figure.bbox.y1
    legends = [ax.get_legend().get_window_extent() for ax in axes[:2]]
    assert not legends[0].overlaps(legends[1])


@pytest.mark.parametrize("dpi", [72, 200])
def test_nothing_is_cut_off_in_a_figure_of_its_own(dpi):
    """Reports show such a figure, whose legend stands below the numbers of forecasts."""
    curves = [
        cj.reliability_curve(KEY, *data(), n_resamples=99),
        cj.corp_curve(*data(), key=KEY, n_resamples=99),
    ]
    for curve in curves:
        ax = plot.reliability(curve)
        ax.figure.set_dpi(dpi)
        ax.figure.draw_without_rendering()
        (below,) = ax.child_axes
        for part in (ax.title, ax.get_legend(), ax.yaxis.label, below.xaxis.label, below):
            box = part.get_tightbbox() if part is below else part.get_window_extent()
            assert box.x0 >= 0 and box.y0 >= 0, part
            assert box.x1 <= ax.figure.bbox.x1 and box.y1 <= ax.figure.bbox.y1, part
