"""Quadrature rules for the library's predictions, from those of the golden numbers."""

import functools

import jax
import numpy as np
from golden.recompute import gauss_legendre_panels, quadrature

import calibjax as cj


def rule(p, kinks):
    """Nodes and weights of E f(Z), Z ~ p, for f with kinks at the given targets, if any."""
    fields = vars(p)
    match p:
        case cj.Bernoulli():
            nodes, weights = quadrature({"kind": "categorical", "probs": p.label_probabilities()})
        case cj.Categorical():
            nodes, weights = quadrature(arrays("categorical", **fields))
        case cj.Poisson():
            nodes, weights = quadrature(arrays("poisson", rate=p.rate))
        case cj.Counts():
            nodes = np.arange(p.max_count + 1)
            return nodes, np.exp([p.log_prob(z) for z in nodes.astype("int32")])
        case cj.Normal():
            nodes, weights = quadrature(arrays("normal", **fields), np.ravel(kinks))
        case cj.Laplace():
            nodes, weights = quadrature(arrays("laplace", **fields), np.ravel(kinks))
        case cj.MultivariateNormalFullCovariance():
            kind, covariance = "multivariate_normal_full", p.covariance_matrix
            return quadrature(arrays(kind, loc=p.loc, covariance=covariance))
        case cj.MultivariateNormalDiag():
            rules = [
                rule(cj.Normal(*coordinate), kink)
                for *coordinate, kink in zip(*fields.values(), np.array(kinks), strict=True)
            ]
            nodes = np.stack(np.meshgrid(*(z for z, _ in rules), indexing="ij"), -1)
            weights = functools.reduce(np.multiply.outer, (w for _, w in rules))
            return nodes.reshape(-1, len(rules)), np.ravel(weights)
        case cj.Mixture():
            components = (row(p.components, i) for i in range(len(p.probabilities())))
            rules = [rule(component, kinks) for component in components]
            weights = [w * v for w, (_, v) in zip(p.probabilities(), rules, strict=True)]
            return np.concatenate([z for z, _ in rules]), np.concatenate(weights)
        case cj.Empirical():
            return np.array(p.samples), np.array(p.probabilities())
        case _:
            # Any other law of numbers: its density, which other tests compare with SciPy's.
            mean, deviation = float(p.mean()), float(p.variance()) ** 0.5
            edges = mean + deviation * np.linspace(-45, 45, 91)
            nodes, weights = gauss_legendre_panels(edges, np.append(np.ravel(kinks), [0.0, mean]))
            return nodes, weights * np.exp(p.log_prob(nodes))
    return nodes[..., 0], weights


def arrays(kind, **parameters):
    return {"kind": kind, **{name: np.array(x, float) for name, x in parameters.items()}}


def row(tree, i):
    """One prediction of a batch."""
    return jax.tree.map(lambda x: x[i], tree)
