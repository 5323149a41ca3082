"""From predictions, in whatever form people have them, to a verdict."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from calibjax._check import check_flag, check_integer
from calibjax._distribution import Distribution
from calibjax._struct import is_traced
from calibjax.evaluation._effect import effect_of
from calibjax.evaluation._evaluation import Evaluation
from calibjax.evaluation._impossible import Impossible, impossible_rows
from calibjax.evaluation._inputs import read_inputs
from calibjax.evaluation._keys import keys_of
from calibjax.evaluation._measures import measures
from calibjax.evaluation._pictures import map_of
from calibjax.evaluation._verdict import verdict
from calibjax.evaluation._words import worst_level, worst_place
from calibjax.hypothesis_tests import CalibrationTestResult, calibration_test

_N_RESAMPLES = 999
# The smallest p-value there can be; no model could be rejected at a smaller level.
_LEAST_LEVEL = 1 / (_N_RESAMPLES + 1)


def evaluate(
    predictions: Any,
    targets: Any,
    *,
    seed: int = 0,
    classes: Sequence[Any] | None = None,
    normalize: bool = False,
    level: float = 0.05,
) -> Evaluation:
    """Is this model calibrated, how far off is it, and where?

    It takes what people have, and calls the exact test `calibration_test`,
    `skce_confidence_interval`, `equivalent_temperature`, the classical measures, and the functions
    behind the pictures.  It is for people: for use inside jit, and with keys of your own, call
    these functions.  The same arguments give the same result.

    The first call for a shape of data compiles for some ten seconds, and longer for counts and for
    families without closed forms.  O(n^2) time up to 20 000 rows, and O(n) above; 10^5 rows of ten
    classes take half a minute on two cores.

    Args:
        predictions: probabilities ``[n, m]`` of m classes, or ``[n]`` of an event, as an array of
            NumPy, JAX or torch, nested lists, or a frame of pandas or polars; or a distribution of
            calibjax, such as ``Normal(mean, sd)`` or ``Empirical(draws)``, of numpyro, distrax, TFP
            or scipy.stats.
        targets: labels ``0 … m-1``, or names of classes, or numbers; an array, list or column.
        seed: an integer, from which all random numbers come.
        classes: the names of the classes in the order of the columns of predictions; of a frame the
            names of its columns are taken if they can name the targets.
        normalize: whether to divide each row of probabilities by its sum, for rounded ones.
        level: the model is called not calibrated if the p-value is at most this, at least 0.001;
            intervals hold with the confidence 1 - level.

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
    """
    if is_traced((predictions, targets, jnp.zeros(()))):
        raise TypeError(
            "evaluate must be called outside of jit, grad and vmap; calibration_test, "
            "skce_confidence_interval and others that it calls work inside."
        )
    seed = check_integer("seed", seed, 0, 2**63 - 1)
    normalize = check_flag("normalize", normalize)
    if not (isinstance(level, (float, np.floating)) and _LEAST_LEVEL <= level < 1):
        raise ValueError(
            f"level must be a number of at least {_LEAST_LEVEL} and below 1, got {level!r}."
        )
    level = float(level)
    family, observed, names = read_inputs(predictions, targets, classes, normalize)
    return _evaluation(family, observed, names, seed, level)


def _pvalue(test: CalibrationTestResult) -> float:
    """A multiple of 1 / 1000, without the rounding of float32: 0.05 is not above the level 0.05."""
    return round(float(test.pvalue) * (_N_RESAMPLES + 1)) / (_N_RESAMPLES + 1)


def _evaluation(
    predictions: Distribution,
    observed: np.ndarray,
    classes: list[Any] | None,
    seed: int,
    level: float,
) -> Evaluation:
    targets = jnp.asarray(observed)
    keys = keys_of(seed)
    test = calibration_test(keys.test, predictions, targets, n_resamples=_N_RESAMPLES)
    pvalue = _pvalue(test)
    impossible = Impossible(impossible_rows(predictions, targets))
    n_others = len(observed) - len(impossible.rows)
    if pvalue <= level and 2 <= n_others < len(observed):
        others = jnp.ones(len(observed), bool).at[impossible.rows].set(False)
        without = calibration_test(
            keys.test, predictions, targets, n_resamples=_N_RESAMPLES, where=others
        )
        impossible = dataclasses.replace(impossible, pvalue_without=_pvalue(without))
    effect = effect_of(keys.effect, predictions, targets, 1 - level, _N_RESAMPLES)
    worst = None
    if pvalue <= level:
        worst = worst_level(predictions, observed, 1 - level)
        if worst is None:
            maps = map_of(keys.curves, predictions, targets, 1 - level, _N_RESAMPLES)
            worst = worst_place(maps, classes)
    return Evaluation(
        verdict=verdict(pvalue, level, predictions, effect, worst, impossible),
        pvalue=pvalue,
        level=level,
        test=test,
        effect=effect,
        measures=measures(keys.measures, predictions, targets, 1 - level, _N_RESAMPLES),
        impossible=impossible,
        predictions=predictions,
        targets=observed,
        classes=classes,
        seed=seed,
    )
