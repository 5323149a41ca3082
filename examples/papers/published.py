"""Published error rates of calibration tests.

All are of David Widmann, Fredrik Lindsten and Dave Zachariah: "Calibration tests beyond
classification", ICLR 2021, Appendix A.2, and "Calibration tests in multi-class classification: a
unifying framework", NeurIPS 2019, the calibrated predictions of its synthetic experiments.
"""

BLOCKS_2, BLOCKS_SQRT = "blocks of 2", "blocks of sqrt(n)"
BOOTSTRAP, CME, DISTRIBUTION_FREE = "bootstrap", "CME, 10 locations", "distribution-free"

ICLR_SETS = 500  # data sets for each rate
ICLR_LEVEL = 0.05
ICLR_SIZES = 4, 16, 64, 256, 1024

# Of d coordinates: the rates of type I errors at all sizes, and those of type II errors.  Those of
# CME at n = 4 are left out (type I .530 and .478, type II .478 and .458 for d = 1 and 10): four
# samples leave the covariance at ten locations singular, and our test refuses it.
ICLR = {
    1: {
        BLOCKS_2: ([0.128, 0.050, 0.054, 0.054, 0.060], [0.648, 0.122, 0.0, 0.0, 0.0]),
        BLOCKS_SQRT: ([0.134, 0.038, 0.030, 0.020, 0.020], [0.654, 0.046, 0.0, 0.0, 0.0]),
        BOOTSTRAP: ([0.142, 0.058, 0.040, 0.060, 0.056], [0.272, 0.0, 0.0, 0.0, 0.0]),
        CME: ([None, 0.882, 0.356, 0.118, 0.068], [None, 0.0, 0.0, 0.0, 0.0]),
    },
    10: {
        BLOCKS_2: ([0.102, 0.052, 0.064, 0.048, 0.048], [0.748, 0.308, 0.0, 0.0, 0.0]),
        BLOCKS_SQRT: ([0.108, 0.066, 0.062, 0.050, 0.042], [0.734, 0.148, 0.0, 0.0, 0.0]),
        BOOTSTRAP: ([0.004, 0.000, 0.010, 0.042, 0.044], [0.712, 0.002, 0.0, 0.0, 0.0]),
        CME: ([None, 0.760, 0.152, 0.058, 0.074], [None, 0.004, 0.0, 0.0, 0.0]),
    },
}

NEURIPS_SETS = 10_000
NEURIPS_SIZE = 250
NEURIPS_LEVELS = 0.01, 0.05, 0.10

# Of (m, alpha), classes and parameter of the Dirichlet law: the rates of type I errors at all
# levels.
NEURIPS = {
    (2, 0.1): {
        BOOTSTRAP: [0.0094, 0.0506, 0.1034],
        BLOCKS_2: [0.0021, 0.0435, 0.1149],
        DISTRIBUTION_FREE: [0.0, 0.0, 0.0],
    },
    (10, 0.1): {
        BOOTSTRAP: [0.0048, 0.0347, 0.0791],
        BLOCKS_2: [0.0077, 0.0455, 0.098],
        DISTRIBUTION_FREE: [0.0, 0.0, 0.0],
    },
    (2, 1.0): {
        BOOTSTRAP: [0.0108, 0.0521, 0.1011],
        BLOCKS_2: [0.0066, 0.0456, 0.0929],
        DISTRIBUTION_FREE: [0.0, 0.0, 0.0],
    },
    (10, 1.0): {
        BOOTSTRAP: [0.0079, 0.0396, 0.0841],
        BLOCKS_2: [0.0051, 0.0366, 0.0837],
        DISTRIBUTION_FREE: [0.0, 0.0, 0.0],
    },
}
