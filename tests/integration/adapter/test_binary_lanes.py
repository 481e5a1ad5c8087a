"""Tensors as bytes through the real adapter: NVIDIA's own client below `/v2`, MessagePack on `/rpc`, and from pod to pod."""

import asyncio
import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import venvs
from adapter_harness import Reply, Running, encode, request, run
from adapter_harness import adapter as plain_adapter
from modelservice_api.adapter_config import (
    AdapterConfig,
    AuthConfig,
    Datatype,
    IssuerConfig,
    LimitsConfig,
    McpConfig,
    PeersConfig,
)
from modelservice_sidecar import peers
from modelservice_sidecar.core import codec, v2_wire
from modelservice_sidecar.core.tensors import Tensor
from tensor_backend import DATATYPES, TensorBackend, adapter
from token_issuer import RESOURCE, Issuer
from triton_server import Triton

CALLS = Path(__file__).resolve().parents[2] / "support" / "triton_calls.py"
PACK = {"content-type": "application/msgpack"}


def sample(datatype: Datatype) -> Tensor:
    """Two rows of three values, or all in one row, the awkward ones."""
    if datatype == "BYTES":
        items = [b"", b"\xff\x00", "ä".encode(), b"x" * 300, b"1", b"\n"]
        return Tensor(datatype="BYTES", shape=(2, 3), data=codec.join_bytes(items))
    if datatype == "BF16":
        return codec.from_array(np.array([[1.25, -0.0, 3e38], [1e-40, 0.5, -1]], "<f4"), "BF16")
    if datatype == "BOOL":
        return codec.from_array(np.array([[True, False, True], [False, True, True]]))
    kind = np.dtype({"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}.get(datatype, datatype.lower()))
    if kind.kind == "f":
        edge = np.finfo(kind)
        return codec.from_array(np.array([[edge.max, edge.min, edge.tiny], [edge.smallest_subnormal, -0.0, 0.1]], kind))
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    return codec.from_array(np.array([[least, most, 0], [1, most - 1, most // 3]], kind))


def flat(datatype: Datatype) -> Tensor:
    return replace(sample(datatype), shape=(6,))


def as_input(name: str, tensor: Tensor) -> dict[str, Any]:
    """A tensor for the client program."""
    entry: dict[str, Any] = {"name": name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
    if tensor.datatype == "BYTES":
        items = codec.split_bytes(tensor.data)
        return {**entry, "items": [base64.b64encode(item).decode() for item in items]}
    return {**entry, "data": base64.b64encode(tensor.data).decode()}


async def triton_client(kind: str, port: int, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What NVIDIA's client says: about the server first, then the outcome of every call."""
    python = venvs.python_of("triton")
    process = await asyncio.create_subprocess_exec(
        python, CALLS, kind, f"127.0.0.1:{port}", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate(json.dumps(calls).encode())
    assert process.returncode == 0
    return list(json.loads(told))


async def infer(running: Running, model: str, document: Any, binary: bytes = b"", **headers: str) -> Reply:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    if binary:
        headers.setdefault("inference-header-content-length", str(len(body)))
    return await request(running.port, "POST", f"/v2/models/{model}/infer", body + binary, headers)


async def pack(running: Running, message: Any, **headers: str) -> Reply:
    body = message if isinstance(message, bytes) else msgspec.msgpack.encode(message)
    return await request(running.port, "POST", "/rpc", body, {**PACK, **headers})


def call_message(name: str, arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "call_tool", "params": params}


def fields(tensor: Tensor, **changed: Any) -> dict[str, Any]:
    return {"dtype": tensor.datatype, "shape": list(tensor.shape), "bin": bytes(tensor.data), **changed}


ROW = codec.from_array(np.array([[1, 2]], "<f4"))


@pytest.mark.promise("binary")
@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_a_triton_client_works_unchanged_with_every_datatype_in_both_forms(kind: str) -> None:
    """Given the client's own defaults, when it is pointed at the adapter, then every bit comes back."""
    in_json = [datatype for datatype in DATATYPES if datatype not in {"FP16", "BF16"}]  # which the client refuses there
    forms = [(datatype, True) for datatype in DATATYPES] + [(datatype, False) for datatype in in_json]

    def call(datatype: Datatype, binary: bool) -> dict[str, Any]:
        tensor = sample(datatype)
        if datatype == "BYTES" and not binary:  # JSON strings are text
            tensor = Tensor(datatype="BYTES", shape=(1, 2), data=codec.join_bytes([b"a", "ü".encode()]))
        more = {} if binary else {"outputs": {"y": False}}
        return {
            "model": f"echo_{datatype.lower()}", "id": datatype, "binary": binary, "inputs": [as_input("x", tensor)], **more
        }  # fmt: skip

    async def test() -> None:
        backend = TensorBackend()
        async with adapter(backend) as running:
            calls = [call(*form) for form in forms]
            about, *outcomes = await triton_client(kind, running.port, calls)
        assert (about["live"], about["ready"], set(about["models_ready"].values())) == (True, True, {True})
        assert about["server"]["extensions"] == ["binary_tensor_data"]
        x = {"name": "x", "datatype": "FP16", "shape": [-1, -1]}
        assert about["models"]["echo_fp16"]["inputs"] == [x]
        for asked, told in zip(calls, outcomes, strict=True):
            given = {key: value for key, value in asked["inputs"][0].items() if key != "name"}
            assert told == {"model": asked["model"], "id": asked["id"], "outputs": {"y": given}}
        assert len(backend.calls) == len(forms)
        assert {line["era"] for line in running.lines.of("call")} == {"v2"}

    run(test)


@pytest.mark.promise("binary")
def test_a_triton_client_reads_every_error_as_its_own() -> None:
    async def test() -> None:
        backend = TensorBackend()
        async with adapter(backend) as running:
            row = [as_input("a", ROW)]
            about, *told = await triton_client("aio", running.port, [
                {"model": "nope", "inputs": row},
                {"model": "plain", "inputs": row},
                {"model": "add", "inputs": [as_input("a", codec.from_array(np.zeros((17, 2), "<f4")))]},
                {"model": "add", "inputs": [as_input("a", codec.from_array(np.zeros((1, 2), "<f8")))]},
                {"model": "add", "inputs": [as_input("a", codec.from_array(np.array([[1, np.nan]], "<f4")))]},
                {"model": "add", "inputs": [as_input("b", ROW)]},
                {"model": "add", "inputs": row, "outputs": {"nope": True}},
                {"model": "add", "inputs": row, "parameters": {"mood": "good"}},
            ])  # fmt: skip
            assert about["models_ready"] == {"nope": False, "plain": False, "add": True}
            assert [(one["status"], one["error"]) for one in told] == [
                ("404", "Unknown model: no tool named nope takes tensors."),
                ("404", "Unknown model: no tool named plain takes tensors."),
                ("400", "Invalid arguments for add: $.a: has size 17 in dimension 0, FP32[1..16, 2] allows 1 to 16"),
                ("400", "Invalid arguments for add: $.a: is FP64, FP32[1..16, 2] is needed"),
                ("400", "Invalid arguments: $.a[0][1]: is NaN or an infinity, which this tool does not take"),
                ("400", "Invalid arguments for add: $.b: is no argument of this tool; its arguments are a, in_b"),
                ("400", "Invalid request: outputs[0].name: 'nope' is no output; there are sum, rows"),
                ("400", "Invalid request: parameters.mood: is not taken here; this model has no parameters"),
            ]  # fmt: skip
            backend.gone = True
            _, gone = await triton_client("sync", running.port, [{"model": "add", "inputs": row}])
            assert gone == {"status": "503", "error": "The model server cannot be reached."}
            outcomes = [line["outcome"] for line in running.lines.of("call")]
            assert outcomes == ["unknown_tool"] * 2 + ["invalid_arguments"] * 6 + ["unreachable"]

    run(test)


TYPES: dict[str, Datatype] = {"string" if name == "BYTES" else name.lower(): name for name in DATATYPES}


@pytest.mark.promise("binary")
@pytest.mark.parametrize("lane", ["http", "grpc"])
def test_a_real_triton_answers_through_the_adapter_as_it_does_directly(triton_server: Triton, lane: str) -> None:
    """Given a real Triton, when the same client asks it directly and through the adapter, then outcomes are the same."""
    calls: list[dict[str, Any]] = [
        {"model": "add", "id": "1", "inputs": [as_input("a", ROW), as_input("b", ROW)]},
        {"model": "add", "inputs": [as_input("a", ROW)], "binary": False, "outputs": {"sum": False}},
        {"model": "twice", "inputs": [as_input("x", codec.from_array(np.array([[0.1, 2, 3]] * 16, "<f4")))]},
        {"model": "odd", "inputs": [as_input("mode", codec.from_array(np.array([["2.5"]], object)))]},
        {"model": "types", "inputs": [as_input(f"in/{name}", flat(TYPES[name])) for name in TYPES]},
    ]

    async def test() -> None:
        config = AdapterConfig(mcp=McpConfig(binary_transfer=True))
        if lane == "grpc":
            backend = config.backend.model_copy(
                update={"v2": config.backend.v2.model_copy(update={"grpc_port": triton_server.grpc_port})}
            )
            config = config.model_copy(update={"backend": backend})
        async with plain_adapter(triton_server.port, config) as running:
            (_, *direct), (about, *through) = await asyncio.gather(
                triton_client("aio", triton_server.port, calls), triton_client("aio", running.port, calls)
            )
        assert about["models_ready"] == dict.fromkeys(("add", "twice", "odd", "types"), True)
        assert through == direct

    run(test)


@pytest.mark.promise("binary")
@pytest.mark.parametrize("media_type", ["application/msgpack", "application/x-msgpack", "application/vnd.msgpack"])
def test_messagepack_carries_every_datatype_bit_for_bit(media_type: str) -> None:
    async def test() -> None:
        async with adapter(TensorBackend()) as running:
            for datatype in DATATYPES:
                tensor = sample(datatype)
                message = call_message(f"echo_{datatype.lower()}", {"x": fields(tensor)})
                reply = await pack(running, message, **{"content-type": media_type})
                assert (reply.status, reply.headers["content-type"]) == (200, "application/msgpack")
                told = msgspec.msgpack.decode(reply.body)
                assert told["result"] == {"content": [], "tensors": {"y": fields(tensor)}}
                assert (told["jsonrpc"], told["id"], len(told["request_id"])) == ("2.0", 1, 32)

    run(test)


@pytest.mark.promise("binary")
def test_messagepack_takes_lists_and_bytes_and_one_row_as_mcp_does() -> None:
    async def test() -> None:
        async with adapter(TensorBackend()) as running:
            one = codec.from_array(np.array([10, 20], "<f4"))
            reply = await pack(running, call_message("add", {"a": [1, 2], "in_b": fields(one)}))
            tensors = msgspec.msgpack.decode(reply.body)["result"]["tensors"]
            assert tensors["sum"] == fields(codec.from_array(np.array([11, 22], "<f4")))
            assert tensors["rows"]["shape"] == [1]
            steps = codec.from_array(np.array([1], "<i4"))
            reply = await pack(running, call_message("steps", {"x": fields(steps), "step": 3}))
            assert reply.status == 200
            nan = codec.from_array(np.array([1, np.nan], "<f4"))
            reply = await pack(running, call_message("null", {"x": fields(nan)}))
            assert msgspec.msgpack.decode(reply.body)["result"]["tensors"]["y"] == fields(nan)

    run(test)


@pytest.mark.promise("binary")
def test_messagepack_has_the_same_methods_batches_and_errors_as_json() -> None:
    async def test() -> None:
        async with adapter(TensorBackend()) as running:
            listed = await pack(running, {"jsonrpc": "2.0", "id": 1, "method": "list_tools"})
            assert msgspec.msgpack.decode(listed.body)["result"] == (await running.rpc("list_tools")).json["result"]
            by_position = {"jsonrpc": "2.0", "id": 2, "method": "call_tool", "params": ["add", {"a": fields(ROW)}]}
            plain = {
                "jsonrpc": "2.0",
                "id": 3,
                "method": "call_tool",
                "params": {"name": "plain", "arguments": {"q": "x"}},
            }
            silent = {"jsonrpc": "2.0", "method": "list_tools"}
            told = msgspec.msgpack.decode((await pack(running, [by_position, plain, silent, 7])).body)
            assert [one["id"] for one in told] == [2, 3, None]
            assert told[0]["result"]["tensors"]["rows"]["shape"] == [1, 1]
            assert told[1]["result"]["structuredContent"] == {"q": 1}
            assert told[2]["error"]["code"] == -32600
            unknown = await pack(running, call_message("nope", {}))
            assert unknown.status == 400
            error = msgspec.msgpack.decode(unknown.body)["error"]
            assert (error["code"], error["data"]["outcome"]) == (-32602, "unknown_tool")

    run(test)


LIES: list[tuple[str, Any, str]] = [
    ("add", {"a": fields(ROW, shape=[1, 3])}, "$.a: has 8 bytes; shape [1, 3] of FP32 needs 12"),
    ("add", {"a": fields(ROW, shape=[2**40, 2**40])}, "$.a.shape: is larger than"),
    ("add", {"a": fields(ROW, shape=[-1, -2])}, "$.a.shape: holds something that is not a size"),
    ("add", {"a": fields(ROW, dtype="FP31")}, "$.a: 'FP31' is no datatype"),
    ("add", {"a": fields(ROW, dtype="INT32")}, "$.a: is INT32, FP32[1..16, 2] is needed"),
    ("add", {"a": fields(ROW), "c": 1}, "$.c: is no argument of this tool"),
    ("add", {"a": [[1, "x"]]}, '$.a[0][1]: the value is not of type "number"'),
    ("add", {}, "$: lacks a"),
    ("plain", {"q": fields(ROW)}, "$.q: this tool takes no tensors"),
    ("echo_bytes", {"x": {"dtype": "BYTES", "shape": [1, 1], "bin": b"\xff\xff\xff\xffx"}}, "$.x: ends within an element"),
    ("echo_bool", {"x": {"dtype": "BOOL", "shape": [1, 1], "bin": b"\x02"}}, "$.x: holds a byte that is neither 0 nor 1"),
    ("steps", {"x": fields(codec.from_array(np.array([1], "<i4"))), "step": 0}, "$.step: the value is less than"),
]  # fmt: skip


@pytest.mark.promise("input-checked")
def test_arguments_in_messagepack_that_lie_are_one_sentence_each_and_reach_no_model() -> None:
    async def test() -> None:
        backend = TensorBackend()
        async with adapter(backend) as running:
            for name, arguments, sentence in LIES:
                reply = await pack(running, call_message(name, arguments))
                error = msgspec.msgpack.decode(reply.body)["error"]
                assert (reply.status, error["data"]["outcome"]) == (400, "invalid_arguments"), sentence
                assert sentence in error["message"]
            assert backend.calls == []
            lines = running.lines.of("call")
            assert [line["outcome"] for line in lines] == ["invalid_arguments"] * len(LIES)

    run(test)


BAD_PACKS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "truncated"),
    "reserved byte": (b"\xc1", "malformed"),
    "no object": (b"\x05", "Expected `object | array`"),
    "trailing": (b"\x80\x80", "trailing"),
    "key that is no string": (b"\x81\x01\x02", "Expected `str`"),
    "array that lies": (b"\x81\xa1a\xdd\xff\xff\xff\xff", "truncated"),
    "map that lies": (b"\xdf\xff\xff\xff\xff", "length"),
    "bytes that lie": (b"\x81\xa1a\xc6\xff\xff\xff\xff", "truncated"),
    "deep": (b"\x81\xa1a" + b"\x91" * 100_000 + b"\xc0", "nested too much"),
    "deep within the bound of bytes": (b"\x81\xa1a" + b"\x91" * 5_000 + b"\xc0", "nested too much"),
    "bad text": (b"\x81\xa1a\xa1\xff", "UTF-8"),
    "timestamp": (b"\x81\xa1a\xd6\xff\x00\x00\x00\x01", "timestamp"),
    "extension": (b"\x81\xa1a\xd4\x05\x00", "extension"),
    "NaN": (b"\x81\xa1a\xcb\x7f\xf8\0\0\0\0\0\0", "NaN"),
    "bytes": (b"\x81\xa1a\xc4\x01x", "bytes outside of a tensor"),
    "inner key that is no string": (b"\x81\xa1a\x81\x01\x02", "key that is no string"),
    "very many values": (b"\x81\xa1a\xdd\x00\x10\x00\x00" + b"\x90" * 0x100000, "more than 200000 bytes"),
    "tensor that is none": (
        msgspec.msgpack.encode(call_message("add", {"a": {"dtype": "FP32", "shape": [1], "bin": "AAAA"}})),
        "Expected `bytes`, got `str` - at `$.bin`",
    ),
}  # fmt: skip


@pytest.mark.promise("hostile")
def test_bodies_that_are_no_messagepack_cost_an_error_and_nothing_else() -> None:
    async def test() -> None:
        async with adapter(TensorBackend()) as running:
            for what, (body, sentence) in BAD_PACKS.items():
                reply = await pack(running, body)
                error = msgspec.msgpack.decode(reply.body)["error"]
                assert (reply.status, error["code"]) == (400, -32700), what
                assert error["message"].startswith("Parse error: the body is not MessagePack as it is taken here: ")
                assert sentence in error["message"], what
            repeated = b"\x84\xa7jsonrpc\xa32.0\xa2id\x01\xa2id\x02\xa6method\xaalist_tools"
            assert msgspec.msgpack.decode((await pack(running, repeated)).body)["id"] == 2  # the last, as in JSON

    run(test)


NAMED = {"name": "a", "datatype": "FP32", "shape": [1, 2]}
BAD_INFERS: list[tuple[Any, bytes, dict[str, str], str]] = [
    (b"{", b"", {}, "Invalid request: its JSON part is not JSON."),
    (b'{"inputs":[NaN]}', b"", {}, "Invalid request: its JSON part is not JSON."),
    (b"[" * 300_000, b"", {}, "Invalid request: its JSON part is not JSON."),
    ({"inputs": 1}, b"", {}, "Invalid request: inputs: is not a list"),
    ({"inputs": []}, b"", {}, "Invalid arguments for add: $: lacks a"),
    ({"inputs": []}, b"1234", {"inference-header-content-length": "99"}, "is 99, the body has 18"),
    ({"inputs": []}, b"1234", {"inference-header-content-length": "x"}, "is not a number"),
    ({"inputs": []}, b"1234", {}, "the body has 4 bytes that no tensor of inputs claims"),
    (
        {"inputs": [{"name": "a", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 16}}]},
        bytes(8),
        {},
        "inputs[0].parameters.binary_data_size: is 16, of the body 8 bytes are left",
    ),
    (
        {"inputs": [{"name": "a", "datatype": "FP32", "shape": [1, 3], "parameters": {"binary_data_size": 8}}]},
        bytes(8),
        {},
        "inputs[0]: has 8 bytes; shape [1, 3] of FP32 needs 12",
    ),
    (
        {"inputs": [{"name": "a", "datatype": "FP32", "shape": [1, 2], "parameters": {"shared_memory_region": "x"}}]},
        b"",
        {},
        "inputs[0].parameters: shared memory is not offered; send the tensor's bytes",
    ),
    ({"inputs": [{**NAMED, "data": [1, True]}]}, b"", {}, "inputs[0].data[1]: is no FP32"),
    ({"inputs": [{**NAMED, "data": [1]}]}, b"", {}, "inputs[0].data: is a list of shape [1]"),
]  # fmt: skip


@pytest.mark.promise("input-checked")
def test_requests_below_v2_that_lie_are_one_sentence_each_and_reach_no_model() -> None:
    async def test() -> None:
        backend = TensorBackend()
        async with adapter(backend) as running:
            for document, binary, headers, sentence in BAD_INFERS:
                reply = await infer(running, "add", document, binary, **headers)
                assert (reply.status, list(reply.json)) == (400, ["error"])
                assert sentence in reply.json["error"]
            assert backend.calls == []

    run(test)


@pytest.mark.promise("binary")
def test_below_v2_json_is_numbers_and_null_only_where_that_is_the_policy() -> None:
    async def test() -> None:
        async with adapter(TensorBackend()) as running:
            one = {"name": "x", "datatype": "FP32", "shape": [2]}
            binary = np.array([1, np.nan], "<f4").tobytes()
            sized = {"inputs": [{**one, "parameters": {"binary_data_size": 8}}]}
            reply = await infer(running, "null", sized, binary)
            assert reply.json["outputs"] == [{"name": "y", "shape": [2], "datatype": "FP32", "data": [1.0, None]}]
            wide = {"name": "x", "datatype": "INT64", "shape": [1, 1], "data": [2**53 + 1]}
            reply = await infer(running, "echo_int64", {"inputs": [wide]})
            assert reply.json["outputs"][0]["data"] == [2**53 + 1]
            nested = {"name": "a", "datatype": "FP32", "shape": [2, 2], "data": [[1, 2], [3, 4]]}
            asked = {
                "id": "7",
                "inputs": [nested],
                "outputs": [{"name": "rows"}],
                "parameters": {"binary_data_output": True},
            }
            reply = await infer(running, "add", asked)
            assert reply.headers["content-type"] == "application/octet-stream"
            told = v2_wire.parse_response(reply.body, reply.headers["inference-header-content-length"], limit=100)
            assert (told.id, told.model_name, list(told.outputs)) == ("7", "add", ["rows"])
            assert codec.array(told.outputs["rows"]).tolist() == [[1], [3]]
            one_row = {"inputs": [{"name": "a", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}
            reply = await infer(running, "add", one_row)
            assert [output["shape"] for output in reply.json["outputs"]] == [[2], [1]]
            step = {"name": "x", "datatype": "INT32", "shape": [1], "data": [1]}
            reply = await infer(running, "steps", {"inputs": [step], "parameters": {"step": 2}})
            assert (reply.status, reply.json["outputs"][0]["data"]) == (200, [1])

    run(test)


@pytest.mark.promise("binary")
def test_what_is_refused_before_v2_is_worded_for_its_clients() -> None:
    async def test() -> None:
        config = AdapterConfig(limits=LimitsConfig(max_body_bytes=2048), mcp=McpConfig(allowed_hosts=("good.example",)))
        async with adapter(TensorBackend(), config) as running:
            refused = [
                (await infer(running, "add", b"x" * 3000), 413),
                (await infer(running, "add", {}, **{"content-encoding": "gzip"}), 415),
                (await infer(running, "add", {}, origin="https://evil.example"), 403),
                (await infer(running, "add", {}, host="evil.example"), 421),
                (await request(running.port, "GET", "/v2/models/add/versions/1"), 404),
                (await request(running.port, "GET", "/v2/repository/index"), 404),
                (await request(running.port, "GET", "/v2/models/nope/ready"), 404),
            ]
            for reply, status in refused:
                assert (reply.status, list(reply.json)) == (status, ["error"])
            for method, path in (("GET", "/v2/models/add/infer"), ("POST", "/v2/models/add"), ("DELETE", "/v2")):
                assert (await request(running.port, method, path)).status == 405
            assert (await request(running.port, "GET", "/v2/models/add%2Fx/ready")).status == 404
            assert (await request(running.port, "GET", "/v2/health/ready")).status == 200
            running.adapter.begin_drain()
            assert (await request(running.port, "GET", "/v2/health/ready")).status == 400
            assert (await request(running.port, "GET", "/v2/health/live")).status == 200

    run(test)


@pytest.mark.promise("auth")
def test_both_lanes_ask_for_the_scope_of_the_tool_and_tell_others_nothing_about_it() -> None:
    issuer = Issuer()
    auth = AuthConfig(
        issuers=(IssuerConfig(name="idp", issuer=issuer.url, audiences=(RESOURCE,), jwks=issuer.jwks()),),
        resource=RESOURCE,
    )

    def bearer(scope: str) -> dict[str, str]:
        return {"authorization": f"Bearer {issuer.token(issuer.claims(scope=scope))}"}

    async def test() -> None:
        backend = TensorBackend()
        async with adapter(backend, AdapterConfig(auth=auth)) as running:
            named = {"name": "a", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
            good, other = bearer("mcp:tools:call:add"), bearer("mcp:tools:call:null")
            assert (await infer(running, "add", {"inputs": [named]}, **good)).status == 200
            assert (await pack(running, call_message("add", {"a": fields(ROW)}), **good)).status == 200
            assert len(backend.calls) == 2
            for document in ({"inputs": [named]}, {"inputs": [], "outputs": [{"name": "x"}]}):
                reply = await infer(running, "add", document, **other)
                assert (reply.status, list(reply.json)) == (403, ["error"])
                assert 'scope="mcp:tools:call:add"' in reply.headers["www-authenticate"]
                assert "rows" not in reply.json["error"]
            refused = await pack(running, call_message("add", {"a": fields(ROW)}), **other)
            assert (refused.status, msgspec.msgpack.decode(refused.body)["error"]["code"]) == (403, 1403)
            assert (await request(running.port, "GET", "/v2/models/add", None, other)).status == 403
            assert (await request(running.port, "GET", "/v2/models/add", None, bearer("mcp:tools:list"))).status == 200
            nobody = await infer(running, "add", {"inputs": [named]})
            assert (nobody.status, list(nobody.json)) == (401, ["error"])
            assert len(backend.calls) == 2

    run(test)


@pytest.mark.promise("binary")
def test_without_binary_transfer_both_lanes_say_what_would_open_them() -> None:
    async def test() -> None:
        async with adapter(TensorBackend(), binary=False) as running:
            reply = await pack(running, call_message("add", {}))
            assert reply.status == 415
            assert "spec.mcp.binaryTransfer: true" in reply.json["error"]["message"]
            for path in ("/v2/health/ready", "/v2/models/add"):
                reply = await request(running.port, "GET", path)
                assert reply.status == 404
                assert "spec.mcp.binaryTransfer: true" in reply.json["error"]
            lists = await running.rpc("call_tool", {"name": "add", "arguments": {"a": [1, 2]}})
            assert lists.json["result"]["structuredContent"] == {"sum": [1.0, 2.0], "rows": [1]}

    run(test)


@pytest.mark.promise("binary")
def test_before_the_model_server_is_found_v2_says_so_and_a_caller_that_leaves_stops_its_call() -> None:
    async def test() -> None:
        config = AdapterConfig(mcp=McpConfig(binary_transfer=True))
        async with plain_adapter(1, config, wait=False) as running:
            assert (await request(running.port, "GET", "/v2/health/ready")).status == 400
            reply = await infer(running, "add", {"inputs": []})
            assert (reply.status, list(reply.json)) == (503, ["error"])
            (line,) = running.lines.of("call")
            assert (line["era"], line["outcome"]) == ("v2", "unreachable")
        backend = TensorBackend()
        backend.hangs = True
        async with adapter(backend) as running:
            body = json.dumps({"inputs": [NAMED | {"data": [1, 2]}]}).encode()
            _, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(encode("POST", "/v2/models/add/infer", body))
            await backend.entered.wait()
            writer.close()
            line = await running.lines.wait_for("call", era="v2")
            assert (line["outcome"], line["status"]) == ("cancelled", 499)

    run(test)


@pytest.mark.promise("binary")
def test_tensors_are_handed_over_to_another_pod_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "PAUSE", 0.001)

    async def test() -> None:
        here, there = TensorBackend(), TensorBackend()
        here.gone = True
        async with adapter(there) as other:
            config = AdapterConfig(peers=PeersConfig(host="127.0.0.1", port=other.port))
            async with adapter(here, config) as running:
                tensor = sample("BF16")
                reply = await pack(running, call_message("echo_bf16", {"x": fields(tensor)}))
                told = msgspec.msgpack.decode(reply.body)["result"]["tensors"]["y"]
                assert told == fields(tensor)
                reply = await infer(running, "add", {"inputs": [
                    {"name": "a", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]},
                ]})  # fmt: skip
                assert reply.json["outputs"][0]["data"] == [1.0, 2.0]
                refused = await pack(
                    running, call_message("echo_bool", {"x": {"dtype": "BOOL", "shape": [0, 1], "bin": b""}})
                )
                assert refused.status == 200
                lists = await running.call("add", {"a": [1, 2]})
                assert lists["structuredContent"] == {"sum": [1.0, 2.0], "rows": [1]}
        assert [name for name, _ in there.calls] == ["echo_bf16", "add", "echo_bool", "add"]
        assert here.calls == []

    run(test)
