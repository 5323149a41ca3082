"""`python -m calibjax` and the command `calibjax`."""

import os
import platform
import sys
from pathlib import Path

import jax


def main() -> None:
    """Runs the command line."""
    try:
        from calibjax.cli import app
    except ModuleNotFoundError as error:
        print(f"{error.name} is missing: pip install 'calibjax[cli]' brings it.", file=sys.stderr)
        sys.exit(2)
    compile_quickly()
    _keep_compiled_programs()
    app(prog_name="calibjax")


def compile_quickly() -> None:
    """Most programs run once: the simpler emitter of XLA compiles them in two thirds of the time.

    Later versions of jax have it no more, and abort at an unknown flag.  The user's flags win.
    """
    if jax.__version_info__ < (0, 11):
        flags = "--xla_cpu_use_fusion_emitters=false", os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = " ".join(flags)


def _keep_compiled_programs() -> None:
    """Compilation is most of the time of a test of 1000 rows: the second call takes a fifth of it.

    Programs are machine code, and a home may be shared by machines, so that each has its folder.
    """
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = caches / "calibjax" / platform.node()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # It works without, only slower.
    if not os.access(folder, os.W_OK):
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


if __name__ == "__main__":
    main()
