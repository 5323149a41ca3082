"""Methods of one prediction, alone, under vmap and inside of kernels, against rows of a batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import FAMILIES, SCORED, cast
from marks import slow

import calibjax as cj
from calibjax._data.capabilities import has_unit_box

ALONE = "mean variance standard_deviation location spread off_mode_probability has_stein_identity"
OF_TARGETS = (
    "log_prob score cdf survival tails cdf_jump pit_intervals unit_interval unit_box "
    "crps_closed_form supports restricted"
)
METHODS = {
    **dict.fromkeys(ALONE.split(), lambda y: ()),
    **dict.fromkeys(OF_TARGETS.split(), lambda y: (y,)),
    "quantile": lambda y: (0.3,),
    "sample": lambda y: (jax.random.key(0), (4,)),
}
QUICK = {"bernoulli", "normal", "diag", "quantiles", "empirical", "empirical_vectors", "ensemble"}
ALL = FAMILIES | SCORED


def call(method):
    """A function of predictions and targets: the arrays that the method returns, rows first."""

    def of(p, y):
        found = getattr(p, method)(*METHODS[method](y))
        if method == "sample":
            found = jnp.moveaxis(found, 0, -1)
        return [x for x in jax.tree.leaves(found) if not isinstance(x, str)]

    return of


def has_method(method, p, y):
    """Whether a batch of the family has it."""
    if method == "unit_box" and not has_unit_box(p):
        return False
    try:
        jax.eval_shape(call(method), p, y)
    except (AttributeError, TypeError):
        return False
    return True


@pytest.mark.parametrize("family", slow(ALL.keys() - QUICK, ALL))
def test_shapes(family):
    p, y = cast(ALL[family](3, 0), "float32")
    methods = [method for method in METHODS if has_method(method, p, y)]
    assert len(methods) >= 9 or family == "unnormalized"
    for method in methods:
        batch = [x.shape for x in jax.eval_shape(call(method), p, y)]
        mapped = jax.eval_shape(jax.vmap(call(method)), p, y)
        one = jax.eval_shape(call(method), p[1], y[1])
        assert [x.shape for x in mapped] == batch, method
        assert [x.shape for x in one] == [shape[1:] for shape in batch], method


@pytest.mark.parametrize("family", slow(FAMILIES.keys() - QUICK, FAMILIES))
def test_values(family):
    p, y = cast(FAMILIES[family](3, 0), "float32")
    methods = ("mean", "spread", "log_prob", "cdf", "survival", "supports")
    methods = [method for method in methods if has_method(method, p, y)]

    @jax.jit
    def found(p, y):
        functions = [call(method) for method in methods]
        batch = [f(p, y) for f in functions]
        return batch, [jax.vmap(f)(p, y) for f in functions], [f(p[1], y[1]) for f in functions]

    batch, mapped, one = found(p, y)
    jax.tree.map(lambda x, z: np.testing.assert_allclose(x, z, rtol=1e-5), batch, mapped)
    jax.tree.map(lambda x, z: np.testing.assert_allclose(x[1], z, rtol=1e-5), batch, one)


def mean_of(p):
    return jnp.ravel(p.mean())


def deviation(p, y):
    return (jnp.ravel(y).astype(p.spread().dtype) - jnp.ravel(p.mean())) / jnp.ravel(p.spread())


@pytest.mark.parametrize("family", slow(FAMILIES.keys() - QUICK, FAMILIES))
def test_inside_of_kernels(family):
    p, y = cast(FAMILIES[family](6, 0), "float32")
    distance = cj.EmbeddingDistance(mean_of)
    means = np.asarray(jax.jit(lambda p: p.mean())(p)).reshape(6, -1)
    expected = np.linalg.norm(means[:, None] - means, axis=-1)
    found = jax.jit(distance.pairwise)(p, p)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    kernel = cj.FeatureKernel(cj.DistanceKernel(distance), deviation)
    spreads = np.asarray(jax.jit(lambda p: p.spread())(p)).reshape(6, -1)
    features = (np.asarray(y).reshape(6, -1) - means) / spreads
    values = jax.jit(jax.vmap(lambda *pair: kernel(pair[:2], pair[2:])))(p, y, p[::-1], y[::-1])
    product = np.exp(-expected) * (features @ features.T)
    np.testing.assert_allclose(values, np.diag(product[:, ::-1]), rtol=1e-3, atol=1e-4)


def test_methods_by_keywords_and_numbers():
    p = cj.Normal(jnp.zeros(2), jnp.ones(2))
    one = p[0]
    assert one.cdf(targets=jnp.zeros(())).shape == one.quantile(level=0.5).shape == ()
    assert one.sample(jax.random.key(0), shape=(2, 3)).shape == (2, 3)
    assert one.sample(key=jax.random.key(0)).shape == ()
    assert float(cj.Normal(1.0, 2.0).mean()) == 1.0
    vectors = cj.Empirical(jnp.zeros((4, 5, 2)))
    assert vectors[0].mean().shape == (2,) and vectors[0].sample(jax.random.key(0)).shape == (2,)
    mixture = cj.Mixture.ensemble(cj.Empirical(jnp.arange(12.0).reshape(2, 3, 2)))
    nested = cj.Mixture.ensemble(jax.tree.map(lambda x: x[None], mixture))
    np.testing.assert_allclose(jax.vmap(lambda p: p.mean())(mixture), [2.5, 8.5])
    np.testing.assert_allclose(nested.mean(), [5.5])
