"""Recompute every expected number of reference.json by quadrature, sums and enumeration.

The numbers stored there came from numerical integration, not from closed forms. This script repeats
that from the stated kernels, predictions and targets with NumPy and SciPy alone, so that the
closed forms of the library are held against something that shares no formula with them:

* real-valued predictions are integrated by Gauss-Legendre panels, split at the kinks of kernel and
  density, multivariate normal ones by trapezoidal rules in rotated coordinates; labels and counts
  are summed; a mixture is the weighted union of its components' rules; E k(Z, Z') nests two rules;
* Wasserstein distances integrate the cost of the optimal map, and between mixtures solve the linear
  programme of optimal transport between the components;
* the law of the bootstrap statistic enumerates all n^n resamples.

`python tests/golden/recompute.py` prints the largest absolute difference of every case and exits
with 1 if one exceeds 1e-12. A prediction is a dict of its kind and parameters, without batch axis;
a kernel is a dict as in the file. Points y, z have a trailing coordinate axis, also for scalars.
"""

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import linalg, optimize, stats

REFERENCE = Path(__file__).with_name("reference.json")
TOLERANCE = 1e-12

Array = np.ndarray
Prediction = dict[str, Any]
Kernel = dict[str, Any]


# Quadrature: E f(Z) = sum(weights * f(nodes)).

# Density of the standard law, and panel edges; beyond the last edge lies less than 1e-18 of it.
STANDARD_LAWS = {
    "normal": (lambda x: np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi), np.linspace(-9, 9, 13)),
    "laplace": (lambda x: np.exp(-np.abs(x)) / 2, np.linspace(-45, 45, 37)),
}
# Offsets of panel edges from a kink: shrinking panels also resolve a kernel, or another density,
# that is hundreds of times narrower.
GRADING = np.concatenate([[0.0], 3.0 ** -np.arange(8), -(3.0 ** -np.arange(8))])


def quadrature(p: Prediction, kinks: Array = ()) -> tuple[Array, Array]:
    """Nodes `[..., q, d]` and weights `[..., q]` for integrands with the given kinks `[..., k]`."""
    match p["kind"]:
        case "categorical":
            return np.arange(len(p["probs"]))[:, None], p["probs"]
        case "poisson":
            counts = np.arange(30 + 3 * np.ceil(p["rate"]))
            return counts[:, None], stats.poisson.pmf(counts, p["rate"])
        case "normal" | "laplace":
            density, edges = STANDARD_LAWS[p["kind"]]
            x, weights = gauss_legendre_panels(edges, (np.asarray(kinks) - p["loc"]) / p["scale"])
            return (p["loc"] + p["scale"] * x)[..., None], weights * density(x)
        case "multivariate_normal_diag" | "multivariate_normal_full":
            location, dispersion = location_and_dispersion(p)
            x, weights = standard_normal_grid(len(location))
            return location + x @ linalg.sqrtm(dispersion), weights
        case "normal_mixture":
            rules = [quadrature(component, kinks) for component in components(p)]
            weights = [share * w for share, (_, w) in zip(p["weights"], rules, strict=True)]
            return np.concatenate([z for z, _ in rules], -2), np.concatenate(weights, -1)
    raise ValueError(f"no quadrature for predictions of kind {p['kind']!r}")


def gauss_legendre_panels(edges: Array, kinks: Array, order: int = 16) -> tuple[Array, Array]:
    """Composite Gauss-Legendre rule, panels between edges `[m]` and graded to kinks `[..., k]`."""
    inner = (kinks[..., None] + GRADING).reshape(*kinks.shape[:-1], -1)
    inner = np.clip(inner, edges[0], edges[-1])
    edges = np.broadcast_to(edges, (*inner.shape[:-1], len(edges)))
    edges = np.sort(np.concatenate([edges, inner], axis=-1), axis=-1)[..., None]
    middle, half = (edges[..., 1:, :] + edges[..., :-1, :]) / 2, np.diff(edges, axis=-2) / 2
    x, weights = np.polynomial.legendre.leggauss(order)
    flat = (*inner.shape[:-1], -1)
    return (middle + half * x).reshape(flat), (half * weights).reshape(flat)


