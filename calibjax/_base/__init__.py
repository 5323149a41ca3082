"""What all rooms stand on: pytrees, checks, compiled programs, many devices, files."""
