"""How the Python subjects serve: uvicorn as its users run it when they care (uvloop, httptools, no access log).

Owns the first line of output, the port, written when the application has started.
"""

from __future__ import annotations

import socket
from typing import Any

import uvicorn


class AnnouncingServer(uvicorn.Server):
    """Writes its port once it serves."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        assert sockets is not None
        print(sockets[0].getsockname()[1], flush=True)


def serve(app: Any) -> None:
    """Serve on a port of the kernel's choice until a signal."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    config = uvicorn.Config(app, loop="uvloop", http="httptools", log_level="warning", access_log=False)
    AnnouncingServer(config).run(sockets=[listener])
