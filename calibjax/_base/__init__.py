"""What all rooms stand on: pytrees, checks, programs compiled and kept, many devices, files."""
