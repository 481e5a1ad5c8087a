"""What asking for tokens costs: a token that is known, a new one, and what a flood of made-up key ids costs the issuer.

Owns the benchmark `adapter-auth`. The first two are timed in this process, on the subject's core: the whole layer that every
request passes, less a layer that asks for nothing; and the verification of an ES256 token that was not seen before. The flood
goes to a real adapter whose keys come from a real server: each request names a key id of its own. It is refused before a body
is read, so it has none.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import uvloop
from servicebench import full_chain, machine, wire
from servicebench.failure import BenchError
from servicebench.machine import Cores
from servicebench.programs import require
from servicebench.report import Metric, Report, median
from servicebench.sampling import collect
from servicebench.subjects import ADAPTER, Running, Subject, model_server, running, start_adapter

from modelservice_api.adapter_config import AdapterConfig, AuthConfig, IssuerConfig
from modelservice_sidecar import inbound as requests
from modelservice_sidecar.auth.pace import KeyPace
from modelservice_sidecar.auth.verifier import Verifier
from modelservice_sidecar.core import mcp, trace
from modelservice_sidecar.core.trace import Wanted
from modelservice_sidecar.middleware.auth import Auth, Gate, gate
from modelservice_sidecar.middleware.context import new_hex

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
from token_issuer import RESOURCE, Issuer, encode

NAME = "adapter-auth"
CACHED, NEW = "cached token", "new token"
FLOODERS = 16
WANTED_KIDS_PER_SECOND = 1000


def run(cores: Cores, *, quick: bool) -> Report:
    """Both tokens in turn; then the flood."""
    require("taskset", "setpriv")
    rounds, passes, tokens, seconds = (1, 2_000, 100, 3) if quick else (7, 50_000, 2_000, 35)
    issuer = Issuer()

    def take(name: str) -> tuple[float, float]:
        before = machine.usage()
        os.sched_setaffinity(0, {cores.subject})  # the load generator's core is the model server's, too
        try:
            value = _cached(issuer, passes) if name == CACHED else uvloop.run(_new(issuer, tokens))
        finally:
            os.sched_setaffinity(0, {cores.others})
        return value, machine.usage().foreign_percent(before)

    samples = collect((CACHED, NEW), take, rounds=rounds)
    flood = _flood(issuer, cores, seconds)
    return Report(
        name=NAME,
        machine=machine.describe(),
        rounds=rounds,
        metrics=(
            Metric(metric="cached_token", value=median(samples.by_key[CACHED]), unit="us", goal=3, better="lower"),
            Metric(metric="new_es256_token", value=median(samples.by_key[NEW]), unit="us", goal=150, better="lower"),
            Metric(
                metric="key_fetches_per_10_s", value=flood.fetches_per_10_seconds, unit="1/10s", goal=1, better="lower"
            ),
            Metric(
                metric="unknown_key_ids_per_second",
                value=flood.refused / seconds,
                unit="1/s",
                goal=WANTED_KIDS_PER_SECOND,
                better="higher",
            ),
            Metric(metric="key_fetches", value=len(flood.fetches), unit="fetches", goal=None, better="lower"),
        ),
        discarded=samples.discarded,
        quiet=samples.quiet,
    )


def _cached(issuer: Issuer, passes: int) -> float:
    """Microseconds that a token which is known adds to a request."""
    token = issuer.token()

    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        """What stands behind the layer."""

    async def opened() -> Gate:
        verifier = _verifier(issuer)
        await verifier.verify(token)
        return gate(AdapterConfig(), _auth(issuer), verifier)

    found = uvloop.run(opened())
    scope = _scope([(b"authorization", f"Bearer {token}".encode())])

    def timed(asked: Gate | None) -> float:
        layer = Auth(app, gate=lambda: asked, on_outcome=lambda _outcome: None)
        began = time.perf_counter()
        for _ in range(passes):
            try:
                layer(scope, _never, _never).send(None)  # it does not wait for anything, so it needs no loop
            except StopIteration:
                continue
            raise BenchError("a known token was not taken at once")
        return (time.perf_counter() - began) / passes * 1e6

    timed(found)
    return timed(found) - timed(None)


async def _new(issuer: Issuer, number: int) -> float:
    """Microseconds for a token that was not seen before."""
    verifier = _verifier(issuer)
    tokens = [issuer.token(issuer.claims(jti=str(each))) for each in range(number)]
    began = time.perf_counter()
    for token in tokens:
        await verifier.verify(token)
    took = time.perf_counter() - began
    if verifier.cached_tokens != number:
        raise BenchError("not every token was verified")
    await verifier.aclose()
    return took / number * 1e6


def _auth(issuer: Issuer) -> AuthConfig:
    idp = IssuerConfig(name="idp", issuer=issuer.url, audiences=(RESOURCE,), jwks=issuer.jwks())
    return AuthConfig(issuers=(idp,), resource=RESOURCE)


def _verifier(issuer: Issuer) -> Verifier:
    made = Verifier(pace=KeyPace(), wall=time.time, monotonic=time.perf_counter, tell=lambda _issuer, _message: None)
    made.configure(_auth(issuer))
    return made


def _scope(headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    read = mcp.read_headers(headers)
    ids = trace.choose(Wanted(), Wanted(), new_hex)
    inbound = requests.Inbound(headers=read, ids=ids, wanted=Wanted(), received=0.0)
    return {"type": "http", "path": "/mcp", "query_string": b"", "headers": headers, requests.KEY: inbound}


async def _never(*_arguments: Any) -> Any:
    raise BenchError("a known token was refused")


@dataclass(kw_only=True)
class Flood:
    """What came of it: when the keys were fetched, and how many requests were refused."""

    fetches: list[float] = field(default_factory=list)
    refused: int = 0

    @property
    def fetches_per_10_seconds(self) -> float:
        """By the narrowest two; the network's own share of a time is rounded away."""
        narrowest = min((after - before for before, after in pairwise(self.fetches)), default=float("inf"))
        return round(10 / narrowest, 2)


