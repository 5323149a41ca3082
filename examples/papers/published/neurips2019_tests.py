"""Published error rates of calibration tests in classification.

Widmann, Lindsten and Zachariah: "Calibration tests in multi-class classification: a unifying
framework", NeurIPS 2019; the rates are points of the curves in its supplementary figures.
"""

from published import FIRST, UNIFORM

BOOTSTRAP, BLOCKS_2, DISTRIBUTION_FREE = "SKCE, bootstrap", "SKCE, blocks of 2", "SKCE, bound"
ECE_UNIFORM, ECE_DYNAMIC = "ECE, uniform bins", "ECE, dynamic bins"

SETS = 10_000  # data sets for each rate
RESAMPLES = 1000

LEVELS = 0.01, 0.05, 0.10  # of type I errors
LEVEL = 0.05  # of type II errors
# Of (beta, pi): with probability pi the label is drawn from beta instead of the prediction.
DEVIATIONS = (FIRST, 0.5), (FIRST, 1.0), (UNIFORM, 0.5), (UNIFORM, 1.0)

# Of (m, alpha), classes and parameter of the Dirichlet law: the rates of type I errors at all
# LEVELS, and those of type II errors for all DEVIATIONS.
RATES = {
    (2, 0.1): {
        BOOTSTRAP: ([0.0094, 0.0506, 0.1034], [0.0, 0.0, 0.0, 0.0]),
        BLOCKS_2: ([0.0021, 0.0435, 0.1149], [0.0385, 0.0, 0.6557, 0.0369]),
        DISTRIBUTION_FREE: ([0.0, 0.0, 0.0], [1.0, 0.7652, 1.0, 1.0]),
        ECE_UNIFORM: ([0.0114, 0.0533, 0.1118], [0.0, 0.0, 0.0, 0.0]),
        ECE_DYNAMIC: ([0.0057, 0.0324, 0.0749], [0.0, 0.0, 0.0, 0.0]),
    },
    (10, 0.1): {
        BOOTSTRAP: ([0.0048, 0.0347, 0.0791], [0.0, 0.0, 0.0037, 0.0]),
        BLOCKS_2: ([0.0077, 0.0455, 0.098], [0.0, 0.0, 0.9259, 0.8141]),
        DISTRIBUTION_FREE: ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]),
        ECE_UNIFORM: ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]),
        ECE_DYNAMIC: ([0.0537, 0.2018, 0.3344], [0.0, 0.0, 0.0, 0.0]),
    },
    (2, 1.0): {
        BOOTSTRAP: ([0.0108, 0.0521, 0.1011], [0.0, 0.0, 0.0329, 0.0]),
        BLOCKS_2: ([0.0066, 0.0456, 0.0929], [0.1545, 0.0, 0.9161, 0.7092]),
        DISTRIBUTION_FREE: ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]),
        ECE_UNIFORM: ([0.0126, 0.0542, 0.105], [0.0, 0.0, 0.0152, 0.0]),
        ECE_DYNAMIC: ([0.0093, 0.0427, 0.0851], [0.0, 0.0, 0.046, 0.0]),
    },
    (10, 1.0): {
        BOOTSTRAP: ([0.0079, 0.0396, 0.0841], [0.0, 0.0, 0.9031, 0.3661]),
        BLOCKS_2: ([0.0051, 0.0366, 0.0837], [0.0, 0.0, 0.9599, 0.951]),
        DISTRIBUTION_FREE: ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]),
        ECE_UNIFORM: ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]),
        ECE_DYNAMIC: ([0.0051, 0.0333, 0.0748], [0.0, 0.0, 0.3422, 0.0004]),
    },
}
