"""UAI 2023: rejection rates of 500 data sets, of the authors' program.

The paper by Pierre Glaser, David Widmann, Fredrik Lindsten and Arthur Gretton, "Fast and scalable
score-based kernel calibration tests", shows curves.  These numbers come from the program of the
paper, https://github.com/pierreglaser/kccsd (6f81b27, with jax 0.4.13), which we ran: `kccsd_test`
and `skce_test` on its data generators, with all pairs, 1000 resamples, `median_heuristic` and the
base measure N(0, I), of 100 draws for "at points".  The kernel of the kernelized distance has
lengthscale 1.
"""

KCCSD_FISHER, KCCSD_POINTS = "KCCSD, Fisher", "KCCSD, Fisher at points"
KCCSD_KERNELIZED = "KCCSD, kernelized Fisher"
SKCE_FISHER, SKCE_WASSERSTEIN = "SKCE, Fisher", "SKCE, Wasserstein"

MEAN, ONE_MEAN = "both means", "one mean of two"
LINEAR, HETEROSCEDASTIC, QUADRATIC = "linear", "heteroscedastic", "quadratic"

SETS = 500  # data sets for each rate
LEVEL = 0.05

# By experiment, delta, test and n.
RATES = {
    MEAN: {
        0.0: {
            KCCSD_FISHER: {100: 0.046, 200: 0.044},
            SKCE_FISHER: {100: 0.048, 200: 0.044},
        },
        0.1: {
            KCCSD_FISHER: {100: 0.176, 200: 0.348},
            SKCE_FISHER: {100: 0.156, 200: 0.320},
        },
    },
    ONE_MEAN: {
        0.1: {
            KCCSD_FISHER: {100: 0.120, 200: 0.184},
            SKCE_FISHER: {100: 0.122, 200: 0.180},
        },
    },
    LINEAR: {
        0.0: {
            KCCSD_FISHER: {100: 0.050, 200: 0.050},
            SKCE_FISHER: {100: 0.058, 200: 0.050},
        },
        0.2: {
            KCCSD_FISHER: {100: 0.460, 200: 0.708},
            SKCE_FISHER: {100: 0.346, 200: 0.610},
        },
    },
    HETEROSCEDASTIC: {
        0.0: {
            KCCSD_FISHER: {100: 0.046, 200: 0.046},
            KCCSD_POINTS: {100: 0.050, 200: 0.046},
            KCCSD_KERNELIZED: {100: 0.044, 200: 0.036},
            SKCE_FISHER: {100: 0.048, 200: 0.046},
            SKCE_WASSERSTEIN: {100: 0.048, 200: 0.046},
        },
        1.0: {
            KCCSD_FISHER: {100: 0.702, 200: 0.968},
            KCCSD_POINTS: {100: 0.708, 200: 0.966},
            KCCSD_KERNELIZED: {100: 0.706, 200: 0.956},
            SKCE_FISHER: {100: 0.908, 200: 0.998},
            SKCE_WASSERSTEIN: {100: 0.928, 200: 0.998},
        },
    },
    QUADRATIC: {
        0.0: {
            KCCSD_FISHER: {100: 0.048, 200: 0.050},
            SKCE_FISHER: {100: 0.044, 200: 0.056},
        },
        1.0: {
            KCCSD_FISHER: {100: 0.156, 200: 0.292},
            SKCE_FISHER: {100: 0.182, 200: 0.300},
        },
    },
}
