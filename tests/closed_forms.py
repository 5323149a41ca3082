"""Prints the table of families and target kernels of the site, from the registry of closed forms.

`python tests/closed_forms.py`
"""

import calibjax as cj

FAMILIES = {
    cj.Categorical: "labels `0 … m-1`",
    cj.Bernoulli: "labels 0 and 1",
    cj.Ordinal: "labels `0 … m-1`",
    cj.Normal: "real numbers",
    cj.Laplace: "real numbers",
    cj.MultivariateNormalDiag: "vectors",
    cj.MultivariateNormalFullCovariance: "vectors",
    cj.StudentT: "real numbers",
    cj.LogNormal: "positive numbers",
    cj.Gamma: "positive numbers",
    cj.Weibull: "positive numbers",
    cj.Quantiles: "real numbers",
    cj.SurvivalCurve: "lifetimes",
    cj.Recalibrated: "those of its base",
    cj.Poisson: "counts",
    cj.NegativeBinomial: "counts",
    cj.Binomial: "counts",
    cj.Empirical: "real numbers, vectors",
    cj.Mixture: "those of its components",
    cj.Unnormalized: "real numbers, vectors",
}
KERNELS = {
    cj.WhiteKernel: "White",
    cj.GaussianKernel: "Gaussian",
    cj.LaplacianKernel: "Laplacian",
    cj.Matern32Kernel: "Matern 3/2",
    cj.Matern52Kernel: "Matern 5/2",
    object: "your own",
}


def cell(family: type, kernel: type) -> str:
    """How the expectations of a pair are found."""
    for parent in family.__mro__:
        for kernel_type in kernel.__mro__:
            if (parent, kernel_type) in cj.mean_embedding.rules:
                if parent is cj.Univariate:
                    return "–" if kernel_type is cj.WhiteKernel else "quadrature"
                names = {cj.Mixture: "as components", cj.Counts: "series"}
                return names.get(parent, "sum" if kernel_type is object else "✓")
    has_stein_kernel = kernel not in (cj.WhiteKernel, cj.LaplacianKernel)
    return "by its score" if family.score_only and has_stein_kernel else "–"


def table() -> str:
    """The table in Markdown."""
    rows = [["predictions", "targets", *KERNELS.values()], ["---"] * (2 + len(KERNELS))]
    for family, targets in FAMILIES.items():
        rows.append([f"`{family.__name__}`", targets, *(cell(family, k) for k in KERNELS)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    print(table())
