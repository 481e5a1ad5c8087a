"""What is measured and what it is compared with: how each subject is started, and how it is asked.

Owns the list of subjects. The adapter is the process that runs in pods, with its own arguments and its log going where a
container's would; every other subject is a file in servers/.
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template

from servicebench import wire
from servicebench.children import START_SECONDS, Child
from servicebench.failure import BenchError
from servicebench.machine import Cores
from servicebench.programs import find
from servicebench.wire import Wire

from modelservice_api.adapter_config import AdapterConfig, ServerConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import venvs

SERVERS = Path(__file__).resolve().parent / "servers"
ADAPTER = "adapter"
DIRECT = "direct"


@dataclass(frozen=True, kw_only=True)
class Running:
    """A subject that serves. `admin_port` is the adapter's and 0 for all others."""

    child: Child
    port: int
    admin_port: int = 0


Start = Callable[[int, Cores, Path], Running]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Something to measure, and how it is asked. `start` waits until it is ready to be asked."""

    name: str
    wire: Wire
    start: Start


@contextmanager
def model_server(cores: Cores) -> Iterator[Running]:
    """The model server that all subjects ask, on the core of the load generator."""
    with Child("model-server", [sys.executable, str(SERVERS / "model_server.py")], core=cores.others) as child:
        yield Running(child=child, port=int(child.wait_for(str.isdigit)))


@contextmanager
def running(subject: Subject, backend_port: int, cores: Cores) -> Iterator[Running]:
    """A subject for the time of the block."""
    with tempfile.TemporaryDirectory(prefix="modelservice-bench-") as folder:
        started = subject.start(backend_port, cores, Path(folder))
        with started.child:
            yield started


def start_adapter(backend_port: int, cores: Cores, folder: Path, *, config: AdapterConfig | None = None) -> Running:
    """The adapter; ready when it has found the model server's tool."""
    file = folder / "config.json"
    config = config or AdapterConfig(server=ServerConfig(name="bench", version="1"))
    file.write_text(config.to_json())
    command = [sys.executable, "-m", "modelservice_sidecar", "--config", str(file), "--drain-seconds", "0"]
    command += ["--bind", "127.0.0.1", "--admin-bind", "127.0.0.1", "--mcp-port", "0", "--admin-port", "0"]
    child = Child(ADAPTER, [*command, "--backend-port", str(backend_port)], core=cores.subject)
    try:
        ready = json.loads(child.wait_for(lambda line: '"event":"ready"' in line))
        child.wait_for(lambda line: '"event":"backend"' in line and '"state":"Ready"' in line)
    except BaseException:
        child.end()
        raise
    return Running(child=child, port=ready["mcp_port"], admin_port=ready["admin_port"])


def start_nginx(backend_port: int, cores: Cores, folder: Path) -> Running:
    """nginx; it says nothing when it is ready, so it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
    config = folder / "nginx.conf"
    values = {"folder": str(folder), "backend_port": str(backend_port), "port": str(port)}
    config.write_text(Template((SERVERS / "nginx.conf").read_text()).substitute(values))
    program = find("nginx")
    assert program is not None
    child = Child("nginx", [program, "-p", str(folder), "-c", str(config)], core=cores.subject)
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except ConnectionRefusedError as error:
            if child.alive() and time.monotonic() < until:
                time.sleep(0.002)
                continue
            child.end()
            raise BenchError(f"nginx did not start; see {child.log}") from error
        return Running(child=child, port=port)


def python_server(name: str, file: str, *, python: Callable[[], str] = lambda: sys.executable) -> Start:
    """How to start one of servers/; it writes its port when it is ready."""

    def start(backend_port: int, cores: Cores, _folder: Path) -> Running:
        child = Child(name, [python(), str(SERVERS / file), str(backend_port)], core=cores.subject)
        try:
            return Running(child=child, port=int(child.wait_for(str.isdigit)))
        except BaseException:
            child.end()
            raise

    return start


NGINX = Subject(name="nginx", wire=wire.plain(), start=start_nginx)
FASTAPI = Subject(name="fastapi", wire=wire.plain(), start=python_server("fastapi", "bare_fastapi.py"))
FASTAPI_HTTPX = Subject(
    name="fastapi+httpx", wire=wire.modern(), start=python_server("fastapi-httpx", "fastapi_httpx.py")
)
SDK = Subject(name="sdk", wire=wire.modern(), start=python_server("sdk", "sdk_server.py"))
FASTMCP = Subject(
    name="fastmcp",
    wire=wire.modern(),
    # FastMCP is in an environment of its own: nothing of the product or of its tests may come to need it.
    start=python_server("fastmcp", "fastmcp_server.py", python=lambda: str(venvs.python_of("fastmcp"))),
)
OURS = Subject(name=ADAPTER, wire=wire.modern(), start=start_adapter)
OTHERS = (NGINX, FASTAPI, FASTAPI_HTTPX, SDK)
"""In front of the same model server, except `fastapi`, which is one itself."""
