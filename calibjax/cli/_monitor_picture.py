"""The picture of `calibjax monitor`."""

from pathlib import Path

from calibjax.cli._kept_monitor import KeptMonitor


def draw(kept: KeptMonitor, path: Path) -> None:
    """Draws the evidence of each stream after each of its batches, and the line of its alarm."""
    from matplotlib.figure import Figure  # takes long to import

    from calibjax.plot import e_process

    drawn = {name: x for name, x in kept.streams.items() if x.batches}
    figure = Figure(figsize=(6.4, 4.8 * len(drawn) ** 0.8), layout="constrained")
    all_axes = figure.subplots(len(drawn), squeeze=False)[:, 0]
    for ax, (name, stream) in zip(all_axes, drawn.items(), strict=True):
        alarm = stream.first_alarm
        n_sharing = kept.n_sharing if alarm is None else alarm.n_sharing
        e_process(
            [batch.log_e_value for batch in stream.batches],
            ax=ax,
            level=kept.level / n_sharing,
            names=[batch.name for batch in stream.batches],
            alarm=None if alarm is None else stream.number_of(alarm.row - 1),
            changed=None if alarm is None else stream.number_of(alarm.changed_at),
        )
        ax.set_xlabel(kept.meaning["--by"] or "file")
        if name:
            ax.set_title(f"Evidence against calibration: {name}", loc="left")
    figure.savefig(path, dpi=200, bbox_inches="tight")
