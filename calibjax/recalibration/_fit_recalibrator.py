"""Fits of maps that make predictions of labels or numbers calibrated."""

import functools
from collections.abc import Callable
from typing import Unpack

import jax
import numpy as np

from calibjax._base.check import check_choice
from calibjax._base.sharding import on_one_device
from calibjax._base.struct import is_traced
from calibjax._data.data import Data, RowOptions, as_data
from calibjax._data.distribution import Binary, Distribution, Labels, as_labels
from calibjax._data.interval_censored import Targets
from calibjax._data.row_columns import CovariatesLike
from calibjax._data.typed_column import NamedColumns
from calibjax.estimators.labels import check_classes
from calibjax.recalibration import _probability_maps as maps
from calibjax.recalibration._cross_validation import (
    in_words,
    mean_change,
    mixture_weights,
    parts_of,
)
from calibjax.recalibration._fit_groups import fit_groups
from calibjax.recalibration._fit_numbers import OF_NUMBERS, fit_numbers
from calibjax.recalibration._label_curves import fit_beta, fit_isotonic, fit_spline, fit_venn_abers
from calibjax.recalibration._pit_map import check_numbers
from calibjax.recalibration._probability_maps import Chosen, Fitted, LabelRows
from calibjax.recalibration._recalibrator import (
    Recalibrator,
    probabilities_on_host,
    recalibrator_of,
)


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
    """Fits a map that makes predictions calibrated, to rows that did not train the model.

    **Labels.**  With L = log p of a row, n rows and m classes, the new probabilities q are

    ==================  ============================================================================
    ``"temperature"``   softmax(L / T)
    ``"vector"``        softmax(v o L + b)
    ``"svs"``           softmax((1 + v) o L' + b), penalty (m / n) (\\|v\\|^2 + \\|b\\|^2)
    ``"sms"``           softmax(L' + W L' + b), penalty (m / n) (\\|b\\|^2 + sum_j W_jj^2) +
                        (m (m - 1) / n) sum_{j != k} W_jk^2
    ``"beta"``          logit q = c + a log p - b log(1 - p), a and b at least 0
    ``"spline"``        logit q a natural cubic spline of logit p with 8 knots; the penalty on its
                        second derivative has the least approximate leave-one-out loss
    ``"isotonic"``      the nondecreasing curve that is nearest to the observed frequencies
    ``"venn_abers"``    p_1 / (1 - p_0 + p_1), where p_1 and p_0 are isotonic probabilities with the
                        new row added as label 1 and as 0; for two classes
    ``"identity"``      p
    ``"auto"``          a mixture of the fast methods, with the least log loss on held-out rows
    ==================  ============================================================================

    Every map but "isotonic" and "venn_abers" minimises the mean log loss plus its penalty.  L' is L
    after a fitted temperature.  With more than two classes, "beta", "spline" and "isotonic" are
    fitted to each class against the rest, and each row is divided by its sum.

    "auto" fits each candidate, "identity" included, to four fifths of the rows and predicts the
    other fifth.  It returns the mixture sum_k w_k q_k with the least log loss on these held-out
    rows.  EM finds the weights, and those below 0.02 become 0.  With clusters or times, fifths of
    these are held out.  "auto" leaves out curves for more than 30 classes and "sms" for more than
    200.

    "isotonic" and "venn_abers" treat probabilities as equal if they differ by less than 1e-6 of
    their size, a few roundings of float32.  Probabilities above 1 - 2^-10 are compared by the sum
    of the other classes, which has more digits; they are equal if it differs by less than 0.1 %.  A
    Bernoulli probability given by one number is compared as precisely as float32 stores it near 1.

    For the other methods, one target of probability 0 would decide the fit.  Zeros are therefore
    raised: to max(half of the smallest positive probability, 1e-15) if the rows of the fit have
    zeros, else to 1e-15.  This rule is part of the map.  At the end q becomes (1 - 1 / (n + 1)) q +
    1 / ((n + 1) m), except after "identity" and "venn_abers": an outcome that did not occur in n
    rows may still occur.  `Categorical` predictions that are ``ragged``, whose rows differ in their
    number of classes, keep their zeros, and only the classes of a row count.  One row, a class that
    never occurred and decisions that are all right are allowed; ``fit.converged`` says whether the
    loss has a minimum.

    **Groups** are columns such as region or age.  Their segments are the levels of each column, and
    the 200 largest pairs of levels with at least 20 rows.  For labels with the logits l after the
    map for all rows, the segments s of a row change l to l + sum_s (a_s + b_s x), with x = (l -
    mean) / SD between -4 and 4; pairs have no b.  Ridge penalties shrink a and b to 0.  Shifts of
    levels, slopes, and shifts of pairs are added in this order, each with the best of 5 strengths,
    and only if the held-out loss falls by more than a standard error.  With clusters or times,
    parts of these are held out, and the standard error is that between parts.  With more than two
    classes, each class must gain more (Bonferroni), and all classes together more than a standard
    error.  The time is O(n S^2) for S segments.

    Each group of densities, quantiles or samples has a shift and a scale, applied before the map
    for all rows.  With the error r of a forecast and the mean size h of errors that its spread
    implies, they are mean r and, after this shift, log(mean |r| / mean h), each minus a common one.
    Either the groups that differ significantly (t tests, Bonferroni at 0.05) have their own values
    and all others the common one, or, with at least ten groups, all are shrunk to it by empirical
    Bayes.  Held-out rows must gain by more than a standard error.  Shifts are in units of the
    targets, and for densities in normal scores.  Values of several columns are added.  For counts,
    survival curves and `IntervalCensored` targets, segments change the logits l of G at the levels
    to l + sum_s (a_s + b_s l), chosen as for labels.

    **Numbers.** A monotone map G of the unit interval turns the cdf F into G(F(y)), and quantiles
    or samples F^{-1}(u) into F^{-1}(G^{-1}(u)):

    ==================  ============================================================================
    ``"shift_scale"``   G(Phi(z)) = Phi(a + b z), b > 0; for quantiles and samples, see below
    ``"pit_beta"``      logit G(u) = c + a log u - b log(1 - u), with a and b at least 0.05
    ``"pit_spline"``    logit G(u) a natural cubic spline of logit u with at most 8 knots, with a
                        penalty as for "spline"
    ``"pit_isotonic"``  the share of rows with U = F(Y) <= u
    ``"conditional"``   for a forecast x, (sum_i w_i 1[U_i <= u] + c G(u)) / (sum_i w_i + c) with
                        w_i = exp(-|s(x) - s(x_i)|^2 / (2 h^2)), s the normal scores of median and
                        spread among those of the fit, and G the best map for all forecasts
    ``"conformal"``     the quantile at level u becomes F^{-1}(U_(k)), of the k-th smallest of the
                        n numbers U = F(Y), k = ceil((n + 1) u) if u >= 1/2, else floor((n + 1) u)
    ``"auto"``          a shift and scale, then a mixture of the other maps for all forecasts, or
                        "conditional"; each only if held-out rows gain by more than a standard error
    ==================  ============================================================================

    **Shift and scale.** For densities, a + b z has mean 0 and variance 1 over the rows of the fit,
    which maximises the log score.  A normal forecast stays normal.  Members m of an ensemble with
    mean M and mean difference D of two members become a + b M + (c + d / D) (m - M), which keeps
    their order (member-by-member postprocessing, a form of ensemble model output statistics).
    Quantiles move likewise around the median, without d.  The numbers minimise the CRPS, or the
    pinball loss of quantiles.  "auto" and "conditional" fit a scale, then add a shift, then b and
    d, each only if held-out rows gain by more than a standard error.  "shift_scale" always has both
    shift and scale for densities and quantiles, and always a scale for members.  d also requires
    that narrow ensembles are too narrow by three standard errors.  Equal members stay equal.  For
    counts, survival curves and `IntervalCensored` targets "shift_scale" is fitted like the other
    maps G.

    The maps G minimise the mean over levels u of the log loss of G(u) as P(U <= u).  It depends
    only on which side of each level a target is, which is all that quantiles and samples tell.  The
    levels are those of the quantiles, k / (S + 1) for S <= 40 samples, and else 0.01, 0.025, 0.05,
    0.1, …, 0.95, 0.975, 0.99; `Recalibrated` defines G between them.  Densities have one more level
    on each side, at normal scores of -4 and 4; there Phi^{-1} o G o Phi is a line with the slope
    that has the best log score of the targets beyond the other levels.

    "auto", "conditional" and "shift_scale" hold out each of ten parts of the rows in turn: parts of
    the clusters, consecutive times, or random rows.  The score is that of the returned predictions:
    the CRPS of samples and the pinball loss of quantiles, after the bound and rounding to whole
    numbers; the log score of densities minus that of the original forecast; for counts and
    `IntervalCensored` targets the same with the probability of the interval of U.  ``fit.change``
    is the mean change of the score on held-out rows, with its 95 % interval; for labels, that of
    the log loss of "auto".  The next season may still differ from all parts.

    "conditional" corrects local errors of bias and spread.  With `covariates`, s includes their
    normal scores if that lowers the held-out score.  The weight c of G, from 20 to 2000 rows, and
    the width h, 1, 0.5 or 0.25, minimise the held-out score; if no choice is better than G, or with
    fewer than 100 rows, the map is G.  It keeps at most 4096 rows, evenly spaced.  For samples
    without covariates "auto" leaves it out: it makes the spreads of rows similar, which lowers the
    CRPS, but ranks are then not uniform.  With fewer than 20 rows "auto" and "conditional" are
    "identity".

    Counts, for which U lies between F(y - 1) and F(y), become `Ordinal` predictions: tables of
    G(F(k)) - G(F(k - 1)) for k = 0 … max_count, whose last class has all larger counts.  A
    `SurvivalCurve` becomes 1 - G(F(t)) at its times; 0 and 1 stay.  For these and for
    `IntervalCensored` targets, P(U <= u) given the interval of U is that under the map itself.  EM
    finds both in turn; for "pit_isotonic" this is the estimate of Turnbull.  "auto" and
    "conditional" use P(U <= u) under "pit_spline".

    "conformal" has a guarantee for any forecasts.  If the new row and the n rows of the fit are
    exchangeable, the new quantile q at a level u >= 1/2 has u <= P(Y <= q) < u + 1 / (n + 1), and
    one at a lower level has P(Y < q) <= u and P(Y <= q) > u - 1 / (n + 1).  The probability is over
    all n + 1 rows.  With ties among U the first inequality of each pair holds; targets that are
    equal up to rounding are ties, for which quantiles move outwards by a few roundings.  Intervals
    between two quantiles cover at least their nominal share.  The guarantee needs 1 / (n + 1) <= u
    <= n / (n + 1), else ``fit.converged`` is False.  No map of U corrects a forecast without a
    tail: its two outermost quantiles are equal, or its F(y) rounds to 0 or 1.  For densities the
    result is `Quantiles` at the levels of the fit.

    The fit runs in NumPy and SciPy, outside of jit; the map that it returns can be traced.  The fit
    passes over n m numbers, about ten times for a temperature and a hundred times for others, and
    "sms" takes O(n m^2) time.  With more than 4096 rows, curves and all maps of two classes are
    fitted to cells of rows whose logits differ by less than 0.01, which changes log losses by less
    than 1e-5; "isotonic" and "venn_abers" use all scores, in O(n log n).

    Args:
        predictions, targets: as in `Data`, or one `Data`.  Predictions of labels (Categorical,
            Ordinal, Bernoulli or mixtures of these), of real numbers (a `Univariate` family,
            Normal, Laplace, mixtures of these, Quantiles, Empirical, SurvivalCurve), or of counts
            with a max_count; of densities, curves and counts targets may be `IntervalCensored`.
        method: a name of the tables.
        groups: columns ``[n]`` by name, a dict or a frame, such as ``data.groups``, which is not
            used unless it is given here; not for "conformal".  Numbers and times with more than 12
            different values are cut at their quartiles, all other values are categories, and
            missing values are a level.  New values are matched with those of the fit across types,
            such as 0.1 in float32 and in float64, or a date and its text; values that cannot be
            read as the type of the fit are errors.
        covariates: information beside the forecast, for "auto" and "conditional" of numbers: real
            numbers ``[n, d]``, or columns ``[n]`` by name, a dict or a frame.
        lower: a lower bound of the targets, for quantiles and samples, such as 0 for admissions.
            Recalibrated values below it become this number, and values at it stay, such as dry
            members.  If fewer members than targets are at the bound, the smallest others follow.
            Without a bound, widened forecasts may go below 0 where no target does.
        rows: `where`, `weights`, `clusters`, `times` and `horizon` of `Data`.  In penalties n rows
            of unequal weights count as (sum w)^2 / sum w^2.  Clusters are held out together, and
            times in blocks of consecutive ones.

    Returns:
        Recalibrator, a function of predictions; print it.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or value; an argument is traced;
            a method for other predictions; predictions of vectors.

    See also:
        `cross_fit` to assess a method on all rows, `segment_test` to assess segments,
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
    2018 (numbers); Van Schaeybroeck and Vannitsem, Ensemble post-processing using member-by-member
    approaches, Quarterly Journal of the Royal Meteorological Society 2015 (shift_scale); Vovk et
    al., Nonparametric predictive distributions based on conformal prediction, COPA 2017
    (conformal); Vovk, Petej and Fedorova, Large-scale probabilistic predictors with and without
    guarantees of validity, NeurIPS 2015 (venn_abers); Hébert-Johnson, Kim, Reingold and Rothblum,
    Multicalibration: calibration for the (computationally-identifiable)
    masses, ICML 2018 (groups).
    """
    data = data_outside_jit("fit_recalibrator", predictions, targets, rows, covariates)
    check_choice("method", method, dict.fromkeys(OF_LABELS + OF_NUMBERS))
    if not isinstance(data.predictions, Labels):
        return fit_numbers(data, method, groups, covariates, lower)
    if lower is not None:
        raise ValueError("lower is not supported for class predictions.")
    if covariates is not None:
        raise ValueError("covariates is not supported for class predictions; use groups.")
    return fit_labels(data, method, groups)


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
    of_numbers = isinstance(given, Distribution) and not isinstance(given, Labels)
    if of_numbers:
        check_numbers(given)
    data = as_data(predictions, targets, at_least=1, intervals=of_numbers, **rows)
    return on_one_device(data).replace(horizon=data.horizon)


