"""The work that is measured, ours and that of the peers; each function returns a call."""
