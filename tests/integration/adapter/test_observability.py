"""What is said about calls: one line with everything, bounded metrics with exemplars, and nothing of what callers sent."""

import asyncio
import json
import threading
from typing import Annotated, Any

import pytest
from fastapi import Body, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from adapter_harness import Running, adapter, request, run
from model_apps import model_server
from modelservice_api.adapter_config import AdapterConfig, LoggingConfig, ServerConfig, TracingConfig
from modelservice_sidecar.backends.openapi import OpenAPIBackend
from otlp_receiver import Collector, collector

OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8, text/plain;version=0.0.4;q=0.3"
TRACE, PARENT_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{PARENT_SPAN}-01"


def echoing_app() -> FastAPI:
    """Repeats what it is sent in every way that a model server can: answers, refusals, broken answers, failures."""
    app = FastAPI()

    @app.post("/say")
    def say(words: Annotated[str, Body(embed=True)], request: Request) -> dict[str, Any]:
        return {"words": words, "headers": sorted(f"{name}: {value}" for name, value in request.headers.items())}

    @app.post("/refuse")
    def refuse(words: Annotated[str, Body(embed=True)]) -> None:
        raise HTTPException(400, f"I do not like {words}")

    @app.post("/fail")
    def fail(words: Annotated[str, Body(embed=True)]) -> JSONResponse:
        return JSONResponse({"detail": words}, 500)

    @app.post("/lie")
    def lie(words: Annotated[str, Body(embed=True)]) -> int:
        return JSONResponse({words: words})  # type: ignore[return-value]

    return app


async def scrape(running: Running, accept: str = "text/plain") -> tuple[str, str]:
    reply = await request(running.admin_port, "GET", "/metrics", headers={"accept": accept})
    assert reply.status == 200
    return reply.body.decode(), reply.headers["content-type"]


@pytest.mark.promise("observed")
def test_a_call_s_line_says_who_what_which_how_long_and_how_much() -> None:
    async def test() -> None:
        config = AdapterConfig(server=ServerConfig(name="fraud", version="7"))
        with model_server(echoing_app()) as port:
            async with adapter(port, config) as running:
                await running.call("say", {"words": "hello"})
                line = await running.lines.wait_for("call")
                assert set(line) == {
                    *("event", "request_id", "trace_id", "tool", "variant", "era", "outcome", "status", "ms"),
                    *("backend_ms", "bytes_in", "bytes_out", "backend_status"),
                }
                assert (line["tool"], line["variant"], line["outcome"], line["backend_status"]) == (
                    "say",
                    "7",
                    "ok",
                    200,
                )
                assert 0 < line["backend_ms"] <= line["ms"]
                await running.call("refuse", {"words": "hello"})
                refused = await running.lines.wait_for("call", tool="refuse")
                assert refused["error"] == "The model server refuses the request."

    run(test)


@pytest.mark.promise("observed")
def test_metrics_come_in_both_formats_and_openmetrics_has_the_trace_of_a_recorded_call() -> None:
    async def test() -> None:
        with collector() as receiver, model_server(echoing_app()) as port:
            tracing = TracingConfig(endpoint=receiver.endpoint, sample_ratio=0)
            async with adapter(port, AdapterConfig(tracing=tracing)) as running:
                call = {"name": "say", "arguments": {"words": "x"}}
                await running.rpc("call_tool", call)
                await running.rpc("call_tool", call, traceparent=PARENT)
                text, kind = await scrape(running)
                assert kind.startswith("text/plain; version=0.0.4")
                assert "trace_id" not in text
                plain = {family.name: family for family in parse_text(text)}
                opened, kind = await scrape(running, OPEN_METRICS)
                assert kind.startswith("application/openmetrics-text; version=1.0.0")
                families = {family.name: family for family in parse_openmetrics(opened)}
                assert plain.keys() == families.keys()
                exemplars = [
                    (sample, sample.exemplar)
                    for sample in families["mcp_server_operation_duration_seconds"].samples
                    if sample.exemplar is not None
                ]
                [(sample, exemplar)] = exemplars
                assert exemplar.labels == {"trace_id": TRACE}
                assert exemplar.value <= float(sample.labels["le"])
                assert sample.labels["gen_ai_tool_name"] == "say"
                info = families["modelservice_info"].samples[0]
                assert (info.labels, info.value) == ({"server": "modelservice", "version": "0"}, 1.0)

    run(test)


