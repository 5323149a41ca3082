"""The share of targets above the median, in segments of rows that depend on each other or not."""

import jax
import numpy as np
import scipy.stats

import calibjax as cj

N, CLUSTERS = 400, 40
SIDE = np.where(np.arange(N) % 2 == 0, "left", "right")
#: Clusters of equal rows, of which 27 of 40 are above the median.
CLUSTER = np.arange(N) // (N // CLUSTERS)
LOC = np.random.default_rng(0).normal(size=N).astype(np.float32)
ABOVE = np.random.default_rng(1).permutation(CLUSTERS) < 27
TARGETS = (LOC + np.where(ABOVE[CLUSTER], 0.4, -0.4)).astype(np.float32)


def found(targets, predictions, **rows):
    result = cj.segment_test(jax.random.key(0), predictions, targets, {"side": SIDE}, **rows)
    assert result.names.statistics[-1] == "above the median"
    return result, [x for x in result.segments if x.statistic == "above the median"]


def test_scores_are_those_of_counts():
    _, segments = found(TARGETS, cj.Normal(LOC, np.ones(N, np.float32)))
    assert len(segments) == 3
    for x in segments:
        is_member = SIDE == x.conditions["side"] if x.conditions else np.ones(N, bool)
        n, count = is_member.sum(), np.sum((TARGETS > LOC)[is_member])
        np.testing.assert_allclose(x.score, (count - n / 2) / np.sqrt(n / 4), rtol=1e-5)
        shares = f"predicted 50.0 %, observed {100 * count / n:.1f} %"
        assert x.description == f"above the median ({shares})"


def test_clusters_are_respected():
    predictions = cj.Normal(LOC, np.ones(N, np.float32))
    _, (clearest, *_) = found(TARGETS, predictions)
    result, (of_clusters, *_) = found(TARGETS, predictions, clusters=CLUSTER)
    assert "signs of 40 clusters" in result.method
    # 27 of 40 fair coins, and not 270 of 400.
    one_sided = scipy.stats.binom.sf(26, CLUSTERS, 0.5)
    assert clearest.pvalue < 0.0011 and one_sided < of_clusters.pvalue < 0.5


def test_counts_are_taken_by_their_intervals():
    rates = np.full(N, 1.5, np.float32)
    counts = np.random.default_rng(2).poisson(1.5, N).astype(np.int32)
    _, segments = found(counts, cj.Poisson(rates))
    low, high = (scipy.stats.poisson.cdf(counts - k, 1.5) for k in (1, 0))
    shares = np.clip((high - np.maximum(low, 0.5)) / (high - low), 0, 1)
    (all_rows,) = [x for x in segments if not x.conditions]
    np.testing.assert_allclose(all_rows.observed, shares.mean(), rtol=1e-5)
