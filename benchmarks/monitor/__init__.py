"""How rarely the monitor rings for nothing, and how fast for something: ``benchmarks.monitor``."""
