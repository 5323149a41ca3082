"""The instances that the generic tests run over: a new family or kernel is one line here.

All numbers are NumPy float64; `cast` makes them jax arrays of the dtype of a test.
"""

import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats
from scipy.special import ndtr, ndtri

import calibjax as cj
from calibjax._data.data import as_data


def cast(tree, dtype="float64"):
    """All floating leaves as jax arrays of `dtype`, Python numbers included; integers as int32.

    Masks remain booleans.
    """

    def leaf(x):
        if jnp.result_type(x) == jnp.bool_:
            return jax.device_put(np.asarray(x))
        floating = jnp.issubdtype(jnp.result_type(x), jnp.floating)
        # On the host: a conversion by jax is a program for every shape, and so is jnp.asarray.
        return jax.device_put(np.asarray(x).astype(jnp.dtype(dtype if floating else "int32")))

    return jax.tree.map(leaf, tree)


def _rng(seed):
    return np.random.default_rng(seed)


# Batches of n predictions with targets that they could have made.


def _categorical(n, seed):
    probs = 0.05 + 0.8 * _rng(seed).dirichlet(np.ones(4), n)  # steps of differences stay inside
    return cj.Categorical(probs), _rng(seed).integers(4, size=n)


def _ordinal(n, seed):
    predictions, targets = _categorical(n, seed)
    return cj.Ordinal(predictions.probs), targets


def _bernoulli(n, seed):
    return cj.Bernoulli(_rng(seed).uniform(0.05, 0.95, n)), _rng(seed).integers(2, size=n)


def _normal(n, seed):
    loc, scale = _rng(seed).normal(size=n), _rng(seed).uniform(0.3, 1.5, n)
    return cj.Normal(loc, scale), loc + _rng(seed + 1).normal(size=n)


def _diag(n, seed):
    loc, scale = _rng(seed).normal(size=(n, 2)), _rng(seed).uniform(0.3, 1.5, (n, 2))
    return cj.MultivariateNormalDiag(loc, scale), loc + _rng(seed + 1).normal(size=(n, 2))


def _full(n, seed):
    factor = np.tril(_rng(seed).uniform(0.3, 1.0, (n, 2, 2)))
    loc = _rng(seed).normal(size=(n, 2))
    covariance = factor @ np.swapaxes(factor, 1, 2)
    targets = loc + _rng(seed + 1).normal(size=(n, 2))
    return cj.MultivariateNormalFullCovariance(loc, covariance), targets


def _laplace(n, seed):
    normal, targets = _normal(n, seed)
    return cj.Laplace(normal.loc, normal.scale), targets


def _poisson(n, seed):
    rate = _rng(seed).uniform(0.3, 6.0, n)
    return cj.Poisson(rate, max_count=64), _rng(seed).poisson(rate)


def _negative_binomial(n, seed):
    mu, r = _rng(seed).uniform(0.3, 3.0, n), _rng(seed + 1).uniform(2.0, 8.0, n)
    predictions = cj.NegativeBinomial(mu, r, max_count=128)
    return predictions, _rng(seed + 2).negative_binomial(r, r / (r + mu))


def _binomial(n, seed):
    total, p = _rng(seed).integers(1, 12, n).astype(float), _rng(seed + 1).uniform(0.1, 0.9, n)
    return cj.Binomial(total, p, max_count=32), _rng(seed + 2).binomial(total.astype(int), p)


def _gamma(n, seed):
    a, rate = _rng(seed).integers(3, 6, n).astype(float), _rng(seed + 1).uniform(0.5, 3.0, n)
    return cj.Gamma(a, rate), _rng(seed + 2).gamma(a) / rate


def _weibull(n, seed):
    k, scale = _rng(seed).integers(2, 5, n).astype(float), _rng(seed + 1).uniform(0.5, 3.0, n)
    return cj.Weibull(k, scale), scale * _rng(seed + 2).weibull(k)


def _student_t(n, seed):
    normal, targets = _normal(n, seed)
    return cj.StudentT(_rng(seed + 2).uniform(4.5, 9.0, n), normal.loc, normal.scale), targets


