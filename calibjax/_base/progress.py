"""What people are told on stderr about work that takes long."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# After how many seconds a terminal shows what takes so long, and how often the seconds change; and
# after how many, and how often, anything else, such as a log, has a line.
_PATIENCE, _STEP, _LINE = 2.0, 1.0, 10.0

# Work within other work is told as that.
_told = threading.Lock()


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Tells on stderr of work that takes long; the function that it gives says what is done now.

    A terminal has one line, which changes and goes at the end; whatever else stderr is has a line
    every ten seconds.  A thread writes them while jax computes.
    """
    if not _told.acquire(blocking=False):
        yield lambda _: None
        return
    is_terminal, start, now = sys.stderr.isatty(), time.monotonic(), text
    ended = threading.Event()

    def tell() -> None:
        line = f"{now} … {time.monotonic() - start:.0f} s"
        whole = f"\r{line}\x1b[K" if is_terminal else f"{line}\n"
        print(whole, end="", file=sys.stderr, flush=True)

    def is_shown() -> bool:
        return is_terminal and time.monotonic() > start + _PATIENCE

    def say(done: str) -> None:
        nonlocal now
        now = f"{text}: {done}"
        if is_shown():
            tell()

    def keep_telling() -> None:
        wait = _PATIENCE if is_terminal else _LINE
        while not ended.wait(wait):
            tell()
            wait = _STEP if is_terminal else _LINE

    thread = threading.Thread(target=keep_telling, daemon=True)
    thread.start()
    try:
        yield say
    finally:
        ended.set()
        thread.join()
        if is_shown():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        _told.release()
