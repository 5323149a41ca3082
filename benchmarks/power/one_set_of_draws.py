"""Many kernels with the same draws from the predictions, and all ways to aggregate them.

The statistics are those of `aggregated_skce_test`, with as many landmarks as rows, at most 1024: up
to this number of rows the kernels on predictions are exact.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import calibjax as cj
from calibjax._base.struct import as_pytree
from calibjax._data.capabilities import exchangeable_pool, is_exchangeable
from calibjax._data.data import as_data, clean
from calibjax.discrepancy import normal_form
from calibjax.hypothesis_tests._kernel_terms import terms_of
from calibjax.hypothesis_tests._redrawn_skce import redrawn_skce
from calibjax.nulls.ranks import aggregate, counted_pvalue
from calibjax.nulls.sampler import NullSampler

_MOST_LANDMARKS = 1024

#: Lengthscales of the grid, as powers of two times the median distance.
POWERS = tuple(range(-6, 3))

GRID = tuple(f"2^{power}" for power in POWERS)

_LABELS = (
    *(f"TV {scale}" for scale in ("16/n", "1/4", "4")),
    *(f"top label {scale}" for scale in ("32/n", "1/4")),
    "log score",
)
_PLACES = tuple(
    f"{kind}, {compared}"
    for compared in ("by location", "by spread", "wide")
    for kind in ("location", "spread", "shape")
)
_PLACES_OF_SAMPLES = *(name for name in _PLACES if not name.startswith("shape")), "all"
#: The column of `default_kernel` alone.
DEFAULT = "default kernel"


def member_names(predictions: Any) -> tuple[str, ...]:
    """A name for each of the `default_kernels`."""
    has_labels = isinstance(predictions, (cj.Bernoulli, cj.Categorical))
    if has_labels:
        return _LABELS
    return _PLACES_OF_SAMPLES if is_exchangeable(predictions) else _PLACES


def largest_score(values: jax.Array) -> jax.Array:
    """The p-value of the aggregate of calibjax."""
    return aggregate(values).pvalue


def largest_studentised(values: jax.Array) -> jax.Array:
    """max_k (T_k - m_k) / s_k with the mean m_k and the standard deviation s_k of the draws."""
    return _pvalue(jnp.max(_studentised(values), axis=0))


def least_pvalue(values: jax.Array) -> jax.Array:
    """min-p of Westfall and Young; the largest studentised value decides between equal ranks."""
    ranks = jax.vmap(lambda x: jnp.sum(x[None] >= x[:, None], axis=1))(values)
    # Between -1/2 and 1/2, where ranks are integers.
    among_equals = jax.nn.soft_sign(jnp.max(_studentised(values), axis=0)) / 2
    return _pvalue(among_equals - jnp.min(ranks, axis=0).astype(values.dtype))


def log_sum_exp(values: jax.Array) -> jax.Array:
    """log sum_k exp(T_k / s_k), after MMD-FUSE (Biggs, Schrab and Gretton, NeurIPS 2023)."""
    return _pvalue(jax.nn.logsumexp(_studentised(values), axis=0))


def _studentised(values: jax.Array) -> jax.Array:
    centred = values - jnp.mean(values, axis=1, keepdims=True)
    squares = jnp.mean(jnp.square(centred), axis=1, keepdims=True)
    return centred / jnp.sqrt(jnp.where(squares > 0, squares, 1.0))


def _pvalue(statistics: jax.Array) -> jax.Array:
    return counted_pvalue(statistics[0] - 1e-5, statistics[1:])


#: name -> p-value of statistics ``[K, 1 + B]`` of which the first ones are observed.
RULES: dict[str, Callable[[jax.Array], jax.Array]] = {
    "largest z": largest_score,
    "max T/s": largest_studentised,
    "min-p": least_pvalue,
    "log-sum-exp": log_sum_exp,
}


def pvalues(key: jax.Array, predictions: Any, targets: jax.Array, n_draws: int) -> dict[str, Any]:
    """The p-value of each kernel alone and of each rule, for the grid and the default kernels."""
    predictions, targets = exchangeable_pool(predictions, targets)
    plain = cj.product_kernel(predictions)
    distance, median = plain.prediction_kernel.distance, plain.prediction_kernel.lengthscale
    grid = [
        cj.TensorProduct(cj.DistanceKernel(distance, 2.0**power * median), plain.target_kernel)
        for power in POWERS
    ]
    alone = *grid, cj.default_kernel(predictions)
    kernels = [as_pytree(k) for k in (*alone, *cj.default_kernels(predictions))]
    data = clean(as_data(predictions, targets))
    n_landmarks = min(data.n, _MOST_LANDMARKS)
    terms = terms_of(list(map(normal_form, kernels)))
    values, _ = redrawn_skce(key, terms, data, n_draws, n_landmarks, None, NullSampler())
    singles = aggregate(values).pvalues
    found = dict(zip((*GRID, DEFAULT, *member_names(predictions)), singles, strict=True))
    for name, rule in RULES.items():
        found[name] = rule(values[len(alone) :])
        found[f"grid, {name}"] = rule(values[: len(grid)])
    return found
