"""Rows on several devices."""

from collections.abc import Iterator

import numpy as np

from benchmarks import harness
from benchmarks.rows import Row, table
from benchmarks.works.sharding import EIGHT_DEVICES


@table(
    "Rows on several devices",
    columns=("devices", "value", "less one device's", "pairs on each device", "share", "ideal"),
)
def sharding(quick: bool) -> Iterator[Row]:
    """The SKCE of rows on D devices by `NamedSharding`, m = 10. The devices are simulated on one
    CPU, so speed cannot be measured. Instead, the table has the number of pairs that the program of
    each device evaluates, including padded tiles and pairs of a row with itself."""
    n = 2048 if quick else 16_384
    results = harness.in_fresh_process(
        "import json; from benchmarks.works.sharding import sharded_skce; "
        f"print(json.dumps({{D: sharded_skce({n}, 10, D) for D in (1, 2, 4, 8)}}))",
        EIGHT_DEVICES,
    )
    one = results["1"]
    assert one["pairs"] >= n * (n - 1) // 2, "each pair is evaluated, so that it is counted"
    for devices, result in results.items():
        np.testing.assert_allclose(result["value"], one["value"], rtol=0, atol=1e-6)
        yield {
            "devices": int(devices),
            "value": result["value"],
            "less one device's": result["value"] - one["value"],
            "pairs on each device": result["pairs"],
            "share": result["pairs"] / one["pairs"],
            "ideal": 1 / int(devices),
        }
