"""The adapter as one value: `create_app(config, clock)` and nothing global.

Owns the composition: which middleware stands where, what is swapped when configuration or tools change, and the order of
starting and stopping. It is an ASGI application for the MCP port; its `admin` is one for the admin port.
"""

import asyncio
import importlib
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from modelservice_api.adapter_config import AdapterConfig, AdapterReport, BackendReport, LoggingConfig, ToolsReport
from modelservice_sidecar import inbound as requests
from modelservice_sidecar import log, memory, vetting
from modelservice_sidecar.admin_http import AdminEndpoint
from modelservice_sidecar.auth.pace import KeyPace
from modelservice_sidecar.backends.base import Backend, Description
from modelservice_sidecar.calls import NOT_FOUND_YET, Calls, Snapshot
from modelservice_sidecar.clock import Clock
from modelservice_sidecar.config_file import BadDocumentError, ConfigFile
from modelservice_sidecar.core import revisions, trace
from modelservice_sidecar.core.catalogue import Catalogue
from modelservice_sidecar.core.redaction import Redactor
from modelservice_sidecar.discovery import Discovery, Pace
from modelservice_sidecar.exchange import Timing
from modelservice_sidecar.inbound import ASGIApp, Receive, Scope, Send
from modelservice_sidecar.log import LineWriter
from modelservice_sidecar.mcp_http import McpEndpoint
from modelservice_sidecar.middleware import auth as gates
from modelservice_sidecar.middleware.body import Body
from modelservice_sidecar.middleware.context import Context, new_hex
from modelservice_sidecar.middleware.drain import Drain
from modelservice_sidecar.middleware.origin import Origin
from modelservice_sidecar.peers import Peers
from modelservice_sidecar.pipeline.chain import Pipeline
from modelservice_sidecar.published import Published, publish
from modelservice_sidecar.rpc_http import RpcEndpoint
from modelservice_sidecar.spans import TracingUnavailableError
from modelservice_sidecar.subscriptions import Subscriptions
from modelservice_sidecar.telemetry import Telemetry
from modelservice_sidecar.upstream import Pool
from modelservice_sidecar.v2_http import OFF, V2Endpoint

if TYPE_CHECKING:
    from modelservice_sidecar.auth.verifier import Verifier

LIST_TTL_MS: Final = 5_000
LIST_TTL_MS_BEFORE_READY: Final = 1_000
CONFIG_POLL: Final = 2.0
RPC_PATHS: Final = frozenset({"/rpc", "/rpc/"})
_IN_PROCESSES: Final = frozenset({"TVM", "Torch", "ONNX"})
"""Kinds whose models run in the adapter's own processes; two of them may not find room on one device."""
_SPARE_CONNECTIONS: Final = 2
"""For discovery, so that it never waits behind calls that hang."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What is not in the config document: facts about this process.

    `config_poll` is seconds between looks at the config file, if there is one.
    """

    backend_host: str = "127.0.0.1"
    backend_port: int = 8000
    config_file: ConfigFile | None = None
    config_poll: float = CONFIG_POLL
    pace: Pace = field(default_factory=Pace)
    timing: Timing = field(default_factory=Timing)
    key_pace: KeyPace = field(default_factory=KeyPace)
    credential: str = field(default="", repr=False)
    """What the model server asks of the adapter; sent as `backend.credential` of the config document says."""


