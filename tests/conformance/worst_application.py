"""The test suite's worst application as a model server, whose tools pass the Inspector's strict check all the same.

Owns nothing but its start: the application is that of `tests/support/model_apps.py`, with everything a document can hold.

Usage: ``python tests/conformance/worst_application.py``; writes its port as its first line.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import uvicorn

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "support")]

from model_apps import torture_app  # noqa: E402 - needs the path above

if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(torture_app(), log_level="warning", access_log=False)).run(sockets=[listener])
