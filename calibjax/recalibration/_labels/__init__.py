"""Maps of class probabilities: their steps, the fit of each method, and the choice of one."""

from calibjax.recalibration._labels._auto import FITS as FITS
from calibjax.recalibration._labels._auto import N_FOLDS as N_FOLDS
from calibjax.recalibration._labels._auto import ONLY_TWO as ONLY_TWO
from calibjax.recalibration._labels._auto import fit_auto as fit_auto
from calibjax.recalibration._labels._auto import fit_method as fit_method
from calibjax.recalibration._labels._curves import (
    BetaCurve,
    IsotonicCurve,
    QuadraticCurve,
    SplineCurve,
    VennAbersCurve,
)
from calibjax.recalibration._labels._curves import from_logits as from_logits
from calibjax.recalibration._labels._curves import log_odds as log_odds
from calibjax.recalibration._labels._fit_curves import fit_spline as fit_spline
from calibjax.recalibration._labels._fitted import Fitted as Fitted
from calibjax.recalibration._labels._logistic import Regression as Regression
from calibjax.recalibration._labels._logistic import logistic_regression as logistic_regression
from calibjax.recalibration._labels._rows import LabelRows as LabelRows
from calibjax.recalibration._labels._steps import (
    Average,
    Floor,
    MixedWithUniform,
    Scaling,
    TemperedAndUniform,
)
from calibjax.recalibration._labels._steps import Numbers as Numbers
from calibjax.recalibration._labels._steps import apply_jit as apply_jit
from calibjax.recalibration._labels._steps import of_present as of_present
from calibjax.recalibration._labels._steps import run as run

#: The steps of maps, by their names in files.
STEPS: dict[str, type] = {
    step.__name__: step
    for step in (
        Average,
        BetaCurve,
        Floor,
        IsotonicCurve,
        MixedWithUniform,
        QuadraticCurve,
        Scaling,
        SplineCurve,
        TemperedAndUniform,
        VennAbersCurve,
    )
}
