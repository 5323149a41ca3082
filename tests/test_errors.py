"""Bad arguments: the error, and that its message says which argument, what it should be, what came.

One line for each: a call, the exception, and the parts of its message in their order.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import sample
from messages import calls, check_message

import calibjax as cj

TV, W2, WHITE = cj.TotalVariation(), cj.Wasserstein(), cj.WhiteKernel()
GAUSSIAN = cj.GaussianKernel(1.0)
N = 6


def tensor(target_kernel=WHITE, distance=TV, **options):
    return cj.TensorProduct(cj.DistanceKernel(distance, **options), target_kernel)


def _classes():
    return sample("categorical-tv-white", N, dtype="float32")


def skce(kernel=None, predictions=None, targets=None, **options):
    """`skce` of valid classification data, but for what is passed."""
    defaults = _classes()
    arguments = (kernel, predictions, targets)
    return cj.skce(
        *(d if a is None else a for a, d in zip(arguments, defaults, strict=True)), **options
    )


def normal(target_kernel=GAUSSIAN, loc=None, scale=None, targets=None, family=cj.Normal):
    """`skce` of valid normal predictions, but for what is passed."""
    kernel = tensor(target_kernel, W2)
    ones = jnp.ones(N) if family is cj.Normal else jnp.ones((N, 2))
    loc, scale, targets = (ones if x is None else x for x in (loc, scale, targets))
    return cj.skce(kernel, family(loc, scale), targets)


def probs(row=None):
    p = np.full((N, 4), 0.25, "float32")
    if row is not None:
        p[2] = row
    return cj.Categorical(jnp.array(p))


def labels(value):
    return jnp.zeros(N, "int32").at[3].set(value)


def reals(value):
    return jnp.ones(N).at[3].set(value)


MASK = jnp.ones(N, bool)
AS_WEIGHTS = r"weights must be nonnegative and finite; row 3 is"
SUM_TO_ONE = (
    "probs must be nonnegative with rows that sum to one within 0.001 "
    r"\(normalize=True divides rows by their sums\); row 2 is \["
)
DIAG = cj.MultivariateNormalDiag

BAD = {
    TypeError: {
        "kernel must be a kernel.*got str": lambda: skce("tv"),
        "kernel must be a kernel.*got float": lambda: skce(2.0),
        "on pairs, got WhiteKernel.*on targets": lambda: skce(WHITE),
        "on pairs, got DistanceKernel.*on predictions": lambda: skce(cj.DistanceKernel(TV)),
        "prediction_kernel must be a kernel on predictions, got WhiteKernel.*on targets": lambda: (
            skce(cj.TensorProduct(WHITE, cj.DistanceKernel(TV)))
        ),
        "prediction_kernel must be a kernel on predictions, got TensorProduct": lambda: skce(
            cj.TensorProduct(tensor(), WHITE)
        ),
        "must be a kernel on pairs, got WhiteKernel": lambda: skce(tensor() + WHITE),
        "prediction_kernel must be a kernel.*got TotalVariation": lambda: skce(
            cj.TensorProduct(TV, WHITE)
        ),
        "distance .*got WhiteKernel": lambda: skce(tensor(distance=WHITE)),
        "lengthscale of DistanceKernel must be .*got str": lambda: skce(
            tensor(lengthscale="median")
        ),
        "lengthscale of GaussianKernel must be .*got list": lambda: normal(
            cj.GaussianKernel([1.0, 2.0]), family=DIAG
        ),
        "exponent of DistanceKernel must be": lambda: skce(tensor(exponent=jnp.ones(()))),
        r"must be a distribution .*such as Categorical\(probs\), got an array": lambda: skce(
            predictions=jnp.ones((N, 4)) / 4
        ),
        r"such as Bernoulli\(probs\) of the probabilities of an event, got": lambda: skce(
            predictions=jnp.ones(N) / 4
        ),
        r"such as Bernoulli\(probs\[:, 0\]\) .*got an array of shape \[\d+, 1\]": lambda: skce(
            predictions=jnp.ones((N, 1)) / 4
        ),
        "predictions must be a distribution of calibjax.*got list": lambda: skce(
            predictions=[0.5] * N
        ),
        "predictions must be a distribution of calibjax.*got TensorProduct": lambda: cj.skce(
            _classes()[1], *_classes()[::2]
        ),
        "predictions must be a distribution of calibjax.*got an array": lambda: cj.skce(
            tensor(), *_classes()[:0:-1]
        ),
        "probs must be an array, got list": lambda: skce(
            predictions=cj.Categorical([[0.5, 0.5]] * N)
        ),
        "probs must hold real values, got dtype complex64": lambda: skce(
            predictions=cj.Categorical(jnp.ones((N, 1), "complex64"))
        ),
        "probs must hold real values, got dtype bool": lambda: skce(
            predictions=cj.Bernoulli(jnp.ones(N, bool))
        ),
        "loc must be an array, got float": lambda: normal(loc=0.0, scale=1.0),
        "targets must be an array, got list": lambda: skce(targets=[0] * N),
        "targets must hold integer values, got dtype float32": lambda: skce(targets=jnp.zeros(N)),
        "block_size must be.*got float": lambda: skce(block_size=2.5),
        "block_size must be.*got bool": lambda: skce(block_size=True),
        "unbiased must be .*bool.*got str": lambda: skce(unbiased="biased"),
        "where must be an array, got list": lambda: skce(where=[True] * N),
        "where must hold boolean values, got dtype int32": lambda: skce(where=jnp.ones(N, int)),
        "weights must be an array, got list": lambda: skce(weights=[1.0] * N),
        "weights must hold real values, got dtype bool": lambda: skce(weights=MASK),
        "TotalVariation compares probability vectors.*got Normal": lambda: cj.skce(
            tensor(GAUSSIAN), cj.Normal(jnp.ones(N), jnp.ones(N)), jnp.ones(N)
        ),
        "Wasserstein is defined for .*MultivariateNormalDiag.*Normal.*got Categorical": lambda: (
            skce(tensor(distance=W2))
        ),
        "predictions must be a distribution of calibjax": lambda: cj.h_matrix(
            tensor(), jnp.ones((N, 2)), labels(0)
        ),
        "kernel must be a kernel on pairs": lambda: cj.h_matrix(WHITE, probs(), labels(0)),
        "distance must be a distance between predictions, got Categorical": lambda: (
            cj.median_heuristic(probs(), TV)
        ),
        "distance must be .*got DistanceKernel": lambda: cj.median_heuristic(
            cj.DistanceKernel(TV), probs()
        ),
        "distance must be .*got str": lambda: cj.median_heuristic("euclidean", probs()),
    },
    ValueError: {
        "lengthscale of DistanceKernel must be positive and finite, got 0.0": lambda: skce(
            tensor(lengthscale=0.0)
        ),
        "lengthscale of GaussianKernel must be positive and finite, got -1.0": lambda: normal(
            cj.GaussianKernel(-1.0)
        ),
        "lengthscale of LaplacianKernel must be positive and finite, got nan": lambda: normal(
            cj.LaplacianKernel(np.nan)
        ),
        "lengthscale of GaussianKernel must be positive and finite.*-2": lambda: normal(
            cj.GaussianKernel(jnp.array([1.0, -2.0])), family=DIAG, targets=jnp.ones((N, 2))
        ),
        r"lengthscale of GaussianKernel must be a scalar or.*\[2\], got shape \[3\]": lambda: (
            normal(cj.GaussianKernel(jnp.ones(3)), family=DIAG)
        ),
        r"lengthscale of GaussianKernel must be a scalar.*got shape \[3\]": lambda: normal(
            cj.GaussianKernel(jnp.ones(3))
        ),
        r"lengthscale of DistanceKernel must be a scalar.*got shape \[3\]": lambda: skce(
            tensor(lengthscale=jnp.ones(3))
        ),
        r"exponent of DistanceKernel must be a Python number in \(0, 2\], got 3.0": lambda: skce(
            tensor(exponent=3.0)
        ),
        r"exponent of DistanceKernel must be a Python number in \(0, 2\], got 0.0": lambda: skce(
            tensor(exponent=0.0)
        ),
        "factor of Scaled must be nonnegative and finite, got -1.0": lambda: skce(-1.0 * tensor()),
        r"probs must have shape \[n, m\], got shape \[6\]": lambda: skce(
            predictions=cj.Categorical(jnp.ones(N))
        ),
        r"probs must have shape \[n\], got shape \[6, 2\]": lambda: skce(
            predictions=cj.Bernoulli(jnp.ones((N, 2)) / 2)
        ),
        SUM_TO_ONE: lambda: skce(predictions=probs([0.2] * 4)),
        r"probs must be in \[0, 1\]; row 3 is 1.5": lambda: skce(
            predictions=cj.Bernoulli(reals(1.5)), targets=labels(1)
        ),
        "scale must be positive and finite; row 3 is 0.0": lambda: normal(scale=reals(0)),
        "scale must be .*row 3 is inf": lambda: normal(scale=reals(jnp.inf)),
        "loc must be finite; row 3 is nan": lambda: normal(loc=reals(jnp.nan)),
        r"scale must have shape \[n\] with n = 6 .*got shape \[5\]": lambda: normal(
            scale=jnp.ones(5)
        ),
        r"scale_diag must have shape \[n, d\] with d = 2 .*got shape \[6, 3\]": lambda: normal(
            scale=jnp.ones((N, 3)), family=DIAG
        ),
        "predictions must hold at least 2 rows, got 1": lambda: skce(
            predictions=cj.Categorical(jnp.ones((1, 4)) / 4), targets=jnp.zeros(1, int)
        ),
        r"targets must have shape \[n\] with n = 6 .*got shape \[5\]": lambda: skce(
            targets=jnp.zeros(5, int)
        ),
        r"targets must have shape \[n\], got shape \[6, 4\]": lambda: skce(
            targets=jnp.zeros((N, 4), int)
        ),
        "targets must be labels in 0 … 3; row 3 is 4": lambda: skce(targets=labels(4)),
        "targets must be labels in 0 … 3; row 3 is -1": lambda: skce(targets=labels(-1)),
        "targets must be 0 or 1; row 3 is 2": lambda: skce(
            predictions=cj.Bernoulli(jnp.ones(N)), targets=labels(2)
        ),
        "targets must be finite; row 3 is nan": lambda: normal(targets=reals(jnp.nan)),
        r"targets must have shape \[n, d\], got shape \[6\]": lambda: normal(
            targets=jnp.ones(N), family=DIAG
        ),
        r"targets must have shape \[n, d\] with d = 2 .*got shape \[6, 3\]": lambda: normal(
            targets=jnp.ones((N, 3)), family=DIAG
        ),
        r"targets must have shape \[n\], got shape \[6, 1\]": lambda: normal(
            targets=jnp.ones((N, 1))
        ),
        "block_size must be.*n = 6, got 0": lambda: skce(block_size=0),
        "block_size must be.*n = 6, got 1": lambda: skce(block_size=1),
        "block_size must be.*n = 6, got 7": lambda: skce(block_size=7),
        r"where must have shape \[n\] with n = 6 .*got shape \[7\]": lambda: skce(
            where=jnp.ones(7, bool)
        ),
        "where and weights must keep at least 2 rows.*got 1": lambda: skce(
            where=jnp.arange(N) == 2
        ),
        r"weights must have shape \[n\] with n = 6 .*got shape \[3\]": lambda: skce(
            weights=jnp.ones(3)
        ),
        AS_WEIGHTS + " -1": lambda: skce(weights=reals(-1)),
        AS_WEIGHTS + " nan": lambda: skce(weights=reals(jnp.nan)),
        AS_WEIGHTS + " inf": lambda: skce(weights=reals(jnp.inf)),
        "weights must keep at least 2 rows, got 0": lambda: skce(weights=jnp.zeros(N)),
        "targets must be labels in 0 … 3; row 3 is 9": lambda: cj.h_matrix(
            tensor(), probs(), labels(9)
        ),
        "scale must be positive and finite; row 3 is -1.0": lambda: cj.default_kernel(
            cj.Normal(jnp.ones(N), reals(-1))
        ),
    },
    NotImplementedError: {
        "MultivariateNormalDiag.*Matern32Kernel.*GaussianKernel, LaplacianKernel": lambda: normal(
            cj.Matern32Kernel(1.0), family=DIAG, targets=jnp.ones((N, 2))
        ),
        "no closed form for Normal predictions.*GaussianKernel": lambda: normal(
            lambda y, z: jnp.exp(-jnp.abs(y - z))
        ),
        "no closed form for Normal predictions.*Product.*GaussianKernel": lambda: normal(
            cj.GaussianKernel(1.0) * cj.LaplacianKernel(1.0)
        ),
        "joint kernel.*Categorical, Bernoulli.*got Normal": lambda: cj.skce(
            lambda a, b: 1.0, cj.Normal(jnp.ones(N), jnp.ones(N)), jnp.ones(N)
        ),
    },
}


KEY = jax.random.key(0)


def hypothesis(name, *first, **options):
    """A test of valid classification data, but for what is passed."""
    return getattr(cj, name)(*first, *_classes(), **options)


def asymptotic(key=KEY, **options):
    return hypothesis("asymptotic_skce_test", key, **options)


def block(**options):
    return hypothesis("asymptotic_block_skce_test", **options)


def bound(**options):
    return hypothesis("distribution_free_skce_test", **options)


def bound_of(kernel, **options):
    return cj.distribution_free_skce_test(kernel, *_classes()[1:], **options)


def cme(test_predictions=None, test_targets=None, **options):
    at = cj.Categorical(jnp.array([[0.25, 0.25, 0.25, 0.25], [0.1, 0.2, 0.3, 0.4]]))
    at = at if test_predictions is None else test_predictions
    at_targets = jnp.array([0, 1]) if test_targets is None else test_targets
    return cj.asymptotic_cme_test(*_classes(), at, at_targets, **options)


def consistency(estimator, key=KEY, **options):
    return cj.consistency_test(key, estimator, *_classes()[1:], **options)


def one(predictions, targets):
    return jnp.zeros(())


BAD_OF_TESTS = {
    TypeError: {
        "key must be a typed key.*got int": lambda: asymptotic(0),
        "key must be a typed key such as jax.random.key.0., got an array of dtype uint32": lambda: (
            asymptotic(jax.random.PRNGKey(0))
        ),
        "key must be a typed key.*got TensorProduct": lambda: cj.asymptotic_skce_test(
            *_classes(), jnp.zeros(3)
        ),
        "n_resamples must be an integer, got float": lambda: asymptotic(n_resamples=1e3),
        "n_resamples must be an integer, got ndarray": lambda: asymptotic(
            n_resamples=np.array(2.7)
        ),
        "n_resamples must be an integer, got an argument of jit.*static_argnames": lambda: jax.jit(
            lambda n: asymptotic(n_resamples=n)
        )(10),
        (
            "key must come first, calibration_test.jax.random.key.0., predictions, targets., got "
            "Categorical"
        ): lambda: cj.calibration_test(probs(), labels(0)),
        "kernel_bound must be a number, got str": lambda: bound(kernel_bound="1"),
        "test_predictions must be of the family .*, Categorical, got Bernoulli": lambda: cme(
            cj.Bernoulli(jnp.ones(2))
        ),
        "test_predictions must be a distribution of calibjax": lambda: cme(jnp.ones((2, 4))),
        "at_predictions must be of the family of predictions, Categorical, got Bernoulli": lambda: (
            cj.witness(*_classes(), cj.Bernoulli(jnp.ones(2)), jnp.zeros(2, int))
        ),
        "estimator must be a callable, got float": lambda: consistency(0.5),
    },
    ValueError: {
        r"key must be one key, of shape \[\], got shape \[3\]": lambda: asymptotic(
            jax.random.split(KEY, 3)
        ),
        "n_resamples must be at least 1, got 0": lambda: asymptotic(n_resamples=0),
        "method must be one of bootstrap, wild, .*, features, got 'permutation'": lambda: (
            asymptotic(method="permutation")
        ),
        r"method must be one of .*, got \['gamma'\]": lambda: asymptotic(method=["gamma"]),
        "method must be 'bootstrap', 'wild', .* above n = 8192, got 'pearson'.*n = 8193": lambda: (
            cj.asymptotic_skce_test(
                KEY, tensor(), cj.Bernoulli(jnp.zeros(8193)), jnp.zeros(8193, int), method="pearson"
            )
        ),
        "where and weights must keep at least 2 rows, got 1": lambda: asymptotic(
            where=jnp.arange(N) < 1
        ),
        "block_size must be between 2 and n / 2 = 3, got 4": lambda: block(block_size=4),
        "block_size must be between 2": lambda: block(block_size=1),
        "predictions must hold two blocks of at least 2 rows, got 3": lambda: (
            cj.asymptotic_block_skce_test(tensor(), cj.Bernoulli(jnp.zeros(3)), jnp.zeros(3, int))
        ),
        "where must leave at least 2 complete blocks of 2 rows, got 1": lambda: block(
            where=jnp.arange(N) < 3
        ),
        "variance must be one of blocks, null, got 'pooled'": lambda: block(variance="pooled"),
        "block_size must be None for the biased estimate, got 2": lambda: bound(
            unbiased=False, block_size=2
        ),
        "kernel_bound must be positive and finite, got 0": lambda: bound(kernel_bound=0.0),
        "kernel_bound must be given: no bound is known for a kernel of type function": lambda: (
            bound_of(tensor(lambda y, z: jnp.float32(1)))
        ),
        r"test_predictions must have the shapes of predictions.*\[\[4\]\], got \[\[3\]\]": lambda: (
            cme(cj.Categorical(jnp.full((2, 3), 1 / 3)))
        ),
        "test_predictions must hold at least 1 row, got 0": lambda: cme(
            cj.Categorical(jnp.ones((0, 4)))
        ),
        "probs of test_predictions must be nonnegative with rows that sum to one": lambda: cme(
            cj.Categorical(jnp.ones((2, 4)))
        ),
        "test_targets must be labels in 0 … 3; row 1 is 4": lambda: cme(
            test_targets=jnp.array([0, 4])
        ),
        r"test_targets must have shape \[n\] with n = 2": lambda: cme(
            test_targets=jnp.array([0, 1, 2])
        ),
        "test_predictions must hold fewer locations than there are samples, n = 2, got 2": lambda: (
            cme(where=jnp.arange(N) < 2)
        ),
        "test_predictions and test_targets.*linearly independent, got 2 with a singular": lambda: (
            cme(cj.Categorical(jnp.full((2, 4), 0.25)), jnp.array([1, 1]))
        ),
        "n_locations must be between 1 and n = 6, got 7": lambda: cj.sample_test_locations(
            KEY, probs(), 7
        ),
        "n_locations must be between 1 and n = 2, got 3": lambda: cj.sample_test_locations(
            KEY, probs(), 3, where=jnp.arange(N) < 2
        ),
        r"estimator must return a scalar, got shape \[3\]": lambda: consistency(
            lambda predictions, targets: jnp.zeros(3)
        ),
        "n_resamples must be at least 1, got -1": lambda: consistency(one, n_resamples=-1),
    },
}


@pytest.mark.parametrize("case", calls(BAD) + calls(BAD_OF_TESTS))
def test_message(case):
    check_message(*case)


def test_the_defaults_of_the_table_are_valid():
    tests = asymptotic(), block(), bound(), cme(), consistency(one)
    estimates = skce(), normal(), normal(family=DIAG, targets=jnp.ones((N, 2)))
    for value in (*estimates, *(test.pvalue for test in tests)):
        assert jnp.isfinite(value)


def test_shapes_are_checked_inside_jit():
    with pytest.raises(ValueError, match=r"targets must have shape \[n\]"):
        jax.jit(skce)(targets=jnp.zeros((N, 4), int))
    with pytest.raises(TypeError, match="predictions must be a distribution"):
        jax.jit(lambda p: skce(predictions=p))(jnp.ones((N, 4)))


def test_constants_inside_jit_are_looked_at():
    # A value that the user's jit does not trace is concrete there too.
    with pytest.raises(ValueError, match="targets must be labels in 0"):
        jax.jit(lambda p: skce(predictions=p, targets=labels_constant()))(probs())


def labels_constant():
    return np.array([0, 1, 2, 3, 4, 5], "int32")


def test_masked_rows_are_exempt():
    bad = probs(np.nan), labels(-1)
    assert jnp.isfinite(skce(None, *bad, where=MASK.at[2].set(False).at[3].set(False)))
    with pytest.raises(ValueError, match="row 3 is -1"):
        skce(None, *bad, where=MASK.at[2].set(False))


def test_a_function_that_closes_over_a_tracer():
    # Its gradient would be lost without a word.
    def loss(scale):
        def ordinal(y, z):
            return jnp.exp(-jnp.abs(y - z).astype("float32") / scale)

        return skce(tensor(ordinal))

    with pytest.raises(TypeError, match="closes over a traced value.*Partial"):
        jax.grad(loss)(1.0)
