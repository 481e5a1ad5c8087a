"""The Open Inference Protocol below `/v2`: every tool whose arguments are tensors is a model of the tool's name.

Owns the HTTP side and the wording of results and errors there, so that a client written for Triton or another such server
works unchanged: tensors have the model's own names here, and may be given by the tool's. The same middleware and the same
pipeline serve `/mcp`. There are no versions, no repository, no shared memory and no model configuration: only what a caller of
a model needs.
"""

import asyncio
import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import orjson

from modelservice_sidecar import inbound as requests
from modelservice_sidecar import json_body
from modelservice_sidecar.backends.base import Answer
from modelservice_sidecar.backends.tensor_tool import MAX_TENSOR_BYTES
from modelservice_sidecar.calls import FIRST_WAIT, LIST_WAIT, Calls, Snapshot
from modelservice_sidecar.core import errors
from modelservice_sidecar.core.errors import (
    AccessError,
    BackendAnswerInvalidError,
    BackendUnreachableError,
    CallError,
    InvalidArgumentsError,
    UnknownToolError,
)
from modelservice_sidecar.core.tensors import Signature, TensorSpec
from modelservice_sidecar.exchange import Exchange, Timing
from modelservice_sidecar.inbound import Inbound, RawHeaders, Receive, Scope, Send
from modelservice_sidecar.telemetry import CallRecord, Telemetry

if TYPE_CHECKING:
    from modelservice_sidecar.core.v2_wire import InferRequest

OFF: Final = "Not found; the Open Inference Protocol is served here with spec.mcp.binaryTransfer: true"

_WIRE: Final = "modelservice_sidecar.core.v2_wire"
_PATH: Final = re.compile(r"/v2/models/([A-Za-z0-9_-]{1,64})(/ready|/infer)?")
_PATHS: Final = "Not found; there are /v2, /v2/health and /v2/models/NAME, and models have no versions here"
_LARGE_JSON: Final = 64 * 1024
"""Bytes of JSON in a request from which reading its tensors leaves the event loop."""
_MANY_ELEMENTS: Final = 16 * 1024
"""The same for elements of an answer that are written as JSON."""
_READ: Final[RawHeaders] = [(b"allow", b"GET, HEAD")]
_WRITE: Final[RawHeaders] = [(b"allow", b"POST")]


class V2Endpoint:
    """ASGI application of `/v2` and everything below it; see the module's docstring."""

    def __init__(
        self,
        *,
        calls: Calls,
        snapshot: Callable[[], Snapshot],
        telemetry: Telemetry,
        timing: Timing,
        draining: Callable[[], bool],
    ) -> None:
        self._calls = calls
        self._snapshot = snapshot
        self._telemetry = telemetry
        self._timing = timing
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        inbound = requests.of(scope)
        path = scope["path"].rstrip("/")
        model = _PATH.fullmatch(path)
        name, part = model.groups() if model is not None else ("", None)
        infers = part == "/infer"
        if scope["method"] not in ({"POST"} if infers else {"GET", "HEAD"}):
            self._telemetry.rejected("method")
            await requests.answer_empty(inbound, send, 405, _WRITE if infers else _READ)
        elif infers:
            exchange = Exchange(inbound, receive, send, streams=False, token=None, timing=self._timing)
            await exchange.run(self._infer(name, inbound))
        elif model is not None:
            status, body = await self._about(name, inbound, told=part is None)
            await requests.answer(inbound, send, status, body)
        elif path in {"/v2/health/live", "/v2/health/ready"}:
            live = path.endswith("live") or (self._snapshot().backend is not None and not self._draining())
            await requests.answer_empty(inbound, send, 200 if live else 400)
        elif path == "/v2":
            server = self._snapshot().config.server
            about = {"name": server.name, "version": server.version, "extensions": ["binary_tensor_data"]}
            await requests.answer(inbound, send, 200, orjson.dumps(about))
        else:
            self._telemetry.rejected("path")
            await requests.refuse(inbound, send, 404, _PATHS)

    async def _about(self, name: str, inbound: Inbound, *, told: bool) -> tuple[int, bytes]:
        """A model's metadata, or with `told` false only whether there is such a model."""
        refusal = self._snapshot().access.may_see(inbound.identity, name)
        if refusal is not None:
            requests.ask_for_scope(inbound, refusal.scope)
            return _failed(refusal)
        await self._calls.until_looked(LIST_WAIT)
        signature = _signature(self._snapshot().seen_by(inbound.identity), name)
        if signature is None:
            return _failed(_unknown(name))
        if not told:
            return 200, b""
        about = {
            "name": name,
            "platform": "modelservice",
            "inputs": [_described(spec) for spec in signature.inputs],
            "outputs": [_described(spec) for spec in signature.outputs],
        }
        return 200, orjson.dumps(about)

    async def _infer(self, name: str, inbound: Inbound) -> tuple[int, bytes]:
        """Run the call and word its outcome; it is accounted for whatever happens."""
        record = CallRecord(ids=inbound.ids, era="v2", bytes_in=len(inbound.body), user=inbound.user)
        status, body = 499, b""
        try:
            try:
                status, body = 200, await self._inferred(name, inbound, record)
            except CallError as error:
                if isinstance(error, AccessError):
                    requests.ask_for_scope(inbound, error.scope)
                requests.say_when(inbound, error.retry_after)
                if record.outcome == "ok":  # it failed before or after the pipeline, which notes its own failures
                    record.outcome, record.error = errors.telling(error).outcome, errors.own_words(error)
                status, body = _failed(error)
            return status, body
        finally:
            self._calls.finish(record, inbound.received, status, len(body))

    async def _inferred(self, name: str, inbound: Inbound, record: CallRecord) -> bytes:
        request = await _read(inbound)
        if self._snapshot().backend is None:
            await self._calls.until_found(FIRST_WAIT)
        now = self._snapshot()
        refusal = now.access.may_call(inbound.identity, name)
        if refusal is not None:  # who may not call it learns nothing about it
            raise refusal
        if now.backend is None:
            raise BackendUnreachableError(now.why_not)
        signature = _signature(now, name)
        if signature is None:
            raise _unknown(name)
        record.tool = name
        arguments = _arguments(signature, request)
        _check_outputs(signature, request)
        answer = await self._calls.run(
            name,
            arguments,
            record=record,
            identity=inbound.identity,
            credentials=inbound.credentials,
            headers=inbound.headers,
            wants_tensors=True,
        )
        return await _written(name, signature, request, answer, inbound)


