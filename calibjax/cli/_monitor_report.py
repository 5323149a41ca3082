"""What `calibjax monitor` says: sentences, JSON, and the evidence over time as a picture."""

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from calibjax._base.text import listed, pvalue_text, text_table
from calibjax.cli._monitor_state import MonitorState, Stream

# The text for a p-value that float32 rounds to 0.
_UNDERFLOW = "< 1e-37"
# What an alarm assumes, unless the user has said how late targets are.
_IN_TIME = (
    "The alarm is valid if the targets of each batch were known before the next one was "
    "predicted. If not, start a new --state with --lag."
)
_BARS, _MOST_BARS = "▁▂▃▄▅▆▇█", 60


def to_dict(state: MonitorState) -> dict[str, Any]:
    """What monitors say, for other programs."""
    pvalues = state.pvalues()
    found = {name: _of_stream(x, pvalues[name]) for name, x in state.by_name.items()}
    of_all = {"n_rows": state.n_rows, "level": state.level, "lag": state.options["--lag"]}
    of_all |= state.numbers
    of_all["alarm"] = bool(state.alarms)
    if state.options["--stream"] is None:
        return of_all | found[""] | {"new_alarm": bool(state.new_alarms)}
    return of_all | {"new_alarms": state.new_alarms, "streams": found}


def _of_stream(stream: Stream, pvalue: float) -> dict[str, Any]:
    return {
        "n_rows": stream.n_rows,
        "log_e_value": stream.log_e_value,
        "largest_log_e_value": stream.largest_log_e_value,
        "pvalue": pvalue or _UNDERFLOW,
        "alarm": stream.alarm is not None,
        "first_alarm": stream.alarm,
        "first_alarm_row": stream.alarm_row,
        "change_point": None if stream.alarm is None else stream.change_point,
        "change_batch": None if stream.alarm is None else stream.change_batch,
        "zero_probability": stream.zero_probability,
    }


def in_words(state: MonitorState) -> str:
    """The same as text: a sentence, or a line for each stream."""
    lines = [_of_all_rows(state)] if state.options["--stream"] is None else _table(state)
    lines += state.notes
    lines += [x.zero_probability for x in state.streams if x.zero_probability is not None]
    lines += [_IN_TIME] if state.alarms and state.options["--lag"] == 1 else []
    return "\n".join(lines)


def _of_all_rows(state: MonitorState) -> str:
    stream = state.by_name[""]
    beginning, onset = "No alarm", ""
    if stream.alarm is not None:
        by = f"{state.options['--by'] or ''} ".lstrip()
        beginning = f"ALARM at {by}{stream.alarm} (after row {stream.alarm_row})"
        onset = f" Estimated onset {by}{stream.change_batch} (after row {stream.change_point})."
    evidence = f"largest e-value so far {_e_value(stream.largest_log_e_value)}"
    threshold = f"threshold {1 / state.level:g} (level {state.level:g})"
    return f"{beginning}: {evidence}, {threshold}, n = {stream.n_rows}.{onset}"


def _table(state: MonitorState) -> list[str]:
    """A line for each stream, those with the largest evidence first."""
    pvalues = state.pvalues()
    head = "stream", "rows", "e-value", "largest", "adjusted p", "alarm at", "estimated onset"
    lines = [list(head)]
    for name, stream in sorted(state.by_name.items(), key=lambda x: -x[1].largest_log_e_value):
        since = ["", ""] if stream.alarm is None else [stream.alarm, stream.change_batch]
        pvalue = pvalue_text(pvalues[name])
        values = map(_e_value, (stream.log_e_value, stream.largest_log_e_value))
        lines.append([name, str(stream.n_rows), *values, pvalue, *since])
    n = len(state.by_name)
    of_streams = f"{n} stream{'s' * (n > 1)} of {state.options['--stream']}"
    beginning = f"No alarm in {of_streams}"
    if state.alarms:
        new = listed(state.new_alarms) or "none"
        beginning = f"ALARM in {len(state.alarms)} of {of_streams}, new: {new}"
    to_come = f", {len(state.streams) - n} reserved included" if len(state.streams) > n else ""
    bound = f"probability of any false alarm, ever{to_come}: at most {state.level:g}"
    return [f"{beginning}; n = {state.n_rows}; {bound}.", *text_table(lines, "<" * len(head))]


def _e_value(logarithm: float) -> str:
    # It may be too large for a float.
    return f"{Decimal(logarithm).exp():.3g}"


def curves(state: MonitorState) -> str:
    """The logarithm of the evidence over the batches, a line of bars for each stream."""
    lines = []
    for name, stream in state.by_name.items():
        values = _heights(state, stream)
        if not values.size:
            continue
        # With many batches, the last one of each part.
        ends = np.linspace(0, values.size - 1, min(values.size, _MOST_BARS)).astype(int)
        low, high = min(values.min(), 0.0), max(values.max(), _needed(state, stream))
        heights = (len(_BARS) - 1) * (values[ends] - low) / (high - low)
        bars = "".join(_BARS[k] for k in heights.round().astype(int))
        now, most = map(_e_value, (stream.log_e_value, float(high)))
        lines.append(
            f"{name or 'evidence'}  {bars}  e-value {now} after {stream.evidence[-1].batch}; full "
            f"bar: {most} (log scale)."
        )
    return "\n".join(lines)


def _needed(state: MonitorState, stream: Stream) -> float:
    """The logarithm of the e-value of the alarm of a stream."""
    return math.log((stream.n_sharing or state.n_sharing) / state.level)


def _heights(state: MonitorState, stream: Stream) -> np.ndarray:
    """The logarithm of the evidence after each batch; infinity is drawn above all other values."""
    values = np.array([x.log_e_value for x in stream.evidence])
    finite = values[np.isfinite(values)]
    return np.minimum(values, 2 * max(finite.max(initial=0.0), _needed(state, stream)))


def draw(state: MonitorState, path: Path) -> None:
    """Draws the evidence of each stream after each of its batches, and the line of its alarm."""
    from matplotlib.figure import Figure  # takes long to import

    from calibjax.plot import e_process

    drawn = {name: x for name, x in state.by_name.items() if x.evidence}
    figure = Figure(figsize=(6.4, 4.8 * len(drawn) ** 0.8), layout="constrained")
    all_axes = figure.subplots(len(drawn), squeeze=False)[:, 0]
    for ax, (name, stream) in zip(all_axes, drawn.items(), strict=True):
        found: Any = {"names": [x.batch for x in stream.evidence]}
        if stream.alarm_row is not None:
            found["alarm"] = stream.number_of(stream.alarm_row - 1)
            found["onset"] = stream.number_of(stream.change_point)
        level = math.exp(-_needed(state, stream))
        e_process(_heights(state, stream), ax=ax, level=level, **found)
        ax.set_xlabel(state.options["--by"] or "file")
        if name:
            ax.set_title(f"Evidence against calibration: {name}", loc="left")
    figure.savefig(path, dpi=200, bbox_inches="tight")
