"""The function h, whose expectation is the squared kernel calibration error, and deviations."""

from calibjax.discrepancy._inputs import check_kernel_of
from calibjax.discrepancy._normal_form import (
    EmbeddedTarget,
    FeatureResidual,
    JointResidual,
    PITResidual,
    Sample,
    SteinResidual,
    SumOfTerms,
    TargetResidual,
    Term,
    deviation,
    deviation_tile,
    h,
    h_tile,
    h_with_itself,
    normal_form,
    prepared,
    separate,
)
