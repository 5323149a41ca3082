"""Calibration losses of a batch of logits with their gradients: ours, and those in PyTorch.

Every call returns the value and the gradient in the logits ``[n, m]``.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import calibjax as cj

BANDWIDTH, LABEL_BANDWIDTH = 0.5, 1.0

Call = Callable[[], tuple[Any, Any]]


def logit_data(n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits of an over-confident model, and labels."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(n, m))
    labels = np.argmax(logits + rng.gumbel(size=(n, m)), axis=1)
    return (2 * logits).astype(np.float32), labels.astype(np.int32)


def _ours(n: int, m: int, loss: Callable[[cj.Categorical, jax.Array], jax.Array]) -> Call:
    logits, labels = map(jnp.asarray, logit_data(n, m))

    def of_logits(logits):
        return loss(cj.Categorical.from_logits(logits), labels)

    return functools.partial(jax.jit(jax.value_and_grad(of_logits)), logits)


def _by_torch(n: int, m: int, loss: Callable[[Any, Any], Any]) -> Call:
    """`loss` maps logits and labels to a scalar."""
    import torch

    logits, labels = map(torch.from_numpy, logit_data(n, m))
    labels = labels.long()

    def call():
        leaf = logits.clone().requires_grad_()
        value = loss(leaf, labels)
        value.backward()
        return value.detach(), leaf.grad

    return call


def squared_mmce(n: int, m: int) -> Call:
    """MMCE^2 as Kumar et al. define it, a mean over all pairs."""
    return _ours(n, m, lambda p, y: jnp.square(cj.mmce(p, y)))


def squared_mmce_by_torch(n: int, m: int) -> Call:
    """Peer: the definition, written with matrices."""
    import torch

    def loss(logits, labels):
        confidence, label = torch.softmax(logits, dim=1).max(dim=1)
        residual = (label == labels).float() - confidence
        kernel = torch.exp(-torch.cdist(confidence[:, None], confidence[:, None], p=1) / 0.4)
        return residual @ kernel @ residual / n**2

    return _by_torch(n, m, loss)


def weighted_mmce(n: int, m: int) -> Call:
    """Kumar et al.'s MMCE_w, in which hits and misses weigh the same.

    It is the root of a biased, weighted SKCE: hits have weight 1 / their number, and so do misses.
    """
    kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), 0.4), cj.WhiteKernel())

    def loss(p, y):
        confidences, hits = cj.top_label(p, y)
        n_hits = jnp.sum(hits)
        weights = jnp.where(hits == 1, 1 / n_hits, 1 / (n - n_hits))
        square = cj.skce(kernel, confidences, hits, unbiased=False, weights=weights)
        # The weights sum to 2, their squares to 4; h has the factor 2 of two classes.
        return jnp.sqrt(square * 4 / 2)

    return _ours(n, m, loss)


def weighted_mmce_by_netcal(n: int, m: int) -> Call:
    """Peer: `netcal.regularization.MMCEPenalty`."""
    from netcal.regularization import MMCEPenalty

    return _by_torch(n, m, MMCEPenalty(1.0))


def mmd_loss(n: int, m: int) -> Call:
    """The unbiased SKCE with a Gaussian kernel on probabilities and one on one-hot labels."""
    distance = cj.DistanceKernel(cj.Euclidean(), math.sqrt(BANDWIDTH), 2.0)
    kernel = cj.TensorProduct(distance, cj.WhiteKernel())
    # exp(-|e_y - e_z|^2 / l) is 1 for y = z, else exp(-2 / l); the constant of it cancels in h.
    factor = 1 - math.exp(-2 / LABEL_BANDWIDTH)
    return _ours(n, m, lambda p, y: factor * cj.skce(kernel, p, y))


def mmd_loss_by_torch(n: int, m: int) -> Call:
    """Peer: the loss of Marx et al. (NeurIPS 2023) from its formula, with sums over all labels."""
    import torch

    def loss(logits, labels):
        p = torch.softmax(logits, dim=1)
        one_hot = torch.nn.functional.one_hot(labels, m).float()
        of_predictions = torch.exp(-(torch.cdist(p, p) ** 2) / BANDWIDTH)
        classes = torch.eye(m)
        of_labels = torch.exp(-(torch.cdist(classes, classes) ** 2) / LABEL_BANDWIDTH)
        # For each pair of rows the joint probabilities of two labels, [n, n, m, m].
        joint = p[:, None, :, None] * p[None, :, None, :]
        between_draws = (joint * of_labels).sum(dim=(2, 3))
        to_label = p @ of_labels @ one_hot.T
        between_labels = one_hot @ of_labels @ one_hot.T
        h = of_predictions * (between_labels - to_label - to_label.T + between_draws)
        return (h.sum() - h.diagonal().sum()) / (n * (n - 1))

    return _by_torch(n, m, loss)
