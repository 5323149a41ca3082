"""A map from predictions to predictions that are calibrated, fitted to labels or to numbers."""

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

    Every map but "isotonic" and "venn_abers" minimises the mean log loss plus its penalty.  L' is L
    after a fitted temperature.  With more than two classes, "beta", "spline" and "isotonic" are
    fitted to each class against the rest, and each row is divided by its sum.

    "auto" fits each candidate, "nothing" included, to four fifths of the rows and predicts the
    other fifth.  It returns the mixture sum_k w_k q_k with the least log loss on these held-out
    rows; the weights are found by EM, and those below 0.02 become 0.  With clusters or times,
    fifths of the clusters or times are held out.  With more than 30 classes the curves are no
    candidates, and with more than 200 the matrix is none.

    "isotonic" and "venn_abers" treat probabilities as equal if they differ by less than 1e-6 of
    their size, which is a few roundings of float32, at the fit and where the map is used.
    Probabilities above 1 - 2^-10 are compared by the sum of the other classes, which has more
    digits, and are equal within 0.1 % of it; a Bernoulli probability that is given by one number is
    compared as far as float32 tells it from 1.

    For the other methods a probability of 0 would let one impossible target decide the fit.  It
    becomes max(half of the smallest positive probability, 1e-15) if the fitting rows have zeros,
    else 1e-15; this rule is part of the map.  At the end q becomes (1 - 1 / (n + 1)) q + 1 / ((n +
    1) m), except after "nothing" and "venn_abers": what did not happen in n rows may still happen.
    `Categorical` predictions that are ``ragged``, whose rows differ in their number of classes,
    keep their zeros at the fit and where the map is used, and only the classes of a row count.
    There is a map even if there is one row, if a class never occurred, or if all decisions are
    right; ``fit.converged`` says whether the loss has a minimum.

    **Groups** of rows are columns such as region or age.  The map for all rows gives logits l of
    labels, and the segments s of a row move them to l + sum_s (a_s + b_s x) with x = (l - mean) /
    deviation.  Segments are the levels of columns, and the 200 largest pairs of levels with at
    least 20 rows; pairs have no b.  Ridge penalties draw a and b to 0.  Shifts of levels, slopes,
    and shifts of pairs are added one after another: each with the one of 5 strengths that has the
    least loss on held-out rows, and only if that loss is lower by more than a standard error.  With
    clusters or times, parts of them are held out, and the standard error is that between parts.
    With many classes each class is moved by itself; it must gain more, so that chance moves a
    class as seldom as with two, and all classes together must gain, too.  The time is O(n S^2) for
    S segments.

    Groups of densities, quantiles and samples have a shift and a scale each, before the map for all
    rows.  With the error r of a forecast and the size h that its spread says of it, they are mean r
    and the logarithm of mean |r| / mean h, less a common value.  Either the groups that differ
    significantly (t tests at 0.05 over all groups) have their own and all others the common one, or
    with ten groups or more all are drawn to it by empirical Bayes; held-out rows must gain by more
    than a standard error.  Shifts are in units of the targets, and in normal scores for densities.
    Levels of several columns add up.  Groups of counts, survival curves and `Between` targets move
    the logits l of G at the levels to l + sum_s (a_s + b_s l), as above.

    **Numbers.** A monotone map G of the unit interval turns the cdf F into G(F(y)), and quantiles
    F^{-1}(u), and samples likewise, into F^{-1}(G^{-1}(u)):

    ==================  ============================================================================
    ``"shift_scale"``   G(Phi(z)) = Phi(a + b z), b > 0; values of quantiles and samples move, see
                        below
    ``"pit_beta"``      logit G(u) = c + a log u - b log(1 - u), with a and b at least 0.05
    ``"pit_spline"``    logit G(u) a natural cubic spline of logit u with 8 knots, with a penalty as
                        for "spline"
    ``"pit_isotonic"``  how often U = F(Y) <= u
    ``"conditional"``   of a forecast x, (sum_i w_i 1[U_i <= u] + c G(u)) / (sum_i w_i + c) with the
                        weights w_i = exp(-|s(x) - s(x_i)|^2 / (2 h^2)), normal scores s of median
                        and spread among those of the fit, and the best G for all forecasts
    ``"conformal"``     the quantile at level u becomes F^{-1}(U_(k)), of the k-th smallest of the
                        n numbers U = F(Y), k = ceil((n + 1) u) if u >= 1/2, else floor((n + 1) u)
    ``"auto"``          a shift and scale, then the mixture of the other maps for all forecasts, or
                        "conditional"; each only if held-out rows gain by more than a standard error
    ==================  ============================================================================

    **Shift and scale.**  For densities a + b z has the mean 0 and the variance 1 over the rows of
    the fit, which is the best log score.  A normal forecast stays normal.  Members m of a row, with
    their mean M and the mean difference D of two of them, become a + b M + (c + d / D) (m - M),
    which keeps their order (member-by-member postprocessing, a form of ensemble model output
    statistics); quantiles likewise around the median, without d.  The CRPS, or the pinball loss, is
    least.  A scale is fitted, then a shift, then b and d, each only if held-out rows gain by more
    than a standard error, and d only if narrow ensembles are too narrow by three.  Equal members
    stay equal.  Counts, survival curves and `Between` targets have this map among those of U.

    Every map but "conformal" minimises the mean over levels u of the log loss of G(u) as the
    probability of U <= u.  It asks only on which side of each level a target is, which is all that
    quantiles and samples say.  The levels are those of the quantiles, k / (S + 1) for S <= 40
    samples, and else 0.01, 0.025, 0.05, 0.1, …, 0.95, 0.975, 0.99; `Recalibrated` says what happens
    between them.

    Densities have a level more on each side, at normal scores of -4 and 4; beyond the levels of the
    fit Phi^{-1} o G o Phi is a line with the slope of the best log score of the targets there.

    "auto" and "conditional" hold out each of ten parts of the rows in turn: parts of the clusters,
    consecutive times, or rows by chance.  Maps are compared by the score of what they return: the
    CRPS of samples and the pinball loss of quantiles, with the bound and whole numbers, the log
    score of densities less that of the forecast as it is, and of counts and `Between` targets that
    of their interval of U.  ``fit.change`` is the mean change of this score in held-out rows, and
    its interval of 95 %.  The next season may still be unlike all parts of those before.

    Without covariates "conditional" is not a candidate of "auto" for samples: it makes the spreads
    of rows alike, which lowers the CRPS and takes ranks from being even.

    "conditional" corrects local errors of bias and spread.  With `covariates` s has their normal
    scores, too, if that lowers the score of held-out parts.  The number of rows c that G stands
    for, from 20 to 2000, and the width h, 1, 0.5 or 0.25, are those with the least score there; if
    none is better than G, or with fewer than 100 rows, the map is G.  The map keeps at most 4096
    rows, evenly spaced among more.  With fewer than 20 rows "auto" and "conditional" are "nothing".

    For counts, where U lies between F(y - 1) and F(y), a map makes `Ordinal` predictions: tables of
    G(F(k)) - G(F(k - 1)) for k = 0 … max_count, whose last class has all larger counts.  A
    `SurvivalCurve` becomes 1 - G(F(t)) at its times; where it is 0 or 1 it stays so.

    For counts, survival curves, and for `Between` targets, the share of U <= u given its interval
    is that under the map itself.  Both are found in turn by the EM algorithm, which for
    "pit_isotonic" gives the estimate of Turnbull.  "auto" and "conditional" take the shares under
    "pit_spline".

    "conformal" has a guarantee, whatever the forecasts are.  If the new row and the n rows of the
    fit are exchangeable, the new quantile q at a level u >= 1/2 has u <= P(Y <= q) < u + 1 / (n +
    1), and one at a lower level has P(Y < q) <= u and P(Y <= q) > u - 1 / (n + 1).  The probability
    is over all n + 1 rows.  With ties among U the first inequality of each pair holds; targets that
    are equal up to rounding are ties, for which quantiles move outwards by a few roundings.
    Intervals between two quantiles hold at least their share.  The guarantee needs 1 / (n + 1) <=
    u <= n / (n + 1), else ``fit.converged`` is False.  No map of U corrects a forecast that has no
    tail, because its two outermost quantiles are equal, or whose F(y) rounds to 0 or 1.  For
    densities the result is `Quantiles` at the levels of the fit.

    The fit runs in NumPy and SciPy, outside of jit; the map that it returns can be traced.  It
    takes passes over n m numbers, some ten for a temperature and some hundred for others, and O(n
    m^2) time for "sms".  Of more than 4096 rows, maps of two classes and curves of more are fitted
    to cells of rows whose logits differ by less than 0.01, which changes log losses by less than
    1e-5; "isotonic" and "venn_abers" see all scores, in O(n log n).

    Args:
        predictions, targets: as in `Data`, or one `Data`.  Predictions of labels (Categorical,
            Ordinal, Bernoulli or mixtures of these), of real numbers (a `Univariate` family,
            Normal, Laplace, mixtures of these, Quantiles, Empirical, SurvivalCurve), or of counts
            with a max_count; of densities, curves and counts targets may be `Between`.
        method: one of the table.
        groups: columns ``[n]`` by their names, a dict or a frame, such as ``data.groups``, which is
            not taken by itself; not for "conformal".  Numbers and times with more than 12 different
            values are cut at their quartiles, everything else is a category, and missing values are
            a level.  Values are matched with those of the fit whatever their types are, such as 0.1
            in float32 and in float64, or a date and its text; values that cannot be read as those
            of the fit are errors.
        covariates: for "auto" and "conditional" of numbers, what is known of a row beside its
            forecast: real numbers ``[n, d]``, or columns ``[n]`` by their names, a dict or a frame.
        lower: a bound of the targets of quantiles and samples, such as 0 for admissions.
            Recalibrated values below it become this number, and values at it stay, such as dry
            members.  If fewer members than targets are at the bound, the smallest others follow.
            Without it a forecast that is widened may go below 0 where no target does.
        rows: `where`, `weights`, `clusters`, `times` and `horizon` of `Data`.  In penalties n rows
            of unequal weights count as (sum w)^2 / sum w^2.  Clusters are held out together, and
            times in blocks of consecutive ones.

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
    "nothing": lambda rows: Fitted((maps.with_floor(rows)[0],), True, ""),
    "temperature": maps.fit_temperature,
    "vector": maps.fit_vector,
    "svs": functools.partial(maps.fit_after_temperature, is_full=False),
    "sms": functools.partial(maps.fit_after_temperature, is_full=True),
    "beta": fit_beta,
    "spline": fit_spline,
    "isotonic": fit_isotonic,
    "venn_abers": fit_venn_abers,
}
# Maps with steps between the scores of rows, of which only equal ones are one.
_OF_SCORES = ("isotonic", "venn_abers")
OF_LABELS = ("auto", *FITS)
# The number of parts of the rows that are left out in turn.
_N_FOLDS = 5
_OF_TWO = ("temperature", "svs", "beta", "spline", "isotonic")
_OF_MANY = ("temperature", "svs", "sms", "beta", "spline", "isotonic")
# The largest numbers of classes with a curve for each, and with a number for each pair, which more
# would need minutes for.
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
    n_impossible = int(np.sum(rows.of_targets() <= rows.zero))
    counts = {"n_rows": len(rows.targets), "n_classes": n_classes, "n_impossible": n_impossible}

    return recalibrator_of(data.predictions, chosen, of_groups, change=change, **counts)