async def _read(inbound: Inbound) -> "InferRequest":
    if _WIRE not in sys.modules:  # it brings numpy, which takes a tenth of a second
        await asyncio.to_thread(import_module, _WIRE)
    from modelservice_sidecar.core import v2_wire

    try:
        length = inbound.headers.get(v2_wire.HEADER_LENGTH)
        header, binary = v2_wire.split(inbound.body, length)
        text = inbound.body if length is None else bytes(header)
        document = json_body.load(text)
        # Every number in JSON, and every string in bytes, is looked at.
        if len(text) > _LARGE_JSON or (len(binary) > _LARGE_JSON and b"BYTES" in text):
            return await asyncio.to_thread(v2_wire.read_request, document, binary, limit=MAX_TENSOR_BYTES)
        return v2_wire.read_request(document, binary, limit=MAX_TENSOR_BYTES)
    except json_body.BadJsonError:
        raise InvalidArgumentsError("Invalid request: its JSON part is not JSON.") from None
    except v2_wire.WireError as error:
        raise InvalidArgumentsError(f"Invalid request: {error}") from error


def _arguments(signature: Signature, request: "InferRequest") -> dict[str, Any]:
    """The arguments by the tool's names; tensors may have the model's own. What are no tensors are parameters on the wire."""
    keys = {spec.key: spec.key for spec in signature.inputs} | {spec.name: spec.key for spec in signature.inputs}
    found: dict[str, Any] = {}
    for name, tensor in request.inputs.items():
        key = keys.get(name, name)
        if key in found:
            raise InvalidArgumentsError(f"Invalid request: inputs: {key} is there twice, by both of its names")
        found[key] = tensor
    controls = sorted(control.name for control in signature.controls)
    for name, value in request.parameters.items():
        if name not in controls:
            raise InvalidArgumentsError(
                f"Invalid request: parameters.{name[:64]}: is not taken here; {_known('parameters', controls)}"
            )
        found[name] = value
    return found


def _outputs(signature: Signature) -> dict[str, str]:
    """The tool's name of every output, by each name that it may be asked for."""
    return {spec.key: spec.key for spec in signature.outputs} | {spec.name: spec.key for spec in signature.outputs}


def _check_outputs(signature: Signature, request: "InferRequest") -> None:
    keys = _outputs(signature)
    for at, wanted in enumerate(request.outputs):
        if wanted.name not in keys:
            known = _known("outputs", [spec.name for spec in signature.outputs])
            raise InvalidArgumentsError(
                f"Invalid request: outputs[{at}].name: {wanted.name[:64]!r} is no output; {known}"
            )
        if wanted.parameters:
            other = next(iter(wanted.parameters))
            raise InvalidArgumentsError(f"Invalid request: outputs[{at}].parameters.{other[:64]}: is not taken here")


async def _written(name: str, signature: Signature, request: "InferRequest", answer: Answer, inbound: Inbound) -> bytes:
    from modelservice_sidecar.core import codec, v2_wire

    if answer.tensors is None:
        raise BackendAnswerInvalidError(
            f"{name} answers with something else than one set of tensors; call it over MCP."
        )
    forms = {output.name: output.binary for output in request.outputs}
    forms = forms or dict.fromkeys(spec.name for spec in signature.outputs)
    binary = {wanted: request.binary_outputs if form is None else form for wanted, form in forms.items()}
    keys = _outputs(signature)
    outputs = {wanted: answer.tensors[keys[wanted]] for wanted in forms}
    as_json = {wanted: tensor for wanted, tensor in outputs.items() if not binary[wanted]}
    for wanted, tensor in as_json.items():
        if not signature.nulls and not codec.is_finite(tensor):
            raise BackendAnswerInvalidError(
                f"The output {wanted} holds NaN or an infinity, which JSON cannot tell; ask for it as binary data."
            )
    response = v2_wire.InferResponse(outputs=outputs, model_name=name, id=request.id)
    if sum(tensor.elements for tensor in as_json.values()) > _MANY_ELEMENTS:
        message = await asyncio.to_thread(v2_wire.write_response, response, binary)
    else:
        message = v2_wire.write_response(response, binary)
    if message.header_length is not None:
        inbound.content_type = message.content_type.encode("ascii")
        inbound.answer_headers.append((v2_wire.HEADER_LENGTH.encode("ascii"), b"%d" % message.header_length))
    return message.body


def _failed(error: CallError) -> tuple[int, bytes]:
    status = 404 if isinstance(error, UnknownToolError) else errors.telling(error).status
    return status, orjson.dumps({"error": str(error)})


def _signature(now: Snapshot, name: str) -> Signature | None:
    tool = now.published.tools.get(name)
    return None if tool is None else tool.tool.spec.signature


def _unknown(name: str) -> UnknownToolError:
    return UnknownToolError(f"Unknown model: no tool named {name} takes tensors.")


def _described(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.shape}


def _known(kind: str, names: list[str]) -> str:
    return f"there are {', '.join(names)}" if names else f"this model has no {kind}"
