"""What the demo prints: stages with their times, alive on a terminal, plain lines everywhere else.

Owns the output alone; decides nothing and runs nothing.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_ON_TERMINAL = sys.stdout.isatty()
_STARTED = time.monotonic()


def bold(text: str) -> str:
    """The text in bold where that can be shown."""
    return f"\033[1m{text}\033[0m" if _ON_TERMINAL else text


def say(*lines: str) -> None:
    """Prints lines below the current stage."""
    for line in lines:
        print(f"    {line}".rstrip(), flush=True)


def elapsed() -> float:
    """Seconds since the demo began."""
    return time.monotonic() - _STARTED


@contextmanager
def stage(number: int, of: int, what: str, *, quiet: bool = True) -> Iterator[None]:
    """Announces a stage, shows that it goes on, and says how long it took.

    Args:
        quiet: Whether what runs inside prints nothing by itself, so that a sign of life is needed.
    """
    begin = time.monotonic()
    print(bold(f"[{number}/{of}] {what}"), flush=True)
    ended = threading.Event()
    heart = threading.Thread(target=_beat, args=(ended, begin), daemon=True)
    if quiet:
        heart.start()
    try:
        yield
    finally:
        ended.set()
        if quiet:
            heart.join()
    say(f"({time.monotonic() - begin:.1f} s)")


def _beat(ended: threading.Event, begin: float) -> None:
    while not ended.wait(1.0 if _ON_TERMINAL else 15.0):
        text = f"    ... {time.monotonic() - begin:.0f} s"
        print(f"\r{text}" if _ON_TERMINAL else text, end="" if _ON_TERMINAL else "\n", flush=True)
    if _ON_TERMINAL:
        print("\r\033[K", end="", flush=True)