def standard_normal_grid(d: int, step: float = 0.45) -> tuple[Array, Array]:
    """Trapezoidal rule for N(0, I_d): error e^(-2(π/step)²/(1+a)) for integrand e^(-a x²/2)."""
    x = step * np.arange(-19, 20)
    density, _ = STANDARD_LAWS["normal"]
    nodes = np.array(list(itertools.product(x, repeat=d)))
    return nodes, np.prod(step * density(nodes), axis=-1)


def mean_embedding(p: Prediction, kernel: Kernel, y: Array) -> Array:
    """E k(Z, y), Z ~ p, at every point of y `[..., d]`."""
    z, weights = quadrature(p, kinks=y)
    return np.sum(weights * target_kernel(kernel, z, y[..., None, :]), axis=-1)


def inner_product(p: Prediction, kernel: Kernel, q: Prediction) -> float:
    """E k(Z, Z') = E_Z [E_Z' k(Z, Z')], Z ~ p, Z' ~ q."""
    # As a function of z, the inner expectation inherits its kinks from the density of q.
    z, weights = quadrature(p, kinks=np.ravel(q.get("loc", ())))
    return weights @ mean_embedding(q, kernel, z)


# Kernels and distances between predictions.


PROFILES: dict[str, Callable[[Array], Array]] = {
    "white": lambda r: np.where(r == 0, 1.0, 0.0),
    "gaussian": lambda r: np.exp(-(r**2) / 2),
    "exponential": lambda r: np.exp(-r),
    "laplacian": lambda r: np.exp(-r),
    "matern32": lambda r: (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r),
    "matern52": lambda r: (1 + np.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-np.sqrt(5) * r),
}


def radial(kernel: Kernel, distance: Array) -> Array:
    """The kernel as a function of the distance of its arguments."""
    return PROFILES[kernel["kind"]](distance / kernel.get("lengthscale", 1.0))


def target_kernel(kernel: Kernel, y: Array, z: Array) -> Array:
    """k_Y(y, z), a function of ‖y - z‖."""
    return radial(kernel, np.linalg.norm(y - z, axis=-1))


def prediction_kernel(kernel: Kernel, p: Prediction, q: Prediction) -> float:
    """k_P(p, q), a function of the metric that the kernel names."""
    return radial(kernel, METRICS[kernel["metric"]](p, q))


def wasserstein(p: Prediction, q: Prediction) -> float:
    """W₂(p, q) = sqrt(E ‖Z - T(Z)‖²), Z ~ p, with the optimal map T from p to q."""
    # Within a location-scale family the linear map with symmetric positive definite matrix that
    # takes p to q is the gradient of a convex function, hence optimal. Unlike the trace formula
    # for normal distributions, the cost of the map does not cancel where p and q are close.
    (a, A), (b, B) = location_and_dispersion(p), location_and_dispersion(q)
    root = linalg.sqrtm(A)
    inverse_root = linalg.inv(root)
    T = inverse_root @ linalg.sqrtm(root @ B @ root) @ inverse_root
    z, weights = quadrature(p)
    return np.sqrt(weights @ np.sum((z - b - (z - a) @ T) ** 2, axis=-1))


def mixture_wasserstein(p: Prediction, q: Prediction) -> float:
    """MW₂(p, q) = sqrt(min <P, C>) over couplings P of the weights, C_ij = W₂(p_i, q_j)²."""
    costs = np.array([[wasserstein(a, b) ** 2 for b in components(q)] for a in components(p)])
    rows, columns = costs.shape
    row_sums = np.kron(np.eye(rows), np.ones(columns))
    column_sums = np.kron(np.ones(rows), np.eye(columns))
    plan = optimize.linprog(
        costs.ravel(),
        A_eq=np.vstack([row_sums, column_sums]),
        b_eq=np.concatenate([p["weights"], q["weights"]]),
    )
    return np.sqrt(costs.ravel() @ plan.x)


METRICS: dict[str, Callable[[Prediction, Prediction], float]] = {
    "total_variation": lambda p, q: np.sum(np.abs(p["probs"] - q["probs"])) / 2,
    "euclidean": lambda p, q: np.linalg.norm(p["probs"] - q["probs"]),
    "sqrt_rate": lambda p, q: np.abs(np.sqrt(p["rate"]) - np.sqrt(q["rate"])),
    "wasserstein": wasserstein,
    "mixture_wasserstein": mixture_wasserstein,
}


