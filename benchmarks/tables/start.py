"""What a user waits for before anything is computed."""

import statistics
from collections.abc import Iterator

from benchmarks import harness
from benchmarks.rows import Row, quantity, row, table


@table("Import")
def imports(quick: bool) -> Iterator[Row]:
    """calibjax after jax, in new processes, median of five."""
    code = (
        "import json, time; start = time.perf_counter(); import jax; middle = time.perf_counter();"
        "import calibjax; print(json.dumps((middle - start, time.perf_counter() - middle)))"
    )
    pairs = [harness.in_fresh_process(code) for _ in range(1 if quick else 5)]
    of_jax, more = (statistics.median(times) for times in zip(*pairs, strict=True))
    yield row(f"import calibjax (jax itself: {quantity(of_jax, 's')})", more, None, "<0.3")