def _log_normal(n, seed):
    normal, targets = _normal(n, seed)
    return cj.LogNormal(normal.loc / 2, normal.scale / 2), np.exp(targets / 2)


def _quantiles(n, seed):
    loc = _rng(seed).normal(size=(n, 1))
    steps = _rng(seed).uniform(0.3, 1.0, (n, 3))
    values = loc + np.cumsum(steps, axis=1) - 1.5
    return cj.Quantiles(values, (0.1, 0.5, 0.9)), loc[:, 0] + _rng(seed + 1).normal(size=n)


def _survival_curve(n, seed):
    times = np.cumsum(_rng(seed).uniform(0.3, 1.0, (n, 5)), axis=1)
    probs = 1 - np.cumsum(0.02 + 0.8 * _rng(seed + 1).dirichlet(np.ones(6), n), axis=1)[:, :5]
    # Inside of the cells, since the density jumps at the times, and after the last one.
    ends, cell = np.pad(times, ((0, 0), (1, 0))), _rng(seed + 2).integers(6, size=n)
    steps = np.diff(ends, axis=1, append=ends[:, -1:] + 1)
    place = _rng(seed + 3).uniform(0.1, 0.9, n)
    targets = ends[np.arange(n), cell] + place * steps[np.arange(n), cell]
    return cj.SurvivalCurve(times, probs), targets


RECALIBRATED_LEVELS = (0.1, 0.4, 0.5, 0.8)


def _components(family, n, seed, n_components=3):
    """A batch [n, K] of components."""
    components, targets = family(n * n_components, seed)
    shape = n, n_components
    components = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), components)
    return components, targets[::n_components]


def _mixture(n, seed):
    components, targets = _components(_normal, n, seed)
    return cj.Mixture(_rng(seed).dirichlet(np.full(3, 5.0), n), components), targets


def _ensemble(n, seed):
    components, targets = _components(_categorical, n, seed)
    return cj.Mixture.ensemble(components), targets


def cubic_score(parameters, y):
    """Of the density exp(-|y - loc|^4 / 4 - |y - loc|^2 / (2 width)), up to a constant."""
    difference = y - parameters["loc"]
    return -(jnp.sum(jnp.square(difference)) + 1 / parameters["width"]) * difference


def draw_of_cubic_score(key, parameters):
    """For two coordinates: |y - loc|^2 is normal, cut off at 0, and the direction is uniform."""
    width, of_square, of_angle = parameters["width"], *jax.random.split(key)
    scale = jnp.asarray(2**0.5, width.dtype)
    cut = 1 / (width * scale)
    square = jax.random.truncated_normal(of_square, cut, jnp.inf, (), width.dtype) - cut
    angle = jax.random.uniform(of_angle, (), width.dtype, maxval=2 * jnp.pi)
    direction = jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    return parameters["loc"] + jnp.sqrt(jnp.maximum(scale * square, 0)) * direction


def _unnormalized(n, seed):
    parameters = {"loc": _rng(seed).normal(size=(n, 2)), "width": _rng(seed).uniform(0.3, 1.5, n)}
    targets = parameters["loc"] + _rng(seed + 1).normal(size=(n, 2))
    return cj.Unnormalized(cubic_score, parameters, draw_of_cubic_score), targets


def _empirical(n, seed):
    samples = _rng(seed).normal(size=(n, 5)) + _rng(seed).normal(size=(n, 1))
    return cj.Empirical(samples), samples.mean(1) + _rng(seed + 1).normal(size=n)


def _empirical_draws(n, seed):
    loc = _rng(seed).normal(size=n)
    draws = loc[:, None] + _rng(seed + 1).normal(size=(n, 6))
    return cj.Empirical(draws, fair=True), loc + _rng(seed + 2).normal(size=n)


def _empirical_missing(n, seed):
    predictions, targets = _empirical(n, seed)
    where = _rng(seed + 2).random((n, 5)) < 0.7
    where[:, 2] |= ~where.any(axis=1)
    return cj.Empirical(np.where(where, predictions.samples, np.nan), where=where), targets