@pytest.mark.promise("observed")
@pytest.mark.parametrize(
    "accept", ["", "*/*", "application/openmetrics-text; version=x", "application/openmetrics-text;;=", "\xff"]
)
def test_whatever_a_scraper_accepts_it_gets_metrics(accept: str) -> None:
    async def test() -> None:
        with model_server(echoing_app()) as port:
            async with adapter(port) as running:
                text, _ = await scrape(running, accept)
                assert "modelservice_tools 4" in text

    run(test)


@pytest.mark.promise("observed")
def test_requests_that_are_no_calls_are_counted_by_method_and_no_caller_can_grow_the_metrics() -> None:
    async def test() -> None:
        with model_server(echoing_app()) as port:
            async with adapter(port) as running:
                await running.modern("tools/list")
                await running.legacy("ping")
                before, _ = await scrape(running)
                assert 'mcp_method_name="tools/list"' in before
                assert 'mcp_method_name="ping"' in before
                await running.modern("tools/call", {"name": "nope"})
                await running.rpc("call_tool", {"name": "nope"})
                await running.modern("nope/nope")
                sizes = set()
                for number in range(3):
                    await running.modern("tools/call", {"name": f"nope-{number}"})
                    await running.rpc("call_tool", {"name": f"nope-{number}"})
                    await running.modern(f"nope/{number}")
                    sizes.add(
                        sum(
                            len(getattr(family, "values", ())) for family in running.adapter.telemetry.families.values()
                        )
                    )
                assert len(sizes) == 1
                text = running.adapter.telemetry.render()
                assert b"nope" not in text

    run(test)


@pytest.mark.promise("observed")
def test_calls_are_answered_while_metrics_are_written_and_scrapers_share_the_writing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        began, over, written = threading.Semaphore(0), threading.Event(), 0

        def slowly(*_: Any, **__: Any) -> bytes:
            nonlocal written
            written += 1
            began.release()
            over.wait()
            return b"metrics\n"

        with model_server(echoing_app()) as port:
            async with adapter(port) as running:
                monkeypatch.setattr(running.adapter.telemetry, "render", slowly)
                scrapes = [asyncio.ensure_future(scrape(running)) for _ in range(5)]
                await asyncio.to_thread(began.acquire)
                assert (await running.call("say", {"words": "x"}))["isError"] is False
                assert not any(each.done() for each in scrapes)
                scrapes.append(asyncio.ensure_future(scrape(running, OPEN_METRICS)))
                await asyncio.to_thread(began.acquire)
                over.set()
                assert {body for body, _ in await asyncio.gather(*scrapes)} == {"metrics\n"}
                assert written == 2, "one for each format"

    run(test)


def canaries(*names: str) -> dict[str, str]:
    return {name: f"canary-{name}-8fJ2kQ" for name in names}


PLANTED = canaries(
    "authorization", "cookie", "header", "argument", "key", "tool", "state", "baggage", "answer", "fault"
)


