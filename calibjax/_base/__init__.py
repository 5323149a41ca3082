"""The base of all subpackages: pytrees, checks, compiled and kept programs, devices, files."""
