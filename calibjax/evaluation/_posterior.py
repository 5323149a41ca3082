"""Is a posterior right? Simulations whose parameters are known, and draws of their posteriors."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax.distributions import Empirical
from calibjax.evaluation._draws import named_draws
from calibjax.evaluation._saved import plain
from calibjax.hypothesis_tests import calibration_test


@dataclasses.dataclass(frozen=True)
class ParameterCheck:
    """What simulations say of the posteriors of one parameter.

    Args:
        name: the parameter.
        shift: the mean of z, the normal score of the rank of the true value among the draws, so
            that the unit is the spread of the posterior; 0 for a right posterior, and positive if
            draws are too small.
        spread: the root of the mean of z^2, in units of that of a right posterior; above 1 if
            posteriors are too narrow.
        pvalue: of the test that looks at the posteriors alone.
        given_x: of the test that looks at the observations as well; None without observations.
    """

    name: str
    shift: float
    spread: float
    pvalue: float
    given_x: float | None


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

    Example:
        >>> import calibjax as cj
        >>> from calibjax.evaluation import ParameterCheck
        >>> slope = ParameterCheck("slope", shift=0.9, spread=1.1, pvalue=0.001, given_x=None)
        >>> check = cj.PosteriorCheck((slope,), None, 0.001, 0.05, n=200, n_draws=50)
        >>> print(str(check).split(";")[0])
        The posteriors are wrong (p = 0.001): slope is too low (by 0.9 of its spread).
        <BLANKLINE>
        parameter  shift  spread      p
        slope      +0.90    1.10  0.001
        <BLANKLINE>
        200 simulations, 50 draws of each posterior
    """

    parameters: tuple[ParameterCheck, ...]
    joint: float | None
    pvalue: float
    level: float
    n: int
    n_draws: int

    @property
    def rejected(self) -> bool:
        """Whether the posteriors are wrong at the level."""
        return self.pvalue <= self.level

    def to_dict(self) -> dict[str, Any]:
        """The same as numbers and texts, for JSON."""
        return plain(dataclasses.asdict(self) | {"rejected": self.rejected})

    def _n_tests(self) -> int:
        of_each = sum(2 - (check.given_x is None) for check in self.parameters)
        return of_each + (self.joint is not None)

    def _verdict(self) -> str:
        if not self.rejected:
            return f"No sign of an error in the posteriors (p = {self.pvalue:.2g})."
        least = self.level / self._n_tests()
        words = [
            f"{check.name} is {_in_words(check)}"
            for check in self.parameters
            if check.pvalue <= least
        ]
        of_x = [
            check.name
            for check in self.parameters
            if check.given_x is not None and check.given_x <= least < check.pvalue
        ]
        if of_x:
            words.append(f"{', '.join(of_x)} given the observations, of which not all is used")
        if not words:
            words = ["the parameters are wrong together, and each of them is not"]
        return f"The posteriors are wrong (p = {self.pvalue:.2g}): {'; '.join(words)}."

    def __repr__(self) -> str:
        has_x = any(check.given_x is not None for check in self.parameters)
        lines = [["parameter", "shift", "spread", "p", *(["p given x"] if has_x else [])]]
        for check in self.parameters:
            given = [] if check.given_x is None else [f"{check.given_x:.3f}"]
            numbers = f"{check.shift:+.2f}", f"{check.spread:.2f}", f"{check.pvalue:.3f}"
            lines.append([check.name, *numbers, *given])
        if self.joint is not None:
            lines.append(["all together", "", "", f"{self.joint:.3f}", *([""] if has_x else [])])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        shown = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
            for row in lines
        ]
        note = (
            f"{self.n} simulations, {self.n_draws} draws of each posterior; the p-value of the "
            f"verdict is adjusted for {self._n_tests()} tests."
        )
        return "\n".join([self._verdict(), "", *shown, "", note])


