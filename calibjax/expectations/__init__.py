"""Expectations of target kernels under predictions, chosen by the types of both.

Each family registers its closed forms beside its class.  This room holds the dispatch and the rules
that many families share.
"""

from calibjax.expectations import _dispatch
from calibjax.expectations._default_features import (
    is_top_label,
    location_and_spread,
    log_probability_of,
    squared_deviation,
    standardised,
)
from calibjax.expectations._default_kernels import (
    JointKernel,
    default_kernel,
    default_kernel_of_models,
    default_kernels,
    default_kernels_of,
    default_prediction_kernels,
    gaussian_kernel,
    has_log_prob,
    judging_kernels,
    prediction_coordinates,
    product_kernel,
)
from calibjax.expectations._dispatch import (
    MeanEmbeddingDistance,
    inner_product,
    mean_embedding,
    prepare_rows,
    register_row_by_row,
    register_rules,
    residual_product,
    residual_product_tile,
    squared_distance_tile,
)
from calibjax.expectations._finite_sums import (
    all_labels,
    finite_sums,
    label_residual,
    measure_of_residual,
    register_sums,
    sums_over_atoms,
)

__all__ = [
    "MeanEmbeddingDistance", "default_kernel", "default_kernels", "inner_product",
    "mean_embedding", "product_kernel",
]  # fmt: skip
__dir__ = __all__.copy
