"""Asking running adapters: their report, and an MCP handshake through the Service.

Owns the two requests, their time limits and size limits. The operator opens no other connection than these and the API
server's. Answers come from pods that users run, so everything in them is checked and bounded.
"""

import json
import urllib.parse
from typing import Any, Protocol

import pydantic
import urllib3
import urllib3.exceptions

from modelservice_api.adapter_config import AdapterReport
from modelservice_operator.core.observed import Handshake

MCP_REVISION = "2026-07-28"

_TIMEOUT = urllib3.Timeout(connect=1.0, read=3.0)
_MAX_BYTES = 1024 * 1024
_META_PREFIX = "io.modelcontextprotocol"
_RESOURCE_METADATA = "/.well-known/oauth-protected-resource"


class Adapters(Protocol):
    """What gather asks of running adapters."""

    def report(self, host: str, port: int) -> AdapterReport | None:
        """The report of the adapter at a pod's admin port, None when none can be had now."""

    def handshake(self, url: str, expected_name: str) -> Handshake:
        """An MCP `server/discover` through the published address."""


class HttpAdapters:
    """`Adapters` over HTTP."""

    def __init__(self) -> None:
        """One small pool: an adapter is asked rarely, and connections must not hold up its drain."""
        self._http = urllib3.PoolManager(num_pools=16, maxsize=2, retries=False, timeout=_TIMEOUT)

    def report(self, host: str, port: int) -> AdapterReport | None:
        """The report of the adapter at a pod's admin port, None when none can be had now."""
        address = f"[{host}]" if ":" in host else host
        try:
            status, body = self._fetch("GET", f"http://{address}:{port}/tools")
            return AdapterReport.model_validate_json(body) if status == 200 else None
        except (urllib3.exceptions.HTTPError, pydantic.ValidationError):
            return None

    def handshake(self, url: str, expected_name: str) -> Handshake:
        """An MCP `server/discover` through the published address."""
        request = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "server/discover",
            "params": {
                "_meta": {
                    f"{_META_PREFIX}/protocolVersion": MCP_REVISION,
                    f"{_META_PREFIX}/clientInfo": {"name": "modelservice-operator", "version": "1"},
                    f"{_META_PREFIX}/clientCapabilities": {},
                }
            },
        }
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MCP_REVISION,
            "Mcp-Method": "server/discover",
        }
        try:
            status, body = self._fetch("POST", url, body=json.dumps(request).encode(), headers=headers)
            if status != 401:
                return _read_handshake(url, status, body, expected_name)
            # The operator has no token and needs none: who the server is stands in the document for who has none yet.
            about = urllib.parse.urljoin(url, _RESOURCE_METADATA)
            return _read_resource(url, *self._fetch("GET", about), expected_name)
        except urllib3.exceptions.HTTPError as error:
            return Handshake(error=f"{url} does not answer ({type(error).__name__}).")

    def _fetch(
        self, method: str, url: str, *, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        response = self._http.request(method, url, body=body, headers=headers, preload_content=False, redirect=False)
        try:
            return response.status, response.read(_MAX_BYTES)
        finally:
            response.release_conn()


def _read_handshake(url: str, status: int, body: bytes, expected_name: str) -> Handshake:
    result = _result_of(body)
    if result is None:
        return Handshake(error=f"{url} answered {status} and no MCP result to server/discover.")
    server = result.get("serverInfo") or (result.get("_meta") or {}).get(f"{_META_PREFIX}/serverInfo") or {}
    name = str(server.get("name", ""))[:256]
    if name != expected_name:
        return Handshake(error=f"{url} is answered by MCP server {name!r}, not by this ModelService's.")
    versions = result.get("supportedVersions") or []
    return Handshake(
        server_name=name,
        server_version=str(server.get("version", ""))[:256],
        protocol_versions=tuple(str(version)[:32] for version in versions[:16]),
    )


def _read_resource(url: str, status: int, body: bytes, expected_name: str) -> Handshake:
    """RFC 9728: the document of a server that asks for tokens."""
    try:
        document = json.loads(body) if status == 200 else None
    except ValueError:
        document = None
    name = str(document.get("resource_name", ""))[:256] if isinstance(document, dict) else ""
    if name != expected_name:
        return Handshake(error=f"{url} asks for a token and does not say that it is this ModelService's server.")
    return Handshake(server_name=name, wants_token=True)


def _result_of(body: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(body)
    except ValueError:
        return None
    result = message.get("result") if isinstance(message, dict) else None
    return result if isinstance(result, dict) else None
