"""The function h, whose expectation is the squared kernel calibration error, and deviations."""

from calibjax.discrepancy._inputs import check_inputs as check_inputs
from calibjax.discrepancy._inputs import check_kernel_of as check_kernel_of
from calibjax.discrepancy._residuals import EmbeddedTarget as EmbeddedTarget
from calibjax.discrepancy._residuals import FeatureResidual as FeatureResidual
from calibjax.discrepancy._residuals import JointResidual as JointResidual
from calibjax.discrepancy._residuals import PITResidual as PITResidual
from calibjax.discrepancy._residuals import Sample as Sample
from calibjax.discrepancy._residuals import SteinResidual as SteinResidual
from calibjax.discrepancy._residuals import TargetResidual as TargetResidual
from calibjax.discrepancy._terms import SumOfTerms as SumOfTerms
from calibjax.discrepancy._terms import Term as Term
from calibjax.discrepancy._terms import deviation as deviation
from calibjax.discrepancy._terms import deviation_tile as deviation_tile
from calibjax.discrepancy._terms import h as h
from calibjax.discrepancy._terms import h_tile as h_tile
from calibjax.discrepancy._terms import h_with_itself as h_with_itself
from calibjax.discrepancy._terms import normal_form as normal_form
from calibjax.discrepancy._terms import prepared as prepared
from calibjax.discrepancy._terms import separate as separate