#: The fit of each method, by its name.
FITS: dict[str, Callable[[LabelRows], Fitted]] = {
    "identity": lambda rows: Fitted((maps.with_floor(rows)[0],), True, ""),
    "temperature": maps.fit_temperature,
    "vector": maps.fit_vector,
    "svs": functools.partial(maps.fit_after_temperature, is_full=False),
    "sms": functools.partial(maps.fit_after_temperature, is_full=True),
    "beta": fit_beta,
    "spline": fit_spline,
    "isotonic": fit_isotonic,
    "venn_abers": fit_venn_abers,
}
# Step functions of the score, which are fitted to all rows instead of cells.
_OF_SCORES = ("isotonic", "venn_abers")
OF_LABELS = ("auto", *FITS)
# Number of folds.
_N_FOLDS = 5
_OF_TWO = ("temperature", "svs", "beta", "spline", "isotonic")
_OF_MANY = ("temperature", "svs", "sms", "beta", "spline", "isotonic")
# Maximum numbers of classes for a curve of each, and for a matrix: more would take minutes.
_MOST_CURVES, _MOST_PAIRS = 30, 200


def fit_labels(data: Data, method: str, groups: NamedColumns | None) -> Recalibrator:
    """`fit_recalibrator` of checked data."""
    n_classes = check_classes(data.predictions)
    check_choice("method for labels", method, OF_LABELS)
    if n_classes < 2:
        raise ValueError(
            f"predictions must have at least 2 classes, got {n_classes}; one column of "
            "probabilities is Bernoulli(probs[:, 0])."
        )
    if method == "venn_abers" and n_classes > 2:
        raise ValueError(
            f"method {method!r} is for two classes, got predictions of {n_classes}; "
            "'spline' and 'sms' are for more."
        )
    rows, kept = rows_of_labels(data)
    part = of_groups = None
    if method == "auto" or groups is not None:
        part = parts_of(data, kept, _N_FOLDS)
    chosen, change = fit_chosen(method, rows, part)
    if groups is not None:
        after = rows._replace(probs=maps.run(chosen[1].steps, rows.probs, rows.ragged))
        of_groups = fit_groups(groups, kept, after, part)
    n_zero = int(np.sum(rows.of_targets() <= rows.zero))
    counts = dict(n_rows=len(rows.targets), n_classes=n_classes, n_zero_probability=n_zero)

    return recalibrator_of(data.predictions, chosen, of_groups, change=change, **counts)


