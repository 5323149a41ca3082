"""Calibrated models and the kernels that the work shares."""

import numpy as np

import calibjax as cj

LENGTHSCALE = 0.5
LABEL_KERNEL = cj.TensorProduct(
    cj.DistanceKernel(cj.TotalVariation(), LENGTHSCALE), cj.WhiteKernel()
)
NORMAL_KERNEL = cj.TensorProduct(cj.DistanceKernel(cj.Wasserstein()), cj.GaussianKernel(1.0))


def label_data(n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities ``[n, m]`` and labels drawn from them: a calibrated classifier."""
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(m), n).astype(np.float32)
    labels = (rng.random((n, 1)) > np.cumsum(probs, axis=1)).sum(axis=1)
    return probs, np.minimum(labels, m - 1).astype(np.int32)


def real_data(*shape: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means, standard deviations and targets drawn from them."""
    rng = np.random.default_rng(0)
    loc, noise = rng.normal(size=(2, *shape))
    scale = rng.uniform(0.3, 2.0, shape)
    targets = loc + scale * noise
    return loc.astype(np.float32), scale.astype(np.float32), targets.astype(np.float32)
