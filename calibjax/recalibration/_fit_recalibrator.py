"""A map from predictions to predictions that are calibrated, fitted to data."""

from typing import Unpack

from calibjax._base.check import check_choice
from calibjax._base.sharding import on_one_device
from calibjax._base.struct import is_traced
from calibjax._data import (
    CovariatesLike,
    Data,
    Distribution,
    NamedColumns,
    RowOptions,
    Targets,
    as_data,
)
from calibjax.recalibration._fit_labels import OF_LABELS, fit_labels
from calibjax.recalibration._fit_numbers import OF_NUMBERS, fit_numbers
from calibjax.recalibration._pit_map import check_numbers
from calibjax.recalibration._recalibrator import Recalibrator


def fit_recalibrator(
    predictions: Distribution | Data,
    targets: Targets | None = None,
    method: str = "auto",
    *,
    groups: NamedColumns | None = None,
    covariates: CovariatesLike | None = None,
    lower: float | None = None,
    **rows: Unpack[RowOptions],
) -> Recalibrator:
    """A map that makes predictions calibrated, fitted to rows that did not train the model.

    **Labels.**  With L = log p of a row, n rows and m classes, q is for

    ==================  ============================================================================
    ``"temperature"``   softmax(L / T)
    ``"vector"``        softmax(v o L + b)
    ``"svs"``           softmax((1 + v) o L' + b), penalty (m / n) (\\|v\\|^2 + \\|b\\|^2)
    ``"sms"``           softmax(L' + W L' + b), penalty (m / n) (\\|b\\|^2 + sum_j W_jj^2) +
                        (m (m - 1) / n) sum_{j != k} W_jk^2
    ``"beta"``          logit q = c + a log p - b log(1 - p), a and b at least 0
    ``"spline"``        logit q a natural cubic spline of logit p with 8 knots; a penalty on its
                        second derivative, of a strength by approximate leave-one-out losses
    ``"isotonic"``      the nondecreasing curve that is nearest to the frequencies
    ``"venn_abers"``    p_1 / (1 - p_0 + p_1), isotonic with the new row of label 1 or 0; for two
                        classes
    ``"nothing"``       p
    ``"auto"``          all that are fast, weighted by what they predict of rows that did not fit
                        them
    ==================  ============================================================================

    All but "isotonic" and "venn_abers" minimise the mean log loss plus the penalty.  L' is L after
    a temperature.  "beta", "spline" and "isotonic" of more than two classes look at each class
    alone, and rows are divided by their sums.

    "auto" predicts each fifth of the rows by fits to the others, of "nothing" as well, and takes
    the mixture sum_k w_k q_k with the least log loss there, found by EM, without small parts.  With
    clusters or times, fifths of them are left out.  Of more than 30 classes it tries no curves, and
    of more than 200 no matrix.

    "isotonic" and "venn_abers" tie probabilities that differ by less than 1e-6 of their size, some
    roundings of float32, whatever else is in their rows and in whatever dtype they come: at a fit
    and where a map is used.  Above 1 - 2^-10 rows are told apart by the sum of the other classes,
    up to 0.1 % of it; if an event was given by one number, as far as float32 tells this from 1.

    Of other methods probabilities of 0 become max(half of the smallest positive one, 1e-15) if the
    fitting rows have zeros, else 1e-15: one impossible target would decide over everything.  The
    rule is part of the map.  At the end (1 - 1 / (n + 1)) q + 1 / ((n + 1) m) takes the place of q,
    but of "nothing" and "venn_abers": what did not happen in n rows may happen.  But of
    `Categorical` predictions that are ``ragged``, whose rows have fewer classes or more, zeros stay
    zeros, at a fit and where a map is used, and only what a row has counts.
    A row that comes alone, a class that never came, and decisions that are all right have a map
    too; ``fit.converged`` says whether there was a minimum.

    **Groups** of rows, by columns such as region or age: the map for all rows moves logits l of
    labels, and segments s move them further, to l + sum_s (a_s + b_s x) over the segments of a row,
    with x = (l - mean) / deviation.  Segments are levels of columns, and pairs of levels with at
    least 20 rows, the 200 largest; pairs have no b.  Ridge penalties draw a and b to 0.  Shifts of
    levels, slopes, and shifts of pairs are added one after another, each with the strength of 5 for
    which rows left out lose least, and only if that is more than a standard error less.  With
    clusters or times, parts of them are left out, and the error is that between parts.  Of many
    classes each one is moved alone; it must gain more, so that chance moves one as seldom, and all
    together must gain as well.  Of numbers l are the logits of G at the levels, l becomes
    l + sum_s (a_s + b_s l), so that b recalibrates spreads, and rows are left out at all levels.
    O(n S^2) time for S segments.

    **Numbers.**  A monotone map G of the unit interval makes of the cdf F the cdf G(F(y)), of
    quantiles F^{-1}(u) the quantiles F^{-1}(G^{-1}(u)), and so of samples:

    ==================  ============================================================================
    ``"shift_scale"``   G(Phi(z)) = Phi(a + b z), b > 0: of normal predictions shift and scale
    ``"pit_beta"``      logit G(u) = c + a log u - b log(1 - u), with a and b at least 0.05
    ``"pit_spline"``    logit G(u) a natural cubic spline of logit u with 8 knots, with a penalty as
                        for "spline"
    ``"pit_isotonic"``  how often U = F(Y) <= u
    ``"conditional"``   of a forecast x, (sum_i w_i 1[U_i <= u] + c G(u)) / (sum_i w_i + c) with the
                        weights w_i = exp(-|s(x) - s(x_i)|^2 / (2 h^2)), normal scores s of median
                        and spread among those of the fit, and the best G for all forecasts
    ``"conformal"``     the quantile at level u becomes F^{-1}(U_(k)), of the k-th smallest of the
                        n numbers U = F(Y), k = ceil((n + 1) u) if u >= 1/2, else floor((n + 1) u)
    ``"auto"``          "nothing", or the mixture of the maps for all forecasts if that predicts
                        parts of the rows that did not fit it better, or "conditional" if that is
                        better still, each by more than a standard error of the gain in parts
    ==================  ============================================================================

    All but "conformal" minimise the mean over levels u of the log loss of G(u) as the probability
    of U <= u, so that the targets of quantiles and of samples need not be known better than they
    are.  The levels are those of the quantiles, k / (S + 1) of S <= 40 samples, and else 0.01,
    0.025, 0.05, 0.1, …, 0.95, 0.975, 0.99, between which `Recalibrated` says what happens.

    "auto" and "conditional" leave out one of ten parts of the rows in turn: with `clusters` these
    are tenths of the clusters, by chance, with `times` consecutive ones, and else parts of the rows
    in their order, since neighbours may be alike.  They are judged by the score that counts for
    such forecasts: of quantiles and samples by the CRPS, in units of the targets, of densities and
    counts by the log score, less that of the forecast as it is, with the levels as ends of cells;
    of ranges it is the log score of the range.  Mixtures have the least such score, too.  A season
    that comes next may still be another one than all parts of those before.

    "conditional" recalibrates local errors of bias and spread.  With `covariates` s has their
    normal scores, too, if that predicts parts better.  How many rows c the map G stands for, 20 to
    2000, and the width h, 1, 0.5 or 0.25, are those that predict parts best; if none is better than
    G there, or of fewer than 100 rows, the map is G.  It keeps 4096 of the rows at most, every so
    manyth of more.  Of fewer than 20 rows "auto" and "conditional" are "nothing".

    Of counts, whose U lies between F(y - 1) and F(y), a map makes `Ordinal` predictions, tables of
    G(F(k)) - G(F(k - 1)) for k = 0 … max_count, whose last class has all counts from there on:
    a table is a law that every function takes.

    Of counts, and of targets that are known as ranges, `Between`, the share of U <= u given its
    interval is that under the map itself, found in turn with it (the EM algorithm; of
    "pit_isotonic" this is the estimate of Turnbull), and under "pit_spline" for "auto" and
    "conditional".

    "conformal" has a guarantee, whatever the forecasts are.  If the new row and the n rows of the
    fit are exchangeable, the quantile q at a level u >= 1/2 has u <= P(Y <= q) < u + 1 / (n + 1),
    and one at a lower level P(Y < q) <= u and P(Y <= q) > u - 1 / (n + 1); with ties among U the
    first inequality of each holds, and as targets that are equal up to rounding are tied, quantiles
    go outwards by some roundings.  The probability is over all n + 1 rows.  Intervals between two
    quantiles hold at least their share.  It needs 1 / (n + 1) <= u <= n / (n + 1), else
    ``fit.converged`` is False; and no map of the unit interval can recalibrate a forecast where it
    has no tail, since its two outermost quantiles are equal, or where F(y) rounds to 0 or 1.  Of
    densities it makes `Quantiles`, at the levels of the fit.

    It is computed in NumPy and SciPy, outside of jit; what it returns can be traced.  Time: passes
    over n m numbers, some ten for a temperature and some hundred for others; n m^2 for "sms".

    Args:
        predictions, targets: as in `Data`, or one `Data`.  Predictions of labels (Categorical,
            Ordinal, Bernoulli or mixtures of these), of real numbers (a `Univariate` family,
            Normal, Laplace, mixtures of these, Quantiles, Empirical), or of counts with a
            max_count; of densities and counts targets may be `Between`.
        method: one of the table.
        groups: columns ``[n]`` by their names, a dict or a frame; not for "conformal".  Numbers
            and times with more than 12 different values are cut at their quartiles, and all else is
            a category; missing values are a level.  The map takes equal values for equal, whatever
            their types are, such as 0.1 in float32 and in float64, or a date and its text; values
            that cannot be read as those of the fit are errors.
        covariates: of "auto" and "conditional" for numbers, what is known of a row beside its
            forecast: real numbers ``[n, d]``, or columns ``[n]`` by their names, a dict or a frame.
        lower: of quantiles and samples of what is never less, such as 0 of admissions: recalibrated
            values below it become this number.  None for no bound; then a forecast that is widened
            may go below 0 where no forecast and no target does.
        rows: `where`, `weights`, `clusters`, `times` and `horizon` of `Data`.  Of n rows of unequal
            weights (sum w)^2 / sum w^2 count in penalties.  Clusters are left out together, and
            times in blocks of consecutive ones (those of a `Data` if they have a horizon).

    Returns:
        Recalibrator, a function of predictions; print it.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or value; an argument is traced;
            a method for other predictions; predictions of vectors.

    See also:
        `cross_fit` to judge a method on all rows, `segment_test` to judge segments,
        `load_recalibrator`, `fit_temperature` for one number by any objective.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> logits = 2 * jax.random.normal(jax.random.key(0), (600, 3))
        >>> targets = cj.Categorical.from_logits(logits).sample(jax.random.key(1))
        >>> too_sure = cj.Categorical.from_logits(2 * logits + jnp.array([0.5, 0.0, 0.0]))
        >>> recalibrator = cj.fit_recalibrator(too_sure, targets, "svs")
        >>> recalibrated = recalibrator(too_sure)
        >>> for predictions in (too_sure, recalibrated):
        ...     print(round(float(cj.log_score(predictions, targets).mean()), 2))
        0.69
        0.58

    Reference: Guo et al., On calibration of modern neural networks, ICML 2017 (temperature,
    vector); Berta et al., Structured matrix scaling for multi-class calibration, 2025 (svs, sms);
    Kull, Silva Filho and Flach, Beta calibration, AISTATS 2017; Zadrozny and Elkan, Transforming
    classifier scores into accurate multiclass probability estimates, KDD 2002 (isotonic); Kuleshov,
    Fenner and Ermon, Accurate uncertainties for deep learning using calibrated regression, ICML
    2018 (numbers); Vovk et al., Nonparametric predictive distributions based on conformal
    prediction, COPA 2017 (conformal); Vovk, Petej and Fedorova, Large-scale probabilistic
    predictors with and without guarantees of validity, NeurIPS 2015 (venn_abers); Hébert-Johnson,
    Kim, Reingold and Rothblum, Multicalibration: calibration for the (computationally-identifiable)
    masses, ICML 2018 (groups).
    """
    data = data_outside_jit("fit_recalibrator", predictions, targets, rows, covariates)
    return fit_map(data, method, rows.get("times") is not None, groups, covariates, lower)


