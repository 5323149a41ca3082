"""Estimates beside what a user would write instead."""

import itertools
from collections.abc import Iterator

import numpy as np

from benchmarks import harness
from benchmarks.rows import Row, compare, row, table
from benchmarks.works import labels, normals


@table("Estimates beside h of one pair, vmapped twice")
def vmap(quick: bool) -> Iterator[Row]:
    """Peer: `jit(vmap(vmap(h)))` and its mean off the diagonal."""
    n = 256 if quick else 4096
    for m, target in ((10, ">25"),) if quick else ((10, ">25"), (100, ">40")):
        calls = {"skce": labels.skce(n, m), "vmap": labels.skce_by_vmap(n, m)}
        yield compare(f"n = {n}, m = {m}", calls, target, repeats=1 if quick else 7)


@table("Estimates beside a scan over tiles")
def tiles(quick: bool) -> Iterator[Row]:
    """Peer: half of the tiles of 512 rows, each a fused expression and a matrix product, with
    checkpointed steps; fifteen lines, as an experienced user of JAX would write."""
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
    """Peer: distances by `pdist`, residuals by a matrix product. Once with square matrices, and
    once row by row, which saves memory."""
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
    """Peer: the formula for Normal predictions and a Gaussian target kernel, in a loop over tiles
    of the upper triangle. Once the textbook formula, which loses all digits for narrow predictions,
    and once a stable one."""
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
