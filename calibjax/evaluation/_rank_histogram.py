"""The shape of the rank histogram of an ensemble, as text."""

from calibjax._data.capabilities import is_exchangeable
from calibjax.evaluation._section import Case, Section
from calibjax.measures.families import rank_measures
from calibjax.measures.measure import Subset


class _RankHistogram(Section[str | None]):
    """The shape of the rank histogram: "flat", "U-shaped", "dome-shaped" or "sloped", or two.

    It is flat unless an interval of the bias excludes 0, or one of the rank dispersion excludes 1;
    both hold at once with the confidence 1 - level.  None but for members without weights.
    """

    def compute(self, case: Case) -> str | None:
        p = case.data.predictions
        if not is_exchangeable(p) or p.target_shape != "n" or case.data.is_censored:
            return None
        (rows,) = Subset.of(case.data, 1 - case.level / 2)
        found = rank_measures(case.random_keys.measures, case.padded)
        bias, dispersion = (found[x](rows).interval for x in ("bias", "rank dispersion"))
        if bias is None or dispersion is None:
            return None
        shapes = []
        if not bias[0] <= 0 <= bias[1]:
            shapes.append(f"sloped (biased {'high' if bias[0] > 0 else 'low'})")
        if not dispersion[0] <= 1 <= dispersion[1]:
            is_narrow = dispersion[0] > 1
            shapes.append(
                "U-shaped (under-dispersive)" if is_narrow else "dome-shaped (over-dispersive)"
            )
        return " and ".join(shapes) or "flat"

    def notes(self, case: Case) -> list[str]:
        shape = self.of(case)
        words = "flat (no significant slope, U or dome)" if shape == "flat" else shape
        said = f"Rank histogram: {words}. Coverage is of randomised ranks."
        return [] if shape is None else [said]


RANK_HISTOGRAM = _RankHistogram()
