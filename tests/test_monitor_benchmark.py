"""The benchmark of the monitor runs, at tiny sizes, and its own pieces compute what they say."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.monitor import friedman, pit_monitor
from benchmarks.monitor.__main__ import PARTS
from benchmarks.monitor.alarms import Alarms, chunks, first
from tests.scripts import QUICK

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the machine is in /proc")
def test_quick_run_has_all_parts(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.monitor", "--quick", "--output", str(tmp_path)],
        cwd=ROOT,
        env=QUICK,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "monitor.json").read_text())
    text = (tmp_path / "MONITOR.md").read_text()
    assert list(results) == list(PARTS)
    for name, (title, _) in PARTS.items():
        assert f"## {title}\n" in text
        assert results[name]["rows"]
    assert all(row["bit-equal"] for row in results["speed"]["rows"])


def test_first_alarms_and_what_they_say():
    rings = np.array([[0, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1]], bool)
    found = first(rings)
    assert found.tolist() == [4, 1, 2, 3]
    assert Alarms.of(found, drift=2, end=4) == Alarms(4, 0.25, 0.5, 0.5, 0.5)
    assert chunks(10, 4) == [4, 4, 4] and chunks(3, 4) == [3]


def test_ranks_among_all_so_far():
    pit = np.random.default_rng(0).integers(0, 5, 40) / 5
    found = pit_monitor.ranks(np.random.default_rng(1), pit)
    uniform = np.random.default_rng(1).random(40)
    for t, value in enumerate(pit):
        so_far = pit[: t + 1].tolist()
        smaller, equal = sum(u < value for u in so_far), so_far.count(value)
        np.testing.assert_allclose(found[t], (smaller + uniform[t] * equal) / (t + 1))


def test_evidence_of_pit_monitor_is_a_martingale_on_average():
    # M_t + 1 / (t + 1) has the mean 1 for exchangeable values.
    pit = np.random.default_rng(0).random((4000, 20))
    last = pit_monitor.evidence(np.random.default_rng(1), pit)[:, -1]
    assert abs(last.mean() + 1 / 21 - 1) < 4 * last.std() / np.sqrt(4000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drift", "name", "window"),
    [("abrupt", "gra", 0), ("gradual", "gsg", 500), ("local", "lea", 0)],
)
def test_streams_have_the_means_of_river(drift, name, window):
    synth = pytest.importorskip("river.datasets.synth")
    third = friedman.N_AFTER // 3
    positions = (1, 1 + third, 1 + 2 * third) if name == "lea" else (1, 10**6)
    theirs = synth.FriedmanDrift(name, positions, window, seed=0)
    rows = list(theirs.take(1 + friedman.N_AFTER))[1:]
    x = np.array([list(features.values()) for features, _ in rows])
    t = np.arange(friedman.N_AFTER)
    mean = friedman.DRIFTS[drift](np.random.default_rng(0), t, x.T)
    errors = np.array([y for _, y in rows]) - mean
    # Whether one of the first 500 rows of the gradual drift is an old one is chance.
    errors = errors[window:]
    assert np.all(np.abs(errors) < 5) and abs(np.std(errors) - 1) < 0.06
