"""The file that keeps a monitor from one call to the next."""

import base64
import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import monitoring
from calibjax._files import check_header, npz_of, read_npz, with_leaves
from calibjax._text import listed
from calibjax.cli._batches import Fingerprint, batches_of, place_of
from calibjax.cli._columns import Columns
from calibjax.cli._counted import Counted
from calibjax.cli._kept_monitor import Evidence, FirstAlarm, KeptMonitor, Stream, streams_of
from calibjax.cli._terminal import BadInput
from calibjax.evaluation import Model

# The number of the version changes with what a file holds.
_KIND = {"schema": "calibjax monitor", "version": 6}
_LEVEL = 0.05
# Options that may differ from call to call: levels are compared as numbers.
_NO_MEANING = (
    "levels",
    "normalize",
    "sort_quantiles",
    "separator",
    "decimal",
    "drop_missing",
    "where",
)
# How a model goes on whose columns have new names.
_RENAMED = "; if it is the same model with another header, give the columns their old names"


def read_state(
    path: Path,
    model: Model,
    columns: Columns,
    by: str | None,
    cluster: str | None,
    stream: str | None,
    reserve: int | None,
    lag: int | None,
    level: float | None,
    seed: int,
) -> KeptMonitor:
    """The monitor that a file keeps, or a new one for predictions like those of a first batch.

    Args:
        path: the file.
        model: predictions, of which the first batch makes a new monitor.
        columns: which columns hold what.
        by: the column that names batches.
        cluster: the column that names clusters.
        stream: the column that names streams.
        reserve: the number of streams that are still to come; None stands for that of the first
            call, which is 0 if it did not say.
        lag: the number of batches until targets are known; None stands for that of the first
            call, which is 1 if it did not say.
        level: the level of the alarm; None stands for that of the first call, which is 0.05 if it
            did not say.
        seed: what the random numbers of a new monitor come from.

    Raises:
        BadInput: the file is of something else.
    """
    meaning: dict[str, Any] = {
        "columns": _in_words(columns),
        "classes": model.classes,
        "levels": model.levels,
        "--by": by,
        "--cluster": cluster,
        "--stream": stream,
        "--reserve": reserve or 0,
        "--lag": lag or 1,
        "--level": level or _LEVEL,
    }
    key, n = jax.random.key(seed), len(model.targets)
    if not path.exists():
        if n < 2:
            raise BadInput(f"{model.table.source}: a new --state needs at least 2 rows, got {n}.")
        # What bets are made of must not be chosen by later predictions, which may know targets.
        n_rows = batches_of(model, by)[0].n_rows
        example = jax.tree.map(lambda x: x[: max(n_rows, 2)], model.predictions)
        names = sorted(set(streams_of(model, stream).tolist()), key=place_of)
        # All streams begin with the same functions, and the first alarm needs the whole evidence.
        options = {
            "lag": meaning["--lag"],
            "level": meaning["--level"] / (len(names) + meaning["--reserve"]),
        }
        first = monitoring.CalibrationMonitor.start(key, example, **options)
        streams = dict.fromkeys(names, Stream(first))
        return KeptMonitor(path, streams, meaning, reserve=(first,) * meaning["--reserve"])
    header, arrays = read_npz(path, "a monitor")
    check_header(path, header, _KIND)
    kept = header["meaning"] | {"--lag": header["lag"]}
    for name, given in (("--reserve", reserve), ("--lag", lag), ("--level", level)):
        if given is None:
            meaning[name] = kept[name]
    for name, value in meaning.items():
        if kept[name] != value:
            was, now = (_as_text(x) for x in (kept[name], value))
            raise BadInput(
                f"{path}: expected the same {name} as in its first call, {was}, got {now}; another "
                f"model needs another --state{_RENAMED if name == 'columns' else ''}."
            )
    # The same row twice, because one row is no example; which one does not matter here.
    example = jax.tree.map(lambda x: x[jnp.zeros(2, int)], model.predictions)
    like = monitoring.CalibrationMonitor.start(key, example, lag=kept["--lag"])
    check_header(path, header, monitoring.header_of(like) | _KIND)
    streams, n_reserved = header["streams"], header["n_reserved"]
    # All that are reserved are at the start, and one of them is kept.
    n_monitors = len(streams) + min(n_reserved, 1)
    tree = with_leaves(path, arrays, _tree_of([like] * n_monitors))
    monitors = tree if n_monitors > 1 else [tree]
    return KeptMonitor(
        path,
        {
            name: Stream(
                monitor,
                tuple(Evidence(*x) for x in batches),
                alarm and FirstAlarm(*alarm),
                impossible,
            )
            for (name, (batches, alarm, impossible)), monitor in zip(
                streams.items(), monitors, strict=False
            )
        },
        kept,
        calls=tuple((file, time) for file, time in header["calls"]),
        counted=tuple(
            Counted(name, n_rows, Fingerprint(*fingerprint), call)
            for name, n_rows, fingerprint, call in header["counted"]
        ),
        rows=np.frombuffer(base64.b64decode(header["rows"]), "<u4"),
        reserve=(monitors[-1],) * n_reserved,
    )


def as_file(kept: KeptMonitor) -> bytes:
    """The content of the file of a monitor."""
    monitors = [stream.monitor for stream in kept.streams.values()]
    streams = {name: [x.batches, x.first_alarm, x.impossible] for name, x in kept.streams.items()}
    header = monitoring.header_of(monitors[0]) | _KIND | {"meaning": kept.meaning}
    header |= {"calls": kept.calls, "counted": kept.counted, "streams": streams}
    header |= {"n_reserved": len(kept.reserve)}
    header |= {"rows": base64.b64encode(kept.rows.astype("<u4").tobytes()).decode()}
    try:
        return npz_of(header, _tree_of([*monitors, *kept.reserve[:1]]))
    except ValueError as error:
        raise BadInput(f"{kept.path}: nothing was counted, because {error}") from error


def _tree_of(monitors: list[monitoring.CalibrationMonitor]) -> Any:
    """What a file keeps: the monitor, or a list of several."""
    return monitors if len(monitors) > 1 else monitors[0]


def _as_text(value: Any) -> str:
    if value is None:
        return "none"
    return listed(value) if isinstance(value, list) else str(value)


def _in_words(columns: Columns) -> str:
    """The options that say which columns hold what; `meaning` has the levels as numbers."""
    options = dataclasses.asdict(columns)
    # A file whose probabilities are rounded may need what another one does not.
    given = {k: x for k, x in options.items() if x and k not in _NO_MEANING}
    return " ".join(f"--{name} {value}" for name, value in given.items())
