"""Quadrature rules for the library's predictions, from those of the golden numbers."""

import functools

import jax
import numpy as np
from golden.recompute import gauss_legendre_panels, quadrature
from scipy import special, stats

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
        case cj.StudentT():
            return fine_rule(stats.t(*map(float, (p.df, p.loc, p.scale))))
        case cj.LogNormal():
            return fine_rule(stats.lognorm(float(p.scale), scale=np.exp(float(p.loc))))
        case cj.Quantiles():
            return rule_of_quantiles(np.array(p.values), np.array(p.levels))
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
            return nodes, weights * np.exp(jax.vmap(p.log_prob)(nodes))
    return nodes[..., 0], weights


def fine_rule(law, n_points=40001):
    """Many points of a law of SciPy, and their weights: even in z for F^{-1}(Phi(z))."""
    z = np.linspace(-9, 9, n_points)
    weights = np.exp(-np.square(z) / 2)
    points = np.where(z < 0, law.ppf(special.ndtr(z)), law.isf(special.ndtr(-z)))
    return points, weights / weights.sum()


def rule_of_quantiles(values, levels):
    """Uniform pieces between the values, and tails with the slope of the piece beside them."""
    slopes = np.diff(values) / np.diff(levels)
    excess, decay = gauss_legendre_panels(np.linspace(0, 40, 81), np.zeros(0))
    decay = decay * np.exp(-excess)
    place, weights = gauss_legendre_panels(np.linspace(0, 1, 5), np.zeros(0))
    pieces = [(values[0] - slopes[0] * levels[0] * excess, levels[0] * decay)]
    for k, mass in enumerate(np.diff(levels)):
        pieces.append((values[k] + place * (values[k + 1] - values[k]), mass * weights))
    last = 1 - levels[-1]
    pieces.append((values[-1] + slopes[-1] * last * excess, last * decay))
    return tuple(map(np.concatenate, zip(*pieces, strict=True)))


def arrays(kind, **parameters):
    return {"kind": kind, **{name: np.array(x, float) for name, x in parameters.items()}}


def row(tree, i):
    """One prediction of a batch, taken on the host: an index is a program for every shape."""
    return jax.tree.map(lambda x: jax.device_put(np.asarray(x)[i]), tree)
