"""Functions of numbers: what is computed, whatever it is computed for."""

from calibjax._numbers._arithmetic import (
    compensated_add,
    complex_average,
    complex_exponential,
    diagonal_of,
    dot,
    eigh_of_kernel,
    exact_sum,
    fractions_of,
    isotonic_frequencies,
    mean_by_gauss,
    pairs_weight,
    power_of_two,
    quotient,
    root_mean_square,
    x_where,
)
from calibjax._numbers._derivatives import (
    SMALL,
    absolute,
    mirrored,
    safe_sqrt,
    sinc,
    small_expm1,
)
from calibjax._numbers._quantiles import (
    cdf_from_quantile,
    falls_short,
    integer_or_invalid,
    quantile_from_cdf,
    smallest_count_with,
    with_levels,
)
from calibjax._numbers._special_functions import (
    MANY_COUNTS,
    coefficients,
    erfcx,
    erfcx_and_slope,
    exp_beyond_linear,
    log1p_beyond_linear,
    log_gamma_ratio,
    log_gamma_step,
    log_of_excess,
    log_quotient,
    log_quotient_beyond_linear,
    stirling_remainder,
)
from calibjax._numbers._tempering import (
    as_before,
    tempered_label_log_prob,
    tempered_probabilities,
    tempered_scale,
)
from calibjax._numbers._unit_interval import (
    UnitInterval,
    cell_of_line,
    cells_of_line,
    interval,
    normal_pit,
    normal_score,
)
from calibjax._numbers._validity import (
    FINITE,
    NONNEGATIVE,
    POSITIVE,
    TOLERANCE,
    ArrayT,
    Constraint,
    is_finite,
    is_nonnegative,
    probability_vectors,
    valid_or_nan,
)
