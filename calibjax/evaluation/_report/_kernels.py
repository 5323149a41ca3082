"""What each kernel of the test looks at, in words."""

import numpy as np

from calibjax.evaluation._wording import interval_text, number
from calibjax.hypothesis_tests import CalibrationTestResult
from calibjax.kernels import (
    DistanceKernel,
    EmbeddingDistance,
    FeatureKernel,
    KernelLike,
    PITKernel,
    Sum,
    TensorProduct,
    VectorPITKernel,
    describe,
)

# An interval that reaches beyond so many times the estimate says nothing.
_TOO_WIDE = 100.0
# What the features of the default kernels judge.
_FEATURES = {
    "is_top_label": "whether the most likely class comes",
    "log_probability_of": "whether it is too sure (log p of what comes)",
    "squared_deviation": "the spread",
}
# Weights of the location and the spread of predictions in a kernel of numbers.
_PLACES = {(1.0, 0.0): "of similar location", (0.0, 1.0): "of similar spread"}


def lines_of_kernels(test: CalibrationTestResult, level: float) -> list[dict[str, str]]:
    """A line of the page for each kernel."""
    members = test.members
    assert members is not None
    lows, highs = members.confidence_interval(1 - level)
    columns = members.estimates, lows, highs, members.scores, members.pvalues
    return [
        {
            "name": kernel_in_words(kernel),
            "technical": describe(kernel),
            "estimate": number(float(estimate)),
            "interval": _interval(*map(float, (estimate, low, high))),
            "score": number(float(score)) if np.isfinite(score) else "",
            "pvalue": number(float(pvalue)),
        }
        for kernel, estimate, low, high, score, pvalue in zip(
            members.kernels, *columns, strict=True
        )
    ]


def _interval(estimate: float, low: float, high: float) -> str:
    """The interval; a few targets of tiny probabilities make that of log p useless."""
    if high > _TOO_WIDE * max(abs(estimate), abs(low)) and low <= 0:
        return "too wide to say"
    return interval_text((low, high))


def kernel_in_words(kernel: KernelLike) -> str:
    """What a default kernel judges, and among which predictions; else what `describe` says."""
    part = kernel.left if isinstance(kernel, Sum) else kernel
    if not isinstance(part, (TensorProduct, FeatureKernel, PITKernel, VectorPITKernel)):
        return describe(kernel)
    among = part.prediction_kernel
    if not isinstance(among, DistanceKernel):
        return describe(kernel)
    if isinstance(part, TensorProduct):
        judged = "which class comes"
    elif isinstance(part, FeatureKernel):
        judged = _FEATURES.get(describe(part.feature), "the shape")
    else:
        # The first two weights are those of the location and of the spread.
        weights = [] if part.weights is None else np.asarray(part.weights).tolist()
        judged = {(1.0,): "the location", (0.0, 1.0): "the spread"}.get(tuple(weights), "the shape")
    return f"{judged}, {_among(among)}"


def _among(kernel: DistanceKernel) -> str:
    """Which predictions are compared."""
    distance = kernel.distance
    weights = None
    if isinstance(distance, EmbeddingDistance):
        weights = getattr(distance.phi, "weights", None)
    if weights is not None:
        return f"among predictions {_PLACES.get(weights, 'near and far')}"
    return f"among predictions within {float(np.asarray(kernel.lengthscale)):.2g}"
