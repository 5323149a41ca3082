"""A map from predictions to predictions that are calibrated, fitted to data."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._check import check_choice
from calibjax._distribution import Distribution
from calibjax._rows import check_data
from calibjax._sharding import on_one_device
from calibjax._struct import is_traced, on_host, widest_dtype
from calibjax.recalibration._labels import FITS, ONLY_TWO, LabelRows, fit_auto, fit_nothing
from calibjax.recalibration._recalibrator import Fit, Recalibrator, check_labels

METHODS = ("auto", "nothing", *FITS)


def fit_recalibrator(
    predictions: Distribution,
    targets: ArrayLike,
    method: str = "auto",
    *,
    weights: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Recalibrator:
    """A map that makes predictions of labels calibrated, fitted to rows that did not train a model.

    With L = log p of a row, n rows and m classes, q is for

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

    It is computed in NumPy and SciPy, outside of jit; what it returns can be traced.  Time: passes
    over n m numbers, some ten for a temperature and some hundred for others; n m^2 for matrices.

    Args:
        predictions: a batch of n >= 1 predictions of labels: Categorical, Ordinal, Bernoulli or
            mixtures of these.
        targets: labels ``0 … m-1``, array ``[n]``.
        method: one of the table.
        weights: how much each row counts, nonnegative numbers ``[n]``; of n rows of unequal weights
            (sum w)^2 / sum w^2 count in penalties.
        where: boolean mask ``[n]``; masked rows may hold anything.

    Returns:
        Recalibrator, a function of predictions; print it.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or value; an argument is traced;
            a method that is for two classes only.

    See also:
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
    estimates, KDD 2002 (isotonic); Vovk, Petej and Fedorova, Large-scale probabilistic predictors
    with and without guarantees of validity, NeurIPS 2015 (venn_abers).
    """
    check_choice("method", method, METHODS)
    if is_traced((predictions, targets, weights, where)):
        raise TypeError("fit_recalibrator must be called outside of jit, got traced arguments.")
    n_classes = check_labels(predictions)
    if n_classes < 2:
        raise ValueError(f"predictions must have at least 2 classes, got {n_classes}.")
    if method in ONLY_TWO and n_classes > 2:
        raise ValueError(
            f"method {method!r} is for two classes, got predictions of {n_classes}; "
            "'spline' and 'sms' are for more."
        )
    rows, dtype = label_rows(predictions, targets, weights, where)
    impossible = int(np.sum(rows.of_targets() == 0))
    losses: dict[str, float] = {}
    if method == "auto":
        chosen, fitted, losses = fit_auto(rows)
    else:
        chosen, fitted = method, (FITS | {"nothing": fit_nothing})[method](rows)
    fit = Fit(
        method=chosen,
        words=fitted.words,
        converged=fitted.converged,
        n_classes=n_classes,
        n_rows=len(rows.targets),
        n_impossible=impossible,
        losses=tuple(losses.items()),
    )
    return Recalibrator(jax.tree.map(lambda x: np.asarray(x, dtype), fitted.steps), fit)


def label_rows(
    predictions: Distribution, targets: Any, weights: Any, where: Any
) -> tuple[LabelRows, Any]:
    """The checked rows that count, in NumPy, and the floating dtype of the predictions."""
    data = on_one_device(check_data(predictions, targets, where, weights, at_least=1))
    kept = np.ones(data.n, bool) if data.where is None else np.asarray(data.where)
    every = np.ones(data.n) if data.weights is None else np.asarray(data.weights, float)
    kept = kept & (every > 0)
    with jax.ensure_compile_time_eval():
        probs = on_host(data.predictions.label_probabilities())
    dtype = widest_dtype(*jax.tree.leaves(predictions))
    probs = np.asarray(probs, float)[kept]
    # Their sums are 1 up to rounding of the user.
    probs = probs / probs.sum(axis=1, keepdims=True)
    labels = np.asarray(data.targets)[kept].astype(int)
    return LabelRows(probs, labels, every[kept] / every[kept].max()), jnp.dtype(dtype)
