"""FastMCP's own translation of an OpenAPI document: what one gets from it for a model server in five lines.

Stateless, JSON answers, served as all others here. It has no limits, metrics, logs or auth.

Usage: ``python fastmcp_server.py BACKEND_PORT``, with FastMCP's interpreter; writes its port as the first line.
"""

from __future__ import annotations

import sys

import httpx2
from fastmcp import FastMCP
from serving import serve

BACKEND = f"http://127.0.0.1:{sys.argv[1]}"

if __name__ == "__main__":
    document = httpx2.get(f"{BACKEND}/openapi.json").json()
    client = httpx2.AsyncClient(base_url=BACKEND, limits=httpx2.Limits(max_connections=64))
    server = FastMCP.from_openapi(openapi_spec=document, client=client, name="bench")
    serve(server.http_app(path="/mcp", stateless_http=True, json_response=True))
