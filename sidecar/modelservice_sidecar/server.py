"""Both ports from one process and one loop: binding, running, draining, ending.

Owns the order of a graceful end, which is what keeps calls from being lost in a rollout:

    SIGTERM   readiness says 503, answers carry `Connection: close`, no new listen stream; calls are served as before
    + drain   at least `drain_seconds`, then for as long as requests still come (`core.draining`), at most
              `drain_most_seconds`; a second signal shortens it
    stop      no new connections; listen streams get their final frame; calls in flight finish, within their deadline
    exit 0
"""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from modelservice_sidecar import memory
from modelservice_sidecar.app import Adapter
from modelservice_sidecar.core.draining import end_of_drain
from modelservice_sidecar.inbound import ASGIApp
from modelservice_sidecar.protocol import Limits, limited
from modelservice_sidecar.telemetry import LogBridge
from modelservice_sidecar.uvicorn_parts import Config, Server

BACKLOG = 1024
KEEP_ALIVE = 75
"""Seconds an idle connection stays open: longer than gateways keep theirs, so that they are the ones to close."""
SWITCH = 0.001
"""Seconds after which a thread that works gives way to the loop; Python's own five milliseconds are a whole call."""
_FINISH_SPARE = 2.0


class PortTakenError(Exception):
    """An address cannot be bound; the text is a sentence for who started the process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listen:
    """Where to listen, and how long to drain."""

    mcp_host: str = "0.0.0.0"  # noqa: S104 - a sidecar is reached through its pod's address
    mcp_port: int = 8931
    admin_host: str = "0.0.0.0"  # noqa: S104 - so are its probes
    admin_port: int = 8932
    drain_seconds: float = 5.0
    drain_most_seconds: float = 20.0
    limits: Limits = field(default_factory=Limits)


class PortServer(Server):
    """uvicorn's server without its signal handling: two of them share this process."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(host: str, port: int) -> list[socket.socket]:
    """Listening sockets for an address; all of IPv4 brings all of IPv6 where the machine has it.

    Raises:
        PortTakenError: the address cannot be bound.
    """
    sockets = [_bind(host, port)]
    if host == "0.0.0.0":  # noqa: S104 - compared, not bound
        with suppress(PortTakenError):
            sockets.append(_bind("::", sockets[0].getsockname()[1]))
    return sockets


async def serve(adapter: Adapter, listen: Listen, *, on_ready: "asyncio.Event | None" = None) -> None:
    """Serve until a signal ends it.

    Raises:
        PortTakenError: one of the addresses cannot be bound.
    """
    mcp_sockets = bind(listen.mcp_host, listen.mcp_port)
    try:
        admin_sockets = bind(listen.admin_host, listen.admin_port)
    except PortTakenError:
        for sock in mcp_sockets:
            sock.close()
        raise
    _bridge_logging(adapter)
    stop, hurry = asyncio.Event(), asyncio.Event()
    _handle_signals(stop, hurry)
    mcp, admin = make_server(adapter, listen.limits), make_server(adapter.admin, listen.limits)
    # Admin first: liveness must answer before anything that could hang is started.
    serving = [
        asyncio.create_task(admin.serve(sockets=admin_sockets)),
        asyncio.create_task(mcp.serve(sockets=mcp_sockets)),
    ]
    await adapter.start()
    await admin.up.wait()
    await mcp.up.wait()
    memory.settle()
    sys.setswitchinterval(SWITCH)
    adapter.writer.event(
        "ready",
        mcp_port=mcp_sockets[0].getsockname()[1],
        admin_port=admin_sockets[0].getsockname()[1],
        config_digest=adapter.config.digest(),
    )
    if on_ready is not None:
        on_ready.set()
    ended = asyncio.ensure_future(stop.wait())
    await asyncio.wait([ended, *serving], return_when=asyncio.FIRST_COMPLETED)
    await _drain(adapter, listen, mcp, hurry)
    await serving[1]
    admin.should_exit = True
    await serving[0]
    await adapter.aclose()
    adapter.writer.event("stopped")
    adapter.writer.flush(patience=0.5)


async def _drain(adapter: Adapter, listen: Listen, mcp: Server, hurry: asyncio.Event) -> None:
    adapter.begin_drain()
    adapter.writer.event("draining", seconds=listen.drain_seconds, in_flight=adapter.calls.in_flight)
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not hurry.is_set():
        until = end_of_drain(
            began=began,
            last_request=adapter.last_request,
            least=listen.drain_seconds,
            most=listen.drain_most_seconds,
        )
        if loop.time() >= until:
            break
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await hurry.wait()
    adapter.subscriptions.close()
    # A call that came last has its whole time; only then is it cut.
    mcp.config.timeout_graceful_shutdown = int(adapter.config.limits.timeout + _FINISH_SPARE) + 1
    mcp.should_exit = True
    adapter.writer.event("stopping", in_flight=adapter.calls.in_flight)
    asyncio.ensure_future(_force_when(hurry, mcp)).add_done_callback(lambda _: None)


async def _force_when(hurry: asyncio.Event, mcp: Server) -> None:
    """After a second signal nobody is waited for."""
    await hurry.wait()
    mcp.force_exit = True


def make_server(app: ASGIApp, limits: Limits) -> PortServer:
    """uvicorn for one port, with our bounds and without its own log."""
    return PortServer(
        Config(
            app,
            http=limited(limits),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE,
            backlog=BACKLOG,
        )
    )


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise PortTakenError(f"Cannot listen on {host} port {port}: {error.strerror or error}") from error
    return sock


def _handle_signals(stop: asyncio.Event, hurry: asyncio.Event) -> None:
    def on_signal() -> None:
        (hurry if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)


def _bridge_logging(adapter: Adapter) -> None:
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    root = logging.getLogger()
    if not any(isinstance(handler, LogBridge) for handler in root.handlers):
        root.addHandler(LogBridge(adapter.writer))
