"""Streams that are made to ring falsely: predictions that know the past, and the ends of floats."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax as cj

N_STREAMS, N_UPDATES = 1000, 150

# ``stream(key, state)`` returns predictions, targets, a mask and the next state.


def opposite_of_the_last(key, last):
    """Predictions that the last target decides, so that the past says much about the future."""
    p = jnp.where(last == 1, jnp.array([0.02, 0.3, 0.9]), jnp.array([0.98, 0.7, 0.1]))
    predictions = cj.Bernoulli(p)
    targets = predictions.sample(key)
    return predictions, targets, None, targets[-1]


def frequency_of_the_past(key, state):
    """Pólya's urn: the model predicts what it has seen, and is right."""
    n_ones, n = state
    predictions = cj.Bernoulli(jnp.clip((n_ones + 1) / (n + 2), 1e-3, 1 - 1e-3)[None])
    targets = predictions.sample(key)
    return predictions, targets, None, (n_ones + targets[0].astype(n_ones.dtype), n + 1)


def with_rubbish_behind_masks(key, state):
    keys = jax.random.split(key, 4)
    predictions = cj.Bernoulli(jax.random.uniform(keys[0], (6,)))
    targets = predictions.sample(keys[1])
    # A batch in three is masked as a whole.
    where = jax.random.bernoulli(keys[2], 0.5, (6,)) & jax.random.bernoulli(keys[3], 0.7)
    rubbish = cj.Bernoulli(jnp.where(where, predictions.probs, jnp.nan))
    return rubbish, jnp.where(where, targets, 7), where, state


def probabilities(draw, key, state):
    draw_key, target_key = jax.random.split(key)
    predictions = cj.Bernoulli(draw(draw_key))
    return predictions, predictions.sample(target_key), None, state


def certain_or_a_coin(key):
    return jax.random.choice(key, jnp.array([0.0, 1.0, 0.5]), (4,))


def tiny(key):
    return 10 ** jax.random.uniform(key, (4,), minval=-9.0, maxval=-1.0)


def far_from_the_example(key, state):
    loc_key, scale_key, target_key = jax.random.split(key, 3)
    loc = 1e4 + 100 * jax.random.normal(loc_key, (4,))
    predictions = cj.Normal(loc, jnp.exp(jax.random.normal(scale_key, (4,))))
    return predictions, predictions.sample(target_key), None, state


def of_all_scales(key, state):
    scale_key, target_key = jax.random.split(key)
    scale = 10 ** jax.random.uniform(scale_key, (4,), minval=-30.0, maxval=30.0)
    predictions = cj.Normal(jnp.zeros(4), scale)
    return predictions, predictions.sample(target_key), None, state


def draws_with_ties(key, state):
    loc_key, draw_key = jax.random.split(key)
    values = jax.random.normal(loc_key, (4, 1)) + jax.random.normal(draw_key, (4, 11))
    values = jnp.round(values)
    return cj.Empirical(values[:, 1:], fair=True), values[:, 0], None, state


ATTACKS = {
    "opposite of the last": (opposite_of_the_last, jnp.zeros((), jnp.int32)),
    "frequency of the past": (frequency_of_the_past, (jnp.zeros(()), jnp.zeros(()))),
    "rubbish behind masks": (with_rubbish_behind_masks, None),
    "certain or a coin": (functools.partial(probabilities, certain_or_a_coin), None),
    "tiny probabilities": (functools.partial(probabilities, tiny), None),
    "far from the example": (far_from_the_example, None),
    "of all scales": (of_all_scales, None),
    "draws with ties": (draws_with_ties, None),
}

EXAMPLES = {
    "far from the example": cj.Normal(jnp.linspace(-1.0, 1.0, 50), jnp.linspace(0.5, 2.0, 50)),
    "of all scales": cj.Normal(jnp.linspace(-1.0, 1.0, 50), jnp.linspace(0.5, 2.0, 50)),
    "draws with ties": cj.Empirical(jnp.sin(jnp.arange(500.0)).reshape(50, 10), fair=True),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_stream_of_a_calibrated_model_rings_too_often(attack, key):
    stream, first_state = ATTACKS[attack]
    example = EXAMPLES.get(attack, cj.Bernoulli(jnp.linspace(0.01, 0.99, 50)))
    monitor = cj.CalibrationMonitor.start(key, example)

    def step(carry, key):
        monitor, state = carry
        predictions, targets, where, state = stream(key, state)
        return (monitor.update(predictions, targets, where=where), state), None

    def last_pvalue(key):
        keys = jax.random.split(key, N_UPDATES)
        return jax.lax.scan(step, (monitor, first_state), keys)[0][0].pvalue

    pvalues = jax.jit(jax.vmap(last_pvalue))(jax.random.split(key, N_STREAMS))
    assert not np.any(np.isnan(pvalues))
    for level in 0.01, 0.05, 0.2:
        error = np.sqrt(level * (1 - level) / N_STREAMS)
        assert np.mean(pvalues <= level) <= level + 3 * error
