"""Packages that compute the same numbers.  They are optional."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from benchmarks import harness
from benchmarks.rows import PAIRED, Row, compare, missing, row, table, values
from benchmarks.works import binary, losses

COLUMNS = (*PAIRED[:4], "first call [s]", "our MB", "its MB", "our value", "its value")
#: Floats of the largest array of which the peer makes several: 700 MB each.
LARGEST_PEER = 128**2 * 100**2


class Peer(NamedTuple):
    """A loss that we both have, and whether it holds a number for each pair of rows and labels."""

    name: str
    package: str
    ours: Callable[..., losses.Call]
    its: Callable[..., losses.Call]
    holds_pairs_of_labels: bool = False


LOSSES = (
    Peer("MMCE², PyTorch", "torch", losses.squared_mmce, losses.squared_mmce_by_torch),
    Peer("MMCE_w, netcal", "netcal", losses.weighted_mmce, losses.weighted_mmce_by_netcal),
    Peer("MMD loss, PyTorch", "torch", losses.mmd_loss, losses.mmd_loss_by_torch, True),
)


def _with_memory(result: Row, ours: Callable, its: Callable, **size: int) -> Row:
    memory = [harness.peak_memory(work, **size)["megabytes"] for work in (ours, its)]
    return result | {"our MB": memory[0], "its MB": memory[1]}


@table("Binary predictions beside probcal", columns=COLUMNS)
def probcal(quick: bool) -> Iterator[Row]:
    """`probcal.metrics.kernel`, NumPy in float64: `skce(estimator="uq")`, and `skce_test` with 999
    resamples and the same statistic. "First call" is ours, including compilation."""
    words = missing("probcal")
    n_resamples = 20 if quick else 999
    for n in (64,) if quick else (500, 1000, 2000, 5000):
        work = f"skce, n = {n}"
        if words:
            yield row(work, harness.once(binary.skce(n)), words, None)
            continue
        calls = {"ours": binary.skce(n), "probcal": binary.skce_by_probcal(n)}
        result = compare(work, calls, None, repeats=1 if quick else 5)
        yield _with_memory(result, binary.skce, binary.skce_by_probcal, n=n)
    for n in (64,) if quick else (500, 1000):
        work = f"skce_test, n = {n}"
        if words:
            yield row(work, harness.once(binary.test(n, n_resamples)), words, None)
            continue
        calls = {
            "ours": binary.test(n, n_resamples),
            "probcal": binary.test_by_probcal(n, n_resamples),
        }
        (ours, our_pvalue), (its, its_pvalue) = (call() for call in calls.values())
        np.testing.assert_allclose(ours, its, atol=1e-6)
        assert abs(our_pvalue - its_pvalue) < 8 * np.sqrt(1 / (4 * n_resamples))
        times = harness.time_calls(calls, repeats=1 if quick else 3)
        seconds = (times[name]["median"] for name in calls)
        yield row(work, *seconds, None, times=times) | values(ours, its)


@table("Calibration losses with their gradients, beside PyTorch", columns=COLUMNS)
def torch_losses(quick: bool) -> Iterator[Row]:
    """Value and gradient in the logits of a batch; both are compared first. MMCE²: the mean of
    Kumar et al. over all pairs, with matrices. MMCE_w: `netcal.regularization.MMCEPenalty`, with
    equal weights of hits and misses; ours is the root of a weighted biased SKCE. MMD loss: that of
    Marx et al. (NeurIPS 2023) from its formula, with sums over all pairs of labels and of rows;
    ours is a multiple of the SKCE. "First call" is ours, including compilation."""
    sizes = ((16, 3),) if quick else tuple((n, m) for m in (10, 100) for n in (64, 128, 256))
    for peer in LOSSES:
        for n, m in sizes:
            work = f"{peer.name}, batch {n}, m = {m}"
            words = missing(peer.package)
            if peer.holds_pairs_of_labels and n**2 * m**2 > LARGEST_PEER:
                words = f"not run: {4e-9 * n**2 * m**2:.2g} GB in each of several arrays"
            if words:
                yield row(work, harness.once(peer.ours(n, m)), words, None)
                continue
            calls = {"ours": peer.ours(n, m), "peer": peer.its(n, m)}
            slow = peer.holds_pairs_of_labels and n * m > 5000
            result = compare(
                work, calls, None, repeats=1 if quick else 3 if slow else 15, rtol=1e-4
            )
            if n == sizes[-1][0] or slow:
                result = _with_memory(result, peer.ours, peer.its, n=n, m=m)
            yield result
