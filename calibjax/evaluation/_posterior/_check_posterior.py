"""Is a posterior right? Simulations whose parameters are known, and draws of their posteriors."""

import dataclasses
from typing import Any

import jax
import numpy as np

from calibjax._base.check import check_flag
from calibjax.distributions import Empirical
from calibjax.evaluation._posterior._draw_remarks import dependence, shared, stuck, swapped
from calibjax.evaluation._posterior._ranks import (
    chance_in_column,
    factor_of,
    has_few_values,
    normal_scores,
    shift_and_spread,
)
from calibjax.evaluation._posterior._read_simulations import (
    matched,
    read_observations,
    read_parameters,
)
from calibjax.evaluation._posterior._result import ParameterCheck, PosteriorCheck
from calibjax.hypothesis_tests import CalibrationTestResult, calibration_test
from calibjax.resampling import as_multiple

# What is nearer than this to a common number, as a share of it, is its distance from the number.
_OFFSET = 0.01


def check_posterior(
    theta: Any,
    draws: Any,
    x: Any = None,
    *,
    drop_missing: bool = False,
    seed: int = 0,
    level: float = 0.05,
    n_resamples: int = 999,
) -> PosteriorCheck:
    """Are posteriors right? From simulations whose true parameters are known.

    In simulation i a parameter theta_i is drawn from the prior and an observation x_i from the
    model; an algorithm or a network returns draws of the posterior given x_i.  If the posterior is
    right, then theta_i and the draws come from one law,

        law(theta | draws, x) = law(draws | x).

    Three tests look at it.  That of each parameter looks at the rank of theta among the draws, as
    simulation-based calibration does, and at how it depends on where the posterior is.  That of all
    parameters together sees wrong correlations.  Both are passed by the prior, which is calibrated
    and useless: the test *given x* tells it from the posterior, by the dependence of the ranks on
    the observations.

    Args:
        theta: the true parameters, array ``[n]`` or ``[n, d]``, or a mapping of names to such
            arrays, or a frame, or a dataset or an array of xarray.
        draws: draws of the posteriors, ``[n, S]`` or ``[n, S, d]``, or a mapping of the same names;
            independent of each other, or thinned until they nearly are.  Or a list of n posteriors
            of ArviZ, with the dimensions chain and draw, or one that has a dimension of simulations
            as well; then parameters that theta lacks are left out, others are called by their
            coordinates, such as effect[Oslo], and a remark says if draws depend on each other.
        x: the observations or a summary of them, ``[n]`` or ``[n, k]``, as an array, an array or a
            dataset of xarray, a frame, or a mapping of names to columns; None if the test given x
            is not wanted.
        drop_missing: whether to leave out simulations where a number is missing or infinite, as of
            a sampler that failed; a remark says which.
        seed: what all random numbers come from.
        level: the level of the verdict.
        n_resamples: the number of data sets that each p-value comes from; at least the number of
            tests divided by the level.

    Simulations are paired by their order.  Where arrays of xarray have labels of simulations, they
    are paired by these, and simulations that some lack are left out; a remark says how many.

    Units do not matter: each parameter is centred and scaled before it is rounded to float32.  A
    parameter may be a count or a category in numbers: a true value has any rank among the draws
    that are equal to it.  Of two precisions, true values and draws are compared in the coarser one.

    Returns:
        PosteriorCheck; print it, or see its `plot`.

    Raises:
        ValueError, TypeError: shapes, names or labels of the arguments do not fit, or values are
            not finite.

    Complexity: that of `calibration_test`, called once or twice for each parameter, and once.

    Example:
        >>> import numpy as np, calibjax as cj
        >>> rng = np.random.default_rng(0)
        >>> theta = rng.normal(size=200)
        >>> x = theta + rng.normal(size=200)  # the posterior is N(x / 2, 1 / 2)
        >>> draws = x[:, None] / 2 + 0.3 * rng.normal(size=(200, 50))
        >>> print(str(cj.check_posterior(theta, draws)).split(" (spread")[0])
        The posteriors are wrong (p = 0.001): theta is too narrow

    Reference: Talts et al., Validating Bayesian inference algorithms with simulation-based
    calibration, 2018; Widmann, Lindsten and Zachariah, Calibration tests beyond classification,
    ICLR 2021.
    """
    parameters = read_parameters(theta, draws)
    observations = None if x is None else read_observations(x, parameters.dimension)
    found = matched(parameters, observations, check_flag("drop_missing", drop_missing))
    rows = {name: _in_own_units(*each) for name, each in found.parameters.items()}
    remarks = [
        *found.remarks,
        *stuck(rows, found.names),
        *swapped(rows),
        *shared(rows),
        *dependence(rows, parameters.n_chains),
    ]
    n, n_draws = next(iter(rows.values()))[1].shape
    has_several = len(rows) > 1
    n_tests = len(rows) * (1 + (x is not None)) + has_several
    if n_tests > level * (n_resamples + 1):
        raise ValueError(
            f"n_resamples must be at least {int(np.ceil(n_tests / level)) - 1} for {n_tests} tests "
            f"at the level {level:g}, got {n_resamples}."
        )
    keys = iter(jax.random.split(jax.random.key(seed), n_tests))

    def test(drawn: Any, true: Any, columns: Any = None) -> tuple[CalibrationTestResult, float]:
        options = {"n_resamples": n_resamples, "covariates": columns}
        result = calibration_test(next(keys), Empirical(drawn), true, **options)
        return result, as_multiple(result.pvalue, n_resamples)

    checks = []
    for name, (true, drawn) in rows.items():
        scores = normal_scores(true, drawn)
        _, pvalue = test(drawn, true)
        shift, spread = shift_and_spread(scores, n_draws)
        if not has_few_values(true):
            spread = factor_of(spread, n_draws)
        check = ParameterCheck(name, shift, spread, pvalue, None)
        if found.columns is not None:
            result, given_x = test(drawn, true, found.columns)
            check = dataclasses.replace(check, given_x=given_x)
            best = result.columns[0]
            if best.pvalue <= level:
                chance = chance_in_column(scores, found.columns[best.name])
                check = dataclasses.replace(check, column=best.name, column_pvalue=chance)
        checks.append(check)
    joint = None
    if has_several:
        together = np.stack([drawn for _, drawn in rows.values()], axis=-1)
        _, joint = test(together, np.stack([true for true, _ in rows.values()], axis=-1))
    pvalues = [p for c in checks for p in (c.pvalue, c.given_x) if p is not None]
    least = min([*pvalues, *([] if joint is None else [joint])])
    pvalue = min(1.0, n_tests * least)
    return PosteriorCheck(tuple(checks), joint, pvalue, level, n, n_draws, tuple(remarks), rows)


def _in_own_units(true: np.ndarray, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same without a large offset, such as that of a date, and of the size 1.

    The tests do not depend on units, and float32, which jax computes in, has few digits.
    """
    centre = np.median(true)
    farthest = max(np.max(np.abs(true - centre)), np.max(np.abs(drawn - centre)))
    if farthest > _OFFSET * abs(centre):
        centre = 0.0
    scale = np.median(np.abs(drawn - centre)) or 1.0
    return (true - centre) / scale, (drawn - centre) / scale
