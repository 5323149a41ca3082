"""A map from predictions to predictions that are calibrated, fitted to data."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._between import Between, Targets
from calibjax._check import check_choice
from calibjax._distribution import Distribution
from calibjax._rows import Data, NamedColumns, check_data, padded
from calibjax._sharding import on_one_device
from calibjax._struct import is_traced, on_host, widest_dtype
from calibjax.recalibration._groups import GroupCurve, fit_groups
from calibjax.recalibration._labels import (
    FITS,
    ONLY_TWO,
    Fitted,
    LabelRows,
    fit_auto,
    fit_nothing,
    run,
)
from calibjax.recalibration._recalibrator import Fit, Recalibrator, check_labels
from calibjax.recalibration._unit_line import (
    LINES,
    LineRows,
    check_numbers_to_mend,
    fit_conformal,
    fit_line,
    hidden_below,
    known_levels,
    median_and_spread,
)
from calibjax.scores import check_numbers, mass_below, pit_interval_of_data

OF_LABELS = ("auto", "nothing", *FITS)
OF_NUMBERS = ("auto", "nothing", *LINES, "conditional", "conformal")


def fit_recalibrator(
    predictions: Distribution,
    targets: Targets,
    method: str = "auto",
    *,
    weights: ArrayLike | None = None,
    where: ArrayLike | None = None,
    groups: NamedColumns | None = None,
) -> Recalibrator:
    """A map that makes predictions calibrated, fitted to rows that did not train the model.

    **Labels.**  With L = log p of a row, n rows and m classes, q is for

    ==================  ============================================================================
    ``"temperature"``   softmax(L / T)
    ``"ets"``           w_0 softmax(L / T) + w_1 p + w_2 / m: T first, then the shares w, by EM
    ``"vector"``        softmax(v o L + b)
    ``"svs"``           softmax((1 + v) o L' + b), penalty (m / n) (\\|v\\|^2 + \\|b\\|^2)
    ``"sms"``           softmax(L' + W L' + b), penalty (m / n) (\\|b\\|^2 + sum_j W_jj^2) +
                        (m (m - 1) / n) sum_{j != k} W_jk^2
    ``"matrix"``        softmax(W L + b)
    ``"dirichlet"``     the same, penalty (s / (m (m - 1))) sum_{j != k} W_jk^2 + (s / m)
                        \\|b\\|^2, s by cross-validation
    ``"beta"``          logit q = c + a log p - b log(1 - p), a and b at least 0
    ``"quadratic"``     logit q = c + a l + b l^2 with l = logit p; for two classes
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
    the mixture sum_k w_k q_k with the least log loss there, found by EM, without small parts.
    Of more than 30 classes it tries no curves, and of more than 200 no matrix.

    Probabilities of 0 become max(half of the smallest positive one, 1e-15) if the fitting rows have
    zeros, else 1e-15: one impossible target would decide over everything.  The rule is part of the
    map.  At the end (1 - 1 / (n + 1)) q + 1 / ((n + 1) m) takes the place of q, but of "nothing"
    and "venn_abers": what did not happen in n rows may happen.  A row that comes alone, a class
    that never came, and decisions that are all right have a map too; ``fit.converged`` says whether
    there was a minimum.

    **Groups** of rows, by columns such as region or age: the map for all rows moves logits l of
    labels, and segments s move them further, to l + sum_s (a_s + b_s x) over the segments of a row,
    with x = (l - mean) / deviation.  Segments are levels of columns, and pairs of levels with at
    least 20 rows, the 200 largest; pairs have no b.  Ridge penalties draw a and b to 0.  Shifts of
    levels, slopes, and shifts of pairs are added one after another, each with the strength of 5 for
    which rows left out lose least, and only if that is more than a standard error less.  Of many
    classes each one is moved alone.  O(n S^2) time for S segments.

    **Numbers.**  A monotone map G of the unit line makes of the cdf F the cdf G(F(y)), of quantiles
    F^{-1}(u) the quantiles F^{-1}(G^{-1}(u)), and so of samples:

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
    ``"auto"``          the mixture of the maps for all forecasts, by what they predict of blocks of
                        rows that did not fit them; "conditional" if that is clearly better there
    ==================  ============================================================================

    All but "conformal" minimise the mean over levels u of the log loss of G(u) as the probability
    of U <= u, so that the targets of quantiles and of samples need not be known better than they
    are.  The levels are those of the quantiles, k / (S + 1) of S <= 40 samples, and else 0.01,
    0.025, 0.05, 0.1, …, 0.95, 0.975, 0.99, between which `Recalibrated` says what happens.  Blocks
    are five parts of the rows in their order, since neighbours in time may be alike; of fewer than
    20 rows "auto" is "nothing".

    "conditional" mends local errors of bias and spread.  How many rows c the map G stands for,
    20 to 2000, and the width h, 1, 0.5 or 0.25, are those that predict blocks best; if none is
    better than G there (for "auto": by more than a standard error), or of fewer than 100 rows, the
    map is G.  It keeps 4096 of the rows at most, every so manyth of more.

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
    first inequality of each holds.  The probability is over all n + 1 rows.  Intervals between two
    quantiles hold at least their share.  It needs 1 / (n + 1) <= u <= n / (n + 1), else
    ``fit.converged`` is False; and no map of the unit line can mend a forecast where it has no
    tail, since its two outermost quantiles are equal, or where F(y) rounds to 0 or 1.  Of densities
    it makes `Quantiles`, at the levels of the fit.

    It is computed in NumPy and SciPy, outside of jit; what it returns can be traced.  Time: passes
    over n m numbers, some ten for a temperature and some hundred for others; n m^2 for matrices.

    Args:
        predictions: a batch of n >= 1 predictions of labels (Categorical, Ordinal, Bernoulli or
            mixtures of these; of Bernoulli ones probabilities near 1 have lost the digits that two
            columns keep), of real numbers (a `Univariate` family, Normal, Laplace, mixtures of
            these, Quantiles, Empirical), or of counts with a max_count.
        targets: labels ``0 … m-1``, numbers or counts, array ``[n]``; of densities and counts
            also `Between`.
        method: one of the table.
        weights: how much each row counts, nonnegative numbers ``[n]``; of n rows of unequal weights
            (sum w)^2 / sum w^2 count in penalties.
        where: boolean mask ``[n]``; masked rows may hold anything.
        groups: columns ``[n]`` by their names, a dict or a frame, for predictions of labels.
            Numbers with more than 12 different values are cut at their quartiles, and all else is a
            category; missing values are a level.

    Returns:
        Recalibrator, a function of predictions; print it.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or value; an argument is traced;
            a method for other predictions; predictions of vectors.

    See also:
        `cross_fit` to judge a method on all rows, `segment_test` to judge segments,
        `load_recalibrator`, `fit_recalibration` for a transform of your own.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> logits = 2 * jax.random.normal(jax.random.key(0), (600, 3))
        >>> targets = cj.Categorical.from_logits(logits).sample(jax.random.key(1))
        >>> too_sure = cj.Categorical.from_logits(2 * logits + jnp.array([0.5, 0.0, 0.0]))
        >>> recalibrator = cj.fit_recalibrator(too_sure, targets, "svs")
        >>> mended = recalibrator(too_sure)
        >>> for predictions in (too_sure, mended):
        ...     print(round(float(cj.log_score(predictions, targets).mean()), 2))
        0.69
        0.58

    Reference: Guo et al., On calibration of modern neural networks, ICML 2017 (temperature, vector,
    matrix); Zhang, Kailkhura and Han, Mix-n-match, ICML 2020 (ets); Berta et al., Structured matrix
    scaling for multi-class calibration, 2025 (svs, sms); Kull, Silva Filho and Flach, Beta
    calibration, AISTATS 2017; Kull et al., Beyond temperature scaling, NeurIPS 2019 (dirichlet);
    Zadrozny and Elkan, Transforming classifier scores into accurate multiclass probability
    estimates, KDD 2002 (isotonic); Kuleshov, Fenner and Ermon, Accurate uncertainties for deep
    learning using calibrated regression, ICML 2018 (numbers); Vovk et al., Nonparametric predictive
    distributions based on conformal prediction, COPA 2017 (conformal); Vovk, Petej and Fedorova,
    Large-scale probabilistic predictors with and without guarantees of validity, NeurIPS 2015
    (venn_abers); Hébert-Johnson, Kim, Reingold and Rothblum, Multicalibration: calibration for the
    (computationally-identifiable) masses, ICML 2018 (groups).
    """
    check_choice("method", method, dict.fromkeys(OF_LABELS + OF_NUMBERS))
    if is_traced((predictions, targets, weights, where)):
        raise TypeError("fit_recalibrator must be called outside of jit, got traced arguments.")
    if isinstance(predictions, Distribution) and not predictions.has_labels:
        if groups is not None:
            raise ValueError(
                "groups must be None for predictions of numbers: maps of segments are "
                "for labels and events."
            )
        return _fit_to_numbers(predictions, targets, method, weights, where)
    n_classes = check_labels(predictions)
    check_choice("method for labels", method, OF_LABELS)
    if n_classes < 2:
        raise ValueError(
            f"predictions must have at least 2 classes, got {n_classes}; one column of "
            "probabilities is Bernoulli(probs[:, 0])."
        )
    if method in ONLY_TWO and n_classes > 2:
        raise ValueError(
            f"method {method!r} is for two classes, got predictions of {n_classes}; "
            "'spline' and 'sms' are for more."
        )
    rows, kept, dtype = label_rows(predictions, targets, weights, where)
    impossible = int(np.sum(rows.of_targets() == 0))
    losses: dict[str, float] = {}
    if method == "auto":
        chosen, fitted, losses = fit_auto(rows)
    else:
        chosen, fitted = method, (FITS | {"nothing": fit_nothing})[method](rows)
    of_groups: GroupCurve | None = None
    if groups is not None:
        after = rows._replace(probs=run(fitted.steps, rows.probs))
        found = fit_groups(groups, kept, after)
        of_groups, words = found.curve, f"{fitted.words}; {found.words}"
        fitted = fitted._replace(converged=fitted.converged and found.converged, words=words)
    n_rows = len(rows.targets)
    return _recalibrator(chosen, fitted, losses, n_classes, n_rows, impossible, dtype, of_groups)


def _fit_to_numbers(
    predictions: Distribution, targets: Any, method: str, weights: Any, where: Any
) -> Recalibrator:
    check_choice("method for numbers", method, OF_NUMBERS)
    check_numbers_to_mend(predictions)
    is_hidden = isinstance(targets, Between)
    data = on_one_device(check_numbers(predictions, targets, where, weights, intervals=True))
    kept, every = _counted(data)
    levels = np.asarray(known_levels(predictions))
    losses: dict[str, float] = {}
    if method == "conformal":
        if weights is not None:
            raise ValueError("weights must be None for method 'conformal', which counts rows.")
        if is_hidden:
            raise ValueError("targets must be known for method 'conformal', got Between.")
        chosen, fitted = method, fit_conformal(data, levels, kept)
    else:
        counts = every[kept] * (every[kept].sum() / np.sum(every[kept] ** 2))
        rows = padded(data)
        place = pit_interval_of_data(rows)
        if is_hidden or predictions.target_kind == "integer":
            low, high = (np.asarray(x, float)[: data.n][kept] for x in place)
            below = hidden_below(method, levels, low, high, counts)
        else:
            below = np.asarray(_mass_below(place, levels.astype(place.low.dtype)), float)
            below = below[: data.n][kept]
        features = None
        if method in ("auto", "conditional"):
            features = np.asarray(_median_and_spread(rows.predictions), float)[: data.n][kept]
        chosen, fitted, losses = fit_line(method, LineRows(levels, below, counts, features))
    return _recalibrator(chosen, fitted, losses, None, int(kept.sum()), 0, _dtype_of(predictions))


def _recalibrator(
    chosen: str,
    fitted: Fitted,
    losses: dict[str, float],
    n_classes: int | None,
    n_rows: int,
    n_impossible: int,
    dtype: Any,
    of_groups: GroupCurve | None = None,
) -> Recalibrator:
    fit = Fit(
        method=chosen,
        words=fitted.words,
        converged=fitted.converged,
        n_classes=n_classes,
        n_rows=n_rows,
        n_impossible=n_impossible,
        losses=tuple(losses.items()),
    )
    steps, curves = jax.tree.map(lambda x: np.asarray(x, dtype), (fitted.steps, of_groups))
    return Recalibrator(steps, curves, fit)


_median_and_spread = jax.jit(median_and_spread)
_mass_below = jax.jit(mass_below)


def _counted(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Which rows count, and how much each, in units of the largest weight."""
    kept = np.ones(data.n, bool) if data.where is None else np.asarray(data.where)
    every = np.ones(data.n) if data.weights is None else np.asarray(data.weights, float)
    kept = kept & (every > 0)
    return kept, every / every[kept].max()


def _dtype_of(predictions: Distribution) -> Any:
    """The floating dtype of the predictions, as jax holds it."""
    return jnp.dtype(widest_dtype(*jax.tree.leaves(predictions)))


def label_rows(
    predictions: Distribution,
    targets: Targets,
    weights: ArrayLike | None,
    where: ArrayLike | None,
) -> tuple[LabelRows, np.ndarray, np.dtype]:
    """The checked rows that count, in NumPy, which these are, and the dtype of the predictions."""
    data = on_one_device(check_data(predictions, targets, where, weights, at_least=1))
    kept, every = _counted(data)
    with jax.ensure_compile_time_eval():
        probs = on_host(data.predictions.label_probabilities())
    probs = np.asarray(probs, float)[kept]
    # Their sums are 1 up to rounding of the user.
    probs = probs / probs.sum(axis=1, keepdims=True)
    labels = np.asarray(data.targets)[kept].astype(int)
    return LabelRows(probs, labels, every[kept]), kept, _dtype_of(predictions)
