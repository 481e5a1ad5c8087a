"""The adapter as pods run it, except that it looks at its model server every 0.2 s instead of every 10.

Owns that one difference: the suite changes the tools and waits 1.5 s for the notification. Everything else is the adapter's
own command, on ports of the kernel's choice.

Usage: ``python tests/conformance/adapter_process.py BACKEND_PORT``
"""

from __future__ import annotations

import sys

from modelservice_api.adapter_config import AdapterConfig, ServerConfig
from modelservice_sidecar.__main__ import run
from modelservice_sidecar.app import Options, create_app
from modelservice_sidecar.discovery import Pace
from modelservice_sidecar.server import Listen


def main(backend_port: int) -> int:
    """Serve until a signal; the exit code."""
    config = AdapterConfig(server=ServerConfig(name="conformance", version="1"))
    adapter = create_app(config, options=Options(backend_port=backend_port, pace=Pace(steady=0.2)))
    listen = Listen(mcp_host="127.0.0.1", mcp_port=0, admin_host="127.0.0.1", admin_port=0, drain_seconds=0.0)
    return run(adapter, listen)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
