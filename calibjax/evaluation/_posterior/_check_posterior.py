"""Is a posterior right? Simulations whose parameters are known, and draws of their posteriors."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from calibjax._base.check import check_flag
from calibjax._base.text import p_in_words, plain, pvalue_text, text_table
from calibjax.curves import pit_curve
from calibjax.distributions import Empirical
from calibjax.evaluation._posterior import _draws as ranks
from calibjax.evaluation._posterior import _read_simulations as simulations
from calibjax.evaluation._wording import NO_OVERALL_ERROR
from calibjax.hypothesis_tests import CalibrationTestResult, calibration_test
from calibjax.hypothesis_tests.adjusted import adjusted_pvalues

# Minimum number of simulations: with fewer, chance explains a shift by half of the spread.
_FEW = 20
# What the columns of the table are.
_LEGEND = (
    "shift: mean normal score of true values among draws, in posterior SDs; above 0: biased low.",
    "spread: SD of true values around posteriors over posterior SD; above 1: over-confident.",
    "p: are ranks of true values uniform (SBC)? given x: do they depend on the observations?",
)
# Maximum number of histograms in a row of the figure.
_IN_A_ROW = 3
# Distance from a common number, as a share of it, below which only the distance is kept.
_OFFSET = 0.01


@dataclasses.dataclass(frozen=True)
class ParameterCheck:
    """What simulations say of the posteriors of one parameter.

    Args:
        name: the parameter.
        shift: the mean of z, the normal score of the rank of the true value among the draws, in
            posterior SDs; 0 for a calibrated posterior, and positive if draws are too small.
        spread: by how much wider true values lie than draws, from 1/20 to 20; above 1 if posteriors
            are too narrow.  It is the factor of normal distributions whose ranks have this mean of
            z^2; for a parameter with few values, or one draw, the root of the mean of z^2, in units
            of that of a right posterior.  Where draws are equal to the true value, z and z^2 are
            means over the ranks that it may have among them.
        pvalue: of the test that looks at the posteriors alone, adjusted for all tests.
        pvalue_given_x: of the test that looks at the observations as well, adjusted too; None
            without observations.
        column: the column of the observations that carries what this test finds; None if none does.
        column_pvalue: the p-value of the variation of z between values of this column.
    """

    name: str
    shift: float
    spread: float
    pvalue: float
    pvalue_given_x: float | None
    column: str | None = None
    column_pvalue: float | None = None


@dataclasses.dataclass(frozen=True)
class PosteriorCheck:
    """The result of `check_posterior`; it prints a verdict and a table.

    Args:
        parameters: one check for each parameter.
        joint_pvalue: of the test of all parameters together, adjusted for all tests; None for one
            parameter.
        pvalue: the least of these p-values.
        level: the level of the verdict.
        n: the number of simulations.
        n_draws: the number of draws of each posterior.
        notes: sentences on simulations that are left out, and on draws that look wrong.
        rows: true values ``[n]`` and draws ``[n, S]`` by the names of the parameters, in units
            of their own, which `plot` needs.
        n_resamples: the number of data sets that p-values are from.

    Example:
        >>> import calibjax as cj
        >>> from calibjax.evaluation import ParameterCheck
        >>> slope = ParameterCheck("slope", 0.9, 1.0, pvalue=0.001, pvalue_given_x=None)
        >>> check = cj.PosteriorCheck((slope,), None, 0.001, 0.05, n=200, n_draws=50)
        >>> print(check)
        Not calibrated (p ≤ 0.001, 200 simulations).
        slope: biased low by 0.9 posterior SD.
        <BLANKLINE>
        parameter  shift  spread        p
        slope      +0.90    1.00  ≤ 0.001
        <BLANKLINE>
        50 draws of each posterior.
        shift: mean normal score of true values among draws, in posterior SDs; above 0: biased low.
        spread: SD of true values around posteriors over posterior SD; above 1: over-confident.
        p: are ranks of true values uniform (SBC)? given x: do they depend on the observations?
    """

    parameters: tuple[ParameterCheck, ...]
    joint_pvalue: float | None
    pvalue: float
    level: float
    n: int
    n_draws: int
    notes: tuple[str, ...] = ()
    rows: Mapping[str, tuple[np.ndarray, np.ndarray]] = dataclasses.field(default_factory=dict)
    n_resamples: int = 999

    @property
    def rejected(self) -> bool:
        """Whether the posteriors are wrong at the level."""
        return self.pvalue <= self.level

    def to_dict(self) -> dict[str, Any]:
        """The same as numbers and texts, for JSON, without the rows."""
        found = {name: x for name, x in vars(self).items() if name != "rows"}
        return plain(found | {"rejected": self.rejected})

    def plot(self) -> Any:
        """The histogram of the ranks of each parameter, in the band of calibrated posteriors.

        Ranks are divided by the number of draws, and ties are broken at random: the probability
        integral transform of `pit_curve`.  A U is of posteriors that are too narrow, a hump of wide
        ones, and a slope of a shift.  Notebooks show the figure of matplotlib that it returns.

        Raises:
            ImportError: matplotlib is not installed; ``pip install 'calibjax[plot]'``.
            ValueError: the check has no rows.
        """
        from calibjax.plot import NotebookFigure, SettledLayout, pit

        if not self.rows:
            raise ValueError("plot needs the rows of a check of check_posterior, got none.")
        n_across = min(len(self.rows), _IN_A_ROW)
        n_down = -(-len(self.rows) // n_across)
        size = 3.3 * n_across, 2.6 * n_down
        figure = NotebookFigure(figsize=size, dpi=200, facecolor="white", layout=SettledLayout())
        for number, (name, (true, drawn)) in enumerate(self.rows.items()):
            drawn_as: Any = drawn
            key = jax.random.fold_in(jax.random.key(0), number)
            n_bins, level = min(20, self.n_draws + 1), 1 - self.level
            curve = pit_curve(key, Empirical(drawn_as), true, n_bins=n_bins, confidence_level=level)
            ax = pit(curve, ax=figure.add_subplot(n_down, n_across, number + 1))
            ax.set_title(name, fontsize=ax.xaxis.label.get_fontsize(), loc="left")
        return figure

    def _n_tests(self) -> int:
        of_each = sum(2 - (check.pvalue_given_x is None) for check in self.parameters)
        return of_each + (self.joint_pvalue is not None)

    def _by_evidence(self) -> list[ParameterCheck]:
        """The parameters, the least p-value first; of equal ones the largest error."""

        def rank(check: ParameterCheck) -> tuple[float, float]:
            given = 1.0 if check.pvalue_given_x is None else check.pvalue_given_x
            return min(check.pvalue, given), -max(abs(check.shift), abs(np.log(check.spread)))

        return sorted(self.parameters, key=rank)

    def _verdict(self) -> str:
        n_tests = self._n_tests()
        adjusted = f" adjusted for {n_tests} tests" if n_tests > 1 else ""
        of_test = p_in_words(self.pvalue, self.n_resamples)
        numbers = f"({of_test}{adjusted}, {self.n} simulations)"
        if not self.rejected:
            few = "Too few simulations for a verdict"
            return f"{few if self.n < _FEW else 'No miscalibration detected'} {numbers}."
        found = [(check.name, self._in_words(check)) for check in self._by_evidence()]
        words = [f"{name}: {said}." for name, said in found if said is not None]
        if not words:
            words = ["Joint posterior miscalibrated; no single parameter rejected."]
        return "\n".join([f"Not calibrated {numbers}.", *words])

    def _in_words(self, check: ParameterCheck) -> str | None:
        """What is most wrong with the posteriors of a parameter; None if no test rejects them."""
        is_wrong = check.pvalue <= self.level
        is_wrong_given_x = check.pvalue_given_x is not None and check.pvalue_given_x <= self.level
        if not (is_wrong or is_wrong_given_x):
            return None
        rows = self.rows.get(check.name)
        seen = check.shift, check.spread
        if rows is not None:
            seen = ranks.shift_and_spread(ranks.normal_scores(*rows), self.n_draws)
        of_shift, of_spread = ranks.chance_of(*seen, self.n, self.n_draws, rows)
        found = []
        # What is named is beyond chance by itself.
        if is_wrong and of_shift <= self.level / 2:
            side = "low" if check.shift > 0 else "high"
            found.append(f"biased {side} by {abs(check.shift):.2g} posterior SD")
        if is_wrong and of_spread <= self.level / 2:
            side = "over" if check.spread > 1 else "under"
            found.append(f"{side}-confident (spread ratio {check.spread:.3g})")
        if of_spread < of_shift:
            found.reverse()
        where = "" if check.column is None else f", clearest with {check.column}"
        of_column = 1.0 if check.column_pvalue is None else check.column_pvalue
        if is_wrong_given_x and (not found or of_column < min(of_shift, of_spread)):
            return f"miscalibrated given the observations{where}"
        if not found:
            return NO_OVERALL_ERROR
        varies = is_wrong_given_x and of_column <= self.level / self._n_tests()
        return "; ".join([*found, *([f"error varies with {check.column}"] if varies else [])])

    def __repr__(self) -> str:
        has_x = any(check.pvalue_given_x is not None for check in self.parameters)
        n_draws, adjusted = self.n_resamples, "adjusted " * (self._n_tests() > 1)
        heads = [f"{adjusted}p", f"{adjusted}p given x"]
        lines = [["parameter", "shift", "spread", *heads[: 1 + has_x]]]
        for check in self._by_evidence():
            pvalues = [pvalue_text(x, n_draws) for x in (check.pvalue, check.pvalue_given_x)]
            numbers = f"{check.shift:+.2f}", f"{check.spread:.2f}"
            lines.append([check.name, *numbers, *pvalues[: 1 + has_x]])
        if self.joint_pvalue is not None:
            lines.append(["joint", "", "", pvalue_text(self.joint_pvalue, n_draws), *[""] * has_x])
        shown = text_table(lines, "<" + ">" * (len(lines[0]) - 1))
        note = f"{self.n_draws} draw{'s' * (self.n_draws != 1)} of each posterior."
        return "\n".join([self._verdict(), "", *shown, "", note, *_LEGEND, *self.notes])


def check_posterior(
    theta: object,
    draws: object,
    x: object = None,
    *,
    drop_missing: bool = False,
    seed: int = 0,
    level: float = 0.05,
    n_resamples: int = 999,
) -> PosteriorCheck:
    """Tests whether posteriors are calibrated, with simulations whose true parameters are known.

    In simulation i a parameter theta_i is drawn from the prior and an observation x_i from the
    model; an algorithm or a network returns draws of the posterior given x_i.  If the posterior is
    correct, theta_i and the draws have the same distribution given x.

    Three tests are used.  The test of each parameter uses the rank of theta among the draws, as
    simulation-based calibration does, and its dependence on the location of the posterior.  The
    joint test of all parameters also detects wrong correlations.  Neither rejects the prior, which
    is calibrated but useless: the test *given x* does, by the dependence of the ranks on the
    observations.

    Args:
        theta: the true parameters, array ``[n]`` or ``[n, d]``, or a mapping of names to such
            arrays, or a frame, or a dataset or an array of xarray.
        draws: draws of the posteriors, ``[n, S]`` or ``[n, S, d]``, or a mapping of these names;
            independent of each other, or thinned until they nearly are.  Or a list of n posteriors
            of ArviZ, with the dimensions chain and draw, or one that has a dimension of simulations
            as well; then parameters that theta lacks are dropped, others are named by their
            coordinates, such as effect[Oslo], and a note says if draws depend on each other.
        x: the observations or a summary of them, ``[n]`` or ``[n, k]``, as an array, an array or a
            dataset of xarray, a frame, or a mapping of names to columns; None to omit the test
            given x.
        drop_missing: whether to drop simulations with a missing or infinite number, as from a
            failed sampler; a note says which.
        seed: the random seed.
        level: the level of the verdict.
        n_resamples: the number R of simulated data sets; p-values are multiples of 1 / (R + 1), and
            R + 1 must be at least 1 / level.

    The tests of all parameters are adjusted for their number by a step-down of their scores: each
    is ranked among the largest scores of the remaining ones.  Draws of different parameters are
    independent.  If the parameters depend on each other, the largest score is smaller than those of
    independent draws: the statistics are squared norms of sums of residuals, which are nearly
    normal, and normal vectors lie in several convex symmetric sets at once with at least the
    product of the probabilities (Royen, A simple proof of the Gaussian correlation conjecture,
    2014).

    Simulations are paired by their order, or by their labels in arrays of xarray, where simulations
    that some lack are dropped; a note says how many.

    Units do not matter: each parameter is centred and scaled before it is rounded to float32.  A
    parameter may be a count or a category in numbers: a true value has any rank among the draws
    that are equal to it.  True values and draws of two precisions are compared in the coarser one.

    Returns:
        PosteriorCheck; print it, or call its `plot`.

    Raises:
        ValueError, TypeError: shapes, names or labels of the arguments do not match, or values are
            not finite.

    Complexity: that of `calibration_test` for each parameter, and once for all.

    Example:
        >>> import numpy as np, calibjax as cj
        >>> rng = np.random.default_rng(0)
        >>> theta = rng.normal(size=200)
        >>> x = theta + rng.normal(size=200)  # the posterior is N(x / 2, 1 / 2)
        >>> draws = x[:, None] / 2 + 0.3 * rng.normal(size=(200, 50))
        >>> print(str(cj.check_posterior(theta, draws)).split(" (spread")[0])
        Not calibrated (p ≤ 0.001, 200 simulations).
        theta: over-confident

    Reference: Talts et al., Validating Bayesian inference algorithms with simulation-based
    calibration, 2018; Widmann, Lindsten and Zachariah, Calibration tests beyond classification,
    ICLR 2021.
    """
    parameters = simulations.read_parameters(theta, draws)
    observations = None if x is None else simulations.read_observations(x)
    found = simulations.matched(parameters, observations, check_flag("drop_missing", drop_missing))
    rows = {name: _in_own_units(*each) for name, each in found.parameters.items()}
    notes = found.notes + ranks.stuck(rows, found.names) + ranks.swapped(rows)
    notes += ranks.shared(rows) + ranks.dependence(rows, parameters.n_chains)
    n, n_draws = next(iter(rows.values()))[1].shape
    has_several = len(rows) > 1
    of_each = 1 + (x is not None)
    n_tests = len(rows) * of_each + has_several
    if level * (n_resamples + 1) < 1:
        needed = f"at least {np.ceil(1 / level) - 1:g} for the level {level:g}"
        raise ValueError(f"n_resamples must be {needed}, got {n_resamples}.")
    # Both tests of a parameter have the same draws.
    keys = iter(jax.random.split(jax.random.key(seed), n_tests)[::of_each])

    def test(drawn: Any, true: Any, columns: Any = None) -> CalibrationTestResult:
        options = {"n_resamples": n_resamples, "covariates": columns}
        return calibration_test(next(keys), Empirical(drawn), true, **options)

    tests, together = [test(drawn, true, found.columns) for true, drawn in rows.values()], []
    if has_several:
        drawn = np.stack([drawn for _, drawn in rows.values()], axis=-1)
        together.append(test(drawn, np.stack([true for true, _ in rows.values()], axis=-1)))
    has_x = found.columns is not None
    of_x, alone = (tests, map(_without_covariates, tests)) if has_x else ([], tests)
    pvalues = adjusted_pvalues([*alone, *of_x, *together])
    given = pvalues[len(rows) :] if has_x else [None] * len(rows)
    checks = []
    of_parameters = zip(rows.items(), tests, pvalues, given, strict=False)
    for (name, (true, drawn)), result, pvalue, pvalue_given_x in of_parameters:
        scores = ranks.normal_scores(true, drawn)
        shift, spread = ranks.shift_and_spread(scores, n_draws)
        if not ranks.has_few_values(true):
            spread = ranks.factor_of(spread, n_draws)
        column = chance = None
        if found.columns is not None:
            best = result.columns[0]
            if best.pvalue <= level:
                column, chance = best.name, ranks.chance_in_column(scores, found.columns[best.name])
        checks.append(ParameterCheck(name, shift, spread, pvalue, pvalue_given_x, column, chance))
    joint, least = pvalues[-1] if has_several else None, min(pvalues)
    numbers = joint, least, level, n, n_draws
    return PosteriorCheck(tuple(checks), *numbers, tuple(notes), rows, n_resamples)


def _without_covariates(test: CalibrationTestResult) -> CalibrationTestResult:
    """The same test of the posteriors alone."""
    scores, pvalue = test.scores_without_covariates, test.pvalue_without_covariates
    assert scores is not None and pvalue is not None
    return CalibrationTestResult(scores[0], pvalue, test.estimate, null_distribution=scores[1:])


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
