"""Numbers that others have published: the Julia packages' unit tests, pycalibration, the papers.

Labels are 0-based here and 1-based there.
"""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow
from scipy.spatial.distance import pdist
from scipy.stats import norm

import calibjax as cj
from calibjax.kernels.base import upper_bound

E = np.exp(1)
SQRT2 = np.sqrt(2)


def distance_kernel(distance, target_kernel, **kwargs):
    return cj.TensorProduct(cj.DistanceKernel(distance, **kwargs), target_kernel)


def close(estimate, published):
    assert estimate.dtype == jnp.float64
    np.testing.assert_allclose(estimate, published, rtol=1e-13, atol=1e-15)


# CalibrationErrors.jl, test/skce.jl: targets, unbiased (and blocks of 2), biased.
BINARY = [([0, 1], 0.0, 0.0), ([0, 0], 0.0, 0.5), ([1, 0], -2 / E, 1 - 1 / E), ([1, 1], 0.0, 0.5)]


@pytest.mark.parametrize("copies", slow({10}, [1, 10]))
@pytest.mark.parametrize(("targets", "unbiased", "biased"), BINARY)
@pytest.mark.parametrize("family", ["categorical", "bernoulli"])
def test_two_binary_predictions(family, targets, unbiased, biased, copies, float64):
    # exp(-|p - q|^2 / 2); the reference's scalars with scale sqrt(2) are our probability vectors.
    # The reference's scalar is the probability of true, its vector that of class 1: our class 0.
    kernel = distance_kernel(cj.Euclidean(), cj.WhiteKernel(), lengthscale=SQRT2, exponent=2.0)
    if family == "categorical":
        predictions = cj.Categorical(jnp.tile(jnp.eye(2), (copies, 1)))
        targets = jnp.tile(jnp.array(targets), copies)
    else:
        predictions = cj.Bernoulli(jnp.tile(jnp.array([1.0, 0.0]), copies))
        targets = jnp.tile(jnp.array([target == 0 for target in targets]), copies)
    close(cj.skce(kernel, predictions, targets, block_size=2), unbiased)
    close(cj.skce(kernel, predictions, targets, block_size=2, unbiased=False), biased)
    if copies == 1:
        close(cj.skce(kernel, predictions, targets), unbiased)
        close(cj.skce(kernel, predictions, targets, unbiased=False), biased)


# The same for N1 = N(0, 1), N2 = N(1, 2): locations and scales, targets, target scale, value.
NORMAL = [
    ([0, 0], [1, 1], [0, 0], 1.0, 0.1631367068165307),
    ([0, 1], [1, 2], [1, 0], 1.0, -0.04186060698827978),
    ([0, 1], [1, 2], [0, 1], 1.0, 0.00651220001294024),
    ([0, 0], [1, 1], [0, 0], 0.5, 0.027642198927894435),
    ([0, 1], [1, 2], [1, 0], 0.5, -0.021490892973595306),
    ([0, 1], [1, 2], [0, 1], 0.5, 0.00961770077268961),
]


@pytest.mark.parametrize(("loc", "scale", "targets", "target_scale", "value"), NORMAL)
def test_two_normal_predictions(loc, scale, targets, target_scale, value, float64):
    # A "scale" of the reference multiplies its inputs.
    kernel = distance_kernel(cj.Wasserstein(), cj.GaussianKernel(1 / target_scale))
    loc, scale, targets = (jnp.array(x, float) for x in (loc, scale, targets))
    close(cj.skce(kernel, cj.Normal(loc, scale), targets), value)
    vectors = cj.MultivariateNormalDiag(loc[:, None], scale[:, None])
    close(cj.skce(kernel, vectors, targets[:, None]), value)


# pycalibration, README.md.


def test_pycalibration_binary(float64):
    random.seed(1234)
    probs = jnp.array([random.random() for _ in range(100)])
    targets = jnp.array([bool(random.getrandbits(1)) for _ in range(100)])
    close(absolute_difference(probs, targets), 0.028399084017414655)
    rng = np.random.default_rng(1234)
    probs, targets = jnp.array(rng.random(100)), jnp.array(rng.choice([True, False], 100))
    close(absolute_difference(probs, targets), 0.03320398246523166)


def absolute_difference(probs, targets):
    """SKCE with the kernel exp(-|p - q|) 1{y = z}: on two classes |p - q| is the TV."""
    kernel = distance_kernel(cj.TotalVariation(), cj.WhiteKernel())
    return cj.skce(kernel, cj.Bernoulli(probs), targets)


