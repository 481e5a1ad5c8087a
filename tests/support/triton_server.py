"""A real Triton for tests: the server that NVIDIA publishes on PyPI, run on the CPU with models written in Python.

Owns starting, asking and ending one server process, also for the other servers of this protocol. Its models are in
`triton_models`, each with a sentence on what it is for.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import venvs

MODELS = Path(__file__).resolve().parent / "triton_models"
READY_MODELS = ("accumulate", "add", "count", "odd", "queued", "ragged", "twice", "types")
"""The models that come up by themselves."""
_START = 60.0


@dataclass(frozen=True, kw_only=True)
class Triton:
    """A running server. `events` is a folder in which models and tests leave files for each other."""

    port: int
    grpc_port: int
    metrics_port: int
    repository: Path
    events: Path
    process: subprocess.Popen[bytes]

    def get(self, path: str) -> Any:
        """The JSON at a path."""
        return json.loads(_ask(f"http://127.0.0.1:{self.port}{path}"))

    def post(self, path: str, body: Any = None) -> bytes:
        return _ask(f"http://127.0.0.1:{self.port}{path}", json.dumps(body or {}).encode())

    def load(self, model: str) -> None:
        self.post(f"/v2/repository/models/{model}/load")

    def unload(self, model: str) -> None:
        self.post(f"/v2/repository/models/{model}/unload")

    def requests(self, model: str) -> int:
        """How many requests have reached the model, by the server's own count."""
        stats = self.get(f"/v2/models/{model}/stats")["model_stats"]
        return sum(one["inference_stats"][outcome]["count"] for one in stats for outcome in ("success", "fail"))

    def executions(self, model: str) -> int:
        """How many batches the model has run."""
        return sum(one["execution_count"] for one in self.get(f"/v2/models/{model}/stats")["model_stats"])

    def kill(self) -> None:
        """End it as a crash would, with its models' processes."""
        ended(self.process)


@contextlib.contextmanager
def triton(
    folder: Path, models: Sequence[str] = READY_MODELS, *, port: int = 0, arguments: Sequence[str] = ()
) -> Iterator[Triton]:
    """The server with these models, ready to be called, at a port of its own or at this one. `folder` becomes its own."""
    python = venvs.python_of("triton")
    packages = python.parent.parent / "lib" / sysconfig_tag() / "site-packages"
    repository, backends, events = folder / "models", folder / "backends", folder / "events"
    events.mkdir(parents=True)
    for name in models:
        shutil.copytree(MODELS / name, repository / name)
    home = packages / "pytriton" / "tritonserver"
    shutil.copytree(home / "backends" / "python", backends / "python")
    stub = home / "python_backend_stubs" / sysconfig_tag().removeprefix("python") / "triton_python_backend_stub"
    shutil.copy(stub, backends / "python")
    ports = free_ports(3)
    ports[0] = port or ports[0]
    command = [
        str(home / "bin" / "tritonserver"),
        f"--model-repository={repository}",
        f"--backend-directory={backends}",
        "--http-address=127.0.0.1",
        f"--http-port={ports[0]}",
        "--grpc-address=127.0.0.1",
        f"--grpc-port={ports[1]}",
        "--metrics-address=127.0.0.1",
        f"--metrics-port={ports[2]}",
        "--allow-gpu-metrics=false",
        "--model-control-mode=explicit",
        "--load-model=*",
        "--exit-timeout-secs=3",
        "--http-header-forward-pattern=(x-request-id|traceparent|tracestate)",
        "--grpc-header-forward-pattern=(x-request-id|traceparent|tracestate)",
        *arguments,
    ]
    # The stub links this Python's library; another one of the system's would run with the wrong standard library.
    libraries = f"{sysconfig.get_config_var('LIBDIR')}:{packages / 'nvidia_pytriton.libs'}"
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": libraries,
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "VIRTUAL_ENV": str(python.parent.parent),
        "PYTHONPATH": str(packages),
        "MODEL_EVENTS": str(events),
    }
    process = started(command, folder / "log", environment, cwd=folder)
    server = Triton(
        port=ports[0],
        grpc_port=ports[1],
        metrics_port=ports[2],
        repository=repository,
        events=events,
        process=process,
    )
    try:
        until_ready(process, f"http://127.0.0.1:{server.port}/v2/health/ready", folder / "log")
        yield server
    finally:
        server.kill()


async def appears(path: Path) -> None:
    """Wait until a model has left that file: processes of another Python have no better way to say something."""
    await asyncio.to_thread(_wait_for_file, path)


def _wait_for_file(path: Path) -> None:
    until = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < until, f"no model has written {path.name}"
        time.sleep(0.01)


def sysconfig_tag() -> str:
    return f"python{sysconfig.get_python_version()}"


def started(command: Sequence[str], log: Path, environment: Mapping[str, str], *, cwd: Path) -> subprocess.Popen[bytes]:
    """A server's process, in a group of its own."""
    with log.open("wb") as file:
        return subprocess.Popen(command, env=environment, cwd=cwd, stdout=file, stderr=file, start_new_session=True)


def ended(process: subprocess.Popen[bytes]) -> None:
    """End a server with all that it started, at once."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Wait until the server answers there; its log is in the error of one that does not."""
    until = time.monotonic() + _START
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError):
            _ask(url)
            return
        time.sleep(0.05)
    raise AssertionError(f"{process.args!r} did not become ready:\n{log.read_text(errors='replace')[-4000:]}")


def _ask(url: str, body: bytes | None = None) -> bytes:
    with urllib.request.urlopen(url, data=body, timeout=60) as reply:
        found: bytes = reply.read()
    return found


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody used a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]
