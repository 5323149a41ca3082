"""The same numbers, made in the loops that suit a platform."""
