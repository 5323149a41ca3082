"""The matrix H of h over all pairs of samples, as an operator that avoids storing it."""