def rows_of_labels(data: Data) -> tuple[LabelRows, np.ndarray]:
    """The rows of checked data that count, in NumPy, and a mask of them, ``[n]``."""
    kept, counts = data.counted()
    with jax.ensure_compile_time_eval():
        probs = probabilities_on_host(data.predictions)[kept].astype(float)
    labels = np.asarray(data.targets)[kept].astype(int)
    said = as_labels(data.predictions).ragged, isinstance(data.predictions, Binary)
    rows = LabelRows(probs, labels, counts, np.ones(len(labels)), *said, data.n)
    lacking = np.flatnonzero(rows.of_targets() == 0)
    if rows.ragged and lacking.size:
        row = lacking[0]
        raise ValueError(
            "targets must be classes that their rows have, whose numbers are above 0 in ragged "
            f"predictions, got {labels[row]} in row {np.flatnonzero(kept)[row]}."
        )
    return rows, kept


def candidates(n_classes: int) -> tuple[str, ...]:
    """The candidates of "auto" besides "identity"."""
    if n_classes == 2:
        return _OF_TWO
    slow = {"spline", "beta", "isotonic"} if n_classes > _MOST_CURVES else set()
    slow |= {"sms"} if n_classes > _MOST_PAIRS else set()
    return tuple(name for name in _OF_MANY if name not in slow)