def _empirical_vectors(n, seed):
    samples = _rng(seed).normal(size=(n, 9, 2))
    weights = _rng(seed).dirichlet(np.full(9, 3.0), n)
    return cj.Empirical(samples, weights), _rng(seed + 1).normal(size=(n, 2))


def normal_of(p):
    """The law of `_recalibrated`: Phi(a + b (y - loc) / scale), by two of its points."""
    z = ndtri(RECALIBRATED_LEVELS)
    moved = ndtri(np.asarray(p.probabilities, float))
    b = (moved[:, -1] - moved[:, 0]) / (z[-1] - z[0])
    a = moved[:, 0] - b * z[0]
    return stats.norm(p.base.loc - a / b * p.base.scale, p.base.scale / b)


def _recalibrated(n, seed):
    # A straight line in normal scores, so that the law is normal.
    base, targets = _normal(n, seed)
    shift, slope = _rng(seed + 2).normal(size=(n, 1)) / 10, _rng(seed + 3).uniform(1, 1.2, (n, 1))
    scores = shift + slope * ndtri(RECALIBRATED_LEVELS)
    return cj.Recalibrated(base, ndtr(scores), RECALIBRATED_LEVELS), targets


FAMILIES = {
    "bernoulli": _bernoulli,
    "categorical": _categorical,
    "ordinal": _ordinal,
    "normal": _normal,
    "diag": _diag,
    "full": _full,
    "laplace": _laplace,
    "poisson": _poisson,
    "negative_binomial": _negative_binomial,
    "binomial": _binomial,
    "gamma": _gamma,
    "weibull": _weibull,
    "recalibrated": _recalibrated,
    "student_t": _student_t,
    "log_normal": _log_normal,
    "quantiles": _quantiles,
    "survival_curve": _survival_curve,
    "mixture": _mixture,
    "ensemble": _ensemble,
    "empirical": _empirical,
    "empirical_missing": _empirical_missing,
    "empirical_vectors": _empirical_vectors,
    "empirical_draws": _empirical_draws,
}

# Families without moments, laws and closed forms.
SCORED = {"unnormalized": _unnormalized}


# Calibrated models.  ``CALIBRATED[name](key)`` returns predictions and targets from their laws, in
# float32 and inside of jit; `N_CALIBRATED` rows.

N_CALIBRATED = 50
QUANTILE_LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)


def _own_draws(predictions):
    return lambda key: (predictions, predictions.sample(key))


def _exchangeable(draw, n_samples, fair=False, missing=0.0):
    """The target and samples as equal members of one set, ``draw(key, n, S + 1)``.

    A share of the samples is missing, but not the first two.
    """

    def data(key):
        values, where = draw(key, N_CALIBRATED, n_samples + 1), None
        if missing:
            where = jax.random.uniform(key, (N_CALIBRATED, n_samples)) >= missing
            where = where.at[:, :2].set(True)
        return cj.Empirical(values[:, 1:], fair=fair, where=where), values[:, 0]

    return data


def _normal_set(key, n, size):
    loc, noise = jax.random.split(key)
    return jax.random.normal(loc, (n, 1)) + jax.random.normal(noise, (n, size))


def _rounded_set(key, n, size):
    return jnp.round(_normal_set(key, n, size))


def _vector_set(key, n, size):
    loc, noise = jax.random.split(key)
    return jax.random.normal(loc, (n, 1, 2)) + jax.random.normal(noise, (n, size, 2))


def _one_hot_set(key, n, size):
    probs, noise = jax.random.split(key)
    logits = jax.random.normal(probs, (n, 1, 3))
    labels = jax.random.categorical(noise, jnp.broadcast_to(logits, (n, size, 3)))
    return jax.nn.one_hot(labels, 3, dtype=jnp.float32)


def _weighted_vectors(key):
    draws, weights, target = jax.random.split(key, 3)
    samples = jax.random.normal(draws, (N_CALIBRATED, 4, 2))
    weights = jax.random.dirichlet(weights, jnp.ones(4), (N_CALIBRATED,))
    predictions = cj.Empirical(samples, weights)
    return predictions, predictions.sample(target)


