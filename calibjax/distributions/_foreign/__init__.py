"""Distributions of other packages: a table for each package, of classes by their names."""

from calibjax.distributions._foreign._as_predictions import as_predictions, is_foreign
