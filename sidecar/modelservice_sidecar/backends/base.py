"""The one seam between the adapter and a kind of model server.

Owns the `Backend` protocol and the values that cross it. May not know HTTP, MCP or any one kind: `openapi` and later kinds
implement it, the pipeline and discovery use it.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from modelservice_api.adapter_config import BackendType
from modelservice_sidecar.core.authorization import Identity
from modelservice_sidecar.core.catalogue import ToolSpec
from modelservice_sidecar.core.tensors import Tensor
from modelservice_sidecar.core.trace import Ids
from modelservice_sidecar.steps import Step, Steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """What a model server says it can do. Equal `fingerprint`s mean nothing changed.

    `because` is a sentence about what it was recognised by. `unsettled`: models are being loaded, so it is worth to look again
    soon.
    """

    kind: BackendType
    fingerprint: str
    tools: tuple[ToolSpec, ...]
    notes: tuple[str, ...] = ()
    because: str = ""
    unsettled: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """A sign of life from a running call: a piece of its answer, or its count of pieces so far."""

    value: float
    message: str = ""


class Answer(NamedTuple):
    """A model server's answer in MCP's terms.

    `content` is a list of content blocks. `structured` is the JSON value for `structuredContent` and is absent where
    `has_structured` is false. `raw` is the same value as JSON bytes where it came as such, so it need not be written again;
    a tensor tool gives `raw` alone. `tensors` is given instead of all of them where `CallContext.wants_tensors` asked for it.
    """

    content: list[dict[str, Any]]
    structured: Any = None
    has_structured: bool = False
    raw: bytes | None = None
    tensors: Mapping[str, Tensor] | None = None


@dataclass(kw_only=True, slots=True)
class CallContext:
    """What a backend may know about a call and what it tells back.

    `deadline` is on the loop's clock. `handed_over`: another pod's adapter sent it. `wants_tensors`: the caller takes tensors
    as bytes. `headers` are the caller's that go on to the model server. `identity` is the caller, `None` where nobody has to
    say who it is; its token is not here. The counters are
    written by the backend and end in the log line, as do `cache` (what the cache had), `retries` and `batch_rows` (of the batch
    that the call went with), which stages write. Who waits, or asks another process, notes it in `steps`.
    """

    ids: Ids
    deadline: float
    on_progress: Callable[[Progress], None] | None = None
    handed_over: bool = False
    wants_tensors: bool = False
    identity: Identity | None = None
    backend_seconds: float = 0.0
    backend_status: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cache: str = ""
    retries: int = 0
    batch_rows: int = 0
    retried: bool = False
    """A stage sends failed calls again, so the backend does not."""
    headers: Mapping[str, str] = field(default_factory=dict)
    steps: Steps = field(default_factory=Steps)

    def traceparent(self, step: Step) -> str:
        """The header for a request that is this step: what is recorded of it elsewhere hangs below it."""
        return (self.ids._replace(span_id=step.span_id) if step.span_id else self.ids).traceparent


class Backend(Protocol):
    """One model server. Every method may be called from many tasks at once."""

    kind: BackendType

    async def describe(self) -> Description:
        """What the model server can do now.

        Raises:
            DescribeError: it cannot be reached or understood; carries the report's state.
        """
        ...

    async def ready(self) -> bool:
        """Whether the model server would take a call now. Never raises."""
        ...

    async def warm_up(self) -> None:
        """Do once what the first call would otherwise pay for. Never raises."""
        ...

    async def call(self, spec: ToolSpec, arguments: dict[str, Any], context: CallContext) -> Answer:
        """Run one tool. Cancelling the task cancels the model server's work as far as its protocol can.

        Raises:
            CallError: the call failed; the text is safe to show.
        """
        ...

    def stream(
        self, spec: ToolSpec, arguments: dict[str, Any], context: CallContext
    ) -> AsyncGenerator[Progress | Answer, None]:
        """Like `call`, with every piece of a streamed answer as it comes; the `Answer` is last."""
        ...

    async def cancel(self, request_id: str) -> None:
        """Stop the call of that request id, if it still runs. Never raises."""
        ...

    async def aclose(self) -> None:
        """Give back every connection."""
        ...