@contextmanager
def _key_server(issuer: Issuer, flood: Flood) -> Iterator[int]:
    """A server of keys that notes when it is asked."""
    keys = json.dumps(issuer.jwks()).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            flood.fetches.append(time.monotonic())
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(keys)))
            self.end_headers()
            self.wfile.write(keys)

        def log_message(self, *_arguments: object) -> None:
            """Nothing: it would go to the benchmark's own output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _flood(issuer: Issuer, cores: Cores, seconds: int) -> Flood:
    flood = Flood()
    good = full_chain.with_token(wire.modern(), issuer.token())
    with _key_server(issuer, flood) as port, model_server(cores) as backend:
        uri = f"http://127.0.0.1:{port}/keys"
        idp = IssuerConfig(name="idp", issuer=issuer.url, audiences=(RESOURCE,), jwks_uri=uri, plain_http=True)
        config = AdapterConfig(auth=AuthConfig(issuers=(idp,), resource=RESOURCE))
        subject = Subject(name=ADAPTER, wire=good, start=partial(start_adapter, config=config))
        with running(subject, backend.port, cores) as started:
            good.verify(started.port, ADAPTER)
            started.child.read_on()
            _send_unknown(issuer, started, flood, seconds)
            good.verify(started.port, ADAPTER)
    return flood


def _send_unknown(issuer: Issuer, started: Running, flood: Flood, seconds: int) -> None:
    """Requests whose tokens are right but for a key that does not exist, a different one in each."""
    numbers = count()
    claims = encode(json.dumps(issuer.claims()).encode())
    signature = encode(bytes(64))
    until = time.monotonic() + seconds
    lock = threading.Lock()
    faults: list[str] = []

    def flooder() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", started.port, timeout=10)
        refused = 0
        try:
            while time.monotonic() < until and not faults:
                header = encode(json.dumps(issuer.header(kid=f"made-up-{next(numbers)}")).encode())
                token = f"{header}.{claims}.{signature}"
                connection.request("GET", "/mcp", headers={"Authorization": f"Bearer {token}"})
                reply = connection.getresponse()
                reply.read()
                if reply.status != 401:
                    faults.append(f"a token with an unknown key was answered with HTTP {reply.status}")
                refused += 1
        except OSError as error:
            faults.append(f"a connection of the flood broke: {error!r}")
        finally:
            connection.close()
        with lock:
            flood.refused += refused

    threads = [threading.Thread(target=flooder, daemon=True) for _ in range(FLOODERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise BenchError(faults[0])
