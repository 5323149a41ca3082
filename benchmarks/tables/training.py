"""What the penalty adds to a step of training."""

from collections.abc import Iterator

from benchmarks import harness
from benchmarks.rows import Row, table
from benchmarks.works.training import NETWORKS, training_steps

M = 10
#: At most so many percent of the CNN's step at batch 256.
TARGET = 5
MILLISECONDS = {"without": "without [ms]", "with": "with [ms]", "penalty": "penalty alone [ms]"}


@table(
    "Steps of training, with and without the penalty",
    columns=("network", "batch", *MILLISECONDS.values(), "added [%]", "target"),
)
def training(quick: bool) -> Iterator[Row]:
    """Adam on images of 28 x 28 pixels, m = 10, with a fixed kernel. The CNN has two convolutions
    (32 and 64 channels) and a dense layer, the MLP two hidden layers of 512. The penalty alone is
    its value and gradient in the logits. Times are medians. The added time is that of the fastest
    steps, because steps vary by more than the penalty."""
    for network in NETWORKS:
        for batch in (16,) if quick else (64, 128, 256, 512, 1024):
            calls = training_steps(network, batch, M)
            fewer = 25 if batch < 512 else 7
            times = harness.time_calls(calls, repeats=1 if quick else fewer)
            medians = {name: 1e3 * times[name]["median"] for name in MILLISECONDS}
            added = 100 * (times["with"]["min"] / times["without"]["min"] - 1)
            met = added < TARGET if (network, batch) == ("CNN", 256) else None
            yield {
                "network": network,
                "batch": batch,
                **{column: medians[name] for name, column in MILLISECONDS.items()},
                "added [%]": added,
                "target": None if met is None else f"< {TARGET}",
                "met": met,
                "times": times,
            }