def test_pycalibration_classes(float64):
    kernel = distance_kernel(cj.Euclidean(), cj.WhiteKernel())
    rng = np.random.default_rng(1234)
    predictions = cj.Categorical(jnp.array(rng.dirichlet((3, 2, 5), 100)))
    targets = jnp.array(rng.integers(low=1, high=4, size=100) - 1)
    close(cj.skce(kernel, predictions, targets), 0.02015240706950358)
    predictions = cj.Categorical(jnp.array([[0.1, 0.8, 0.1], [0.2, 0.5, 0.3]]))
    close(cj.skce(kernel, predictions, jnp.array([1, 2])), -0.10317943453412069)


def test_pycalibration_normal(float64):
    random.seed(1234)
    parameters = [(random.gauss(0, 1), random.random()) for _ in range(100)]
    targets = jnp.array([random.gauss(0, 1) for _ in range(100)])
    kernel = distance_kernel(cj.Wasserstein(), cj.GaussianKernel(1.0))
    predictions = cj.Normal(*jnp.array(parameters).T)
    close(cj.skce(kernel, predictions, targets), 0.02203618235964146)


# pycalibration, tests/test_skce.py: unbiased, biased, blocks of 2, 10 and 100.
DIRICHLET = {
    "consistent": (
        (-0.00036706556809863917, 0.00029913900506092046),
        {2: -0.01786496888521873, 10: -0.004990515939470188, 100: -0.0014857785875846139},
    ),
    "all of class 2": (
        (0.19722219775190472, 0.19808053129976555),
        {2: 0.1919394874426728, 10: 0.1909894104388583, 100: 0.19544605177378438},
    ),
}


@pytest.mark.slow
def test_pycalibration_500(float64):
    rng = np.random.default_rng(1234)
    probs = rng.dirichlet((1, 1), 500)
    consistent = 1 - (rng.random(500) < probs[:, 0]).astype(int)
    targets = {"consistent": consistent, "all of class 2": np.ones(500, int)}
    kernel = distance_kernel(cj.Euclidean(), cj.WhiteKernel(), lengthscale=1 / 3)
    predictions, binary = cj.Categorical(jnp.array(probs)), cj.Bernoulli(jnp.array(probs[:, 1]))
    for name, ((unbiased, biased), blocks) in DIRICHLET.items():
        y = jnp.array(targets[name])
        close(cj.skce(kernel, binary, y), unbiased)
        close(cj.skce(kernel, predictions, y), unbiased)
        close(cj.skce(kernel, predictions, y, unbiased=False), biased)
        for block_size, estimate in blocks.items():
            close(cj.skce(kernel, predictions, y, block_size=block_size), estimate)


# CalibrationErrors.jl, test/ucme.jl: kernel and predictions of BINARY, three locations; targets and
# UCME.
UCME_BINARY = [
    ([0, 1], 0.0),
    ([0, 0], (E**-2 + E**-0.5 + 1) / 12),
    ([1, 1], (E**-2 + E**-0.5 + 1) / 12),
    ([1, 0], (1 - 1 / E) ** 2 / 6),
]


@pytest.mark.parametrize(("targets", "value"), UCME_BINARY)
@pytest.mark.parametrize("family", ["categorical", "bernoulli"])
def test_ucme_of_two_binary_predictions(family, targets, value, float64):
    kernel = distance_kernel(cj.Euclidean(), cj.WhiteKernel(), lengthscale=SQRT2, exponent=2.0)
    of_class_0 = jnp.array([1.0, 0.0]), jnp.array([1.0, 0.5, 0.0])
    if family == "categorical":
        predictions, at = (cj.Categorical(jnp.stack([p, 1 - p], axis=1)) for p in of_class_0)
    else:
        predictions, at = (cj.Bernoulli(1 - p) for p in of_class_0)
    close(cj.ucme(kernel, predictions, jnp.array(targets), at, jnp.array([0, 0, 1])), value)


def test_ucme_of_two_normal_predictions(float64):
    kernel = distance_kernel(cj.Wasserstein(), cj.GaussianKernel(1.0))
    data = cj.Normal(jnp.array([0.0, 1.0]), jnp.array([1.0, 2.0])), jnp.array([0.0, 0.5])
    at = cj.Normal(jnp.array([0.5, -1.0]), jnp.array([0.5, 1.5])), jnp.array([1.0, -0.5])
    close(cj.ucme(kernel, *data, *at), 0.003041968925894749)
    at = jax.tree.map(lambda x: x[:1], at)
    close(cj.ucme(kernel, *data, *at), 0.0034272907966348375)