def location_and_dispersion(p: Prediction) -> tuple[Array, Array]:
    """(m, S) such that Z = m + S^½ X, where X follows the standard law of the family."""
    match p["kind"]:
        case "multivariate_normal_full":
            return p["loc"], p["covariance"]
        case "multivariate_normal_diag":
            return p["loc"], np.diag(p["scale_diag"] ** 2)
        case _:
            return np.reshape(p["loc"], (1,)), np.reshape(p["scale"] ** 2, (1, 1))


def components(p: Prediction) -> list[Prediction]:
    """The components of a mixture of normal distributions."""
    return unbatch({"kind": "normal", "loc": p["loc"], "scale": p["scale"]})


def unbatch(predictions: dict[str, Any]) -> list[Prediction]:
    """The predictions of a batch, one by one."""
    batch = {name: np.asarray(values) for name, values in predictions.items() if name != "kind"}
    n = len(next(iter(batch.values())))
    return [{"kind": predictions["kind"], **{k: v[i] for k, v in batch.items()}} for i in range(n)]


# The calibration error of a data set.


def h_matrix(kernel: Kernel, predictions: list[Prediction], y: Array) -> Array:
    """h_ij = k_P(p_i, p_j) E[k_Y(y_i, y_j) - k_Y(Z_i, y_j) - k_Y(y_i, Z_j) + k_Y(Z_i, Z_j)]."""
    k_P, k_Y = kernel["prediction"], kernel["target"]
    similarity = symmetric(lambda p, q: prediction_kernel(k_P, p, q), predictions)
    observed = target_kernel(k_Y, y[:, None], y)
    half = np.array([mean_embedding(p, k_Y, y) for p in predictions])
    expected = symmetric(lambda p, q: inner_product(p, k_Y, q), predictions)
    return similarity * (observed - half - half.T + expected)


def symmetric(f: Callable[[Any, Any], float], items: list) -> Array:
    """The matrix f(a, b) over all pairs of items, f symmetric and evaluated once a pair."""
    matrix = np.empty((len(items), len(items)))
    for i, j in itertools.combinations_with_replacement(range(len(items)), 2):
        matrix[i, j] = matrix[j, i] = f(items[i], items[j])
    return matrix


def deviations(kernel: Kernel, predictions: list, y: Array, t: list, z: Array) -> Array:
    """D_ij = k_P(p_i, t_j) [k_Y(y_i, z_j) - E k_Y(Z_i, z_j)] at the test locations (t_j, z_j)."""
    k_P, k_Y = kernel["prediction"], kernel["target"]
    similarity = np.array([[prediction_kernel(k_P, p, t_j) for t_j in t] for p in predictions])
    expected = np.array([mean_embedding(p, k_Y, z) for p in predictions])
    return similarity * (target_kernel(k_Y, y[:, None], z) - expected)


def biased(h: Array) -> float:
    """V = Σ_ij h_ij / n²."""
    return np.mean(h)


def unbiased(h: Array) -> float:
    """U = Σ_{i≠j} h_ij / (n (n - 1))."""
    return np.mean(h[~np.eye(len(h), dtype=bool)])


def block_estimates(h: Array, size: int, estimator: Callable[[Array], float]) -> Array:
    """The estimates of consecutive blocks of samples, without an incomplete last block."""
    starts = range(0, len(h) - size + 1, size)
    return np.array([estimator(h[s : s + size, s : s + size]) for s in starts])


def statistic(h: Array) -> float:
    """S = n/(n-1) U - V, of the asymptotic test."""
    return len(h) / (len(h) - 1) * unbiased(h) - biased(h)


# What the file holds.


def as_points(targets: list) -> Array:
    """Targets as points `[n, d]`."""
    return np.asarray(targets, dtype=float).reshape(len(targets), -1)


def recompute_case(case: dict[str, Any]) -> tuple[Array, dict[str, float]]:
    """The h matrix and the estimates of one case."""
    h = h_matrix(case["kernel"], unbatch(case["predictions"]), as_points(case["targets"]))
    estimates = {"biased": biased(h), "unbiased": unbiased(h)}
    for size, estimator in itertools.product((2, 3, 5), (unbiased, biased)):
        name = f"block{size}_{estimator.__name__}"
        estimates[name] = np.mean(block_estimates(h, size, estimator))
    return h, estimates