class Adapter:
    """ASGI application of the MCP port; start and stop it by the lifespan protocol or by `start` and `aclose`."""

    def __init__(self, config: AdapterConfig, clock: Clock, options: Options, writer: LineWriter) -> None:
        self.config = config
        self.draining = False
        self.last_request = 0.0
        """When the last request came since draining began, on the loop's clock."""
        self.writer = writer
        self.subscriptions = Subscriptions()
        self.telemetry = Telemetry(writer=writer, wall=clock.wall)
        self._options = options
        self._tasks: list[asyncio.Task[None]] = []
        self._pipeline = Pipeline(config, self.telemetry, monotonic=clock.monotonic)
        self._pool = Pool(
            options.backend_host,
            options.backend_port,
            max_connections=config.limits.max_concurrency + _SPARE_CONNECTIONS,
        )
        self._pool.credential = _credential(config, options.credential)
        self._file = options.config_file
        self.config_error = "" if self._file is None else self._file.problem
        """What is wrong with a newer document than the one that is obeyed."""
        self._config_loaded_at = clock.wall()
        self._published = Published()
        self._backend: Backend | None = None
        self._conflict: str | None = None
        self._warmed: Description | None = None
        self._peers = self._find_peers(config)
        self._clock = clock
        self._verifier: Verifier | None = _new_verifier(clock, options, writer) if config.auth is not None else None
        self._gate = self._find_gate(config)
        self._snapshot = self._take_snapshot()
        self.discovery = Discovery(
            self._pool, config, on_found=self._publish, on_left=self._retire, writer=writer, pace=options.pace
        )
        self.calls = Calls(
            snapshot=self.snapshot,
            telemetry=self.telemetry,
            monotonic=clock.monotonic,
            until_found=self.discovery.until_found,
            until_looked=self.discovery.until_looked,
            look_now=self.discovery.look_now,
        )
        self.admin: ASGIApp = AdminEndpoint(
            report=self.report, draining=lambda: self.draining, telemetry=self.telemetry, monotonic=clock.monotonic
        )
        self._mcp: ASGIApp = McpEndpoint(
            calls=self.calls,
            snapshot=self.snapshot,
            subscriptions=self.subscriptions,
            telemetry=self.telemetry,
            timing=options.timing,
            wall=clock.wall,
        )
        self._rpc: ASGIApp = RpcEndpoint(
            calls=self.calls, snapshot=self.snapshot, telemetry=self.telemetry, timing=options.timing
        )
        self._v2: ASGIApp = V2Endpoint(
            calls=self.calls,
            snapshot=self.snapshot,
            telemetry=self.telemetry,
            timing=options.timing,
            draining=lambda: self.draining,
        )
        self._http = self._stack(clock)
        self._add_gauges()

    def _stack(self, clock: Clock) -> ASGIApp:
        """The MCP port's layers, innermost first."""
        app: ASGIApp = self._endpoint
        app = Body(
            app,
            limit=lambda: self.config.limits.max_body_bytes,
            on_reject=self.telemetry.rejected,
            monotonic=clock.monotonic,
        )
        app = gates.Auth(app, gate=lambda: self._gate, on_outcome=self.telemetry.authenticated)  # before a body is read
        app = Origin(app, config=lambda: self.config.mcp, on_reject=self.telemetry.rejected)
        app = Drain(
            app, draining=lambda: self.draining, on_request=self._note_request
        )  # refusals, too, send their client elsewhere
        return Context(app, writer=self.writer, monotonic=clock.monotonic)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)

    async def _endpoint(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Exact paths only, with or without a final slash; nothing is redirected, which would lose a POST's body."""
        path = scope["path"]
        mcp_path = self.config.mcp.path
        # raw_path: an encoded spelling of a path is another path to every proxy in front of us.
        if scope.get("raw_path", path.encode()) != path.encode():
            await self._not_found(scope, send)
        elif path == mcp_path or path == mcp_path.rstrip("/") + "/":
            await self._mcp(scope, receive, send)
        elif path in RPC_PATHS:
            await self._rpc(scope, receive, send)
        elif (path == "/v2" or path.startswith("/v2/")) and self.config.mcp.binary_transfer:
            await self._v2(scope, receive, send)
        else:
            await self._not_found(scope, send)

    async def _not_found(self, scope: Scope, send: Send) -> None:
        self.telemetry.rejected("path")
        mcp_path = f"Not found; MCP is served at {self.config.mcp.path}"
        message = OFF if scope["path"].startswith("/v2/") else mcp_path
        await requests.refuse(requests.of(scope), send, 404, message)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await self.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    def snapshot(self) -> Snapshot:
        """All that a call needs, as it is now."""
        return self._snapshot

    @property
    def catalogue(self) -> Catalogue:
        """The tools that are published now."""
        return self._published.catalogue

    def report(self) -> AdapterReport:
        """What the operator asks for."""
        catalogue = self._published.catalogue
        return AdapterReport(
            server=self.config.server,
            config_digest=self.config.digest(),
            config_error=self.config_error,
            backend=self.discovery.report,
            tools=ToolsReport(count=len(catalogue.tools), hash=catalogue.hash, names=catalogue.names),
            protocol_versions=revisions.ALL,
        )

    async def start(self) -> None:
        """Begin to look for the model server, for the keys of tokens, and at the config file."""
        if self._verifier is not None:
            self._verifier.configure(self.config.auth)
        await self._configure_tracing(self.config)
        self._tasks.append(asyncio.create_task(self.discovery.run()))
        if self._file is not None:
            self._tasks.append(asyncio.create_task(self._watch_config(self._file)))

    async def aclose(self) -> None:
        """Stop the background work and close every connection to the model server."""
        self.subscriptions.close()
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        self._tasks.clear()
        left = self._backend
        if left is not None and not self.discovery.looks_at(left):
            await left.aclose()
        await self.discovery.aclose()
        await self._pool.aclose()
        await self._pipeline.aclose()
        if self._verifier is not None:
            await self._verifier.aclose()
        if self._peers is not None:
            await self._peers.aclose()
        await self.telemetry.tracing.aclose()
        self.writer.flush()

    def begin_drain(self) -> None:
        """Say to everybody that this process is leaving; keep serving."""
        self.draining = True
        self.subscriptions.refuse_new()

    def _note_request(self) -> None:
        self.last_request = asyncio.get_running_loop().time()

    async def reconfigure(self, config: AdapterConfig) -> None:
        """Obey another configuration from the next call on; calls in flight finish on the old one."""
        if config.auth is not None and self._verifier is None:
            await asyncio.to_thread(importlib.import_module, "modelservice_sidecar.auth.verifier")
            self._verifier = _new_verifier(self._clock, self._options, self.writer)
        before, self.config = self.config, config
        if self._verifier is not None and config.auth != before.auth:
            self._verifier.configure(config.auth)
        self._gate = self._find_gate(config)
        self._pool.resize(config.limits.max_concurrency + _SPARE_CONNECTIONS)
        self._pool.credential = _credential(config, self._options.credential)
        if config.peers != before.peers:
            # Calls in flight keep the old peers until they end; their connections are never reused.
            self._peers = self._find_peers(config)
        self._snapshot = self._take_snapshot()
        if (config.tracing, config.server) != (before.tracing, before.server):
            await self._configure_tracing(config)
        if (config.backend, config.model) != (before.backend, before.model):
            await self.discovery.reconfigure(config)
        elif (config.tools, config.warm_up) != (before.tools, before.warm_up):
            await self.discovery.republish()

    async def _watch_config(self, file: ConfigFile) -> None:
        while True:
            if file.changed():
                await self._reload(file)
            await asyncio.sleep(self._options.config_poll)

    async def _reload(self, file: ConfigFile) -> None:
        """Obey the document as it is now. One that cannot be obeyed changes nothing but what is said about it."""
        before = self.config
        try:
            config = file.read()
            if config is not None and config != before:
                await self.reconfigure(config)
                self.writer.event("config_loaded", digest=config.digest())
        except BadDocumentError as error:
            self.config_error = str(error)
            self.writer.event("config_rejected", message=f"{error}. The configuration stays as it was.")
        except Exception as error:  # noqa: BLE001 - a fault of ours must not end the watch: the next document may be well
            self.config = before
            if self._verifier is not None:
                self._verifier.configure(before.auth)
            self._gate = self._find_gate(before)
            self._snapshot = self._take_snapshot()
            self.config_error = f"{file.path}: this version of the adapter cannot obey it ({type(error).__name__})"
            self.writer.event(
                "config_rejected",
                message=f"{self.config_error}. The configuration stays as it was.",
                error=log.fault(error),
            )
        else:
            self.config_error = ""
            self._config_loaded_at = self._clock.wall()

    async def _configure_tracing(self, config: AdapterConfig) -> None:
        try:
            await self.telemetry.tracing.configure(config.tracing, config.server)
        except TracingUnavailableError as error:
            self.writer.event("tracing_unavailable", message=str(error))

    def _retire(self, backend: Backend) -> None:
        """Close a backend that is no longer looked at, when its last call has ended or its time is up.

        One that still answers does so until its successor does; but what runs in processes of ours makes room for it.
        """
        if backend is self._backend:
            if backend.kind not in _IN_PROCESSES:
                return
            self._backend = None
            self._snapshot = self._take_snapshot()

        async def close(seconds: float) -> None:
            try:
                await self.calls.until_left(backend, seconds)
            finally:
                await backend.aclose()

        self._tasks.append(asyncio.create_task(close(self._snapshot.config.limits.timeout)))

    async def _publish(self, backend: Backend, description: Description) -> BackendReport:
        """Swap in what was found if it may be published, tell who listens, and say how it went."""
        config = self.config
        self._conflict = vetting.conflict(config.model, description)
        if self._conflict is not None:
            self._swap(Published(), None)
            return BackendReport(type=description.kind, state="ModelSpecConflict", message=self._conflict)
        published = await asyncio.to_thread(publish, description.tools, config.tools, description.notes)
        memory.give_back()
        if any(tool.tool.spec.signature is not None for tool in published.tools.values()):
            memory.keep_for_tensors()
        if config.warm_up and self._warmed is not description:
            failed = await self._warm_up(backend, description, published)
            if failed is not None:
                return BackendReport(type=description.kind, state="WarmingUp", message=failed)
            self._warmed = description
        self._swap(published, backend)
        return _report(description, published)

    async def _warm_up(self, backend: Backend, description: Description, published: Published) -> str | None:
        def on_call(message: str) -> None:
            self.discovery.tell(BackendReport(type=description.kind, state="WarmingUp", message=message))

        return await vetting.warm_up(
            backend,
            published,
            self.config.warm_up,
            seconds=self.config.limits.timeout,
            new_ids=lambda: trace.choose(trace.Wanted(), trace.Wanted(), new_hex),
            on_call=on_call,
        )

    def _swap(self, published: Published, backend: Backend | None) -> None:
        changed = published.catalogue.hash != self._published.catalogue.hash
        self._published = published
        before, self._backend = self._backend, backend
        self._snapshot = self._take_snapshot()
        if before is not None and before is not backend and not self.discovery.looks_at(before):
            self._retire(before)
        if changed:
            self.subscriptions.tools_changed()

    def _find_peers(self, config: AdapterConfig) -> Peers | None:
        if not config.peers.host:
            return None
        return Peers(config.peers, leaving=lambda: self.draining, max_connections=config.limits.max_concurrency)

    def _find_gate(self, config: AdapterConfig) -> gates.Gate | None:
        if config.auth is None or self._verifier is None:
            return None
        return gates.gate(config, config.auth, self._verifier)

    def _take_snapshot(self) -> Snapshot:
        access = gates.access_of(self.config.auth)
        return Snapshot(
            config=self.config,
            published=self._published,
            pipeline=self._pipeline.build(self.config, self._published, peers=self._peers, access=access),
            backend=self._backend,
            access=access,
            for_anonymous=self._published.only(access.anonymous_tools),
            redactor=_redactor(self.config.logging),
            list_ttl_ms=LIST_TTL_MS if self._backend is not None else LIST_TTL_MS_BEFORE_READY,
            why_not=NOT_FOUND_YET
            if self._conflict is None
            else f"The model is not what was declared: {self._conflict}",
        )

    def _add_gauges(self) -> None:
        gauge = self.telemetry.gauge
        self.telemetry.info(
            "modelservice_info",
            "1, with the ModelService's name and the version of its model.",
            ("server", "version"),
            lambda: (self.config.server.name, self.config.server.version),
        )
        gauge(
            "modelservice_config_last_reload_successful",
            "Whether the newest config document is the one that is obeyed.",
            lambda: float(not self.config_error),
        )
        gauge(
            "modelservice_config_last_reload_success_timestamp_seconds",
            "When a good config document was read last, in seconds since the epoch.",
            lambda: self._config_loaded_at,
        )
        gauge("modelservice_calls_in_flight", "Tool calls being answered.", lambda: self.calls.in_flight)
        gauge("modelservice_calls_waiting", "Tool calls waiting for a slot.", lambda: self._pipeline.limiter.waiting)
        gauge("modelservice_tools", "Published tools.", lambda: len(self._published.tools))
        gauge("modelservice_listen_streams", "Open subscriptions/listen streams.", lambda: self.subscriptions.count)
        gauge(
            "modelservice_backend_connections", "Open connections to the model server.", lambda: self._pool.connections
        )
        gauge(
            "modelservice_backend_up",
            "Whether the model server was found and understood.",
            lambda: float(self.discovery.report.state == "Ready"),
        )
        gauge(
            "modelservice_auth_keys_age_seconds",
            "How long ago the keys for tokens were last known to be right.",
            lambda: self._verifier.age if self._verifier is not None else 0.0,
        )


def create_app(
    config: AdapterConfig,
    clock: Clock | None = None,
    *,
    options: Options | None = None,
    writer: LineWriter | None = None,
) -> Adapter:
    """An adapter for this configuration. Nothing runs until it is started."""
    clock = clock or Clock()
    return Adapter(config, clock, options or Options(), writer or LineWriter(now=clock.wall))


def _new_verifier(clock: Clock, options: Options, writer: LineWriter) -> "Verifier":
    from modelservice_sidecar.auth.verifier import Verifier  # ten megabytes for who asks for tokens alone

    def tell(issuer: str, message: str) -> None:
        writer.event("auth_keys", issuer=issuer, message=message)

    return Verifier(pace=options.key_pace, wall=clock.wall, monotonic=clock.monotonic, tell=tell)


def _redactor(config: LoggingConfig) -> Redactor | None:
    if config.bodies == "Off":
        return None
    return Redactor(config.redact_keys, config.redact_patterns, config.max_body_bytes)


def _credential(config: AdapterConfig, value: str) -> tuple[str, str] | None:
    """The header by which the adapter shows itself to the model server, `None` where it has nothing to show."""
    settings = config.backend.credential
    if settings is None or not value:
        return None
    return settings.header, f"{settings.scheme} {value}".strip()


def _report(description: Description, published: Published) -> BackendReport:
    catalogue = published.catalogue
    said = " ".join([*filter(None, [description.because]), *catalogue.notes[:3]])
    if len(catalogue.notes) > 3:
        said += f" And {len(catalogue.notes) - 3} more."
    if not catalogue.tools:
        message = said or "The model server offers no operation and no model that is published."
        return BackendReport(type=description.kind, state="NoTools", message=message)
    return BackendReport(type=description.kind, state="Ready", message=said)
