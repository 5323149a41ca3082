"""What a check of posteriors found, in numbers, in words and as a picture."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from calibjax._base.text import text_table
from calibjax.curves import pit_curve
from calibjax.distributions import Empirical
from calibjax.evaluation._posterior._ranks import chance_of, normal_scores, shift_and_spread
from calibjax.evaluation._wording import plain

# With fewer simulations, a shift by half of the spread is no more than chance.
_FEW = 20
# Of the histograms of parameters.
_IN_A_ROW = 3


@dataclasses.dataclass(frozen=True)
class ParameterCheck:
    """What simulations say of the posteriors of one parameter.

    Args:
        name: the parameter.
        shift: the mean of z, the normal score of the rank of the true value among the draws, so
            that the unit is the spread of the posterior; 0 for a right posterior, and positive if
            draws are too small.
        spread: by how much wider true values lie than draws, from 1/20 to 20; above 1 if posteriors
            are too narrow.  It is the factor of normal distributions whose ranks have this mean of
            z^2; for a parameter with few values, or one draw, the root of the mean of z^2, in units
            of that of a right posterior.  Where draws are equal to the true value, z and z^2 are
            means over the ranks that it may have among them.
        pvalue: of the test that looks at the posteriors alone.
        given_x: of the test that looks at the observations as well; None without observations.
        column: the column of the observations that carries what this test finds; None if none does.
        column_pvalue: how often z varies so much between values of this column by chance alone.
    """

    name: str
    shift: float
    spread: float
    pvalue: float
    given_x: float | None
    column: str | None = None
    column_pvalue: float | None = None


@dataclasses.dataclass(frozen=True)
class PosteriorCheck:
    """What `check_posterior` found; it prints a sentence and a table.

    Args:
        parameters: one check for each parameter.
        joint: the p-value of the test of all parameters together; None for one parameter.
        pvalue: the least p-value of all tests, adjusted for their number (Bonferroni).
        level: the level of the verdict.
        n: the number of simulations.
        n_draws: the number of draws of each posterior.
        remarks: sentences on simulations that are left out, and on draws that look wrong.
        rows: true values ``[n]`` and draws ``[n, S]`` by the names of the parameters, in units
            of their own, which `plot` needs.

    Example:
        >>> import calibjax as cj
        >>> from calibjax.evaluation import ParameterCheck
        >>> slope = ParameterCheck("slope", shift=0.9, spread=1.0, pvalue=0.001, given_x=None)
        >>> check = cj.PosteriorCheck((slope,), None, 0.001, 0.05, n=200, n_draws=50)
        >>> print(check)
        The posteriors are wrong (p = 0.001): slope is too low (by 0.9 of its spread).
        <BLANKLINE>
        parameter  shift  spread      p
        slope      +0.90    1.00  0.001
        <BLANKLINE>
        200 simulations, 50 draws of each posterior.
        A shift above 0: draws are too low; a spread above 1: posteriors are too narrow.
    """

    parameters: tuple[ParameterCheck, ...]
    joint: float | None
    pvalue: float
    level: float
    n: int
    n_draws: int
    remarks: tuple[str, ...] = ()
    rows: Mapping[str, tuple[np.ndarray, np.ndarray]] = dataclasses.field(default_factory=dict)

    @property
    def rejected(self) -> bool:
        """Whether the posteriors are wrong at the level."""
        return self.pvalue <= self.level

    def to_dict(self) -> dict[str, Any]:
        """The same as numbers and texts, for JSON, without the rows."""
        found = dataclasses.asdict(dataclasses.replace(self, rows={}))
        del found["rows"]
        return plain(found | {"rejected": self.rejected})

    def plot(self) -> Any:
        """The histogram of the ranks of each parameter, in the band of right posteriors.

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
            options: dict[str, Any] = {
                "n_bins": min(20, self.n_draws + 1),
                "confidence_level": 1 - self.level,
            }
            key = jax.random.fold_in(jax.random.key(0), number)
            curve = pit_curve(key, Empirical(drawn_as), true, **options)
            ax = pit(curve, ax=figure.add_subplot(n_down, n_across, number + 1))
            ax.set_title(name, fontsize=ax.xaxis.label.get_fontsize(), loc="left")
        return figure

    def _n_tests(self) -> int:
        of_each = sum(2 - (check.given_x is None) for check in self.parameters)
        return of_each + (self.joint is not None)

    def _verdict(self) -> str:
        if not self.rejected:
            if self.n < _FEW:
                return f"Too few simulations to tell: {self.n} (p = {self.pvalue:.2g})."
            return f"No sign of an error in the posteriors (p = {self.pvalue:.2g})."
        least = self.level / self._n_tests()
        found = [(check.name, self._in_words(check, least)) for check in self.parameters]
        words = [f"{name} is {said}" for name, said in found if said is not None]
        if not words:
            words = ["the parameters are wrong together, and each of them is not"]
        return f"The posteriors are wrong (p = {self.pvalue:.2g}): {'; '.join(words)}."

    def _in_words(self, check: ParameterCheck, least: float) -> str | None:
        """What is most wrong with the posteriors of a parameter; None if no test rejects them."""
        is_wrong = check.pvalue <= least
        is_wrong_given_x = check.given_x is not None and check.given_x <= least
        if not (is_wrong or is_wrong_given_x):
            return None
        rows = self.rows.get(check.name)
        seen = check.shift, check.spread
        if rows is not None:
            seen = shift_and_spread(normal_scores(*rows), self.n_draws)
        chance = chance_of(*seen, self.n, self.n_draws, rows)
        found = []
        # What is named is beyond chance by itself.
        if is_wrong and chance.shift <= self.level / 2:
            side = "low" if check.shift > 0 else "high"
            found.append(f"too {side} (by {abs(check.shift):.2g} of its spread)")
        if is_wrong and chance.spread <= self.level / 2:
            side = "narrow" if check.spread > 1 else "wide"
            found.append(f"too {side} (spread {check.spread:.2g}, where 1 is right)")
        if chance.spread < chance.shift:
            found.reverse()
        where = "" if check.column is None else f", most clearly with {check.column}"
        of_column = 1.0 if check.column_pvalue is None else check.column_pvalue
        if is_wrong_given_x and (not found or of_column < min(chance)):
            return f"wrong given the observations{where}"
        if not found:
            return "wrong, but on average neither too low or high nor too narrow or wide"
        varies = is_wrong_given_x and of_column <= least
        return " and ".join(found) + (f", and varies with {check.column}" if varies else "")

    def __repr__(self) -> str:
        has_x = any(check.given_x is not None for check in self.parameters)
        lines = [["parameter", "shift", "spread", "p", *(["p given x"] if has_x else [])]]
        for check in self.parameters:
            given = [] if check.given_x is None else [f"{check.given_x:.3f}"]
            numbers = f"{check.shift:+.2f}", f"{check.spread:.2f}", f"{check.pvalue:.3f}"
            lines.append([check.name, *numbers, *given])
        if self.joint is not None:
            lines.append(["all together", "", "", f"{self.joint:.3f}", *([""] if has_x else [])])
        shown = text_table(lines, "<" + ">" * (len(lines[0]) - 1))
        n_tests = self._n_tests()
        adjusted = f"; the p-value of the verdict is adjusted for {n_tests} tests"
        note = (
            f"{self.n} simulations, {self.n_draws} draw{'s' * (self.n_draws != 1)} of each "
            f"posterior{adjusted * (n_tests > 1)}."
        )
        signs = "A shift above 0: draws are too low; a spread above 1: posteriors are too narrow."
        return "\n".join([self._verdict(), "", *shown, "", note, signs, *self.remarks])
