"""Bad arguments: the error, and that its message says which argument, what it should be, what came.

One line for each: a call, the exception, and the parts of its message in their order.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import sample
from messages import check_message

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
    # The kernel.
    "kernel is a string": (lambda: skce("tv"), TypeError, "kernel must be a kernel.*got str"),
    "kernel is a number": (lambda: skce(2.0), TypeError, "kernel must be a kernel.*got float"),
    "kernel on targets": (
        lambda: skce(WHITE),
        TypeError,
        "on pairs, got WhiteKernel.*on targets",
    ),
    "kernel on predictions": (
        lambda: skce(cj.DistanceKernel(TV)),
        TypeError,
        "on pairs, got DistanceKernel.*on predictions",
    ),
    "kernels swapped": (
        lambda: skce(cj.TensorProduct(WHITE, cj.DistanceKernel(TV))),
        TypeError,
        "prediction_kernel must be a kernel on predictions, got WhiteKernel.*on targets",
    ),
    "tensor product as a factor": (
        lambda: skce(cj.TensorProduct(tensor(), WHITE)),
        TypeError,
        "prediction_kernel must be a kernel on predictions, got TensorProduct",
    ),
    "sum of the wrong domains": (
        lambda: skce(tensor() + WHITE),
        TypeError,
        "must be a kernel on pairs, got WhiteKernel",
    ),
    "distance as a kernel": (
        lambda: skce(cj.TensorProduct(TV, WHITE)),
        TypeError,
        "prediction_kernel must be a kernel.*got TotalVariation",
    ),
    "kernel as a distance": (
        lambda: skce(tensor(distance=WHITE)),
        TypeError,
        "distance .*got WhiteKernel",
    ),
    "lengthscale 0": (
        lambda: skce(tensor(lengthscale=0.0)),
        ValueError,
        "lengthscale of DistanceKernel must be positive and finite, got 0.0",
    ),
    "lengthscale negative": (
        lambda: normal(cj.GaussianKernel(-1.0)),
        ValueError,
        "lengthscale of GaussianKernel must be positive and finite, got -1.0",
    ),
    "lengthscale nan": (
        lambda: normal(cj.LaplacianKernel(np.nan)),
        ValueError,
        "lengthscale of LaplacianKernel must be positive and finite, got nan",
    ),
    "a lengthscale of several": (
        lambda: normal(
            cj.GaussianKernel(jnp.array([1.0, -2.0])), family=DIAG, targets=jnp.ones((N, 2))
        ),
        ValueError,
        "lengthscale of GaussianKernel must be positive and finite.*-2",
    ),
    "lengthscales of the wrong number": (
        lambda: normal(cj.GaussianKernel(jnp.ones(3)), family=DIAG),
        ValueError,
        r"lengthscale of GaussianKernel must be a scalar or.*\[2\], got shape \[3\]",
    ),
    "lengthscales for scalars": (
        lambda: normal(cj.GaussianKernel(jnp.ones(3))),
        ValueError,
        r"lengthscale of GaussianKernel must be a scalar.*got shape \[3\]",
    ),
    "a vector of prediction lengthscales": (
        lambda: skce(tensor(lengthscale=jnp.ones(3))),
        ValueError,
        r"lengthscale of DistanceKernel must be a scalar.*got shape \[3\]",
    ),
    "lengthscale is a string": (
        lambda: skce(tensor(lengthscale="median")),
        TypeError,
        "lengthscale of DistanceKernel must be .*got str",
    ),
    "lengthscale is a list": (
        lambda: normal(cj.GaussianKernel([1.0, 2.0]), family=DIAG),
        TypeError,
        "lengthscale of GaussianKernel must be .*got list",
    ),
    "exponent 3": (
        lambda: skce(tensor(exponent=3.0)),
        ValueError,
        r"exponent of DistanceKernel must be a Python number in \(0, 2\], got 3.0",
    ),
    "exponent 0": (
        lambda: skce(tensor(exponent=0.0)),
        ValueError,
        r"exponent of DistanceKernel must be a Python number in \(0, 2\], got 0.0",
    ),
    "exponent is an array": (
        lambda: skce(tensor(exponent=jnp.ones(()))),
        TypeError,
        "exponent of DistanceKernel must be",
    ),
    "negative factor": (
        lambda: skce(-1.0 * tensor()),
        ValueError,
        "factor of Scaled must be nonnegative and finite, got -1.0",
    ),
    # Predictions.
    "raw array": (
        lambda: skce(predictions=jnp.ones((N, 4)) / 4),
        TypeError,
        r"must be a distribution of calibjax, such as Categorical\(probs\), got an array of shape",
    ),
    "raw probabilities of an event": (
        lambda: skce(predictions=jnp.ones(N) / 4),
        TypeError,
        r"such as Bernoulli\(probs\) of the probabilities of an event, got an array of shape \[",
    ),
    "one raw column": (
        lambda: skce(predictions=jnp.ones((N, 1)) / 4),
        TypeError,
        r"such as Bernoulli\(probs\[:, 0\]\) .*got an array of shape \[\d+, 1\]",
    ),
    "a list": (
        lambda: skce(predictions=[0.5] * N),
        TypeError,
        "predictions must be a distribution of calibjax.*got list",
    ),
    "arguments swapped": (
        lambda: cj.skce(_classes()[1], *_classes()[::2]),
        TypeError,
        "predictions must be a distribution of calibjax.*got TensorProduct",
    ),
    "predictions and targets swapped": (
        lambda: cj.skce(tensor(), *_classes()[:0:-1]),
        TypeError,
        "predictions must be a distribution of calibjax.*got an array",
    ),
    "probs is a list": (
        lambda: skce(predictions=cj.Categorical([[0.5, 0.5]] * N)),
        TypeError,
        "probs must be an array, got list",
    ),
    "probs of one axis": (
        lambda: skce(predictions=cj.Categorical(jnp.ones(N))),
        ValueError,
        r"probs must have shape \[n, m\], got shape \[6\]",
    ),
    "binary probs of two axes": (
        lambda: skce(predictions=cj.Bernoulli(jnp.ones((N, 2)) / 2)),
        ValueError,
        r"probs must have shape \[n\], got shape \[6, 2\]",
    ),
    "complex probs": (
        lambda: skce(predictions=cj.Categorical(jnp.ones((N, 1), "complex64"))),
        TypeError,
        "probs must hold real values, got dtype complex64",
    ),
    "boolean probs": (
        lambda: skce(predictions=cj.Bernoulli(jnp.ones(N, bool))),
        TypeError,
        "probs must hold real values, got dtype bool",
    ),
    "not normalised": (lambda: skce(predictions=probs([0.2] * 4)), ValueError, SUM_TO_ONE),
    "negative probability": (
        lambda: skce(predictions=probs([-0.5, 0.5, 0.5, 0.5])),
        ValueError,
        SUM_TO_ONE,
    ),
    "probability nan": (lambda: skce(predictions=probs(np.nan)), ValueError, SUM_TO_ONE),
    "binary probability above 1": (
        lambda: skce(predictions=cj.Bernoulli(reals(1.5)), targets=labels(1)),
        ValueError,
        r"probs must be in \[0, 1\]; row 3 is 1.5",
    ),
    "scale 0": (
        lambda: normal(scale=reals(0)),
        ValueError,
        "scale must be positive and finite; row 3 is 0.0",
    ),
    "scale inf": (lambda: normal(scale=reals(jnp.inf)), ValueError, "scale must be .*row 3 is inf"),
    "loc nan": (lambda: normal(loc=reals(jnp.nan)), ValueError, "loc must be finite; row 3 is nan"),
    "loc and scale of different length": (
        lambda: normal(scale=jnp.ones(5)),
        ValueError,
        r"scale must have shape \[n\] with n = 6 .*got shape \[5\]",
    ),
    "numbers alone": (
        lambda: normal(loc=0.0, scale=1.0),
        TypeError,
        "loc must be an array, got float",
    ),
    "diagonal scales of another dimension": (
        lambda: normal(scale=jnp.ones((N, 3)), family=DIAG),
        ValueError,
        r"scale_diag must have shape \[n, d\] with d = 2 .*got shape \[6, 3\]",
    ),
    "one prediction": (
        lambda: skce(predictions=cj.Categorical(jnp.ones((1, 4)) / 4), targets=jnp.zeros(1, int)),
        ValueError,
        "predictions must hold at least 2 rows, got 1",
    ),
    # Targets.
    "targets is a list": (
        lambda: skce(targets=[0] * N),
        TypeError,
        "targets must be an array, got list",
    ),
    "fewer targets": (
        lambda: skce(targets=jnp.zeros(5, int)),
        ValueError,
        r"targets must have shape \[n\] with n = 6 .*got shape \[5\]",
    ),
    "one-hot targets": (
        lambda: skce(targets=jnp.zeros((N, 4), int)),
        ValueError,
        r"targets must have shape \[n\], got shape \[6, 4\]",
    ),
    "real labels": (
        lambda: skce(targets=jnp.zeros(N)),
        TypeError,
        "targets must hold integer values, got dtype float32",
    ),
    "label m": (
        lambda: skce(targets=labels(4)),
        ValueError,
        "targets must be labels in 0 … 3; row 3 is 4",
    ),
    "label -1": (
        lambda: skce(targets=labels(-1)),
        ValueError,
        "targets must be labels in 0 … 3; row 3 is -1",
    ),
    "binary label 2": (
        lambda: skce(predictions=cj.Bernoulli(jnp.ones(N)), targets=labels(2)),
        ValueError,
        "targets must be 0 or 1; row 3 is 2",
    ),
    "target nan": (
        lambda: normal(targets=reals(jnp.nan)),
        ValueError,
        "targets must be finite; row 3 is nan",
    ),
    "scalar targets of vectors": (
        lambda: normal(targets=jnp.ones(N), family=DIAG),
        ValueError,
        r"targets must have shape \[n, d\], got shape \[6\]",
    ),
    "targets of another dimension": (
        lambda: normal(targets=jnp.ones((N, 3)), family=DIAG),
        ValueError,
        r"targets must have shape \[n, d\] with d = 2 .*got shape \[6, 3\]",
    ),
    "column of targets": (
        lambda: normal(targets=jnp.ones((N, 1))),
        ValueError,
        r"targets must have shape \[n\], got shape \[6, 1\]",
    ),
    # Options.
    "block_size 0": (lambda: skce(block_size=0), ValueError, "block_size must be.*n = 6, got 0"),
    "block_size 1": (lambda: skce(block_size=1), ValueError, "block_size must be.*n = 6, got 1"),
    "block_size 7": (lambda: skce(block_size=7), ValueError, "block_size must be.*n = 6, got 7"),
    "block_size 2.5": (lambda: skce(block_size=2.5), TypeError, "block_size must be.*got float"),
    "block_size True": (lambda: skce(block_size=True), TypeError, "block_size must be.*got bool"),
    "unbiased is a string": (
        lambda: skce(unbiased="biased"),
        TypeError,
        "unbiased must be .*bool.*got str",
    ),
    "where is a list": (
        lambda: skce(where=[True] * N),
        TypeError,
        "where must be an array, got list",
    ),
    "where of integers": (
        lambda: skce(where=jnp.ones(N, int)),
        TypeError,
        "where must hold boolean values, got dtype int32",
    ),
    "where too long": (
        lambda: skce(where=jnp.ones(7, bool)),
        ValueError,
        r"where must have shape \[n\] with n = 6 .*got shape \[7\]",
    ),
    "where keeps one": (
        lambda: skce(where=jnp.arange(N) == 2),
        ValueError,
        "where and weights must keep at least 2 rows.*got 1",
    ),
    "weights is a list": (
        lambda: skce(weights=[1.0] * N),
        TypeError,
        "weights must be an array, got list",
    ),
    "weights too short": (
        lambda: skce(weights=jnp.ones(3)),
        ValueError,
        r"weights must have shape \[n\] with n = 6 .*got shape \[3\]",
    ),
    "weights of booleans": (
        lambda: skce(weights=MASK),
        TypeError,
        "weights must hold real values, got dtype bool",
    ),
    "weight negative": (lambda: skce(weights=reals(-1)), ValueError, AS_WEIGHTS + " -1"),
    "weight nan": (lambda: skce(weights=reals(jnp.nan)), ValueError, AS_WEIGHTS + " nan"),
    "weight inf": (lambda: skce(weights=reals(jnp.inf)), ValueError, AS_WEIGHTS + " inf"),
    "weight that float32 cannot hold": (
        lambda: skce(weights=np.where(np.arange(N) == 3, 1e300, 1.0)),
        ValueError,
        AS_WEIGHTS + " inf",
    ),
    "all weights 0": (
        lambda: skce(weights=jnp.zeros(N)),
        ValueError,
        "weights must keep at least 2 rows, got 0",
    ),
    # Combinations without a closed form or a distance.
    "no closed form": (
        lambda: normal(cj.Matern32Kernel(1.0), family=DIAG, targets=jnp.ones((N, 2))),
        NotImplementedError,
        "MultivariateNormalDiag.*Matern32Kernel.*GaussianKernel, LaplacianKernel",
    ),
    "function on real targets": (
        lambda: normal(lambda y, z: jnp.exp(-jnp.abs(y - z))),
        NotImplementedError,
        "no closed form for Normal predictions.*GaussianKernel",
    ),
    "product of target kernels": (
        lambda: normal(cj.GaussianKernel(1.0) * cj.LaplacianKernel(1.0)),
        NotImplementedError,
        "no closed form for Normal predictions.*Product.*GaussianKernel",
    ),
    "joint kernel on real targets": (
        lambda: cj.skce(lambda a, b: 1.0, cj.Normal(jnp.ones(N), jnp.ones(N)), jnp.ones(N)),
        NotImplementedError,
        "joint kernel.*Categorical, Bernoulli.*got Normal",
    ),
    "total variation of normals": (
        lambda: cj.skce(tensor(GAUSSIAN), cj.Normal(jnp.ones(N), jnp.ones(N)), jnp.ones(N)),
        TypeError,
        "TotalVariation compares probability vectors.*got Normal",
    ),
    "wasserstein of classes": (
        lambda: skce(tensor(distance=W2)),
        TypeError,
        "Wasserstein is defined for .*MultivariateNormalDiag.*Normal predictions.*got Categorical",
    ),
    # Other functions.
    "h_matrix, raw array": (
        lambda: cj.h_matrix(tensor(), jnp.ones((N, 2)), labels(0)),
        TypeError,
        "predictions must be a distribution of calibjax",
    ),
    "h_matrix, label": (
        lambda: cj.h_matrix(tensor(), probs(), labels(9)),
        ValueError,
        "targets must be labels in 0 … 3; row 3 is 9",
    ),
    "h_matrix, kernel": (
        lambda: cj.h_matrix(WHITE, probs(), labels(0)),
        TypeError,
        "kernel must be a kernel on pairs",
    ),
    "h_matrix, one row": (
        lambda: cj.h_matrix(tensor(), cj.Bernoulli(jnp.ones(1)), jnp.ones(1, int)),
        ValueError,
        "predictions must hold at least 2 rows, got 1",
    ),
    "median_heuristic, raw array": (
        lambda: cj.median_heuristic(TV, jnp.ones((N, 2)) / 2),
        TypeError,
        "predictions must be a distribution of calibjax.*got an array",
    ),
    "median_heuristic, swapped": (
        lambda: cj.median_heuristic(probs(), TV),
        TypeError,
        "distance must be a distance between predictions, got Categorical",
    ),
    "median_heuristic, kernel as a distance": (
        lambda: cj.median_heuristic(cj.DistanceKernel(TV), probs()),
        TypeError,
        "distance must be .*got DistanceKernel",
    ),
    "median_heuristic, string": (
        lambda: cj.median_heuristic("euclidean", probs()),
        TypeError,
        "distance must be .*got str",
    ),
    "median_heuristic, one row": (
        lambda: cj.median_heuristic(TV, cj.Bernoulli(jnp.ones(1))),
        ValueError,
        "predictions must hold at least 2 rows, got 1",
    ),
    "median_heuristic, values": (
        lambda: cj.median_heuristic(TV, probs([0.2] * 4)),
        ValueError,
        SUM_TO_ONE,
    ),
    "median_heuristic, where": (
        lambda: cj.median_heuristic(TV, probs(), where=jnp.ones(7, bool)),
        ValueError,
        r"where must have shape \[n\] with n = 6 .*got shape \[7\]",
    ),
    "median_heuristic, where of integers": (
        lambda: cj.median_heuristic(TV, probs(), where=jnp.ones(N, int)),
        TypeError,
        "where must hold boolean values, got dtype int32",
    ),
    "default_kernel, raw array": (
        lambda: cj.default_kernel(jnp.ones((N, 2)) / 2),
        TypeError,
        "predictions must be a distribution of calibjax.*got an array",
    ),
    "default_kernel, scale": (
        lambda: cj.default_kernel(cj.Normal(jnp.ones(N), reals(-1))),
        ValueError,
        "scale must be positive and finite; row 3 is -1.0",
    ),
    "default_kernel, where": (
        lambda: cj.default_kernel(probs(), where=jnp.ones(7, bool)),
        ValueError,
        r"where must have shape \[n\] with n = 6 .*got shape \[7\]",
    ),
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


BAD |= {
    "key is a seed": (lambda: asymptotic(0), TypeError, "key must be a typed key.*got int"),
    "key of old": (
        lambda: asymptotic(jax.random.PRNGKey(0)),
        TypeError,
        "key must be a typed key such as jax.random.key.0., got an array of dtype uint32",
    ),
    "several keys": (
        lambda: asymptotic(jax.random.split(KEY, 3)),
        ValueError,
        r"key must be one key, of shape \[\], got shape \[3\]",
    ),
    "arguments without a key": (
        lambda: cj.asymptotic_skce_test(*_classes(), jnp.zeros(3)),
        TypeError,
        "key must be a typed key.*got TensorProduct",
    ),
    "no resamples": (
        lambda: asymptotic(n_resamples=0),
        ValueError,
        "n_resamples must be at least 1, got 0",
    ),
    "resamples of a float": (
        lambda: asymptotic(n_resamples=1e3),
        TypeError,
        "n_resamples must be an integer, got float",
    ),
    "resamples of an array": (
        lambda: asymptotic(n_resamples=np.array(2.7)),
        TypeError,
        "n_resamples must be an integer, got ndarray",
    ),
    "resamples that are traced": (
        lambda: jax.jit(lambda n: asymptotic(n_resamples=n))(10),
        TypeError,
        "n_resamples must be an integer, got an argument of jit.*static_argnames",
    ),
    "unknown method": (
        lambda: asymptotic(method="permutation"),
        ValueError,
        "method must be one of bootstrap, wild, spectrum, .*, features, got 'permutation'",
    ),
    "method is not a word": (
        lambda: asymptotic(method=["gamma"]),
        ValueError,
        r"method must be one of .*, got \['gamma'\]",
    ),
    "matrix too large": (
        lambda: cj.asymptotic_skce_test(
            KEY, tensor(), cj.Bernoulli(jnp.zeros(8193)), jnp.zeros(8193, int), method="pearson"
        ),
        ValueError,
        "method must be 'bootstrap', 'wild', .* above n = 8192, got 'pearson'.*n = 8193",
    ),
    "a test without a key": (
        lambda: cj.calibration_test(probs(), labels(0)),
        TypeError,
        "key must come first, calibration_test.jax.random.key.0., predictions, targets., got "
        "Categorical",
    ),
    "targets of a test": (
        lambda: cj.calibration_test(KEY, probs(), labels(4)),
        ValueError,
        "targets must be labels in 0 … 3; row 3 is 4",
    ),
    "where of a test": (
        lambda: asymptotic(where=jnp.arange(N) < 1),
        ValueError,
        "where and weights must keep at least 2 rows, got 1",
    ),
    "blocks too large": (
        lambda: block(block_size=4),
        ValueError,
        "block_size must be between 2 and n / 2 = 3, got 4",
    ),
    "blocks of one": (lambda: block(block_size=1), ValueError, "block_size must be between 2"),
    "no two blocks": (
        lambda: cj.asymptotic_block_skce_test(
            tensor(), cj.Bernoulli(jnp.zeros(3)), jnp.zeros(3, int)
        ),
        ValueError,
        "predictions must hold two blocks of at least 2 rows, got 3",
    ),
    "no two complete blocks": (
        lambda: block(where=jnp.arange(N) < 3),
        ValueError,
        "where must leave at least 2 complete blocks of 2 rows, got 1",
    ),
    "unknown variance": (
        lambda: block(variance="pooled"),
        ValueError,
        "variance must be one of blocks, null, got 'pooled'",
    ),
    "biased blocks": (
        lambda: bound(unbiased=False, block_size=2),
        ValueError,
        "block_size must be None for the biased estimate, got 2",
    ),
    "bound of a word": (
        lambda: bound(kernel_bound="1"),
        TypeError,
        "kernel_bound must be a number, got str",
    ),
    "bound of 0": (
        lambda: bound(kernel_bound=0.0),
        ValueError,
        "kernel_bound must be positive and finite, got 0",
    ),
    "no bound": (
        lambda: bound_of(tensor(lambda y, z: jnp.float32(1))),
        ValueError,
        "kernel_bound must be given: no bound is known for a kernel of type function",
    ),
    "no bound of a joint kernel": (
        lambda: bound_of(lambda a, b: jnp.float32(1)),
        ValueError,
        "kernel_bound must be given: no bound is known for a kernel of type function",
    ),
    "locations of another family": (
        lambda: cme(cj.Bernoulli(jnp.ones(2))),
        TypeError,
        "test_predictions must be of the family of predictions, Categorical, got Bernoulli",
    ),
    "locations are an array": (
        lambda: cme(jnp.ones((2, 4))),
        TypeError,
        "test_predictions must be a distribution of calibjax",
    ),
    "locations of other classes": (
        lambda: cme(cj.Categorical(jnp.full((2, 3), 1 / 3))),
        ValueError,
        r"test_predictions must have the shapes of predictions.*\[\[4\]\], got \[\[3\]\]",
    ),
    "no locations": (
        lambda: cme(cj.Categorical(jnp.ones((0, 4)))),
        ValueError,
        "test_predictions must hold at least 1 row, got 0",
    ),
    "locations that are none": (
        lambda: cme(cj.Categorical(jnp.ones((2, 4)))),
        ValueError,
        "probs of test_predictions must be nonnegative with rows that sum to one",
    ),
    "targets of locations": (
        lambda: cme(test_targets=jnp.array([0, 4])),
        ValueError,
        "test_targets must be labels in 0 … 3; row 1 is 4",
    ),
    "number of targets of locations": (
        lambda: cme(test_targets=jnp.array([0, 1, 2])),
        ValueError,
        r"test_targets must have shape \[n\] with n = 2",
    ),
    "as many locations as samples": (
        lambda: cme(where=jnp.arange(N) < 2),
        ValueError,
        "test_predictions must hold fewer locations than there are samples, n = 2, got 2",
    ),
    "locations coincide": (
        lambda: cme(cj.Categorical(jnp.full((2, 4), 0.25)), jnp.array([1, 1])),
        ValueError,
        "test_predictions and test_targets.*linearly independent, got 2 with a singular",
    ),
    "witness at another family": (
        lambda: cj.witness(*_classes(), cj.Bernoulli(jnp.ones(2)), jnp.zeros(2, int)),
        TypeError,
        "at_predictions must be of the family of predictions, Categorical, got Bernoulli",
    ),
    "more locations than predictions": (
        lambda: cj.sample_test_locations(KEY, probs(), 7),
        ValueError,
        "n_locations must be between 1 and n = 6, got 7",
    ),
    "more locations than kept": (
        lambda: cj.sample_test_locations(KEY, probs(), 3, where=jnp.arange(N) < 2),
        ValueError,
        "n_locations must be between 1 and n = 2, got 3",
    ),
    "estimator is no function": (
        lambda: consistency(0.5),
        TypeError,
        "estimator must be a callable, got float",
    ),
    "estimator of several numbers": (
        lambda: consistency(lambda predictions, targets: jnp.zeros(3)),
        ValueError,
        r"estimator must return a scalar, got shape \[3\]",
    ),
    "consistency without resamples": (
        lambda: consistency(one, n_resamples=-1),
        ValueError,
        "n_resamples must be at least 1, got -1",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_message(name):
    check_message(*BAD[name])


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
