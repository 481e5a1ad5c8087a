"""Tells a person on stderr what is being done and that it still moves. Decides nothing; stdout stays for results."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_HEARTBEAT_SECONDS = 10.0
_STARTED = time.monotonic()
_print_lock = threading.Lock()


class Step:
    """A piece of work that is under way. ``note`` keeps the last thing heard, for the next sign of life."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._noted = ""

    def note(self, line: str) -> None:
        self._noted = line.strip()[:100] or self._noted

    def sign_of_life(self, seconds: float) -> str:
        return f"{self.what}: {seconds:.0f} s so far" + (f" ({self._noted})" if self._noted else "")


def say(text: str) -> None:
    """One line, with the time since the command began."""
    minutes, seconds = divmod(int(time.monotonic() - _STARTED), 60)
    with _print_lock:
        print(f"[{minutes:2d}:{seconds:02d}] {text}", file=sys.stderr, flush=True)


@contextmanager
def step(what: str) -> Iterator[Step]:
    """Says that ``what`` begins, every ten seconds that it goes on, and how long it took."""
    current = Step(what)
    ended = threading.Event()
    begin = time.monotonic()

    def beat() -> None:
        while not ended.wait(_HEARTBEAT_SECONDS):
            say(current.sign_of_life(time.monotonic() - begin))

    say(f"{what} ...")
    heart = threading.Thread(target=beat, daemon=True)
    heart.start()
    try:
        yield current
    except BaseException:
        say(f"{what}: failed after {time.monotonic() - begin:.1f} s")
        raise
    else:
        say(f"{what}: done in {time.monotonic() - begin:.1f} s")
    finally:
        ended.set()
        heart.join()