def _rain(key):
    """Exact quantiles of laws with an atom at 0."""
    dry, target, wet = jax.random.split(key, 3)
    p = jax.random.uniform(dry, (N_CALIBRATED,), minval=0.2, maxval=0.6)
    levels = jnp.array(QUANTILE_LEVELS)[None]
    values = -jnp.log1p(-jnp.maximum(levels - p[:, None], 0.0) / (1 - p[:, None]))
    amount = jax.random.exponential(wet, (N_CALIBRATED,))
    targets = jnp.where(jax.random.bernoulli(target, p), 0.0, amount)
    return cj.Quantiles(values, QUANTILE_LEVELS), targets


def _quantiles_of_counts(key):
    """Exact quantiles of binomial laws, which are equal to many targets."""
    of_p, target = jax.random.split(key)
    p = jax.random.uniform(of_p, (N_CALIBRATED, 1))
    y = jnp.arange(7.0)[None]
    pmf = jnp.array([1.0, 6.0, 15.0, 20.0, 15.0, 6.0, 1.0])[None] * p**y * (1 - p) ** (6 - y)
    cdf = jnp.cumsum(pmf, axis=1)
    levels = jnp.array(QUANTILE_LEVELS)[None, None]
    values = jnp.sum(cdf[:, :, None] < levels, axis=1).astype(jnp.float32)
    counts = jax.random.bernoulli(target, p, (N_CALIBRATED, 6))
    return cj.Quantiles(values, QUANTILE_LEVELS), jnp.sum(counts, axis=1, dtype=jnp.float32)


def _rare_events(key):
    predictions = cj.Bernoulli(10 ** jnp.linspace(-4.0, -1.0, N_CALIBRATED))
    return predictions, predictions.sample(key)


