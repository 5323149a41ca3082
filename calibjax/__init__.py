"""Is a probabilistic model's uncertainty right? Calibration errors, tests and remedies, in JAX.

Ten names cover most needs:

==========================  =========================================================
`evaluate`                  a verdict, numbers and plots, from arrays or frames
`calibration_test`          the exact test behind it
`skce`                      the squared kernel calibration error, also as a loss
`skce_confidence_interval`  how far off a model is
`compare_calibration`       which of several models is better calibrated
`segment_test`              for whom a model is wrong
`fit_recalibrator`          a map that recalibrates it; `cross_fit` estimates its gain
`CalibrationMonitor`        is it still calibrated, asked after every batch
`reliability_curve`         what a plot shows; `pit_curve` for numbers
`decompose_score`           how much of a score is calibration
==========================  =========================================================

Predictions are batches of distributions: `Categorical`, `Bernoulli`, `Normal`, `Quantiles`,
`Empirical` of draws, and others; `as_predictions` takes those of other libraries.
"""

import importlib
import pkgutil
import re
from typing import Any

__version__ = "0.1.0"

# Names, and the modules that they are imported from when they are used: all of them at once take as
# long as jax.  They are read where type checkers read them: the stub has the names of the package
# itself, among them the subpackages, and `*` for what is listed in a subpackage.


def _text(file: str) -> str:
    return (pkgutil.get_data(__name__, file) or b"").decode()


_STUB = _text("__init__.pyi")
_MODULE_OF = {name: module for module, name in re.findall(r"from (\S+) import (\w+) as", _STUB)}
for _subpackage in re.findall(r"from calibjax\.(\w+) import \*", _STUB):
    _listed = _text(f"{_subpackage}/__init__.py").partition("__all__ = [")[2].partition("]")[0]
    _MODULE_OF |= dict.fromkeys(re.findall(r"\w+", _listed), f"{__name__}.{_subpackage}")

__all__ = [name for name, module in _MODULE_OF.items() if module != __name__]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULE_OF[name]
    if module != __name__:
        found = globals()[name] = getattr(importlib.import_module(module), name)
        return found
    try:
        return importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError as error:  # plot without matplotlib
        raise AttributeError(str(error)) from error


def __dir__() -> list[str]:
    return [*_MODULE_OF, "__version__"]
