"""The e-values of bets on rows: tilts of stated probabilities, and bets on surprises."""

import functools

import jax
import jax.numpy as jnp

from calibjax.monitoring._basis import Basis

# Variances tau of w, and shares x of the bets on surprises.
SIZES = 1e-3, 3e-2, 1.0
SURPRISES = 1e-3, 1e-2, 1e-1
# exp(80) is finite in float32.
_LARGEST_TILT = 80.0

# Coefficients of the bets that always bet on one direction, and the number of directions.
FIXED, DIRECTIONS = (-0.3, -0.1, -0.03, 0.03, 0.1, 0.3), 3


def learnt_thetas(bases: list[Basis], sums: list[jax.Array], counts: jax.Array) -> list[jax.Array]:
    """theta of each kind, for each set and bet that learns, ``[T, B, J, K]``."""
    sizes = jnp.asarray(SIZES, counts.dtype)[:, None, None, None]
    counts = counts[None, :, None, None]

    def learnt_theta(prior: jax.Array, sums: jax.Array) -> jax.Array:
        counts_here = prior > 0
        inverse = 1.0 / (sizes * jnp.where(counts_here, prior, 1.0)[None, None])
        theta = sums[:, None] / (counts + inverse)[None]
        theta = jnp.where(counts_here[None, None, None], theta, 0.0)
        return theta.reshape(sums.shape[0], -1, *prior.shape)

    return [learnt_theta(basis.prior, x) for basis, x in zip(bases, sums, strict=True)]


def log_e_of_rows(
    tilts: list[jax.Array],
    phi: list[jax.Array],
    shares: jax.Array,
    psi: list[jax.Array],
    probabilities: jax.Array,
    boldness: jax.Array | None,
) -> jax.Array:
    """log e of each set and bet for each row, ``[T, B, n]``; tilts are multiplied by `boldness`.

    Rows stand last in all arrays here: a CPU then takes many of them at a time.
    """
    rows_last = [jnp.moveaxis(x, 0, -1) for x in (shares, probabilities, *phi, *psi)]
    shares, probabilities, *functions = rows_last
    phi, psi = functions[: len(phi)], functions[len(phi) :]
    learnt = _learnt_tilts(tilts, phi, psi)
    main = _main_directions(phi, psi)
    fixed = jnp.concatenate([size * main for size in FIXED])
    fixed = jnp.broadcast_to(fixed[None], (learnt.shape[0], *fixed.shape))
    # w_a of each set, bet and row, [T, B, A, n].
    w = jnp.concatenate([learnt, fixed], axis=1)
    w = w if boldness is None else w * boldness[None, None, None]
    possible = (probabilities > 0)[None, None]
    largest = jnp.max(jnp.where(possible, w, -jnp.inf), axis=2, keepdims=True)
    tilted = jnp.exp(jnp.minimum(w - largest, _LARGEST_TILT))
    tiny = jnp.finfo(w.dtype).tiny
    of_target = jnp.sum(tilted[:, :, None] * shares[:, None], axis=3)
    of_target = jnp.log(jnp.maximum(jnp.min(of_target, axis=2), tiny))
    mean = jnp.sum(jnp.where(possible, tilted * probabilities[None, None], 0.0), axis=2)
    # Probabilities of labels sum to one up to rounding, and millions of rows would add it up.
    total = jnp.sum(probabilities, axis=0)[None, None]
    of_tilts = of_target - jnp.log(mean / total)
    # A target in a cell of probability 0 is infinite evidence.
    stated = jnp.where(shares > 0, probabilities[None, None], 1.0)
    surprise = jnp.min(jnp.sum(shares / stated, axis=2), axis=1, keepdims=True)
    surprise = surprise / probabilities.shape[0]
    sizes = jnp.asarray(SURPRISES, w.dtype)[None, :, None]
    return jnp.concatenate([of_tilts, jnp.log1p(sizes * (surprise - 1.0))], axis=1)


def _learnt_tilts(tilts: list[jax.Array], phi: list[jax.Array], psi: list[jax.Array]) -> jax.Array:
    """sum_jk theta_jk phi_j psi_k at each cell for the bets that learn, ``[T, B, A, n]``."""
    terms = []
    for theta, of_prediction, of_cells in zip(tilts, phi, psi, strict=True):
        of_row = jnp.einsum("tbjk,jn->tbkn", theta, of_prediction, precision="highest")
        # A product of matrices would be slow here: there is a tiny one for each row.
        terms += [of_row[:, :, k, None] * of_cells[None, None, :, k] for k in range(theta.shape[3])]
    return functools.reduce(jnp.add, terms)


def _main_directions(phi: list[jax.Array], psi: list[jax.Array]) -> jax.Array:
    """phi_0 psi_k for the first k of each kind, whose priors are large, ``[D, A, n]``.

    Labels have three kinds of features, and numbers have one kind.
    """
    return jnp.concatenate(
        [
            of_prediction[0][None, None] * jnp.moveaxis(of_cells, 1, 0)[: DIRECTIONS // len(phi)]
            for of_prediction, of_cells in zip(phi, psi, strict=True)
        ]
    )
