"""Expectations of target kernels under predictions, chosen by the types of both.

Each family registers its closed forms beside its class.  This room holds the dispatch and the rules
that many families share.
"""

from calibjax.expectations import _algebra as _algebra
from calibjax.expectations._default_kernel import JointKernel as JointKernel
from calibjax.expectations._default_kernel import default_kernel as default_kernel
from calibjax.expectations._default_kernel import default_kernel_of_data as default_kernel_of_data
from calibjax.expectations._default_kernel import (
    default_kernel_of_models as default_kernel_of_models,
)
from calibjax.expectations._default_kernel import gaussian_kernel as gaussian_kernel
from calibjax.expectations._default_kernel import product_kernel as product_kernel
from calibjax.expectations._default_kernels import default_kernels as default_kernels
from calibjax.expectations._default_kernels import (
    default_kernels_of_data as default_kernels_of_data,
)
from calibjax.expectations._default_kernels import (
    default_prediction_kernels as default_prediction_kernels,
)
from calibjax.expectations._default_kernels import has_log_prob as has_log_prob
from calibjax.expectations._dispatch import inner_product as inner_product
from calibjax.expectations._dispatch import mean_embedding as mean_embedding
from calibjax.expectations._dispatch import prepare_rows as prepare_rows
from calibjax.expectations._dispatch import residual_product as residual_product
from calibjax.expectations._dispatch import residual_product_tile as residual_product_tile
from calibjax.expectations._dispatch import squared_distance_tile as squared_distance_tile
from calibjax.expectations._dispatch import squared_embedding_distance as squared_embedding_distance
from calibjax.expectations._dispatch import (
    squared_embedding_distance_tile as squared_embedding_distance_tile,
)
from calibjax.expectations._features import is_top_label as is_top_label
from calibjax.expectations._features import location_and_spread as location_and_spread
from calibjax.expectations._features import log_probability_of as log_probability_of
from calibjax.expectations._features import squared_deviation as squared_deviation
from calibjax.expectations._features import standardised as standardised
from calibjax.expectations._finite import all_labels as all_labels
from calibjax.expectations._finite import finite_sums as finite_sums
from calibjax.expectations._finite import label_residual as label_residual
from calibjax.expectations._mean_embedding_distance import (
    MeanEmbeddingDistance as MeanEmbeddingDistance,
)
from calibjax.expectations._measures import measure_of_residual as measure_of_residual
from calibjax.expectations._measures import register_sums as register_sums
from calibjax.expectations._measures import sums_over_atoms as sums_over_atoms
from calibjax.expectations._of_covariates import judging_kernels as judging_kernels
from calibjax.expectations._of_covariates import (
    prediction_coordinates as prediction_coordinates,
)
