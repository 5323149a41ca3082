"""Measurements of speed and memory against what a user would write instead."""
