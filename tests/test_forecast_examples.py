"""The examples of forecasts, from fit to verdict."""

import re
from pathlib import Path

import pytest
from scripts import output_of

FORECASTS = Path(__file__).parents[1] / "examples" / "forecasts"

# Which of the forecasts that a script prints, in their order, are calibrated as far as one can see.
VERDICTS = {
    "quantile_boosting.py": [False, True],
    "bootstrap_ensemble.py": [False, True],
    "negative_binomial_glm.py": [False, True],
    "numpyro_posterior.py": [False, False, True, True],
}
SLOW = sorted(VERDICTS.keys() - {"quantile_boosting.py"})


@pytest.mark.parametrize(
    "script", [pytest.param(x, marks=[pytest.mark.slow] if x in SLOW else []) for x in VERDICTS]
)
@pytest.mark.slow
def test_verdicts(script, tmp_path):
    printed = output_of(FORECASTS / script, folder=tmp_path)
    verdicts = re.findall(r"p = (\d\.\d+): (.*)$", printed, flags=re.MULTILINE)
    assert [float(p) > 0.05 for p, _ in verdicts] == VERDICTS[script], printed
    for p, words in verdicts:
        assert words.startswith("nothing speaks against" if float(p) > 0.05 else "not calibrated")


@pytest.mark.parametrize("script", VERDICTS)
def test_it_is_short(script):
    source = (FORECASTS / script).read_text().partition('"""\n\n')[2]
    assert len([line for line in source.splitlines() if line.strip()]) < 40
