"""Ensembles of few members that are too narrow are found, and right ones are rejected rarely."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax as cj

N_SETS, N, S = 100, 400, 10


@jax.jit
def _pvalues(keys, width):
    def pvalue(key):
        row_key, member_key, target_key, test_key = jax.random.split(key, 4)
        centre = jax.random.normal(row_key, (N, 1))
        members = centre + width * jax.random.normal(member_key, (N, S))
        targets = centre[:, 0] + jax.random.normal(target_key, (N,))
        test = cj.calibration_test(test_key, cj.Empirical(members), targets, n_resamples=199)
        return test.pvalue

    return jax.lax.map(pvalue, keys)


@pytest.mark.parametrize(("width", "least", "most"), [(1.0, 0.0, 0.05), (0.86, 0.8, 1.0)])
def test_how_often_ten_members_are_rejected(width, least, most):
    keys = jax.random.split(jax.random.key(52), N_SETS)
    found = np.mean(np.asarray(_pvalues(keys, jnp.float32(width))) <= 0.05 + 1e-6)
    error = 2 * np.sqrt(most * (1 - most) / N_SETS)
    assert least <= found <= most + error
