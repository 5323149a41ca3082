"""What h keeps of a target: a class for each kind of residual."""
