"""A collector for tests: takes spans over OTLP/HTTP as the product's, the client's and the model server's exporters send them.

Owns the receiving and one form for what came, whether it came as protobuf or as JSON. Answers as a collector does.
"""

import contextlib
import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True, kw_only=True)
class Span:
    """One span as it was received. Ids are hex; `parent_id` is empty for a root."""

    service: str
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    started: int
    ended: int
    attributes: dict[str, Any]
    failed: bool
    state: str = ""


@dataclass(kw_only=True)
class Collector:
    """A running receiver. `raw` is every body as it came, unpacked."""

    port: int = 0
    status: int = 200
    spans: list[Span] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    _news: threading.Condition = field(default_factory=threading.Condition)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_for(self, what: Callable[[list[Span]], bool], seconds: float = 20) -> list[Span]:
        """All spans, once they are so."""
        until = time.monotonic() + seconds
        with self._news:
            while not what(self.spans):
                left = until - time.monotonic()
                assert left > 0, [f"{span.service}: {span.name}" for span in self.spans]
                self._news.wait(left)
            return list(self.spans)

    def wait_for_requests(self, count: int, seconds: float = 20) -> None:
        """Until so many requests came, taken or refused."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.raw) >= count, seconds), len(self.raw)

    def take(self, body: bytes, content_type: str) -> None:
        spans = list(_read(body, content_type)) if self.status == 200 else []
        with self._news:
            self.raw.append(body)
            self.spans += spans
            self._news.notify_all()


@contextlib.contextmanager
def collector() -> Iterator[Collector]:
    """A receiver on loopback, in threads of its own."""
    running = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            kind = self.headers.get("content-type", "")
            running.take(body, kind) if self.path == "/v1/traces" else self.send_error(404)
            self.send_response(running.status)
            self.send_header("content-type", kind)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    running.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _read(body: bytes, content_type: str) -> Iterator[Span]:
    if "json" in content_type:
        document = json.loads(body)
    else:
        message = ExportTraceServiceRequest()
        message.ParseFromString(body)
        # Protobuf's JSON has ids in base64, OTLP's in hex.
        for resource in message.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    yield _span(
                        {**MessageToDict(span), "kind": span.kind},
                        _values(MessageToDict(resource.resource).get("attributes", [])),
                        ids=(span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()),
                    )
        return
    for resource in document["resourceSpans"]:
        about = _values(resource.get("resource", {}).get("attributes", []))
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                ids = (span["traceId"], span["spanId"], span.get("parentSpanId", ""))
                yield _span(span, about, ids=(ids[0].lower(), ids[1].lower(), ids[2].lower()))


_KINDS = {0: "", 1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}


def _span(span: dict[str, Any], about: dict[str, Any], *, ids: tuple[str, str, str]) -> Span:
    kind = span.get("kind", 0)
    return Span(
        service=str(about.get("service.name", "")),
        name=span["name"],
        kind=_KINDS[kind] if isinstance(kind, int) else kind.removeprefix("SPAN_KIND_").lower(),
        trace_id=ids[0],
        span_id=ids[1],
        parent_id=ids[2],
        started=int(span["startTimeUnixNano"]),
        ended=int(span["endTimeUnixNano"]),
        attributes=_values(span.get("attributes", [])),
        failed=span.get("status", {}).get("code") in {2, "STATUS_CODE_ERROR"},
        state=span.get("traceState", ""),
    )


def _values(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    found = {}
    for attribute in attributes:
        [(kind, value)] = attribute["value"].items() or [("", None)]
        found[attribute["key"]] = int(value) if kind == "intValue" else value
    return found
