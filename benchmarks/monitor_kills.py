"""Is nothing of a monitor's state lost or counted twice, whatever becomes of the calls?

Processes at the same time call `calibjax monitor` for each of many days, and are killed at random
moments, most of them in the middle of a call; each begins again with the day in which it was
killed.  The state is then compared with that of one process that nobody disturbs.  All processes
keep compiled programs in one folder, as the command does, so that a new one begins in some seconds.

    python -m benchmarks.monitor_kills
"""

import argparse
import json
import multiprocessing
import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from calibjax.cli import app


def write_days(folder: Path, n_days: int, n_rows: int = 50, latest: int = 0) -> None:
    """Files of probabilities that begin to be wrong after half of the days.

    Args:
        folder: where they are written.
        n_days: their number.
        n_rows: the number of rows of a day.
        latest: the largest number of days after which a label is known; with it a file holds all
            rows so far, without labels that come later.  Labels of the first file all come later.
    """
    rng, log = np.random.default_rng(0), []
    for day in range(n_days):
        logits, uniform = rng.normal(size=n_rows), rng.uniform(size=n_rows)
        truth = 1 / (1 + np.exp(-logits - (day >= n_days // 2)))
        known_at = day + (rng.integers(1, latest + 1, n_rows) if latest else np.zeros(n_rows))
        columns = 1 / (1 + np.exp(-logits)), (uniform < truth).astype(int), known_at
        rows = [(day, *row) for row in zip(*columns, strict=True)]
        log = [*log, *rows] if latest else rows
        lines = [f"{x},{p:.6f},{y if at <= day else ''}" for x, p, y, at in log]
        if any(at <= day for *_, at in log):
            (folder / f"{day:03}.csv").write_text("\n".join(["day,p,y", *lines, ""]))


def count_all(folder: Path, state: Path, progress: Any = None) -> None:
    """Calls `calibjax monitor` for each day; rows that another process has counted are left out.

    Args:
        folder: where the files of the days are.
        state: where the evidence is kept.
        progress: a shared number, of the last day that the process has counted; it takes up the
            work behind it, and counts a day for a state of its own before, since a call that
            compiles makes others wait.  None for all days.
    """
    files = [(file, state) for file in sorted(folder.glob("*.csv"))]
    if progress is not None:
        own = Path(tempfile.mkdtemp(dir=folder), "own.sqlite")
        files = [(files[0][0], own), *(x for x in files if int(x[0].stem) > progress.value)]
    for file, path in files:
        options = "--state", str(path), "--prob", "p", "--target", "y", "--by", "day"
        options = *options, "--lag", "4", "--drop-missing", "--json"
        result = CliRunner().invoke(app, ["monitor", str(file), *options])
        if result.exit_code == 2:
            raise RuntimeError(result.output)
        if progress is not None and path == state and json.loads(result.stdout)["n_new"]:
            progress.value = int(file.stem)


def evidence_of(state: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All that a state says, but for the times of the calls and their files."""
    columns = {
        "batches": "name, hashes",
        "streams": "*",
        "evidence": "*",
        "options": "*",
    }
    with closing(sqlite3.connect(state)) as database:
        return {
            table: database.execute(f"SELECT {names} FROM {table} ORDER BY rowid").fetchall()
            for table, names in columns.items()
        }


def count_with_kills(
    folder: Path,
    state: Path,
    n_processes: int,
    n_kills: int,
    count: Callable[..., None] = count_all,
    seed: int = 0,
) -> int:
    """Processes count all days at once; each that is killed takes up its work again.

    Returns:
        The number of kills.
    """
    context = multiprocessing.get_context("forkserver")
    # What a call imports when it needs it takes longer than the call.
    needed = ["calibjax.cli._monitor_state", "calibjax.frames.files"]
    context.set_forkserver_preload([count.__module__, *needed])
    n_days, rng = len(list(folder.glob("*.csv"))), random.Random(seed)
    # When so many days were counted, a little later; the process that counted last is killed.
    moments = sorted(rng.randrange(n_days * 3 // 4) for _ in range(n_kills))

    def start(behind: int = -1) -> tuple[Any, Any]:
        progress = context.Value("i", behind)
        process = context.Process(target=count, args=(folder, state, progress))
        process.start()
        return process, progress

    running, n_killed = [start() for _ in range(n_processes)], 0
    while any(process.is_alive() for process, _ in running):
        last = max(range(n_processes), key=lambda k: running[k][1].value)
        process, progress = running[last]
        if n_killed < len(moments) and progress.value >= moments[n_killed]:
            time.sleep(rng.uniform(0, 0.2))
            process.kill()
            process.join()
            running[last] = start(progress.value)
            n_killed += 1
        time.sleep(0.001)
    failed = [process.exitcode for process, _ in running if process.exitcode]
    if failed:
        raise RuntimeError(f"Processes ended with {failed}.")
    return n_killed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=200)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--latest", type=int, default=0)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_days(folder, given.days, latest=given.latest)
        # The fork server, which is yet to start, hands these on to all processes.
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder / "programs")
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        for state, *given_to in ("quiet", 1, 0), ("killed", given.processes, given.kills):
            start = time.time()
            n_killed = count_with_kills(
                folder, folder / f"{state}.sqlite", *given_to, seed=given.seed
            )
            print(f"{given_to[0]} processes, {n_killed} kills: {time.time() - start:.0f} s")
        quiet, killed = (evidence_of(folder / f"{x}.sqlite") for x in ("quiet", "killed"))
        for table, expected in quiet.items():
            same = killed[table] == expected
            print(f"{table}: {len(expected)} rows, {'the same' if same else 'OTHERS'}")
            assert same


if __name__ == "__main__":
    main()