def recompute_tests(tests: dict[str, Any]) -> dict[str, Any]:
    """Estimates, test statistics and p-values of the classification data set."""
    predictions = unbatch({"kind": "categorical", "probs": tests["probs"]})
    locations = unbatch({"kind": "categorical", "probs": tests["test_probs"]})
    y, z = as_points(tests["targets"]), as_points(tests["test_targets"])
    h = h_matrix(tests["kernel"], predictions, y)
    n, bound = len(h), 2.0  # |h| <= 2 sup k

    D = deviations(tests["kernel"], predictions, y, locations, z)
    mean = np.mean(D, axis=0)
    cme = n * mean @ linalg.solve(np.cov(D, rowvar=False), mean)

    block = {}
    for size in (2, 7):
        e = block_estimates(h, size, unbiased)
        score = np.mean(e) / stats.sem(e)
        p = stats.norm.sf(score)
        block[str(size)] = {"estimate": np.mean(e), "statistic": score, "pvalue": p}

    return {
        "unbiased": unbiased(h),
        "biased": biased(h),
        "ucme": np.mean(mean**2),
        "cme": {"statistic": cme, "pvalue": stats.chi2.sf(cme, df=len(locations))},
        "block": block,
        "asymptotic_statistic": statistic(h),
        "distribution_free": {
            "unbiased": np.exp(-(n // 2) * max(0, unbiased(h) / bound) ** 2 / 2),
            "biased": np.exp(-(max(0, np.sqrt(n * biased(h) / bound) - 1) ** 2) / 2),
        },
        "eigenvalues_h_over_n_top5": np.linalg.eigvalsh(h / n)[:-6:-1],
        "trace_h2_over_n2": np.trace(h @ h) / n**2,
        "trace_h3_over_n3": np.trace(h @ h @ h) / n**3,
    }


def bootstrap_law(h: Array) -> Array:
    """T* = U(h_rr) - 2 mean_a mean_j h_(r_a)j for each of the n^n equally likely resamples r."""
    # This is the U-statistic of the resample with h centred at the empirical law, less V(h), the
    # constant that S contains.
    resamples = itertools.product(range(len(h)), repeat=len(h))
    centre = np.mean(h, axis=1)
    return np.array([unbiased(h[np.ix_(r, r)]) - 2 * np.mean(centre[list(r)]) for r in resamples])


def recompute_bootstrap(bootstrap: dict[str, Any]) -> dict[str, float]:
    """Statistic, both p-values, and mean, standard deviation, third central moment of T*."""
    h = np.array(bootstrap["h"])
    law, observed = bootstrap_law(h), statistic(h)
    return {
        "statistic": observed,
        "p_value_strict": np.mean(law > observed),
        "p_value_weak": np.mean(law >= observed),
        "bootstrap_mean": np.mean(law),
        "bootstrap_std": np.std(law),
        "bootstrap_third": stats.moment(law, 3),
    }


def recompute(reference: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(name, stored, recomputed) for every case of the file, then its tests and bootstrap."""
    inputs = {"name", "h", "kernel", "probs", "targets", "test_probs", "test_targets"}
    for case in reference["cases"]:
        h, estimates = recompute_case(case)
        stored = {"h": case["h"], "estimates": case["estimates"]}
        yield case["name"], stored, {"h": h, "estimates": estimates}
    for name, function in (("tests", recompute_tests), ("bootstrap", recompute_bootstrap)):
        stored = {key: value for key, value in reference[name].items() if key not in inputs}
        yield name, stored, function(reference[name])


def largest_difference(stored: Any, recomputed: Any) -> float:
    """The largest absolute difference of two equally nested structures of numbers."""
    if isinstance(stored, dict):
        if stored.keys() != recomputed.keys():
            raise ValueError(f"keys differ: {sorted(stored)} against {sorted(recomputed)}")
        return np.max([largest_difference(stored[key], recomputed[key]) for key in stored])
    return np.max(np.abs(np.asarray(stored) - np.asarray(recomputed)))


def main() -> int:
    """Print the largest difference of every case; 0 if all are within the tolerance, else 1."""
    failed = False
    for name, stored, recomputed in recompute(json.loads(REFERENCE.read_text())):
        difference = largest_difference(stored, recomputed)
        failed |= not difference <= TOLERANCE  # also true of a NaN
        print(f"{name:<50} {difference:.1e}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
