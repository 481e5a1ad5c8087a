"""The gRPC lane to an Open Inference Protocol server: for large tensors, and for models that answer any number of times.

Owns the channel, the messages and the meaning of gRPC's status codes. Uses the messages of `tritonclient` (extra `triton`) and
not its client, which hides errors of a stream behind a cancellation and works on the event loop. gRPC and the messages are
imported by the first call that takes this lane.
"""

import asyncio
import importlib.util
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from modelservice_sidecar.backends.base import CallContext
from modelservice_sidecar.backends.tensor_tool import MAX_TENSOR_BYTES
from modelservice_sidecar.core import text, v2
from modelservice_sidecar.core.errors import (
    BackendAnswerInvalidError,
    BackendAnswerTooLargeError,
    BackendBusyError,
    BackendDeniedError,
    BackendDisconnectedError,
    BackendFailureError,
    BackendRefusedError,
    BackendUnreachableError,
    CallError,
)
from modelservice_sidecar.core.tensors import Tensor
from modelservice_sidecar.core.v2 import Model
from modelservice_sidecar.upstream import MAX_ANSWER

_SERVICE: Final = "/inference.GRPCInferenceService/"
_MARGIN: Final = 1.0
_HEADROOM: Final = 64 * 1024
"""For what stands in an answer beside the tensors' bytes."""
_OFF_LOOP: Final = 256 * 1024
"""Bytes from which reading a message leaves the event loop."""

