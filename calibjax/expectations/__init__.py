"""Expectations of target kernels under predictions, chosen by the types of both.

Each family registers its closed forms beside its class.  This room holds the dispatch and the rules
that many families share.
"""

from calibjax.expectations import _algebra
from calibjax.expectations._default_kernel import (
    JointKernel,
    default_kernel,
    default_kernel_of_data,
    default_kernel_of_models,
    gaussian_kernel,
    product_kernel,
)
from calibjax.expectations._default_kernels import (
    default_kernels,
    default_kernels_of_data,
    default_prediction_kernels,
    has_log_prob,
)
from calibjax.expectations._dispatch import (
    inner_product,
    mean_embedding,
    prepare_rows,
    residual_product,
    residual_product_tile,
    squared_distance_tile,
    squared_embedding_distance,
    squared_embedding_distance_tile,
)
from calibjax.expectations._features import (
    is_top_label,
    location_and_spread,
    log_probability_of,
    squared_deviation,
    standardised,
)
from calibjax.expectations._finite import all_labels, finite_sums, label_residual
from calibjax.expectations._mean_embedding_distance import MeanEmbeddingDistance
from calibjax.expectations._measures import measure_of_residual, register_sums, sums_over_atoms
from calibjax.expectations._of_covariates import judging_kernels, prediction_coordinates
