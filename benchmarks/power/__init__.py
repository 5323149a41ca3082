"""How often each test detects what is wrong: ``python -m benchmarks.power``."""
