"""How a command ends: the table of exit codes, and the one error that a command raises.

Owns the codes and what each means; `docs/reference/cli.md` is generated from here. Prints nothing.
"""

from typing import Final

OK: Final = 0
NO: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
REFUSED: Final = 4
INTERRUPTED: Final = 130

EXIT_CODES: Final = {
    OK: "Done as asked, or the answer is yes.",
    NO: "The answer is no: not ready, not there, not in time, an error of the tool, or findings of a check.",
    USAGE: "The arguments, or what came through the pipe, cannot be obeyed.",
    UNREACHABLE: "What the command needs is not there: kubectl, the cluster, the ModelService CRD, or a free port (`dev`).",
    REFUSED: "Refused: by the rules of adoption, by the API server, or by an MCP server that wants a token.",
    INTERRUPTED: "Interrupted with Ctrl+C.",
}


class CommandError(Exception):
    """A command cannot go on; the text says what is wrong, where, and what to do."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
