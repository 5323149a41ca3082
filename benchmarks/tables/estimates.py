"""Estimates beside what a user would write instead."""

import itertools
from collections.abc import Iterator

import numpy as np

from benchmarks import harness
from benchmarks.rows import Row, compare, row, table
from benchmarks.works import labels, normals


@table("Estimates beside h of one pair, vmapped twice")
def vmap(quick: bool) -> Iterator[Row]:
    """`jit(vmap(vmap(h)))` and the mean of it off the diagonal."""
    n = 256 if quick else 4096
    for m, target in ((10, ">25"),) if quick else ((10, ">25"), (100, ">40")):
        calls = {"skce": labels.skce(n, m), "vmap": labels.skce_by_vmap(n, m)}
        yield compare(f"n = {n}, m = {m}", calls, target, repeats=1 if quick else 7)


@table("Estimates beside a scan over tiles")
def tiles(quick: bool) -> Iterator[Row]:
    """Half of the tiles of 512 rows, each one fused expression and a product of matrices, in
    fifteen lines, as a good user of JAX would write it; its steps are checkpointed."""
    n = 256 if quick else 4096
    for m, gradient in itertools.product((10,) if quick else (10, 100), (False, True)):
        calls = {
            "skce": labels.skce(n, m, gradient=gradient, jitted=True),
            "scan": labels.skce_in_tiles(n, m, gradient),
        }
        work = f"n = {n}, m = {m}{'; value and gradient' if gradient else ''}"
        yield compare(work, calls, ">1", repeats=1 if quick else 7)


@table("Estimates beside SciPy and BLAS")
def scipy(quick: bool) -> Iterator[Row]:
    """Distances by `pdist`, residuals by a product of matrices: as one writes it, with square
    matrices, and with care for memory, row by row."""
    size = {"n": 256 if quick else 10_000, "m": 10}
    ours = harness.peak_memory(labels.skce, **size)["megabytes"]
    for rowwise, how in ((False, "square matrices"), (True, "row by row")):
        calls = {
            "skce": labels.skce(**size),
            "scipy": labels.skce_by_scipy(**size, rowwise=rowwise),
        }
        work = f"n = {size['n']}, m = 10; {how}"
        yield compare(work, calls, ">25", repeats=1 if quick else 5)
        peer = harness.peak_memory(labels.skce_by_scipy, **size, rowwise=rowwise)["megabytes"]
        yield row(f"memory, {work}", ours, peer, ">20", unit="MB")


@table("Normal predictions beside a loop written by hand")
def normal(quick: bool) -> Iterator[Row]:
    """The formula of Normal predictions and a Gaussian target kernel in a loop over tiles of the
    upper triangle: the plain one of the textbook, which loses all digits for narrow predictions,
    and a stable one."""
    n = 256 if quick else 16_384
    peers = {"plain": normals.plain_residual, "stable": normals.stable_residual}
    calls = {"skce": normals.normal_skce(n)}
    calls |= {name: normals.normal_by_hand(n, residual) for name, residual in peers.items()}
    values = {name: float(call()) for name, call in calls.items()}
    for name in peers:
        np.testing.assert_allclose(values["skce"], values[name], atol=1e-6)
    times = harness.time_calls(calls, repeats=1 if quick else 7)
    for name in peers:
        ours, peer = times["skce"]["median"], times[name]["median"]
        yield row(f"n = {n}; {name} formula", ours, peer, "<1.2", times=times)
