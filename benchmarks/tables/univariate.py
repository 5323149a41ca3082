"""Predictions of one number whose expectations are sums over 64 points."""

from collections.abc import Iterator

from benchmarks import harness
from benchmarks.rows import Row, row, table
from benchmarks.works import univariate


@table("Quadrature beside closed forms")
def quadrature(quick: bool) -> Iterator[Row]:
    """Default kernels, which are Gaussian for targets. The "peer" is the closed form of Normal
    predictions; with a Laplacian kernel, and for gradients, it is the same computation for Normal.
    With a target, the ratio is our time over the peer's; otherwise the reverse."""
    n, repeats = (64, 1) if quick else (2048, 7)
    for family in univariate.FAMILIES[1:]:
        yield _beside_normal(n, family, repeats, "<10")
    yield _beside_normal(n, "StudentT", repeats, None, gradient=True)
    yield _beside_normal(32 if quick else 512, "StudentT", repeats, None, kernel="Laplacian")
    if not quick:
        yield _beside_normal(16_384, "StudentT", 3, None)


def _beside_normal(n: int, family: str, repeats: int, target: str | None, **options) -> Row:
    calls = {name: univariate.skce(n, name, **options) for name in (family, "Normal")}
    times = harness.time_calls(calls, repeats)
    ours, normal = (times[name]["median"] for name in calls)
    what = "value and gradient" if options.get("gradient") else "value"
    work = f"{family} x {options.get('kernel', 'Gaussian')}, {what}, n = {n}"
    return row(work, ours, normal, target, times=times)


@table("Memory of the quadrature", ("work", "ours", "target"))
def quadrature_memory(quick: bool) -> Iterator[Row]:
    """Peak memory without the inputs."""
    for n, gradient in ((256, False),) if quick else ((16_384, False), (16_384, True)):
        used = harness.peak_memory(univariate.skce, n=n, family="StudentT", gradient=gradient)
        what = "value and gradient" if gradient else "value"
        work = f"StudentT x Gaussian, {what}, n = {n}"
        yield row(work, used["megabytes"], None, "<250", unit="MB")
