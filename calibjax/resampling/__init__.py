"""What chance does: data sets under H0, resampled rows, ranks and bands."""

from calibjax.resampling._bands import (
    Bins,
    fractions,
    is_beyond,
    law_of_cells,
    redrawn_uniform_counts,
)
from calibjax.resampling._bootstrap import (
    DependentSums,
    bootstrap_draws,
    dependent_sums,
    resampled_forms,
    wild_draws,
)
from calibjax.resampling._draws import (
    DRAWS_PER_GROUP,
    draw_groups,
    draw_pits,
    draw_targets,
    row_numbers,
)
from calibjax.resampling._event_sums import EventSums
from calibjax.resampling._label_counts import redrawn_label_counts
from calibjax.resampling._multipliers import multipliers
from calibjax.resampling._null_sampler import (
    MULTIPLIERS,
    DataSets,
    NullSampler,
    SampledRows,
    SetSums,
    centred,
    in_passes,
    judged_by_pit,
    pooled,
    sum_over_rows,
    under_model,
    variance_deficit,
)
from calibjax.resampling._rank_pvalues import (
    as_multiple,
    check_resamples,
    checked_level,
    counted_pvalue,
    counted_pvalue_with_ties,
    critical_value,
    holm,
    host_pvalue,
    normal_quantile,
    normal_scores,
    one_level,
    rank_of_level,
    rounding_of,
    upper_quantile,
)
