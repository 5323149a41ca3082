"""The same estimate with rows on several devices, and the work that each of them is given."""

import re

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from benchmarks.works.data import label_data
from benchmarks.works.labels import skce_of_probs

#: For a process of its own: devices of one CPU, of which only the number is real.
EIGHT_DEVICES = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}


def sharded_skce(n: int, m: int, devices: int) -> dict[str, float]:
    """The estimate of rows on that many devices, and the exponentials that each device computes.

    There is one of them for each pair: they count the pairs.
    """
    mesh = jax.make_mesh((devices,), ("rows",), devices=jax.devices()[:devices])
    by_row = NamedSharding(mesh, PartitionSpec("rows"))
    rows = [jax.device_put(x, by_row) for x in label_data(n, m)]
    compiled = jax.jit(skce_of_probs).lower(*rows).compile()
    return {"value": float(compiled(*rows)), "pairs": exponentials(compiled.as_text())}


def exponentials(program: str) -> int:
    """How many exponentials a compiled program computes.

    XLA's own cost analysis counts the body of a loop once, however often it runs; here it counts as
    often as the program says that it does.
    """
    computations = {
        name: body.splitlines()
        for name, body in re.findall(
            r"^(?:ENTRY )?%?([\w.-]+) \(.*\{\n((?:  .*\n)+)\}", program, re.M
        )
    }
    entry = re.search(r"^ENTRY %?([\w.-]+) ", program, re.M)

    def count(name: str) -> int:
        return sum(map(count_line, computations[name]))

    def count_line(line: str) -> int:
        own = re.search(r"= \w+\[([\d,]*)\]\S* exponential\(", line)
        total = int(np.prod([int(size) for size in own[1].split(",") if size])) if own else 0
        if " while(" in line:
            trips = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', line)
            if trips is None:
                raise ValueError(f"A loop of unknown length: {line}")
            return int(trips[1]) * count(re.search(r"body=%?([\w.-]+)", line)[1])
        called = re.findall(r"(?:calls|to_apply)=%?([\w.-]+)", line)
        branches = re.search(r"branch_computations=\{([^}]*)\}", line)
        if branches:
            return total + max(count(name.strip(" %")) for name in branches[1].split(","))
        return total + sum(map(count, called))

    return count(entry[1])
