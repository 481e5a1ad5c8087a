"""A pod that calls a tool through the Service with 16 keep-alive clients until it is told to stop, and counts.

Owns the load and what counts as lost: every call without a good answer, for whatever reason. No call is tried twice,
and a connection that breaks under a call is a lost call. The loop is bounded in calls and time.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kubectl_access import Namespace
from model_servers import DIGITS_IMAGE

CLIENTS = 16
_MOST_CALLS, _MOST_SECONDS = 20_000, 240

_PROGRAM = """
import http.client, json, os, sys, threading, time

host, port, body, headers, clients, most_calls, most_seconds = json.loads(sys.argv[1])
calls = lost = 0
examples, lock, begin = [], threading.Lock(), time.monotonic()

def is_over():
    return os.path.exists("/tmp/stop") or calls >= most_calls or time.monotonic() - begin > most_seconds

def client():
    global calls, lost
    connection = http.client.HTTPConnection(host, port, timeout=30)
    while not is_over():
        problem = ""
        try:
            connection.request("POST", "/mcp", body, headers)
            response = connection.getresponse()
            answer = response.read()
            result = json.loads(answer).get("result", {})
            if response.status != 200 or result.get("isError") or result.get("structuredContent", {}).get("digit") != 0:
                problem = f"{response.status} {answer[:300]!r}"
        except Exception as error:
            problem = repr(error)
            connection.close()
        with lock:
            calls += 1
            if calls == clients:
                print("calling", flush=True)
            if problem:
                lost += 1
                examples.append(f"{time.monotonic() - begin:.2f} s: {problem}")
        time.sleep(0.05)  # a client thinks between calls; it is the load's shape, not a wait for anything

threads = [threading.Thread(target=client) for _ in range(clients)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps({"calls": calls, "lost": lost, "examples": examples[:8]}), flush=True)
"""


@dataclass(kw_only=True)
class Load:
    """What came of it, once the block has ended."""

    calls: int = 0
    lost: int = 0
    examples: tuple[str, ...] = ()


@contextmanager
def constant_load(
    namespace: Namespace, service: str, port: int, arguments: dict[str, Any], tool: str
) -> Iterator[Load]:
    """The load, for as long as the block takes. It is calling when the block begins."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    settings = json.dumps([service, port, body, headers, CLIENTS, _MOST_CALLS, _MOST_SECONDS])
    container = {"name": "load", "image": DIGITS_IMAGE, "command": ["python", "-c", _PROGRAM, settings]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "load"},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]},
    }
    namespace.apply(pod)
    namespace.wait_for_condition("pod/load", "Ready")
    namespace.wait_for_output("load", "calling")
    load = Load()
    yield load
    namespace.kubectl("exec", "load", "--", "python", "-c", "open('/tmp/stop', 'w').close()")
    namespace.kubectl("wait", "pod/load", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")
    counted = json.loads(namespace.kubectl("logs", "load").splitlines()[-1])
    load.calls, load.lost, load.examples = counted["calls"], counted["lost"], tuple(counted["examples"])
