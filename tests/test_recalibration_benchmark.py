"""The page of recalibrations, of made-up results."""

from benchmarks import recalibration


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
