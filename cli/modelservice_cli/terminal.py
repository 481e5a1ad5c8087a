"""What a person at a terminal sees and a program does not: colour, a line that tells progress, questions.

Owns when something is a terminal (`NO_COLOR` and `TERM=dumb` are respected) and the layout of tables. Decides nothing.
"""

import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TextIO

Colour = Literal["red", "green", "yellow", "bold", "dim"]

_CODES: Final[dict[Colour, str]] = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}


def is_terminal(stream: TextIO) -> bool:
    """Whether a person reads it."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def painted(text: str, colour: Colour, stream: TextIO | None = None) -> str:
    """The text in colour where a person reads it and did not ask for none."""
    if os.environ.get("NO_COLOR") or not is_terminal(stream or sys.stdout):
        return text
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m"


def painted_diff(lines: Iterable[str]) -> str:
    """A unified diff, its additions and removals in colour."""
    colours: dict[str, Colour] = {"+": "green", "-": "red", "@": "dim"}
    return "\n".join(painted(line, colours[line[0]]) if line[:1] in colours else line for line in lines)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell."""
    cells = [list(head), *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def print_json(value: Any) -> None:
    """A document for programs."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def note(text: str) -> None:
    """Something beside the result, on standard error."""
    print(text, file=sys.stderr, flush=True)


def ask(question: str) -> bool:
    """A yes or no from the person at the terminal; no where nobody is there."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


class Progress:
    """One line on standard error that is written over; nothing where no person reads it."""

    def __init__(self) -> None:
        self._shown = is_terminal(sys.stderr)
        self._started = time.monotonic()

    def tell(self, text: str) -> None:
        """The line as it now is."""
        if self._shown:
            seconds = time.monotonic() - self._started
            print(f"\r\x1b[K{text} ({seconds:.0f} s)"[:200], end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """The line goes."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
