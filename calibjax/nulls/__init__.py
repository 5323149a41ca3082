"""What chance does: data sets under H0, resampled rows, ranks and bands."""
