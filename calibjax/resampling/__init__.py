"""What chance does: targets redrawn from the predictions, resampled rows, ranks and bands."""

from calibjax.resampling._bands import (
    Bins,
    fractions,
    is_beyond,
    law_of_cells,
    redrawn_uniform_counts,
)
from calibjax.resampling._bootstrap import bootstrap_draws, resampled_forms, wild_draws
from calibjax.resampling._dependent_sums import DependentSums, dependent_sums
from calibjax.resampling._draws import (
    DRAWS_PER_GROUP,
    draw_groups,
    draw_places,
    draw_targets,
    row_numbers,
)
from calibjax.resampling._multipliers import (
    ClusterMultipliers,
    Multipliers,
    TimeMultipliers,
    multipliers,
)
from calibjax.resampling._rank import (
    Level,
    as_multiple,
    check_resamples,
    checked_level,
    counted_pvalue,
    counted_pvalue_with_ties,
    critical_value,
    holm,
    host_pvalue,
    normal_quantile,
    one_level,
    rank_of_level,
    rounding_of,
    upper_quantile,
)
from calibjax.resampling._reduce import redrawn_label_counts, sum_over_rows, under_model
