"""The kernel of ICLR 2021, exp(-W_2) exp(-|y - y'|^2 / 2), for numbers and vectors."""

import calibjax as cj

TARGET_KERNEL = cj.GaussianKernel(1.0)
KERNEL = cj.TensorProduct(cj.DistanceKernel(cj.Wasserstein(), 1.0), TARGET_KERNEL)