def fit_chosen(
    method: str, rows: LabelRows, part: np.ndarray | None
) -> tuple[Chosen, tuple[float, float, float] | None]:
    """The chosen method, its fit, the log losses of the candidates, and `mean_change` by "auto".

    Args:
        method: "auto" or one of `FITS`.
        rows: rows with weights above 0.
        part: the fold of each row, ``[n]``; None for random folds.
    """
    if method != "auto" or len(rows.targets) < 2:
        name = "identity" if method == "auto" else method
        return (name, FITS[name](rows), {}), None
    names = ("identity", *candidates(rows.n_classes))
    fold = _folds(rows.targets) if part is None else part
    smooth, cells = rows.pooled(fold)
    logs = np.empty((len(smooth.targets), len(names)))
    for k, name in enumerate(names):
        if cells is None or name not in _OF_SCORES:
            logs[:, k] = _held_out_logs(name, smooth, fold if cells is None else cells.part)
        else:
            of_rows = rows.weights * _held_out_logs(name, rows, fold)
            logs[:, k] = np.bincount(cells.number, of_rows) / cells.weights
    losses = -(smooth.weights / smooth.weights.sum()) @ logs
    known = dict(zip(names, map(float, losses), strict=True))
    shares, words = in_words(names, mixture_weights(np.exp(logs), smooth.weights))
    every = np.array([shares.get(name, 0.0) for name in names])
    of_fold = fold if cells is None else cells.part
    change = mean_change(-logs[:, 0], -np.log(np.exp(logs) @ every), smooth.weights, of_fold)
    fits = [FITS[name](rows if name in _OF_SCORES else smooth) for name in shares]
    if len(fits) == 1:
        return (next(iter(shares)), fits[0], known), change
    average = maps.Average(np.array(list(shares.values())), tuple(fit.steps for fit in fits))
    return ("mixture", Fitted((average,), all(fit.converged for fit in fits), words), known), change


def _held_out_logs(name: str, rows: LabelRows, fold: np.ndarray) -> np.ndarray:
    """The log probability of each target under a map fitted to the other folds, ``[n]``."""
    found = np.zeros(len(fold))
    for k in range(fold.max() + 1):
        inside = fold == k
        own, steps = rows.at(inside), FITS[name](rows.at(~inside)).steps
        found[inside] = own.of_targets(maps.run(steps, own.probs, rows.ragged))
    return np.log(np.maximum(found, np.finfo(np.float32).tiny))


def _folds(targets: np.ndarray) -> np.ndarray:
    """Random folds ``[n]``, stratified by class."""
    n = len(targets)
    order = np.random.default_rng(0).permutation(n)
    by_class = order[np.argsort(targets[order], kind="stable")]
    fold = np.empty(n, int)
    fold[by_class] = np.arange(n) % min(_N_FOLDS, n)
    return fold
