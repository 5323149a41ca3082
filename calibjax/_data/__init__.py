"""Predictions, targets and data sets of them: checked once, padded, cleaned before their use."""
