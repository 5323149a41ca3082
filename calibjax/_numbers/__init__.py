"""Functions of numbers: what is computed, whatever it is computed for."""
