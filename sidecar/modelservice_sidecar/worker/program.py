"""The worker: loads one model and runs it on what the adapter sends, one frame after another, until the adapter is gone.

Owns the process. It is started as a file, by whatever interpreter holds the model's runtime, and may therefore import only
Python, numpy, msgspec and that runtime. It never answers before it is asked and never outlives the adapter.

Usage: ``python program.py RUNTIME SOCKET PARENT MODEL``: a runtime's name, the number of an open socket, the adapter's process
id, and the model's file, which is there for people who look at the list of processes.
"""

import ctypes
import importlib
import os
import signal
import socket
import sys
import types
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Serve until the adapter closes its end; the exit code."""
    runtime, descriptor, parent, _ = arguments
    _end_with(int(parent))
    _import_from_here()
    try:
        serving = importlib.import_module("modelservice_sidecar.worker.serving")
    except ModuleNotFoundError as error:
        if error.name not in {"msgspec", "numpy"}:
            raise
        return 78  # wire.EXIT_BARE_INTERPRETER, which could not be imported
    with socket.socket(fileno=int(descriptor)) as connection:
        serving.serve(connection, runtime)
    return 0


def _end_with(parent: int) -> None:
    """Have the kernel end this process when the adapter ends, however it ends and whatever the model does by then."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was told
        os._exit(0)


def _import_from_here() -> None:
    """Make the adapter's package importable without its neighbours, which belong to another interpreter."""
    package = types.ModuleType("modelservice_sidecar")
    package.__path__ = [str(_PACKAGE)]
    sys.modules["modelservice_sidecar"] = package


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
