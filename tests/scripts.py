"""Runs the scripts of the examples as a reader would."""

import os
import subprocess
import sys

# Most of a quick run is compilation.
QUICK = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


def output_of(script, *options, folder):
    """What a script prints on stdout, run in a folder; fails with its stderr."""
    done = subprocess.run(
        [sys.executable, script, *options],
        cwd=folder,
        env=QUICK,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
