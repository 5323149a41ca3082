"""What kernels of covariates are called, and which columns carry what a test finds."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from calibjax._rows import Data
from calibjax._struct import static, struct
from calibjax.expectations import prediction_coordinates
from calibjax.features import ColumnKernels


@struct
class CovariateKernel:
    """A kernel on covariates, or on predictions and covariates, with a feature of targets.

    `calibration_test` with covariates makes it, and lists it among the kernels of its members.

    Args:
        words: the columns and the feature, such as "age x sex, location".
        columns: the columns that it compares; none for a mean over all columns.
    """

    words: str = static()
    columns: tuple[str, ...] = static()


class CovariateEvidence(NamedTuple):
    """What a test with covariates finds in one column.

    Args:
        name: of the column.
        score: the largest score of the kernels that compare this column.
        pvalue: the rank of this score among the draws of the largest score of all kernels: the
            p-value of this column, adjusted for all that the test has looked at.
        kernel: the kernel with this score, in words.
    """

    name: str
    score: float
    pvalue: float
    kernel: str


def column_kernels(data: Data) -> ColumnKernels:
    """The kernels of the covariates of these rows."""
    assert data.covariates is not None
    coordinates = jax.eval_shape(prediction_coordinates, data.predictions)
    return ColumnKernels(data.covariates.sizes, int(coordinates.shape[1]))


def named_kernels(names: Sequence[str], features: Sequence[str]) -> list[CovariateKernel]:
    """The kernels of columns with these names in the order of `ColumnKernels`, for each feature."""
    kinds: list[tuple[list[tuple[str, tuple[str, ...]]], str]] = [
        ([(f"column {a}", (a,)) for a in names], "all columns"),
        ([(f"{a} x {b}", (a, b)) for a, b in itertools.combinations(names, 2)], "all pairs"),
        ([(f"predictions x {a}", (a,)) for a in names], "predictions x all columns"),
    ]
    every: list[tuple[str, tuple[str, ...]]] = []
    for kernels, together in kinds:
        every += [*kernels, (together, ())] if len(kernels) > 1 else kernels
    return [
        CovariateKernel(f"{words}, {feature}", columns)
        for feature in features
        for words, columns in every
    ]


def evidence_of_columns(
    kernels: Sequence[object], scores: np.ndarray, pvalues: np.ndarray
) -> list[CovariateEvidence]:
    """The columns, those with the largest scores first."""
    found: dict[str, CovariateEvidence] = {}
    for kernel, score, pvalue in zip(kernels, scores.tolist(), pvalues.tolist(), strict=True):
        if not isinstance(kernel, CovariateKernel):
            continue
        for name in kernel.columns:
            if name not in found or score > found[name].score:
                found[name] = CovariateEvidence(name, score, pvalue, kernel.words)
    return sorted(found.values(), key=lambda evidence: -evidence.score)
