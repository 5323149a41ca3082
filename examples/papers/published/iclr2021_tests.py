"""ICLR 2021, Appendix A.2: error rates of tests for 500 data sets, and the least times.

Times are in seconds, at n = 1024, on a processor of 3.6 GHz.
"""

BLOCKS_2, BLOCKS_SQRT = "blocks of 2", "blocks of sqrt(n)"
BOOTSTRAP, CME = "bootstrap", "CME, 10 locations"

SETS = 500  # data sets for each rate
LEVEL = 0.05
SIZES = 4, 16, 64, 256, 1024

# Of d coordinates: the rates of type I errors at all sizes, and those of type II errors.  Those of
# CME at n = 4 are left out (type I .530 and .478, type II .478 and .458 for d = 1 and 10): four
# samples leave the covariance at ten locations singular, and our test refuses it.
RATES = {
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

# Of d.
SECONDS = {
    1: {BLOCKS_2: 1.33e-4, BLOCKS_SQRT: 1.458e-3, BOOTSTRAP: 1.0459, CME: 6.68e-4},
    10: {BLOCKS_2: 1.63e-4, BLOCKS_SQRT: 2.246e-3, BOOTSTRAP: 0.796, CME: 9.89e-4},
}
