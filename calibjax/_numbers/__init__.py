"""Functions of numbers: what is computed, whatever it is computed for."""

from calibjax._numbers._arithmetic import (
    compensated_add,
    dot,
    eigh_of_kernel,
    exact_sum,
    fractions_of,
    mean_by_gauss,
    pairs_weight,
    power_of_two,
    quotient,
    root_mean_square,
)
from calibjax._numbers._beyond_linear import exp_beyond_linear, log1p_beyond_linear
from calibjax._numbers._complex import complex_average, complex_exponential
from calibjax._numbers._erfcx import coefficients, erfcx, erfcx_and_slope
from calibjax._numbers._inversion import (
    cdf_from_quantile,
    falls_short,
    integer_or_invalid,
    quantile_from_cdf,
    smallest_count_with,
    smallest_with,
    with_levels,
)
from calibjax._numbers._isotonic import isotonic_frequencies
from calibjax._numbers._log_gamma import (
    MANY_COUNTS,
    log_gamma_ratio,
    log_gamma_step,
    log_quotient,
    stirling_remainder,
)
from calibjax._numbers._slopes import (
    SMALL,
    absolute,
    mirrored,
    reciprocal,
    safe_sqrt,
    sinc,
    small_expm1,
)
from calibjax._numbers._tempering import (
    as_before,
    tempered_label_log_prob,
    tempered_probabilities,
    tempered_scale,
)
from calibjax._numbers._unit_interval import UnitInterval, interval, normal_places, normal_score
from calibjax._numbers._valid import (
    NONNEGATIVE,
    POSITIVE,
    TOLERANCE,
    ArrayT,
    Constraint,
    is_finite,
    is_nonnegative,
    is_positive,
    probability_vectors,
    valid_or_nan,
)
