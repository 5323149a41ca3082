"""What chance does: targets redrawn from the predictions, resampled rows, ranks and bands."""

from calibjax.resampling._bands import Bins as Bins
from calibjax.resampling._bands import fractions as fractions
from calibjax.resampling._bands import is_beyond as is_beyond
from calibjax.resampling._bands import law_of_cells as law_of_cells
from calibjax.resampling._bands import redrawn_uniform_counts as redrawn_uniform_counts
from calibjax.resampling._bootstrap import bootstrap_draws as bootstrap_draws
from calibjax.resampling._bootstrap import resampled_forms as resampled_forms
from calibjax.resampling._bootstrap import wild_draws as wild_draws
from calibjax.resampling._draws import DRAWS_PER_GROUP as DRAWS_PER_GROUP
from calibjax.resampling._draws import draw_groups as draw_groups
from calibjax.resampling._draws import draw_places as draw_places
from calibjax.resampling._draws import draw_targets as draw_targets
from calibjax.resampling._draws import row_numbers as row_numbers
from calibjax.resampling._rank import check_resamples as check_resamples
from calibjax.resampling._rank import checked_level as checked_level
from calibjax.resampling._rank import counted_pvalue as counted_pvalue
from calibjax.resampling._rank import counted_pvalue_with_ties as counted_pvalue_with_ties
from calibjax.resampling._rank import critical_value as critical_value
from calibjax.resampling._rank import normal_quantile as normal_quantile
from calibjax.resampling._rank import one_level as one_level
from calibjax.resampling._rank import rank_of_level as rank_of_level
from calibjax.resampling._rank import rounding_of as rounding_of
from calibjax.resampling._rank import upper_quantile as upper_quantile
from calibjax.resampling._reduce import redrawn_label_counts as redrawn_label_counts
from calibjax.resampling._reduce import sum_over_rows as sum_over_rows
from calibjax.resampling._reduce import under_model as under_model