def check_posterior(
    theta: Any,
    draws: Any,
    x: Any = None,
    *,
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
            arrays, or a dataset of xarray.
        draws: draws of the posteriors, ``[n, S]`` or ``[n, S, d]``, or a mapping of the same names;
            independent of each other, or thinned until they nearly are.  Or a list of n posteriors
            of ArviZ, with the dimensions chain and draw, or one that has a dimension of simulations
            as well; then parameters that theta lacks are left out, and others are called by their
            coordinates, such as effect[Oslo].
        x: the observations or a summary of them, ``[n]`` or ``[n, k]``, or a frame; None if the
            test given x is not wanted.
        seed: what all random numbers come from.
        level: the level of the verdict.
        n_resamples: the number of data sets that each p-value comes from; at least the number of
            tests divided by the level.

    Returns:
        PosteriorCheck; print it.

    Raises:
        ValueError, TypeError: shapes or names of theta and draws do not fit, or values are not
            finite.

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
    parameters = _parameters(*named_draws(theta, draws))
    n, n_draws = next(iter(parameters.values()))[1].shape
    has_several = len(parameters) > 1
    n_tests = len(parameters) * (1 + (x is not None)) + has_several
    if n_tests > level * (n_resamples + 1):
        raise ValueError(
            f"n_resamples must be at least {int(np.ceil(n_tests / level)) - 1} for {n_tests} tests "
            f"at the level {level:g}, got {n_resamples}."
        )
    keys = iter(jax.random.split(jax.random.key(seed), n_tests))
    checks = []
    for name, (true, drawn) in parameters.items():
        predictions, given_x = Empirical(jnp.asarray(drawn)), None
        pvalue = _pvalue(next(keys), predictions, true, n_resamples)
        if x is not None:
            given_x = _pvalue(next(keys), predictions, true, n_resamples, covariates=x)
        checks.append(ParameterCheck(name, *_shift_and_spread(true, drawn), pvalue, given_x))
    joint = None
    if has_several:
        together = np.stack([drawn for _, drawn in parameters.values()], axis=-1)
        true = np.stack([true for true, _ in parameters.values()], axis=-1)
        joint = _pvalue(next(keys), Empirical(jnp.asarray(together)), true, n_resamples)
    pvalues = [p for c in checks for p in (c.pvalue, c.given_x) if p is not None]
    least = min([*pvalues, *([] if joint is None else [joint])])
    pvalue = min(1.0, n_tests * least)
    return PosteriorCheck(tuple(checks), joint, pvalue, level, n, n_draws)


def _pvalue(key: jax.Array, predictions: Empirical, true: Any, n: int, **more: Any) -> float:
    return float(calibration_test(key, predictions, true, n_resamples=n, **more).pvalue)


def _parameters(theta: Any, draws: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """True values ``[n]`` and draws ``[n, S]`` of each number."""
    if isinstance(theta, Mapping) != isinstance(draws, Mapping):
        raise TypeError("theta and draws must both be arrays, or both mappings of names to arrays.")
    if not isinstance(theta, Mapping):
        theta, draws = {"theta": theta}, {"theta": draws}
    if set(theta) != set(draws):
        raise ValueError(
            f"draws must have the names of theta, {sorted(theta)}, got {sorted(draws)}."
        )
    dtype, found, sizes = jnp.result_type(float), {}, set()
    for name, values in theta.items():
        true, drawn = np.asarray(values, dtype), np.asarray(draws[name], dtype)
        if true.ndim not in (1, 2) or drawn.ndim != true.ndim + 1:
            raise ValueError(
                f"{name}: expected theta [n] and draws [n, S], or theta [n, d] and draws "
                f"[n, S, d], got shapes {list(true.shape)} and {list(drawn.shape)}."
            )
        if drawn.shape[0] != len(true) or drawn.shape[2:] != true.shape[1:]:
            expected = map(str, (len(true), "S", *true.shape[1:]))
            is_turned = drawn.shape[1] == len(true)
            hint = "; numpy.swapaxes(draws, 0, 1) has it" if is_turned else ""
            raise ValueError(
                f"{name}: expected draws of shape [{', '.join(expected)}] for theta of shape "
                f"{list(true.shape)}, got {list(drawn.shape)}{hint}."
            )
        if not (np.isfinite(true).all() and np.isfinite(drawn).all()):
            raise ValueError(f"{name}: expected finite numbers.")
        sizes.add(drawn.shape[:2])
        if true.ndim == 1:
            found[name] = true, drawn
        else:
            found |= {f"{name}[{k}]": (true[:, k], drawn[:, :, k]) for k in range(true.shape[1])}
    if len(sizes) != 1:
        raise ValueError(f"All parameters must have the same n and S, got {sorted(sizes)}.")
    return found


def _shift_and_spread(true: np.ndarray, drawn: np.ndarray) -> tuple[float, float]:
    """The mean and the root mean square of normal scores of ranks; ties count half."""
    from scipy.special import ndtri  # imported where it is used, as SciPy takes long to import

    n_draws = drawn.shape[1]
    below = np.sum(drawn < true[:, None], axis=1) + np.sum(drawn == true[:, None], axis=1) / 2
    scores = ndtri((below + 0.5) / (n_draws + 1))
    # What the ranks 0 … S of a right posterior have.
    right = ndtri((np.arange(n_draws + 1) + 0.5) / (n_draws + 1))
    return float(np.mean(scores)), float(np.sqrt(np.mean(scores**2) / np.mean(right**2)))


def _in_words(check: ParameterCheck) -> str:
    """What is most wrong with the posteriors of a parameter: their places or their widths."""
    if abs(check.shift) > abs(np.log(check.spread)):
        side = "low" if check.shift > 0 else "high"
        return f"too {side} (by {abs(check.shift):.2g} of its spread)"
    side = "narrow" if check.spread > 1 else "wide"
    return f"too {side} (spread {check.spread:.2g}, where 1 is right)"
