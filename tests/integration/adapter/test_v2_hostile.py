"""Servers that speak the Open Inference Protocol wrongly: each is one sentence, costs one model at most, and leaves nothing."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest

from adapter_harness import adapter, run
from model_apps import model_server
from modelservice_api.adapter_config import AdapterConfig, BackendConfig, V2Config

SERVER = {"name": "fake", "version": "1.0", "extensions": ["binary_tensor_data", "model_configuration"]}
GOOD = {
    "name": "good",
    "versions": ["1"],
    "platform": "python",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [2]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [2]}],
}
RECOGNISED = "Recognised as V2: GET /v2 answers as fake 1.0."
V2 = AdapterConfig(backend=BackendConfig(type="V2"))


class Server:
    """Answers what it is told to, by path; a model is good unless a test says otherwise."""

    def __init__(self, **models: object) -> None:
        self.models = {"good": GOOD, **models}
        self.asked: list[str] = []
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}

    def says(self, path: str, body: object, *, status: int = 200, **headers: str) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers[path] = (status, {"content-type": "application/json", **given}, raw)

    @contextmanager
    def serving(self) -> Iterator[int]:
        with model_server(self) as port:
            yield port

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        path = scope["path"]
        self.asked.append(path)
        status, headers, body = self.answers.get(path) or self._usual(path)
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": body})

    def _usual(self, path: str) -> tuple[int, dict[str, str], bytes]:
        found: object = None
        name = path.removeprefix("/v2/models/")
        if path == "/v2":
            found = SERVER
        elif path == "/v2/repository/index":
            found = [{"name": model, "version": "1", "state": "READY"} for model in self.models]
        elif path.endswith("/config"):
            found = {"max_batch_size": 0}
        elif name in self.models:
            found = self.models[name]
        body = found if isinstance(found, bytes) else orjson.dumps(found)
        return (404 if found is None else 200), {"content-type": "application/json"}, body


def said(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


def with_shape(*shape: Any) -> dict[str, Any]:
    return {**GOOD, "inputs": [{"name": "x", "datatype": "FP32", "shape": list(shape)}]}


@pytest.mark.promise("hostile")
@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        (b"<!doctype html><title>hunter2</title>", "its metadata is not JSON"),
        (b'"' + b"x" * (10 * 1024 * 1024) + b'"', "what it says of itself is larger than 1 MB"),
        ([], "its metadata is not a JSON object"),
        ({**GOOD, "inputs": "x"}, "inputs in its metadata is not a list"),
        ({**GOOD, "inputs": [{"datatype": "FP32", "shape": [1]}]}, "inputs[0] in its metadata has no usable name"),
        ({**GOOD, "inputs": [*GOOD["inputs"], *GOOD["inputs"]]}, "name one tensor twice"),
        ({**GOOD, "inputs": GOOD["inputs"] * 129}, "at most 128 tensors"),
        ({**GOOD, "inputs": [{"name": "x", "datatype": "FP128", "shape": [1]}]}, "the datatype 'FP128'"),
        ({**GOOD, "outputs": []}, "its metadata names no outputs"),
        (with_shape(-5), "inputs[0].shape in its metadata holds something that is not a size"),
        (with_shape(2**63), "holds something that is not a size"),
        (with_shape(1.5), "holds something that is not a size"),
        (with_shape(*[1] * 1000), "at most 16 sizes"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_a_model_whose_metadata_makes_no_sense_is_left_out_alone(metadata: object, reason: str) -> None:
    async def test() -> None:
        server = Server(bad=metadata)
        with server.serving() as port:
            async with adapter(port) as running:
                report = await running.report()
                assert report["tools"]["names"] == ["good"]
                assert "'bad' is left out: " in report["backend"]["message"]
                assert reason in report["backend"]["message"]
                assert "hunter2" not in report["backend"]["message"]

    run(test)


@pytest.mark.promise("hostile")
def test_a_config_that_contradicts_the_metadata_is_a_note() -> None:
    async def test() -> None:
        server = Server(bad=GOOD)
        server.says("/v2/models/bad/config", {"max_batch_size": 8})
        with server.serving() as port:
            async with adapter(port) as running:
                report = await running.report()
                assert report["tools"]["names"] == ["good"]
                assert "max_batch_size 8, but not every shape has a batch axis" in report["backend"]["message"]

    run(test)


@pytest.mark.promise("hostile")
def test_a_model_that_is_told_wrongly_for_a_while_stays_what_it_was() -> None:
    async def test() -> None:
        server = Server(other=GOOD)
        server.says("/v2/models/other", GOOD, content_encoding="gzip")
        with server.serving() as port:
            async with adapter(port) as running:
                report = await running.report()
                assert report["tools"]["names"] == ["good"]
                assert "'other' is left out: /v2/models/other on" in report["backend"]["message"]
                del server.answers["/v2/models/other"]
                await running.lines.wait_for("backend", state="Ready", message=RECOGNISED)
                assert (await running.report())["tools"]["names"] == ["good", "other"]
                server.says("/v2/models/other", GOOD, content_encoding="gzip")
                asked = len(server.asked)
                while len(server.asked) < asked + 12:  # two more looks and a bit
                    await running.adapter.discovery._looked.wait()
                    running.adapter.discovery._looked.clear()
                assert (await running.report())["tools"]["names"] == ["good", "other"]

    run(test)


@pytest.mark.promise("hostile")
def test_a_config_that_is_withheld_is_a_note_and_no_guess() -> None:
    async def test() -> None:
        server = Server(bad=GOOD)
        server.says("/v2/models/bad/config", {"error": "restricted"}, status=403)
        with server.serving() as port:
            async with adapter(port) as running:
                report = await running.report()
                assert report["tools"]["names"] == ["good"]
                assert "'bad' is left out: its config is refused with HTTP 403" in report["backend"]["message"]

    run(test)


@pytest.mark.promise("backend-states")
@pytest.mark.parametrize(
    ("status", "headers", "body", "state", "reason"),
    [
        (200, {}, b"<html>", "NotRecognised", "is not the metadata of an Open Inference Protocol server"),
        (200, {}, {"name": "x"}, "NotRecognised", "is not the metadata of an Open Inference Protocol server"),
        (200, {}, b"x" * (10 * 1024 * 1024), "NotRecognised", "answers more than 1 MB"),
        (302, {"location": "http://127.0.0.1:1/"}, b"", "NotRecognised", "answers HTTP 302"),
        (503, {}, b"", "Unreachable", "is busy or still starting (HTTP 503)"),
    ],
    ids=["html", "other-json", "10-mb", "redirect", "starting"],
)
def test_what_is_no_v2_server_is_said_in_a_sentence(
    status: int, headers: dict[str, str], body: object, state: str, reason: str
) -> None:
    async def test() -> None:
        server = Server()
        server.says("/v2", body, status=status, **headers)
        with server.serving() as port:
            async with adapter(port, V2, wait=False) as running:
                line = await running.lines.wait_for("backend", state=state)
                assert reason in line["message"]

    run(test)


@pytest.mark.promise("backend-states")
def test_a_server_that_lists_no_models_is_told_to_be_named_ones() -> None:
    async def test() -> None:
        server = Server()
        server.says("/v2/repository/index", {"error": "forbidden"}, status=403)
        server.says("/v2/models/good/ready", b"")
        with server.serving() as port:
            async with adapter(port, V2, wait=False) as running:
                line = await running.lines.wait_for("backend", state="Invalid")
                assert "name them in spec.backend.v2.models" in line["message"]
            named = AdapterConfig(backend=BackendConfig(v2=V2Config(models=("good",))))
            async with adapter(port, named) as running:
                assert (await running.report())["tools"]["names"] == ["good"]

    run(test)


def answer(outputs: Any, data: bytes = b"") -> tuple[bytes, dict[str, str]]:
    head = orjson.dumps({"model_name": "good", "outputs": outputs})
    return head + data, {"inference_header_content_length": str(len(head))}


def output(**fields: Any) -> dict[str, Any]:
    return {"name": "y", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}, **fields}


@pytest.mark.promise("hostile")
@pytest.mark.parametrize(
    ("body", "headers", "reason"),
    [
        (*answer([output(shape=[2_000_000_000])], b"\0" * 8), "larger than"),
        (*answer([output(shape=[200])], b"\0" * 8), "has 8 bytes; shape [200] of FP32 needs 800"),
        (*answer([output(parameters={"binary_data_size": 80})], b"\0" * 8), "of the body 8 bytes are left"),
        (*answer([output()], b"\0" * 9), "has 1 bytes that no tensor of outputs claims"),
        (*answer([output(shape=[1, 2])], b"\0" * 8), "has 2 dimensions"),
        (*answer([output(datatype="FP64", shape=[1])], b"\0" * 8), "is FP64"),
        (*answer([]), "lacks its output y"),
        (*answer([output(), output()], b"\0" * 16), "is there twice"),
        (b"{}", {"inference_header_content_length": "99"}, "Inference-Header-Content-Length is 99"),
        (b"<html>", {}, "is not JSON"),
        (b'{"outputs":[{"name":"y","datatype":"FP32","shape":[2],"data":[1,"2"]}]}', {}, "outputs[0].data"),
        (b'{"outputs":[{"name":"y","datatype":"FP32","shape":[2],"data":[1]}]}', {}, "outputs[0]"),
        (b"x" * (17 * 1024 * 1024), {}, "larger than 16 MiB"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_an_answer_that_lies_is_one_error_and_the_next_call_is_none_the_wiser(
    body: bytes, headers: dict[str, str], reason: str
) -> None:
    async def test() -> None:
        server = Server()
        server.says("/v2/models/good/infer", body, **headers)
        with server.serving() as port:
            async with adapter(port) as running:
                result = await running.call("good", {"x": [1, 2]})
                assert result["isError"] is True
                assert reason in said(result), said(result)
                right, told = answer([output()], b"\0\0\x80\x3f\0\0\0\x40")
                server.says("/v2/models/good/infer", right, **told)
                assert (await running.call("good", {"x": [1, 2]}))["structuredContent"] == {"y": [1, 2]}
                assert not running.lines.of("fault")

    run(test)


@pytest.mark.promise("hostile")
def test_nothing_but_the_fixed_endpoints_is_ever_asked() -> None:
    async def test() -> None:
        names = ("../../v2/repository/models/good/unload", "a/b", "..", "x?y=1#z", "é", "%2e%2e")
        server = Server(**dict.fromkeys(names, GOOD))
        with server.serving() as port:
            async with adapter(port) as running:
                message = (await running.report())["backend"]["message"]
                assert "3 models have names that cannot stand in a path" in message
        fixed = {"/v2", "/v2/repository/index", "/v2/models/good", "/v2/models/good/config"}
        odd = {f"/v2/models/{name}{end}" for name in ("x?y=1#z", "é", "%2e%2e") for end in ("", "/config")}
        assert set(server.asked) == fixed | odd

    run(test)