def test_bounds_of_kernels(float64):
    # CalibrationTests.jl, test/skce/distribution_free.jl; |h| is bounded by twice that.
    gaussian, white = cj.GaussianKernel(1.0), cj.WhiteKernel()
    exponential = cj.DistanceKernel(cj.TotalVariation())
    assert upper_bound(exponential) == upper_bound(gaussian) == upper_bound(white) == 1
    assert upper_bound(42 * exponential) == 42
    product = cj.TensorProduct(3.2 * gaussian, 2.7 * white)
    np.testing.assert_allclose(upper_bound(product), 8.64)
    np.testing.assert_allclose(upper_bound(product + 2 * product), 3 * 8.64)
    np.testing.assert_allclose(upper_bound((3 * gaussian) * (gaussian + white)), 6)


# pycalibration, tests/test_tests.py, recomputed from the definitions: for targets that are
# consistent, and all of class 2, the statistic of the bootstrap, p-values of the distribution-free
# test (biased, unbiased; published without a guard against negative estimates), the block test
# (z, p), and the UCME, statistic and p-value of 5 test locations.
TESTS = {
    "consistent": {
        "statistic": -0.0006669401755004386,
        "distribution_free": (1.0, 1.0),
        "blocks": {
            2: (-1.7089859890287749, 0.9562732275861167),
            10: (-2.1765251076073913, 0.9852419908179161),
            100: (-3.300229321821404, None),
        },
        "cme": (1.7633993805461785e-05, 1.0986360192287519, 0.9542243373788364),
    },
    "all of class 2": {
        "statistic": -0.0004630986826265615,
        "distribution_free": (1.2185585006718228e-08, 0.29655617957537395),
        "blocks": {
            2: (10.62678848871738, 1.118e-26),
            10: (16.761303873486757, 2.34e-63),
            100: (28.781847435572008, None),
        },
        "cme": (0.04095804535909161, 8854.36420157259, 0.0),
    },
}


@pytest.mark.parametrize("name", slow(TESTS.keys() - {"all of class 2"}, TESTS))
def test_pycalibration_tests(name, key, float64):
    rng = np.random.default_rng(1234)
    probs = rng.dirichlet((1, 1), 500)
    consistent = 1 - (rng.random(500) < probs[:, 0]).astype(int)
    locations = cj.Categorical(jnp.array(rng.dirichlet((1, 1), 5))), rng.integers(1, 3, 5) - 1
    targets = jnp.array(consistent) if name == "consistent" else jnp.ones(500, int)
    kernel = distance_kernel(cj.Euclidean(), cj.WhiteKernel(), lengthscale=1 / 3)
    arguments = kernel, cj.Categorical(jnp.array(probs)), targets
    expected = TESTS[name]

    asymptotic = cj.asymptotic_skce_test(key, *arguments, n_resamples=2000)
    close(asymptotic.statistic, expected["statistic"])
    p = {"consistent": 0.8, "all of class 2": 1 / 2001}[name]
    assert abs(asymptotic.pvalue - p) <= 4 * np.sqrt(2 * 0.8 * 0.2 / 2000) * (p > 0.1)
    for unbiased, pvalue in zip((False, True), expected["distribution_free"], strict=True):
        result = cj.distribution_free_skce_test(*arguments, unbiased=unbiased)
        np.testing.assert_allclose(result.pvalue, pvalue, rtol=1e-12)
    for block_size, (statistic, pvalue) in expected["blocks"].items():
        result = cj.asymptotic_block_skce_test(*arguments, block_size=block_size)
        close(result.statistic, statistic)
        if pvalue is not None:
            np.testing.assert_allclose(result.pvalue, pvalue, rtol=1e-3)
    result = cj.asymptotic_cme_test(*arguments, *locations)
    found = result.estimate, result.statistic, result.pvalue
    # The statistic inverts a matrix of condition number 100.
    np.testing.assert_allclose(found, expected["cme"], rtol=1e-11, atol=1e-15)


