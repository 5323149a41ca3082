"""The classical numbers of an evaluation, and the table of all its numbers."""

from collections.abc import Iterable

from calibjax.evaluation._effect import BEST_TEMPERATURE_NAME
from calibjax.evaluation._section import Case, Section
from calibjax.evaluation._wording import interval_text, number
from calibjax.measures import OBSERVED, PREDICTED, MeasureResult, measures
from calibjax.recalibration import is_end_of_range


class _Measures(Section[dict[str, MeasureResult]]):
    """Accuracy, scores and classical calibration errors, by their names."""

    def compute(self, case: Case) -> dict[str, MeasureResult]:
        rows = case.padded, 1 - case.level, case.n_draws, case.row_names
        (found,) = measures(case.random_keys.measures, *rows)
        return found

    def rows(self, case: Case) -> Iterable[tuple[str, MeasureResult]]:
        # The verdict has both means where they differ.
        return [x for x in self.of(case).items() if x[0] not in (PREDICTED, OBSERVED)]


MEASURES = _Measures()


def table_of_numbers(rows: Iterable[tuple[str, MeasureResult]], level: float) -> list[str]:
    """The lines of a table of numbers by their names."""
    rows, confidence = list(rows), f"{100 * (1 - level):.3g} % interval"
    last = "p" if any(measure.pvalue is not None for _, measure in rows) else ""
    lines = [f"{'':<26}{'value':>10}  {confidence:<20}{'if calibrated':<20}{last}"]
    for name, measure in rows:
        pvalue = "" if measure.pvalue is None else number(measure.pvalue)
        ends = map(interval_text, (measure.interval, measure.if_calibrated))
        rest = measure.note or "".join(f"{end:<19} " for end in ends) + pvalue
        lines.append(f"{name:<26}{value_text(name, measure):>10}  {rest}")
    return lines


def value_text(name: str, measure: MeasureResult) -> str:
    """The number of a line of the table, or which bound it has reached."""
    if name == BEST_TEMPERATURE_NAME and is_end_of_range(measure.value):
        return f"{'≥' if measure.value > 1 else '≤'} {number(measure.value)}"
    return number(measure.value)
