"""What goes on to the model server of a caller's headers, and how the adapter shows itself there."""

import json
import os
import subprocess
import sys
from typing import Annotated, Any

import pydantic
import pytest
from fastapi import FastAPI, Header, Request, Response

from adapter_harness import adapter, request, run
from model_apps import model_server
from modelservice_api.adapter_config import AdapterConfig, BackendConfig, CacheConfig, CredentialConfig, ToolsConfig

SECRET = "canary-credential-4711"


class Guarded:
    """A model server that wants a key for its document and for every call, and remembers what came."""

    def __init__(self, header: str = "authorization", value: str = f"Bearer {SECRET}") -> None:
        self.seen: list[dict[str, str]] = []
        self._wanted = (header, value)

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.middleware("http")
        async def guard(request: Request, call_next: Any) -> Any:
            self.seen.append(dict(request.headers))
            header, value = self._wanted
            if value and request.headers.get(header) != value:
                return Response(status_code=401)
            return await call_next(request)

        @app.post("/predict", operation_id="predict")
        def predict(value: float, x_unit: Annotated[str, Header()] = "m") -> dict[str, Any]:
            return {"value": value, "unit": x_unit}

        return app


@pytest.fixture(params=["/mcp", "/rpc"])
def lane(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def call(running: Any, lane: str, arguments: dict[str, Any], **headers: str) -> dict[str, Any]:
    params = {"name": "predict", "arguments": arguments}
    if lane == "/rpc":
        return dict((await running.rpc("call_tool", params, **headers)).json["result"])
    return dict((await running.modern("tools/call", params, **headers)).json["result"])


@pytest.mark.promise("headers-forwarded")
def test_only_headers_that_are_named_go_on_and_credentials_never(lane: str) -> None:
    model = Guarded(value="")
    config = AdapterConfig(backend=BackendConfig(forward_headers=("x-tenant", "x-unit")))

    async def test() -> None:
        with model_server(model.app()) as port:
            async with adapter(port, config) as running:
                sent = {"x-tenant": "blue", "x-other": "no", "cookie": "a=b", "authorization": "Bearer caller"}
                answer = await call(running, lane, {"value": 1}, **sent)
                assert answer["structuredContent"] == {"value": 1, "unit": "m"}
                last = model.seen[-1]
                assert last["x-tenant"] == "blue"
                assert not {"x-other", "cookie", "authorization"} & set(last)
                answer = await call(running, lane, {"value": 1}, **{"x-unit": "km"})
                assert answer["structuredContent"]["unit"] == "km"

    run(test)


@pytest.mark.promise("headers-forwarded")
def test_an_argument_of_a_headers_name_is_what_the_caller_means(lane: str) -> None:
    model = Guarded(value="")
    config = AdapterConfig(backend=BackendConfig(forward_headers=("x-unit",)))

    async def test() -> None:
        with model_server(model.app()) as port:
            async with adapter(port, config) as running:
                answer = await call(running, lane, {"value": 1, "x-unit": "cm"}, **{"x-unit": "km"})
                assert answer["structuredContent"]["unit"] == "cm"

    run(test)


@pytest.mark.promise("headers-forwarded")
def test_an_answer_to_one_callers_header_is_not_kept_for_another() -> None:
    model = Guarded(value="")
    hints = {"predict": {"annotations": {"readOnlyHint": True, "idempotentHint": True}}}
    config = AdapterConfig(
        backend=BackendConfig(forward_headers=("x-unit",)),
        tools=ToolsConfig.model_validate({"overrides": hints}),
        cache=CacheConfig(ttl=60),
    )

    async def test() -> None:
        with model_server(model.app()) as port:
            async with adapter(port, config) as running:
                units = [(await call(running, "/mcp", {"value": 1}, **{"x-unit": unit})) for unit in ("km", "mm")]
                assert [unit["structuredContent"]["unit"] for unit in units] == ["km", "mm"]
                before = len(model.seen)
                for _ in range(2):
                    await call(running, "/mcp", {"value": 2})
                assert len(model.seen) == before + 1

    run(test)


@pytest.mark.parametrize("name", ["authorization", "cookie", "mcp-method", "traceparent", "content-length", "host"])
def test_what_must_never_go_on_cannot_be_named(name: str) -> None:
    with pytest.raises(pydantic.ValidationError, match="never go on to a model server"):
        BackendConfig(forward_headers=(name,))


@pytest.mark.promise("backend-credential")
@pytest.mark.parametrize(
    ("settings", "header", "value"),
    [
        (CredentialConfig(), "authorization", f"Bearer {SECRET}"),
        (CredentialConfig(header="x-api-key", scheme=""), "x-api-key", SECRET),
    ],
    ids=["a bearer token", "a key of its own header"],
)
def test_the_adapter_shows_itself_where_the_model_server_asks_for_it(
    settings: CredentialConfig, header: str, value: str
) -> None:
    model = Guarded(header, value)
    config = AdapterConfig(backend=BackendConfig(credential=settings))

    async def test() -> None:
        with model_server(model.app()) as port:
            async with adapter(port, config, credential=SECRET) as running:
                answer = await call(running, "/mcp", {"value": 1}, authorization="Bearer caller")
                assert answer["structuredContent"]["value"] == 1
                said = (
                    json.dumps(running.lines.all) + (await request(running.admin_port, "GET", "/metrics")).body.decode()
                )
                assert SECRET not in said
            async with adapter(port, config, wait=False) as running:
                told = await running.lines.wait_for("backend", state="NotRecognised")
                assert "401" in told["message"]

    run(test)


@pytest.mark.promise("backend-credential")
def test_a_credential_comes_from_the_environment_and_one_that_is_no_header_is_refused_unseen() -> None:
    command = [sys.executable, "-m", "modelservice_sidecar", "--mcp-port", "0", "--admin-port", "0"]
    environment = {**os.environ, "MODELSERVICE_BACKEND_CREDENTIAL": f"{SECRET}\nx: y"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "MODELSERVICE_BACKEND_CREDENTIAL holds letters that no HTTP header may have" in done.stderr
    assert SECRET not in done.stderr + done.stdout