_CONTENTS: Final = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""Where a server puts elements that it does not send as bytes."""


def is_installed() -> bool:
    """Whether this adapter has the gRPC client; finding out imports none of it."""
    return importlib.util.find_spec("tritonclient") is not None and importlib.util.find_spec("grpc") is not None


class GrpcLane:
    """Calls to one server's gRPC port. The channel is opened by the first call."""

    def __init__(self, host: str, port: int, credential: Callable[[], tuple[str, str] | None] = lambda: None) -> None:
        self._credential = credential
        self._target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._channel: Any = None

    def _metadata(self, context: CallContext) -> tuple[tuple[str, str], ...]:
        ids = context.ids
        state = (("tracestate", ids.state),) if ids.state else ()
        step = context.steps[-1] if context.steps else None  # the request that is made now
        parent = ids.traceparent if step is None else context.traceparent(step)
        credential = self._credential()
        shown = () if credential is None else (credential,)
        return (("x-request-id", ids.request_id), ("traceparent", parent), *state, *context.headers.items(), *shown)

    async def infer(
        self, model: Model, tensors: Mapping[str, Tensor], controls: Mapping[str, Any], context: CallContext
    ) -> Mapping[str, Tensor]:
        """One answer. Cancelling the task cancels the call on the server.

        Raises:
            CallError: see there.
        """
        channel = await self._open()
        request = await asyncio.to_thread(_request, model, tensors, controls, context.ids.request_id)
        with self._failures(model):
            reply = await channel.unary_unary(_SERVICE + "ModelInfer")(
                request, metadata=self._metadata(context), timeout=_time_left(context)
            )
        return await asyncio.to_thread(_read_response, reply)

    async def stream(
        self, model: Model, tensors: Mapping[str, Tensor], controls: Mapping[str, Any], context: CallContext
    ) -> AsyncGenerator[Mapping[str, Tensor], None]:
        """Every answer as it comes. Closing the generator cancels the call on the server.

        Raises:
            CallError: see there.
        """
        channel = await self._open()
        request = await asyncio.to_thread(_request, model, tensors, controls, context.ids.request_id)
        call = channel.stream_stream(_SERVICE + "ModelStreamInfer")(
            _once(request), metadata=self._metadata(context), timeout=_time_left(context)
        )
        replies = aiter(call)
        try:
            while True:
                with self._failures(model):
                    try:
                        reply = await anext(replies)
                    except StopAsyncIteration:
                        return
                outputs = await _read_streamed(model, reply)
                if outputs:  # an answer without any marks the end
                    yield outputs
        finally:
            call.cancel()

    async def aclose(self) -> None:
        """Close the channel; calls on it end."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def _open(self) -> Any:
        if self._channel is None:
            await asyncio.to_thread(importlib.import_module, "tritonclient.grpc.service_pb2")  # half a second
        if self._channel is None:  # another call may have been first
            import grpc.aio

            options = [
                ("grpc.max_send_message_length", -1),
                ("grpc.max_receive_message_length", MAX_ANSWER + _HEADROOM),
                ("grpc.enable_http_proxy", 0),
                ("grpc.enable_retries", 0),
            ]
            # Messages are written and read here, off the loop, and not by the stub, which does it on the loop.
            self._channel = grpc.aio.insecure_channel(self._target, options=options)
        return self._channel

    @contextmanager
    def _failures(self, model: Model) -> Iterator[None]:
        """Tells gRPC's errors in the adapter's own."""
        import grpc.aio

        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise _failure(model, error.code().name, error.details() or "", self._target) from error
        except asyncio.CancelledError:
            # What the server cancelled is told with asyncio's own error, as if somebody had cancelled this task.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise BackendFailureError("The model server cancelled the call.") from None


async def _once(request: Any) -> AsyncGenerator[Any, None]:
    yield request


def _request(model: Model, tensors: Mapping[str, Tensor], controls: Mapping[str, Any], request_id: str) -> bytes:
    from tritonclient.grpc import service_pb2

    request = service_pb2.ModelInferRequest(model_name=model.name, id=request_id)
    for name, tensor in tensors.items():
        request.inputs.add(name=name, datatype=tensor.datatype, shape=tensor.shape)
        request.raw_input_contents.append(bytes(tensor.data))
    for name, value in controls.items():
        parameter = request.parameters[name]
        if isinstance(value, bool):
            parameter.bool_param = value
        elif isinstance(value, int):
            parameter.int64_param = value
        else:
            parameter.string_param = value
    written: bytes = request.SerializeToString()
    return written


async def _read_streamed(model: Model, reply: bytes) -> dict[str, Tensor]:
    def read() -> dict[str, Tensor]:
        from tritonclient.grpc import service_pb2

        response = service_pb2.ModelStreamInferResponse.FromString(reply)
        if response.error_message:
            # An error within a stream has no status code.
            if "unknown model" in response.error_message:
                raise v2.gone(model)
            raise BackendFailureError("The model failed while it answered.")
        return _outputs(response.infer_response)

    return read() if len(reply) < _OFF_LOOP else await asyncio.to_thread(read)


def _read_response(reply: bytes) -> dict[str, Tensor]:
    from tritonclient.grpc import service_pb2

    return _outputs(service_pb2.ModelInferResponse.FromString(reply))


def _outputs(response: Any) -> dict[str, Tensor]:
    from modelservice_sidecar.core import codec

    raw = response.raw_output_contents
    if raw and len(raw) != len(response.outputs):
        raise BackendAnswerInvalidError(
            f"The model server's answer names {len(response.outputs)} outputs and has {len(raw)}."
        )
    found: dict[str, Tensor] = {}
    for number, output in enumerate(response.outputs):
        shape = list(output.shape)
        try:
            if raw:
                found[output.name] = codec.from_bytes(output.datatype, shape, raw[number], limit=MAX_TENSOR_BYTES)
            elif output.datatype == "BYTES":
                data = codec.join_bytes(list(output.contents.bytes_contents))
                found[output.name] = codec.from_bytes("BYTES", shape, data, limit=MAX_TENSOR_BYTES)
            else:
                values = list(getattr(output.contents, _CONTENTS.get(output.datatype, "bool_contents")))
                found[output.name] = codec.from_flat(values, output.datatype, shape, limit=MAX_TENSOR_BYTES, nulls=True)
        except codec.CodecError as error:
            raise BackendAnswerInvalidError(
                f"The output {text.clean(output.name, 64)} of the model server's answer {error}."
            ) from error
    return found


def _time_left(context: CallContext) -> float:
    """Seconds that the server is told. A little more than there are, so that it is the adapter which ends the call."""
    return max(0.0, context.deadline - asyncio.get_running_loop().time()) + _MARGIN


def _failure(model: Model, code: str, details: str, target: str) -> CallError:
    reason = text.clean(details, 300)
    if code == "UNAVAILABLE":
        return _unavailable(details, target)
    if code == "NOT_FOUND":
        return v2.gone(model)
    if code in {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE", "UNIMPLEMENTED", "ALREADY_EXISTS"}:
        return BackendRefusedError(f"The model server refuses the request ({code}): {reason}")
    if code in {"UNAUTHENTICATED", "PERMISSION_DENIED"}:
        return BackendDeniedError(f"The model server refuses the adapter ({code}); its owner must allow it.")
    if code == "RESOURCE_EXHAUSTED":
        if "larger than max" in details:
            return BackendAnswerTooLargeError(
                f"The model server's answer is larger than {MAX_ANSWER // (1024 * 1024)} MiB."
            )
        return BackendBusyError("The model server is busy (RESOURCE_EXHAUSTED); try again later.")
    return BackendFailureError(f"The model server failed ({code}).")


def _unavailable(details: str, target: str) -> CallError:
    """gRPC has one code for a port that is closed, a connection that broke and a server that is busy; only its text differs."""
    told = details.lower()
    if "failed to connect" in told or "connection refused" in told:
        return BackendUnreachableError(
            f"Nothing accepts gRPC connections on {target}; the model server may be starting or stopped, "
            "or spec.backend.v2.grpcPort is not its gRPC port."
        )
    if "queue" in told or "busy" in told or "too many" in told:
        return BackendBusyError("The model server is busy (UNAVAILABLE); try again later.")
    return BackendDisconnectedError(
        "The connection to the model server ended before its answer; the call may or may not have run."
    )
