import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from marks import fast_in_float32

from calibjax._numbers.special_functions import erfcx

# x, erfcx(x), erfcx'(x), erfcx''(x), computed by mpmath with 80 digits because the identity
# erfcx' = 2 x erfcx - 2 / sqrt(pi) cancels; each x is exact in float32.
TABLE = (
    (0.0, 1.0, -1.1283791670955126, 2.0),
    (0.0009765625, 0.9988990201938142, -1.1264281924466966, 1.9955979853242558),
    (0.125, 0.8732218450821508, -0.9100737058249748, 1.518925263708058),
    (0.5, 0.6156903441929259, -0.5126888229025867, 0.718691865483265),
    (1.0, 0.427583576155807, -0.27321201478389856, 0.3087431227438169),
    (2.0, 0.25539567631050575, -0.1067964618534896, 0.0836055052070531),
    (3.0, 0.17900115118138996, -0.05437226000717287, 0.03176874231974267),
    (5.0, 0.11070463773306863, -0.02133278976482631, 0.008081377817874151),
    (10.0, 0.05614099274382259, -0.0055593122190608565, 0.0010957411064280369),
    (27.0, 0.02088160799042094, -0.0007723356127817775, 5.7092890625896615e-05),
    (1000.0, 0.0005641893014533876, -5.641887372654967e-07, 1.1283757819707055e-09),
    (1048576.0, 5.380531154131887e-07, -5.131274370314591e-13, 9.787129154792007e-19),
)

# Relative tolerances of the value, first and second derivative: twice the errors measured, and for
# float64 values a little more, as scipy's own error of 9e-16 comes on top.
RTOL = {"float32": (8e-7, 1.3e-6, 1.4e-6), "float64": (2e-15, 3e-15, 5e-15)}


def forward(f):
    return lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),))[1]


def test_value_against_scipy(dtype):
    x = np.concatenate([np.linspace(0, 30, 3001), np.logspace(-6, 30, 3001)]).astype(dtype)
    y = jax.jit(erfcx)(x)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, scipy.special.erfcx(x.astype(float)), rtol=RTOL[dtype][0])


@pytest.mark.parametrize("derivative", [jax.grad, forward])
def test_value_and_derivatives_against_mpmath(dtype, derivative):
    x, *references = np.array(TABLE).T
    f = erfcx
    for reference, rtol in zip(references, RTOL[dtype], strict=True):
        y = jax.jit(jax.vmap(f))(jnp.asarray(x, dtype))
        assert y.dtype == dtype
        np.testing.assert_allclose(y, reference, rtol=rtol)
        f = derivative(f)


def test_far_tail(dtype):
    x = np.asarray(1e30, dtype)
    np.testing.assert_allclose(jax.jit(erfcx)(x), 1e-30 / np.sqrt(np.pi), rtol=RTOL[dtype][0])
    largest = jnp.finfo(dtype).max
    for derivative in (jax.grad, forward):
        f = erfcx
        for _ in range(3):
            for x in (largest, jnp.inf):  # true results are subnormal or 0: both may flush to 0
                assert abs(jax.jit(f)(np.asarray(x, dtype))) < jnp.finfo(dtype).tiny
            f = derivative(f)


@fast_in_float32
def test_elementwise_under_strict_promotion(dtype):
    x = np.linspace(0, 9, 24, dtype=dtype).reshape(2, 3, 4)
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        y = jax.jit(erfcx)(x)
        slope = jax.jit(jax.grad(lambda x: erfcx(x).sum()))(x)
        flat = jax.jit(jax.vmap(erfcx))(x.ravel())
        flat_slope = jax.jit(jax.vmap(jax.grad(erfcx)))(x.ravel())
    assert y.shape == slope.shape == x.shape and y.dtype == slope.dtype == dtype
    np.testing.assert_allclose(y.ravel(), flat, rtol=RTOL[dtype][0])
    np.testing.assert_allclose(slope.ravel(), flat_slope, rtol=RTOL[dtype][1])