# Widmann et al., NeurIPS 2019: networks on CIFAR-10; biased, unbiased, blocks of 2 in file order.
CIFAR10 = {
    "densenet121": (0.00014200255937238076, 0.00013014214272447108, -0.00034300214660923725),
    "resnet18": (0.00027614450993714907, 0.0002625240589747678, 0.0003565449804289092),
    "mobilenet_v2": (0.00020640480253506248, 0.00019108966621409577, -4.487736692275322e-05),
}
RTOL = {"float64": 1e-7, "float32": 2e-3}


cifar10_networks = pytest.mark.parametrize(
    "network",
    [
        "densenet121",
        pytest.param("resnet18", marks=pytest.mark.slow),
        pytest.param("mobilenet_v2", marks=pytest.mark.slow),
    ],
)


def cifar10(network, reference_folder):
    """The kernel of the paper, the predictions and the labels."""
    with np.load(reference_folder / "data" / "cifar10_predictions.npz") as data:
        probs, labels = data[network], data["labels"]
    # The median of the full matrix: n zeros of its diagonal, then each distance twice.
    total_variation, n = pdist(probs, "cityblock") / 2, len(probs)
    middle = [(n * n // 2 - 1 - n) // 2, (n * n // 2 - n) // 2]
    total_variation.partition(middle)
    lengthscale = float(np.mean(total_variation[middle]))
    kernel = distance_kernel(cj.TotalVariation(), cj.WhiteKernel(), lengthscale=lengthscale)
    return kernel, probs, labels


@cifar10_networks
@pytest.mark.parametrize(
    "dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)], indirect=True
)
@pytest.mark.slow
def test_cifar10(network, reference_folder, dtype):
    kernel, probs, labels = cifar10(network, reference_folder)
    biased, unbiased, blocks = CIFAR10[network]
    arguments = kernel, cj.Categorical(jnp.asarray(probs, dtype)), jnp.array(labels)
    estimates = (
        cj.skce(*arguments, unbiased=False),
        cj.skce(*arguments),
        cj.skce(*arguments, block_size=2),
    )
    np.testing.assert_allclose(estimates, (biased, unbiased, blocks), RTOL[dtype])


# Their p-values: distribution-free for the biased, unbiased and block estimates, and of the blocks
# with a standard deviation of ddof = 0; those of the bootstrap are all 0.
CIFAR10_PVALUES = {
    "densenet121": (1.0, 0.9999894144452068, 0.9999264711580163, 0.8392336627764564),
    "resnet18": (0.9847969855715755, 0.9999569266267215, 0.9999205504543641, 0.1834527533092085),
    "mobilenet_v2": (
        0.9998738282170359,
        0.9999771782225871,
        0.9999987412645035,
        0.5393426329629679,
    ),
}


@pytest.mark.slow
@cifar10_networks
def test_cifar10_pvalues(network, reference_folder, key, float64):
    kernel, probs, labels = cifar10(network, reference_folder)
    arguments = kernel, cj.Categorical(jnp.asarray(probs)), jnp.array(labels)
    biased, unbiased, blocks, asymptotic = CIFAR10_PVALUES[network]
    for options, published in (
        ({"unbiased": False}, biased),
        ({}, unbiased),
        ({"block_size": 2}, blocks),
    ):
        result = cj.distribution_free_skce_test(*arguments, **options)
        # They square negative estimates too.
        expected = published if result.estimate > 0 else 1.0
        np.testing.assert_allclose(result.pvalue, expected, rtol=1e-9)
    result = cj.asymptotic_block_skce_test(*arguments)
    statistic = result.statistic * np.sqrt(5000 / 4999)
    np.testing.assert_allclose(norm.sf(statistic), asymptotic, rtol=1e-9)
    result = cj.asymptotic_skce_test(key, *arguments)
    np.testing.assert_allclose(result.pvalue, 1 / 1001)


@pytest.mark.slow
@cifar10_networks
def test_cifar10_networks_are_not_calibrated(network, reference_folder, key):
    _, probs, labels = cifar10(network, reference_folder)
    predictions, labels = cj.Categorical(jnp.asarray(probs, jnp.float32)), jnp.array(labels)
    few = cj.calibration_test(key, predictions[:300], labels[:300])
    np.testing.assert_allclose(few.pvalue, 1 / 1000, rtol=1e-6)
    result = cj.calibration_test(key, predictions, labels)
    np.testing.assert_allclose(result.kernels.pvalues, 1 / 1000, rtol=1e-6)
    # They are over-confident, which log p(y) sees best.
    assert "log_probability_of" in repr(result)
