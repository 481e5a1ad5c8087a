"""Open Inference Protocol servers that say less than Triton: a real MLServer and a real server of the KServe SDK."""

import base64
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from adapter_harness import adapter, run
from kserve_server import KServe, kserve
from mlserver_server import MLServer, mlserver
from modelservice_api.adapter_config import AdapterConfig, BackendConfig, ModelConfig, TensorConfig, V2Config


@pytest.fixture(scope="module")
def ml(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MLServer]:
    with mlserver(tmp_path_factory.mktemp("mlserver")) as server:
        yield server


@pytest.fixture(scope="module")
def ks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KServe]:
    with kserve(tmp_path_factory.mktemp("kserve")) as server:
        yield server


def said(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


def tensor(datatype: str, shape: list[int], data: bytes) -> dict[str, Any]:
    return {"dtype": datatype, "shape": shape, "encoding": "base64", "data": base64.b64encode(data).decode()}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"rows": tensor("FP64", [1, 2], struct.pack("<2d", 1, 2))}, "$.rows: is FP64, FP32[?, 2] is needed"),
    ({"rows": [[1, 2, 3, 4, 5]]}, "$.rows[0]"),
    ({"rows": [1, 2]}, "$.rows"),
    ({}, "lacks rows"),
]


@pytest.mark.promise("triton-tools")
def test_mlserver_without_config_is_found_and_called_in_json(ml: MLServer) -> None:
    async def test() -> None:
        async with adapter(ml.port) as running:
            report = await running.report()
            assert report["backend"]["type"] == "V2"
            assert report["tools"]["names"] == ["sums"]
            assert "'silent' is left out: its metadata names no inputs" in report["backend"]["message"]
            schema = (await running.modern("tools/list")).json["result"]["tools"][0]["inputSchema"]
            assert schema["required"] == ["rows"]
            assert (await running.call("sums", {"rows": [[1, 2], [3, 4]]}))["structuredContent"] == {
                "total": [[3], [7]]
            }

    run(test)


@pytest.mark.promise("triton-tools")
def test_what_mlserver_does_not_tell_is_declared(ml: MLServer) -> None:
    async def test() -> None:
        model = ModelConfig(
            inputs=(
                TensorConfig(name="a", datatype="INT64", shape=(-1,)),
                TensorConfig(name="b", datatype="BYTES", shape=(1,)),
            ),
            outputs=(
                TensorConfig(name="a_back", datatype="INT64", shape=(-1,)),
                TensorConfig(name="b_back", datatype="BYTES", shape=(1,)),
            ),
        )
        config = AdapterConfig(backend=BackendConfig(v2=V2Config(models=("silent",))), model=model)
        async with adapter(ml.port, config) as running:
            arguments = {"a": [1, "9007199254740993"], "b": ["grüße"]}
            result = await running.call("silent", arguments)
            assert result["structuredContent"] == {"a_back": arguments["a"], "b_back": arguments["b"]}

    run(test)


@pytest.mark.promise("input-checked")
@pytest.mark.parametrize(("arguments", "path"), WRONG, ids=["datatype", "columns", "rank", "missing"])
def test_what_mlserver_would_take_is_refused(ml: MLServer, arguments: dict[str, Any], path: str) -> None:
    async def test() -> None:
        async with adapter(ml.port) as running:
            before = ml.requests
            result = await running.call("sums", arguments)
            assert (result["isError"], path in said(result)) == (True, True), result
            assert ml.requests == before

    run(test)


def test_what_json_cannot_tell_is_not_sent_to_mlserver(ml: MLServer) -> None:
    async def test() -> None:
        config = AdapterConfig(model=ModelConfig(non_finite="Null"))
        async with adapter(ml.port, config) as running:
            before = ml.requests
            result = await running.call("sums", {"rows": tensor("FP32", [1, 2], struct.pack("<2f", 1, float("inf")))})
            assert "rows holds NaN or an infinity, and this model server takes JSON" in said(result)
            assert ml.requests == before

    run(test)


@pytest.mark.promise("triton-tools")
def test_mlserver_is_called_over_grpc_for_what_is_large(ml: MLServer) -> None:
    async def test() -> None:
        config = AdapterConfig(backend=BackendConfig(v2=V2Config(grpc_port=ml.grpc_port)))
        async with adapter(ml.port, config) as running:
            rows = 256 * 1024 // 8
            result = await running.call("sums", {"rows": tensor("FP32", [rows, 2], struct.pack("<2f", 1, 2) * rows)})
            assert result["structuredContent"]["total"]["shape"] == [rows, 1]
            assert base64.b64decode(result["content"][1]["resource"]["blob"]) == struct.pack("<f", 3) * rows
            assert "backend_status" not in await running.lines.wait_for("call")

    run(test)


@pytest.mark.promise("triton-tools")
def test_a_server_of_the_kserve_sdk_is_found_and_called(ks: KServe) -> None:
    async def test() -> None:
        async with adapter(ks.port) as running:
            report = await running.report()
            assert (report["backend"]["type"], report["tools"]["names"]) == ("V2", ["sums"])
            assert (await running.call("sums", {"rows": [[1, 2], [3, 4]]}))["structuredContent"] == {"total": [3, 7]}
            rows = 200_000
            result = await running.call("sums", {"rows": tensor("FP32", [rows, 2], struct.pack("<2f", 1, 2) * rows)})
            assert base64.b64decode(result["content"][1]["resource"]["blob"]) == struct.pack("<f", 3) * rows

    run(test)


@pytest.mark.promise("input-checked")
@pytest.mark.parametrize(("arguments", "path"), WRONG, ids=["datatype", "columns", "rank", "missing"])
def test_what_kserve_would_take_is_refused(ks: KServe, arguments: dict[str, Any], path: str) -> None:
    async def test() -> None:
        async with adapter(ks.port) as running:
            before = ks.requests
            result = await running.call("sums", arguments)
            assert (result["isError"], path in said(result)) == (True, True), result
            assert ks.requests == before

    run(test)
