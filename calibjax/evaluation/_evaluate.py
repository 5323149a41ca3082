"""From predictions, in whatever form people have them, to a verdict."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax

from calibjax._base.check import check_flag
from calibjax._base.struct import is_traced
from calibjax.evaluation._evaluate_columns import evaluate_model, evaluate_read
from calibjax.evaluation._evaluation import Evaluation
from calibjax.frames import (
    ColumnNames,
    read_dependence,
    read_frame,
    read_inputs,
    read_weights,
)


def evaluate(
    predictions: Any,
    targets: Any = None,
    *,
    target: str | None = None,
    probs: str | Sequence[str] | None = None,
    prob: str | None = None,
    event: str | None = None,
    mean: str | None = None,
    sd: str | None = None,
    quantiles: str | Sequence[str] | None = None,
    levels: Sequence[float] | None = None,
    sort_quantiles: bool = False,
    draws: str | Sequence[str] | None = None,
    survival: str | Sequence[str] | None = None,
    censored: str | None = None,
    drop_missing: bool = False,
    seed: int = 0,
    classes: Sequence[Any] | None = None,
    normalize: bool = False,
    level: float = 0.05,
    weights: Any = None,
    clusters: Any = None,
    times: Any = None,
    horizon: Any = None,
    groups: Any = None,
) -> Evaluation:
    """Is this model calibrated, how far off is it, and where?

    It takes what people have, and calls the test `calibration_test`,
    `skce_confidence_interval`, `equivalent_temperature`, the classical measures, and the functions
    behind the pictures.  It is for people: for use inside jit, and with keys of your own, call
    these functions.  The same arguments give the same result.

    Of a frame, names of columns say what they hold, with the words of the command line:
    ``evaluate(frame, target="sold", quantiles="q*", groups=["region"], times="week")``.

    The p-value assumes that rows are independent of each other given the predictions, unless
    clusters or times say otherwise.  A test of neighbours in the order of the rows warns if they
    seem not to be.

    The first call compiles for some ten seconds, and longer for counts and for families without
    closed forms.  Later calls do not if they have as many columns and about as many rows: 897 to
    1024 rows share all programs.  For other processes
    ``jax.config.update("jax_compilation_cache_dir", folder)`` keeps those that took a second, and
    with ``jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)`` it keeps all.

    O(n^2) time up to 20 000 rows, and O(n) above; 10^5 rows of ten classes take half a minute on
    two cores.

    Args:
        predictions: probabilities ``[n, m]`` of m classes, or ``[n]`` of an event, as an array of
            NumPy, JAX or torch, nested lists, or a frame of pandas or polars; or a distribution of
            calibjax, such as ``Normal(mean, sd)`` or ``Empirical(draws)``, of numpyro, distrax, TFP
            or scipy.stats; or survival curves as scikit-survival, lifelines and pycox predict them,
            step functions or a frame with times as its index.
        targets: names of classes, where 1, 1.0 and "1" are the same name; or if no class has such a
            name, labels ``0 … m-1`` in the order of the columns, unless classes such as "yes" and
            "no" give these numbers another meaning, which is an error; of an event 0 and 1, truth
            values, or names such as "no" and "yes"; else numbers.  An array, list or column.  Where
            numbers are censored, rounded or binned, `Between`: then measures and pictures that need
            exact targets are left out.  Beside survival curves, times and events: a structured
            array of scikit-survival, or two columns, of which one holds 1 or True where there was
            an event.
        data: instead of both, a frame of pandas, Polars or Arrow, a mapping of names to arrays, or
            a dataset of xarray, whose rows are the cells of its target; beside an array of a
            mapping may stand the names of its dimensions, ``(("time", "member"), array)``.
        target: the column of targets.  One of probs, prob, mean with sd, quantiles, draws, and
            survival says where the predictions are.
        probs: the columns of probabilities of classes, a list, or a pattern such as "p_*", where *
            stands for the names of the classes, or an array ``[n, m]``.
        prob: the column of the probability of an event.
        event: the label of this event; None for labels such as "no" and "yes".  With survival, the
            column that says whether there was an event at the time in the column of targets.
        mean: the column of means of normal predictions.
        sd: the column of their standard deviations.
        quantiles: the columns of quantiles, a list, or a pattern such as "q*", where * stands for
            the level, as in q0.1 or q10.
        levels: the levels of the quantiles, if names do not say them.
        sort_quantiles: whether to sort the quantiles of each row, if they cross.
        draws: the columns of draws, a list, a pattern such as "draw_*", or an array ``[n, S]``.
        survival: the columns of survival curves, a list or a pattern such as "S_*", where * stands
            for the time, as in S_365.
        censored: for mean and sd, a column of truth values: true if the target is only known to be
            larger.
        drop_missing: whether to leave out rows that miss a value of a column that is used; a
            warning says how many are left.
        seed: an integer, from which all random numbers come.
        classes: the names of the classes in the order of the columns of predictions, of an event
            the name of its absence and its own; None for the names of the columns of a frame.
        normalize: whether to divide each row of probabilities by its sum, for rounded ones.
        level: the model is called not calibrated if the p-value is at most this, from 0.001 to 0.5;
            intervals hold with the confidence 1 - level.
        weights: how much each row counts, numbers ``[n]`` that are known before the targets.
        clusters: ``[n]``, names, numbers or dates: rows of one cluster, such as a hospital or a
            topic, may depend on each other in any way.
        times: ``[n]``, numbers, or dates, which count as days: rows of one time may depend on each
            other in any way.  Not together with clusters.
        horizon: a number in units of the times, or of days, or a timedelta: rows less than it apart
            may depend on each other, as forecasts for h steps ahead do that are issued at every
            step.
        groups: columns by their names, a dict or a frame, such as region and lead time: for whom is
            the model wrong?  `segment_test` tests all segments of one or two columns at once, in
            the time of some tests more.  Of data, weights, clusters and times are names of columns,
            and groups is a list of names.

    Returns:
        Evaluation: print it, or see its fields.

    Raises:
        TypeError, ValueError: predictions or targets are not what they should be; the message names
            a row, and says what to do.

    See also:
        `calibration_test` for the p-value alone; `skce` for the number alone.

    Example:
        >>> import calibjax as cj
        >>> probabilities = [[0.7, 0.3], [0.4, 0.6]] * 30
        >>> evaluation = cj.evaluate(probabilities, ["no", "yes"] * 30, classes=["no", "yes"])
        >>> print(evaluation.verdict[:26])
        Not calibrated (p = 0.001,
        >>> frame = {"p_no": [0.7, 0.4] * 30, "p_yes": [0.3, 0.6] * 30, "y": ["no", "yes"] * 30}
        >>> cj.evaluate(frame, target="y", probs="p_*").verdict == evaluation.verdict
        True
    """
    # Inside of jit a constant is traced, too.
    if is_traced((predictions, targets, jax.device_put(0.0))):
        raise TypeError(
            "evaluate must be called outside of jit, grad and vmap; calibration_test, "
            "skce_confidence_interval and others that it calls work inside."
        )
    normalize = check_flag("normalize", normalize)
    names = ColumnNames(
        target=target,
        probs=probs,
        prob=prob,
        event=event,
        mean=mean,
        sd=sd,
        quantiles=quantiles,
        levels=levels,
        sort_quantiles=check_flag("sort_quantiles", sort_quantiles),
        draws=draws,
        survival=survival,
        normalize=normalize,
        drop_missing=check_flag("drop_missing", drop_missing),
        classes=classes,
    )
    if _are_columns(targets, names, censored):
        others = {"censored": censored, "weights": weights, "clusters": clusters, "times": times}
        for argument, name in others.items():
            if not (name is None or isinstance(name, str)):
                raise TypeError(
                    f"{argument} must be the name of a column of data, got {type(name).__name__}."
                )
        return evaluate_model(
            names.of(read_frame(predictions, target), others=list(others.values())),
            names,
            seed=seed,
            level=level,
            horizon=horizon,
            groups=_names_of_groups(groups),
            **others,
        )
    family, observed, of_classes = read_inputs(predictions, targets, classes, normalize)
    return evaluate_read(
        family,
        observed,
        seed=seed,
        classes=of_classes,
        level=level,
        weights=read_weights(weights),
        dependence=read_dependence(clusters, times, horizon),
        groups=groups,
    )


def _are_columns(targets: Any, names: ColumnNames, censored: str | None) -> bool:
    """Whether arguments name columns of a frame, and do not hold predictions and targets.

    Raises:
        TypeError: neither targets nor names of columns are given, or both are.
    """
    known = ColumnNames(classes=names.classes, normalize=names.normalize)
    if names == known and censored is None:
        if targets is None or isinstance(targets, str):
            got = "nothing" if targets is None else f"the text {targets!r}"
            raise TypeError(
                f"targets must hold what was observed, got {got}; of a frame target and others "
                f"name columns, as in evaluate(frame, target={targets or 'label'!r}, probs='p_*')."
            )
        return False
    if targets is not None and names == dataclasses.replace(known, drop_missing=True):
        raise TypeError(
            "drop_missing must be False for arrays, whose rows you drop: known = "
            "~numpy.isnan(targets), evaluate(predictions[known], targets[known]); it is for names "
            "of columns, as in evaluate(frame, target='label', probs='p_*', drop_missing=True)."
        )
    if targets is not None:
        raise TypeError(
            "targets must not be given where arguments name columns: in "
            "evaluate(frame, target='label', probs='p_*') target names the column of targets."
        )
    return True


def _names_of_groups(groups: Any) -> Sequence[str]:
    """The names of columns of groups; a TypeError if these are no names."""
    if groups is None or isinstance(groups, str):
        return [] if groups is None else [groups]
    is_list = isinstance(groups, Sequence)
    if not is_list or not all(isinstance(name, str) for name in groups):
        raise TypeError(
            f"groups must be a list of names of columns of data, such as ['region'], got "
            f"{type(groups).__name__}."
        )
    return groups
