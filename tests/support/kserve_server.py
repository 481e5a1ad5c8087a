"""A real server made with the KServe SDK for tests: speaks JSON and bytes without saying so, and has no model config.

Owns starting and ending it. The program that it runs is `kserve_model`.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import venvs
from triton_server import ended, free_ports, started, until_ready

PROGRAM = Path(__file__).resolve().parent / "kserve_model.py"


@dataclass(frozen=True, kw_only=True)
class KServe:
    """A running server."""

    port: int
    log: Path

    @property
    def requests(self) -> int:
        """How many requests have reached the model `sums`, by its own count."""
        return len(self.log.read_text()) if self.log.exists() else 0


@contextlib.contextmanager
def kserve(folder: Path) -> Iterator[KServe]:
    """The server with its one model, ready to be called."""
    (port,) = free_ports(1)
    counted = folder / "requests"
    options = [f"--http_port={port}", f"--counted_in={counted}"]
    command = [str(venvs.python_of("kserve")), str(PROGRAM), *options]
    process = started(command, folder / "log", dict(os.environ), cwd=folder)
    try:
        until_ready(process, f"http://127.0.0.1:{port}/v2/health/ready", folder / "log")
        yield KServe(port=port, log=counted)
    finally:
        ended(process)
