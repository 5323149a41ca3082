"""What monitors say, in words and for other programs."""

import math
from decimal import Decimal
from typing import Any

from calibjax._text import listed, text_table
from calibjax.cli._kept_monitor import KeptMonitor, Stream


def found_of(kept: KeptMonitor) -> dict[str, Any]:
    """What monitors say, for other programs."""
    pvalues, level = kept.pvalues(), kept.level
    found = {name: _of_stream(x, pvalues[name]) for name, x in kept.streams.items()}
    if kept.meaning["--stream"] is None:
        return found[""] | {"level": level, "lag": kept.lag, "new_alarm": bool(kept.new_alarms)}
    of_all = {"n_rows": kept.n_rows, "level": level, "lag": kept.lag, "alarm": kept.has_alarm}
    return of_all | {"new_alarms": kept.new_alarms, "streams": found}


def _of_stream(stream: Stream, pvalue: float) -> dict[str, Any]:
    log_e_value, alarm = float(stream.monitor.log_e_value), stream.first_alarm
    return {
        "n_rows": stream.n_rows,
        # JSON has no infinity.
        "log_e_value": log_e_value if math.isfinite(log_e_value) else "Infinity",
        "pvalue": pvalue or _UNDERFLOW,
        "alarm": alarm is not None,
        "first_alarm": None if alarm is None else alarm.name,
        "first_alarm_row": None if alarm is None else alarm.row,
        "changed_at": None if alarm is None else alarm.changed_at,
        "changed_in": None if alarm is None else stream.batch_of(alarm.changed_at),
        "impossible": stream.impossible,
    }


# What is said of a p-value that float32 cannot tell from 0.
_UNDERFLOW = "< 1e-37"
# What an alarm takes for granted, unless the user has said how late targets are.
_IN_TIME = (
    "This takes for granted that the targets of each batch were known before the next one was "
    "predicted; if they were not, begin a new --state with --lag."
)


def in_words(kept: KeptMonitor) -> str:
    text = _of_all_rows(kept) if kept.meaning["--stream"] is None else _table(kept)
    impossible = [x.impossible for x in kept.streams.values() if x.impossible is not None]
    in_time = [_IN_TIME] if kept.has_alarm and kept.lag == 1 else []
    return "\n".join([text, *impossible, *in_time])


def _of_all_rows(kept: KeptMonitor) -> str:
    stream = kept.streams[""]
    beginning, since = "No alarm", ""
    if stream.first_alarm is not None:
        row = stream.first_alarm.changed_at
        beginning = f"ALARM since {stream.first_alarm.name} (row {stream.first_alarm.row})"
        since = f", wrong since about {stream.batch_of(row)} (row {row})"
    return (
        f"{beginning}: the largest e-value of {kept.n_rows} rows is {_largest(stream)}, and an "
        f"alarm needs {1 / kept.level:g}{since}."
    )


def _table(kept: KeptMonitor) -> str:
    """A line for each stream, those with the largest evidence first."""
    pvalues = kept.pvalues()
    names = sorted(pvalues, key=lambda name: -float(kept.streams[name].monitor.log_max))
    head = "stream", "rows", "largest e-value", "adjusted p", "alarm since", "wrong since about"
    lines = [list(head)]
    for name in names:
        stream, since = kept.streams[name], ["", ""]
        if stream.first_alarm is not None:
            since = [stream.first_alarm.name, stream.batch_of(stream.first_alarm.changed_at)]
        pvalue = f"{pvalues[name]:.2g}" if pvalues[name] else _UNDERFLOW
        lines.append([name, str(stream.n_rows), _largest(stream), pvalue, *since])
    shown = text_table(lines, "<" * len(head))
    count = sum(stream.first_alarm is not None for stream in kept.streams.values())
    of_streams = f"{len(names)} stream{'s' * (len(names) > 1)} of {kept.meaning['--stream']}"
    if count:
        beginning = f"ALARM in {count} of {of_streams}, new: {listed(kept.new_alarms) or 'none'}"
    else:
        beginning = f"No alarm in {of_streams}"
    to_come = f" or of {len(kept.reserve)} to come" if kept.reserve else ""
    said = (
        f"{beginning}; {kept.n_rows} rows; a false one ever rings in any of them{to_come} with a "
        f"probability of at most {kept.level:g}."
    )
    return "\n".join([said, *shown])


def _largest(stream: Stream) -> str:
    # It may be too large for a float.
    return f"{Decimal(float(stream.monitor.log_max)).exp():.3g}"