def rows_of_labels(data: Data) -> tuple[LabelRows, np.ndarray]:
    """The rows of checked data that count, in NumPy, and which these are, ``[n]``."""
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
    """The methods that "auto" tries, besides nothing."""
    if n_classes == 2:
        return _OF_TWO
    slow = {"spline", "beta", "isotonic"} if n_classes > _MOST_CURVES else set()
    slow |= {"sms"} if n_classes > _MOST_PAIRS else set()
    return tuple(name for name in _OF_MANY if name not in slow)


def fit_chosen(
    method: str, rows: LabelRows, part: np.ndarray | None
) -> tuple[Chosen, tuple[float, float, float] | None]:
    """The method that was chosen, its fit, and the log losses of the candidates; what they change.

    Args:
        method: "auto" or one of `FITS`.
        rows: all of which have weights above 0.
        part: the number of the part of each row that is left out in turn, ``[n]``; by chance if it
            is not given.
    """
    if method != "auto" or len(rows.targets) < 2:
        name = "nothing" if method == "auto" else method
        return (name, FITS[name](rows), {}), None
    names = ("nothing", *candidates(rows.n_classes))
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
    converged = all(fit.converged for fit in fits)
    return ("mixture", Fitted((average,), converged, words), known), change


def _held_out_logs(name: str, rows: LabelRows, fold: np.ndarray) -> np.ndarray:
    """The log probability of each target by a map that was fitted without its fold, ``[n]``."""
    found = np.zeros(len(fold))
    for k in range(fold.max() + 1):
        inside = fold == k
        own, steps = rows.at(inside), FITS[name](rows.at(~inside)).steps
        found[inside] = own.of_targets(maps.run(steps, own.probs, rows.ragged))
    return np.log(np.maximum(found, np.finfo(np.float32).tiny))


def _folds(targets: np.ndarray) -> np.ndarray:
    """Numbers of folds, by chance, and with equally many rows of each class."""
    n = len(targets)
    order = np.random.default_rng(0).permutation(n)
    by_class = order[np.argsort(targets[order], kind="stable")]
    fold = np.empty(n, int)
    fold[by_class] = np.arange(n) % min(_N_FOLDS, n)
    return fold