async def plant(running: Running, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sends every canary on every way in; what callers were answered."""
    headers = {
        "authorization": f"Bearer {PLANTED['authorization']}",
        "cookie": f"session={PLANTED['cookie']}",
        "x-api-key": PLANTED["header"],
        "mcp-session-id": PLANTED["header"],
        "baggage": f"user={PLANTED['baggage']}",
        "traceparent": PARENT,
    }
    arguments = {"words": PLANTED["argument"]}
    answers = []
    for tool in ("say", "refuse", "fail", "lie"):
        for given in (
            arguments,
            {PLANTED["key"]: PLANTED["argument"]},
            {**arguments, PLANTED["key"]: 1},
            {"words": [PLANTED["argument"]]},
        ):
            params = {"name": tool, "arguments": given}
            answers.append((await running.modern("tools/call", params, **headers)).body.decode())
            answers.append((await running.rpc("call_tool", params, **headers)).body.decode())
    answers.append((await running.modern("tools/call", {"name": PLANTED["tool"]}, **headers)).body.decode())
    answers.append((await running.modern(PLANTED["tool"], {}, **headers)).body.decode())
    answers.append((await request(running.port, "POST", "/mcp", PLANTED["argument"].encode(), headers)).body.decode())
    answers.append((await request(running.port, "GET", f"/{PLANTED['argument']}", None, headers)).body.decode())

    async def fault(*_: Any) -> Any:
        raise ValueError(PLANTED["fault"])

    with monkeypatch.context() as patch:
        patch.setattr(OpenAPIBackend, "call", fault)
        answers.append(
            (await running.modern("tools/call", {"name": "say", "arguments": arguments}, **headers)).body.decode()
        )
    assert "Internal error" in answers[-1]
    return answers


async def said(running: Running, receiver: Collector) -> str:
    """All that the adapter says to others than its caller."""
    await asyncio.to_thread(
        receiver.wait_for, lambda spans: sum(span.kind == "server" for span in spans) >= len(running.lines.of("call"))
    )
    pages = [running.adapter.telemetry.render(open_metrics=which).decode() for which in (False, True)]
    pages += [
        (await request(running.admin_port, "GET", path)).body.decode() for path in ("/readyz", "/healthz", "/tools")
    ]
    spans = [body.decode("latin-1") for body in receiver.raw]
    return "\n".join([json.dumps(running.lines.all, ensure_ascii=False), *pages, *spans])


@pytest.mark.promise("observed")
@pytest.mark.promise("spans")
def test_no_planted_secret_is_in_metrics_lines_spans_or_reports_and_none_of_a_header_in_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        with collector() as receiver, model_server(echoing_app()) as port:
            tracing = TracingConfig(endpoint=receiver.endpoint, sample_ratio=1)
            async with adapter(port, AdapterConfig(tracing=tracing)) as running:
                answers = await plant(running, monkeypatch)
                assert any(PLANTED["argument"] in answer for answer in answers), (
                    "the model server repeats it to its caller"
                )
                everything = await said(running, receiver)
                assert len(running.lines.of("call")) == 34
                assert {name for name, canary in PLANTED.items() if canary in everything} == set()
                told = "\n".join(answers)
                # What a caller sent in a header goes to no model server, so none can repeat it.
                hidden = ("authorization", "cookie", "header", "baggage", "fault")
                assert {name for name in hidden if PLANTED[name] in told} == set()

    run(test)


@pytest.mark.promise("observed")
def test_bodies_are_shown_where_that_is_wanted_and_secrets_in_them_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        token = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"
        logging = LoggingConfig(bodies="Redacted", redact_keys=("iban",), redact_patterns=("[0-9]{16}",))
        with model_server(echoing_app()) as port:
            async with adapter(port, AdapterConfig(logging=logging)) as running:
                words = f"pay with 4111111111111111 and {token} " + "x" * 5000
                await running.rpc(
                    "call_tool", {"name": "say", "arguments": {"words": words}}, authorization="Bearer hidden-header"
                )
                await running.rpc(
                    "call_tool", {"name": "say", "arguments": {"words": "a", "password": "p4ss", "IBAN": "DE02"}}
                )
                await running.rpc("call_tool", {"name": "refuse", "arguments": {"words": token}})
                first, second, third = running.lines.of("call")
                assert first["input"]["words"].startswith("pay with [redacted] and [redacted] xxx")
                assert len(json.dumps(first)) < 8000
                assert (second["input"]["password"], second["input"]["IBAN"], second["input"]["words"]) == (
                    "[redacted]",
                    "[redacted]",
                    "a",
                )
                assert third["error"] == "The model server refuses the request (HTTP 400): I do not like [redacted]"
                everything = json.dumps(running.lines.all)
                assert not any(
                    secret in everything for secret in ("4111111111111111", token, "p4ss", "DE02", "hidden-header")
                )

    run(test)
