"""The matrix H of h over all pairs of samples, as an operator that need not hold the matrix."""
