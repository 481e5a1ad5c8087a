"""The one error that this command ends with on purpose. Its text says what was wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Sequence


class ClusterError(Exception):
    """Something that a person can mend stands in the way.

    ``ClusterError``
    └── ``CommandError``  a program that we called failed
    """


class CommandError(ClusterError):
    """A program that we called ended with an error or took too long."""

    def __init__(self, command: Sequence[str], outcome: str, output: str) -> None:
        shown = " ".join(command)
        super().__init__(f"{shown[:400]}: {outcome}\n{_last_lines(output)}".rstrip())
        self.command = tuple(command)
        self.output = output


def _last_lines(text: str, count: int = 25) -> str:
    return "\n".join("    " + line for line in text.strip().splitlines()[-count:])
