"""Random features: h as an average over features of products of two numbers, one per sample."""
