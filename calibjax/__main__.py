"""`python -m calibjax` and the command `calibjax`."""

import atexit
import gc
import os
import platform
import sys
from pathlib import Path


def main() -> None:
    """Runs the command line.  A crash ends with the status 2, as 1 is a verdict."""
    try:
        # Maps are fitted with matrices so small that several threads only wait for each other.
        # NumPy and SciPy read this when they are imported.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        from calibjax.cli import app

        # Modules stay until the end: to search them for garbage takes a fifth of a short command.
        gc.set_threshold(100_000)
        atexit.register(gc.freeze)
        _keep_compiled_programs()
        app(prog_name="calibjax")
    except ModuleNotFoundError as error:
        sys.exit(_failed(f"{error.name} is missing: pip install 'calibjax[cli]' brings it."))
    except Exception as error:
        sys.exit(_failed(f"{type(error).__name__}: {error}"))


def _failed(message: str) -> int:
    print(message, file=sys.stderr)
    return 2


def _keep_compiled_programs() -> None:
    """Compilation is most of the time of a test of 1000 rows: the second call takes a fifth of it.

    Programs are machine code, and a home may be shared by machines, so that each has its folder.
    jax reads what it is told here when it is imported, which ``--help`` does not do.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = caches / "calibjax" / platform.node()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # A container may have no home.
        return  # It works without, only slower.
    if not os.access(folder, os.W_OK):
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"


if __name__ == "__main__":
    main()