def _certain_classes(key):
    rows = jnp.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 1e-6, 1 - 1e-6]])
    predictions = cj.Categorical(jnp.tile(rows, (N_CALIBRATED // 3 + 1, 1))[:N_CALIBRATED])
    return predictions, predictions.sample(key)


def _tied_quantiles(key):
    values = jnp.tile(jnp.array([[0.0, 0.0, 1.0, 3.0, 3.0]]), (N_CALIBRATED, 1))
    predictions = cj.Quantiles(values, QUANTILE_LEVELS)
    return predictions, predictions.sample(key)


# Samples without weights are no law: their targets are one more sample.
CALIBRATED = {
    name: _own_draws(cast(make(N_CALIBRATED, 0)[0], "float32"))
    for name, make in FAMILIES.items()
    if name not in ("empirical", "empirical_missing", "empirical_draws")
} | {
    "1 draw": _exchangeable(_normal_set, 1),
    "2 draws, fair": _exchangeable(_normal_set, 2, fair=True),
    "10 draws": _exchangeable(_normal_set, 10),
    "10 draws with ties": _exchangeable(_rounded_set, 10),
    "10 draws, some missing": _exchangeable(_normal_set, 10, missing=0.3),
    "6 draws, some missing, fair": _exchangeable(_normal_set, 6, fair=True, missing=0.3),
    "10 draws with ties, some missing": _exchangeable(_rounded_set, 10, missing=0.3),
    "6 vectors, some missing": _exchangeable(_vector_set, 6, missing=0.3),
    "1 vector": _exchangeable(_vector_set, 1),
    "4 vectors": _exchangeable(_vector_set, 4),
    "10 vectors": _exchangeable(_vector_set, 10),
    "8 one-hot vectors": _exchangeable(_one_hot_set, 8),
    "weighted vectors": _weighted_vectors,
    "tied quantiles": _tied_quantiles,
    "quantiles of rain": _rain,
    "quantiles of counts": _quantiles_of_counts,
    "rare events": _rare_events,
    "certain classes": _certain_classes,
}


# Functions that a user might write.


def ordinal(y, z):
    """Closer labels are more alike."""
    return jnp.exp(-jnp.square((y - z).astype(jnp.result_type(float))) / 2)


def scaled_ordinal(lengthscale, y, z):
    """The same with a parameter, for `jax.tree_util.Partial`."""
    return jnp.exp(-jnp.abs(y - z).astype(lengthscale.dtype) / lengthscale)


def joint(a, b):
    """A kernel on pairs that is no tensor product: exp(-<e_y - e_z, p - q>^2 - |p - q|^2)."""
    (p, y), (q, z) = a, b
    difference = p.probs - q.probs
    return jnp.exp(-jnp.sum(jnp.square(difference)) - jnp.square(difference[y] - difference[z]))


def location(p):
    return p.loc


def root_of_rate(p):
    return jnp.sqrt(p.rate)


def mean_and_concentration(p):
    return jnp.stack([p.mu, p.concentration / 4])


def mean_of_gamma(p):
    return p.concentration / p.rate


def weighted_location(weight, p):
    return weight * jnp.stack([p.loc, jnp.log(p.scale)])


def mean_of_draws(p):
    return jnp.mean(p.samples)


Partial = jax.tree_util.Partial

TARGET_KERNELS = {
    "white": cj.WhiteKernel(),
    "gaussian": cj.GaussianKernel(0.8),
    "laplacian": cj.LaplacianKernel(1.3),
    "matern32": cj.Matern32Kernel(0.9),
    "matern52": cj.Matern52Kernel(1.1),
}
_K = TARGET_KERNELS

# Every distance, with the families that it is defined for.
DISTANCES = {
    "total_variation": (cj.TotalVariation(), ("categorical", "bernoulli")),
    "euclidean": (cj.Euclidean(), ("categorical", "bernoulli")),
    "wasserstein": (cj.Wasserstein(), ("normal", "diag", "laplace", "full")),
    "mixture_wasserstein": (cj.MixtureWasserstein(), ("mixture",)),
    "embedding": (cj.EmbeddingDistance(location), ("normal", "diag", "student_t")),
    "embedding_partial": (cj.EmbeddingDistance(Partial(weighted_location, 0.7)), ("normal",)),
    "mean_embedding": (
        cj.MeanEmbeddingDistance(_K["gaussian"]),
        ("categorical", "normal", "full", "poisson", "mixture", "ensemble", "empirical"),
    ),
}

# Every pair of a family and a target kernel that has closed forms.
PAIRS = {
    "categorical-white": ("categorical", _K["white"]),
    "categorical-gaussian": ("categorical", _K["gaussian"]),
    "categorical-function": ("categorical", ordinal),
    "categorical-partial": ("categorical", Partial(scaled_ordinal, np.float64(1.7))),
    "ordinal-laplacian": ("ordinal", _K["laplacian"]),
    "bernoulli-white": ("bernoulli", _K["white"]),
    "bernoulli-laplacian": ("bernoulli", _K["laplacian"]),
    "normal-gaussian": ("normal", _K["gaussian"]),
    "normal-laplacian": ("normal", _K["laplacian"]),
    "normal-matern32": ("normal", _K["matern32"]),
    "normal-matern52": ("normal", _K["matern52"]),
    "diag-gaussian": ("diag", _K["gaussian"]),
    "diag-gaussian_ard": ("diag", cj.GaussianKernel(np.array([0.5, 2.0]))),
    "diag-laplacian": ("diag", cj.LaplacianKernel(np.array([0.5, 2.0]))),
    "laplace-laplacian": ("laplace", _K["laplacian"]),
    "laplace-gaussian": ("laplace", _K["gaussian"]),
    "full-gaussian": ("full", _K["gaussian"]),
    "full-gaussian_ard": ("full", cj.GaussianKernel(np.array([0.5, 2.0]))),
    "poisson-white": ("poisson", _K["white"]),
    "poisson-gaussian": ("poisson", _K["gaussian"]),
    "negative_binomial-white": ("negative_binomial", _K["white"]),
    "negative_binomial-gaussian": ("negative_binomial", _K["gaussian"]),
    "binomial-white": ("binomial", _K["white"]),
    "binomial-gaussian": ("binomial", _K["gaussian"]),
    "student_t-gaussian": ("student_t", _K["gaussian"]),
    "student_t-laplacian": ("student_t", _K["laplacian"]),
    "log_normal-matern52": ("log_normal", _K["matern52"]),
    "quantiles-gaussian": ("quantiles", _K["gaussian"]),
    "mixture-gaussian": ("mixture", _K["gaussian"]),
    "mixture-laplacian": ("mixture", _K["laplacian"]),
    "ensemble-white": ("ensemble", _K["white"]),
    "empirical-matern32": ("empirical", _K["matern32"]),
    "empirical_vectors-gaussian": ("empirical_vectors", _K["gaussian"]),
    "normal-sum": ("normal", _K["gaussian"] + _K["laplacian"]),
    "normal-scaled": ("normal", 0.3 * _K["gaussian"]),
    "categorical-sum": ("categorical", 0.3 * _K["white"] + _K["gaussian"]),
}


def _tensor(distance, target_kernel, lengthscale=0.7, exponent=1.0):
    return cj.TensorProduct(cj.DistanceKernel(distance, lengthscale, exponent), target_kernel)


_TV = _tensor(cj.TotalVariation(), _K["white"], 0.4)
_W2 = _tensor(cj.Wasserstein(), _K["gaussian"])

# Kernels on pairs of a prediction and a target.
KERNELS = {
    "categorical-tv-white": ("categorical", _TV),
    "categorical-euclidean-gaussian": (
        "categorical",
        _tensor(cj.Euclidean(), _K["gaussian"], exponent=2.0),
    ),
    "categorical-tv-function": ("categorical", _tensor(cj.TotalVariation(), ordinal, exponent=0.5)),
    "categorical-joint": ("categorical", joint),
    "categorical-algebra": (
        "categorical",
        0.5 * _TV + _tensor(cj.Euclidean(), 2.0 * _K["white"] + _K["laplacian"], exponent=1.5),
    ),
    "bernoulli-tv-white": ("bernoulli", _TV),
    "bernoulli-euclidean-white": ("bernoulli", _tensor(cj.Euclidean(), _K["white"])),
    "normal-w2-gaussian": ("normal", _W2),
    "normal-embedding-laplacian": (
        "normal",
        _tensor(DISTANCES["embedding_partial"][0], _K["laplacian"]),
    ),
    "normal-w2-matern32": ("normal", _tensor(cj.Wasserstein(), _K["matern32"], exponent=2.0)),
    "normal-algebra": (
        "normal",
        cj.TensorProduct(
            cj.DistanceKernel(cj.Wasserstein()) * cj.DistanceKernel(DISTANCES["embedding"][0]),
            _K["gaussian"],
        ),
    ),
    "laplace-w2-laplacian": ("laplace", _tensor(cj.Wasserstein(), _K["laplacian"])),
    "student_t-embedding-gaussian": (
        "student_t",
        _tensor(DISTANCES["embedding"][0], _K["gaussian"]),
    ),
    "full-w2-gaussian": ("full", _tensor(cj.Wasserstein(), PAIRS["full-gaussian_ard"][1])),
    "mixture-mw2-gaussian": ("mixture", _tensor(cj.MixtureWasserstein(), _K["gaussian"])),
    "poisson-embedding-white": (
        "poisson",
        _tensor(cj.EmbeddingDistance(root_of_rate), _K["white"]),
    ),
    "negative_binomial-embedding-white": (
        "negative_binomial",
        _tensor(cj.EmbeddingDistance(mean_and_concentration), _K["white"]),
    ),
    "gamma-embedding-gaussian": (
        "gamma",
        _tensor(cj.EmbeddingDistance(mean_of_gamma), _K["gaussian"]),
    ),
    "mixture-mean_embedding-gaussian": (
        "mixture",
        _tensor(DISTANCES["mean_embedding"][0], _K["gaussian"], exponent=2.0),
    ),
    "ensemble-mean_embedding-white": (
        "ensemble",
        _tensor(cj.MeanEmbeddingDistance(_K["white"]), _K["white"], exponent=2.0),
    ),
    "empirical-mean_embedding-laplacian": (
        "empirical",
        _tensor(DISTANCES["mean_embedding"][0], _K["laplacian"], exponent=2.0),
    ),
    "empirical_draws-embedding-gaussian": (
        "empirical_draws",
        _tensor(cj.EmbeddingDistance(mean_of_draws), _K["gaussian"]),
    ),
    "normal-w2-stein_matern52": (
        "normal",
        cj.SteinKernel(cj.DistanceKernel(cj.Wasserstein(), 0.7), _K["matern52"]),
    ),
    "unnormalized-fisher-stein_gaussian": (
        "unnormalized",
        cj.SteinKernel(
            cj.DistanceKernel(cj.FisherDistance(np.array([[0.0, 0.5], [1.0, -1.0]])), 3.0),
            PAIRS["diag-gaussian_ard"][1],
        ),
    ),
    "diag-w2-gaussian": ("diag", _tensor(cj.Wasserstein(), PAIRS["diag-gaussian_ard"][1])),
    "normal-w2-pit": (
        "normal",
        cj.PITKernel(cj.DistanceKernel(cj.Wasserstein(), 0.7), np.array([1.0, 0.5, 0.25])),
    ),
    "poisson-embedding-pit_scores": (
        "poisson",
        cj.PITKernel(
            cj.DistanceKernel(cj.EmbeddingDistance(root_of_rate)), features="normal scores"
        ),
    ),
    "empirical-embedding-pit": (
        "empirical",
        cj.PITKernel(cj.DistanceKernel(cj.EmbeddingDistance(mean_of_draws))),
    ),
}


def sample(name, n=8, seed=0, dtype="float64"):
    """(kernel, predictions, targets) of an instance of KERNELS or PAIRS."""
    family, kernel = (KERNELS | PAIRS)[name]
    if inspect.isfunction(kernel):
        kernel = Partial(kernel)  # so that it can be an argument of jitted functions
    return cast((kernel, *(FAMILIES | SCORED)[family](n, seed)), dtype)


# Every test of the hypothesis that a model is calibrated, as a function of
# (key, kernel, predictions, targets, where=None).


def _asymptotic(method):
    return partial(cj.asymptotic_skce_test, n_resamples=99, method=method)


def _features(*arguments, where=None):
    options = {"n_resamples": 99, "method": "features", "n_features": 10}
    return cj.asymptotic_skce_test(*arguments, **options, where=where)


def _block(block_size, variance="blocks"):
    def test(key, *arguments, where=None):
        options = {"block_size": block_size, "variance": variance, "where": where}
        return cj.asymptotic_block_skce_test(*arguments, **options)

    return test


def _cme(n_locations):
    def test(key, kernel, predictions, targets, where=None):
        locations = cj.sample_test_locations(key, predictions, n_locations, where=where)
        return cj.asymptotic_cme_test(kernel, predictions, targets, *locations, where=where)

    return test


def _distribution_free(**options):
    def test(key, *arguments, where=None):
        return cj.distribution_free_skce_test(*arguments, **options, kernel_bound=2.0, where=where)

    return test


def _consistency(key, kernel, predictions, targets, where=None):
    estimator = Partial(cj.skce, kernel)
    return cj.consistency_test(key, estimator, predictions, targets, n_resamples=99, where=where)


def _calibration(key, kernel, predictions, targets, where=None):
    return cj.calibration_test(key, predictions, targets, where=where, n_resamples=99)


TESTS = {
    "bootstrap": _asymptotic("bootstrap"),
    "wild": _asymptotic("wild"),
    "spectrum": _asymptotic("spectrum"),
    "gamma": _asymptotic("gamma"),
    "pearson": _asymptotic("pearson"),
    "features": _features,
    "blocks of 2": _block(2),
    "blocks of 3": _block(3),
    "blocks of 2, null": _block(2, "null"),
    "cme": _cme(2),
    "distribution-free": _distribution_free(),
    "distribution-free, biased": _distribution_free(unbiased=False),
    "distribution-free, blocks of 3": _distribution_free(block_size=3),
    "consistency": _consistency,
    "calibration_test": _calibration,
}


def depending(data, **dependence):
    """The same data, with rows that may depend on each other."""
    known = {"where": data.where, "weights": data.weights}
    made = cj.Data(data.predictions, data.targets, **known, **dependence)
    return as_data(made, intervals=True)
