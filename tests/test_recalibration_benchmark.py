"""The page of recalibrations, of made-up results."""

import numpy as np
from scipy.special import ndtri

import calibjax as cj
from benchmarks import recalibration, recalibration_numbers
from calibjax.recalibration._pit_map_fits import LEVELS


def results(logs, p):
    return {m: {"log": x, "brier": x, "seconds": 1.0, "p": p} for m, x in logs.items()}


def test_the_page_of_made_up_results():
    ours = {
        "a": results({"nothing": 0.5, "svs": 0.3, "auto": 0.2}, 0.2),
        "b": results({"nothing": 0.4, "svs": 0.4, "auto": 0.5}, 0.01),
    }
    # svs beats one of two in the first pair, and one and a half of two in the second.
    assert recalibration.win_rates(ours, "log") == {"nothing": 0.375, "svs": 0.625, "auto": 0.5}
    peer = {"svs": {"log": 0.29, "seconds": 2.0}}
    page = recalibration.page({"pairs": {k: {"ours": x, "peer": peer} for k, x in ours.items()}})
    assert "| `svs` | 0.625 | 0.625 | 0.3500 | 1 of 2 |" in page
    assert "| `svs` | 2 | +0.06000 | +0.01000 | +0.11000 |" in page
    assert "## Two classes" not in page


def test_chapters_of_numbers_and_groups():
    scores = {"crps": 2.0, "coverage 0.5": 0.4, "coverage 0.9": 0.8, "p": 0.01, "seconds": 1.0}
    numbers = {
        "nothing": scores | {"pinball": 1.0, "chosen": "nothing"},
        "auto": scores | {"pinball": 0.9, "crps": 1.5, "chosen": "mixture"},
    }
    worst = {"worst": 0.1, "name": "north", "score": 3.0, "rejected": 2, "p": 0.02}
    page = recalibration.page(
        {
            "numbers": {"rain": numbers},
            "groups": {"trials": {"nothing": worst | {"log": 0.5, "divergence": 0.02}}},
        }
    )
    assert "| `auto` (mixture) | -10.0 | -25.0 | 0.40 | 0.80 | 0.010 |" in page
    assert "| nothing | 0.5000 | 20.0 | north: +0.100 | 2 | 0.020 |  |" in page


def test_chapter_of_seconds():
    ours = {"svs": {"first": 1.5, "warm": 0.2}, "auto": {"first": 2.0, "warm": 1.0}}
    peer = {"svs": {"first": 0.5, "warm": 0.4}}
    page = recalibration.page({"seconds": {"10": {"ours": ours, "peer": peer}}})
    assert "| 10 | `svs` | 1.500 | 0.200 | 0.500 | 0.400 | 3.00 | 0.50 |" in page
    assert "| 10 | `auto` | 2.000 | 1.000 |  |  |  |  |" in page


def test_quantiles_of_a_case_have_the_same_levels():
    rows = np.zeros(3, np.float32)
    normal = cj.Normal(rows, rows + 1)
    levels, values = recalibration_numbers.quantiles(normal, normal)
    fine = cj.Quantiles(np.tile(ndtri(LEVELS), (3, 1)).astype(np.float32), LEVELS)
    same, others = recalibration_numbers.quantiles(fine, normal)
    np.testing.assert_array_equal(levels, same)
    np.testing.assert_allclose(values, others, atol=1e-5)


def test_a_plain_shift_moves_the_median_of_residuals():
    rows = np.zeros(6, np.float32)
    half = recalibration_numbers.Rows(cj.Normal(rows, rows + 1), np.full(6, 2.0, np.float32))
    case = recalibration_numbers.Case(half, half)
    levels, values = recalibration_numbers.quantiles(recalibration_numbers.shifted(case), half[0])
    np.testing.assert_allclose(values[0], 2 + ndtri(levels), atol=1e-5)
