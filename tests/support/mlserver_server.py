"""A real MLServer for tests: speaks JSON only, has no model config, and checks neither type nor shape of what comes in.

Owns starting and ending it. Its models are in `mlserver_models`.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import venvs
from triton_server import ended, free_ports, started, until_ready

MODELS = Path(__file__).resolve().parent / "mlserver_models"


@dataclass(frozen=True, kw_only=True)
class MLServer:
    """A running server."""

    port: int
    grpc_port: int
    folder: Path

    @property
    def requests(self) -> int:
        """How many requests have reached the model `sums`, by its own count."""
        log = self.folder / "sums" / "requests"
        return len(log.read_text()) if log.exists() else 0


@contextlib.contextmanager
def mlserver(folder: Path) -> Iterator[MLServer]:
    """The server with its two models, ready to be called."""
    shutil.copytree(MODELS, folder, dirs_exist_ok=True)
    ports = free_ports(3)
    settings = {"host": "127.0.0.1", "parallel_workers": 0, "debug": False}
    named = dict(zip(("http_port", "grpc_port", "metrics_port"), ports, strict=True))
    (folder / "settings.json").write_text(json.dumps({**settings, **named}))
    command = [str(venvs.python_of("mlserver").parent / "mlserver"), "start", str(folder)]
    process = started(command, folder / "log", dict(os.environ), cwd=folder)
    try:
        until_ready(process, f"http://127.0.0.1:{ports[0]}/v2/health/ready", folder / "log")
        yield MLServer(port=ports[0], grpc_port=ports[1], folder=folder)
    finally:
        ended(process)
