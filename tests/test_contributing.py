"""The family that CONTRIBUTING.md adds works, in all that a family can do."""

import pathlib
import re

from scripts import output_of

CONTRIBUTING = pathlib.Path(__file__).parents[1] / "CONTRIBUTING.md"

# In a process of its own: a family is known from its definition on.
USE = """

import calibjax as cj
import numpy as np

jax.config.update("jax_enable_x64", True)
p, y = Exponential(jnp.array([0.7, 1.0, 2.5, 40.0])), jnp.array([0.0, 1.0, 0.4, 30.0])
one, other, kernel = p[0], p[2], cj.LaplacianKernel(0.8)


def expectation(p, function):
    x, weights = np.polynomial.legendre.leggauss(40)
    ends = np.array([[0.0, 0.4], [0.4, 3.0], [3.0, 30.0], [30.0, 150.0]])
    middle, half = ends.mean(1, keepdims=True), np.diff(ends) / 2
    z = jnp.asarray(np.ravel(middle + half * x))
    return jnp.sum(np.ravel(half * weights) * jnp.exp(p.log_prob(z)) * jax.vmap(function)(z))


def check(found, expected, tolerance=1e-10):
    assert abs(found - expected) < tolerance, (found, expected)


check(cj.mean_embedding(one, kernel, y[2]), expectation(one, lambda z: kernel(z, y[2])))
of_other = lambda z: cj.mean_embedding(other, kernel, z)
check(cj.inner_product(one, kernel, other), expectation(one, of_other))
check(one.characteristic(jnp.array(0.6)), expectation(one, lambda z: jnp.exp(0.6j * z)))
check(cj.temper(p, 3.0).scale[0], 2.1)
# The optimal map takes z to its multiple.
squared = expectation(one, lambda z: (z * (1 - 2.5 / 0.7)) ** 2)
check(cj.Wasserstein().pairwise(p, p)[0, 2] ** 2, squared)
default = cj.default_kernel(p)
kernel = cj.TensorProduct(default.prediction_kernel, kernel)
features = cj.random_feature_skce(jax.random.key(0), kernel, p, y, n_features=10_000)
check(features.estimate, cj.skce(kernel, p, y), 5 * features.standard_error)
print(type(default.prediction_kernel.distance).__name__)
"""


def test_the_family_that_is_added(tmp_path):
    (block,) = re.findall(r"```python\n(.*?)```", CONTRIBUTING.read_text(), flags=re.DOTALL)
    script = tmp_path / "exponential.py"
    script.write_text(block + USE)
    assert output_of(script, folder=tmp_path) == "Wasserstein\n"