def data_outside_jit(
    name: str,
    predictions: Distribution | Data,
    targets: Targets | None,
    rows: RowOptions,
    *others: object,
) -> Data:
    """Checked data on one device; a TypeError if an argument of a public function is traced."""
    if is_traced((predictions, targets, rows, others)):
        raise TypeError(f"{name} must be called outside of jit, got traced arguments.")
    given = predictions.predictions if isinstance(predictions, Data) else predictions
    of_numbers = isinstance(given, Distribution) and not given.has_labels
    if of_numbers:
        check_numbers(given)
    return on_one_device(as_data(predictions, targets, at_least=1, intervals=of_numbers, **rows))


def fit_map(
    data: Data,
    method: str,
    in_order: bool,
    groups: NamedColumns | None = None,
    covariates: CovariatesLike | None = None,
    lower: float | None = None,
) -> Recalibrator:
    """`fit_recalibrator` of checked data, whose clusters may be times, in their order."""
    check_choice("method", method, dict.fromkeys(OF_LABELS + OF_NUMBERS))
    if not data.predictions.has_labels:
        return fit_numbers(data, method, groups, covariates, lower, in_order)
    if lower is not None:
        raise ValueError("lower must be None for predictions of labels.")
    if covariates is not None:
        raise ValueError(
            "covariates must be None for predictions of labels, whose maps know groups."
        )
    return fit_labels(data, method, groups, in_order)
