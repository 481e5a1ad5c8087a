"""`ModelService` v1alpha1: what a user writes and what the operator answers.

Owns the types, their defaults and the cross-field rules (as CEL, checked by the API server). The CRD in
`crds/modelservices.modelservice.dev.yaml` is generated from here by `modelservice_api.crdgen`. Blocks that this version
cannot honour are typed all the same and refused by the operator with `NotSupportedYet`; none is silently ignored.

Every string has a `max_length`, every list a `max_length`, so that the API server can bound the cost of the CEL rules.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from modelservice_api.adapter_config import Datatype
from modelservice_api.wellknown import NEVER_FORWARDED

Name = Annotated[str, Field(max_length=253, min_length=1)]
ToolName = Annotated[str, Field(max_length=64, min_length=1, pattern=r"^[A-Za-z0-9_-]+$")]
DiscoveredName = Annotated[str, Field(max_length=256, min_length=1)]
ContainerName = Annotated[str, Field(max_length=63, min_length=1)]
ShortText = Annotated[str, Field(max_length=256)]
LongText = Annotated[str, Field(max_length=1024)]
Port = Annotated[int, Field(ge=1, le=65535)]
UrlPath = Annotated[str, Field(max_length=256, pattern=r"^/[A-Za-z0-9._~/-]*$")]
Duration = Annotated[str, Field(max_length=16, pattern=r"^([1-9][0-9]{0,6})(ms|s|m|h)$")]
"""A whole number and one unit, for example `30s`."""
Quantity = Annotated[str, Field(max_length=32, pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$")]
IssuerName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^([a-z0-9]-?)*[a-z0-9]$")]
ResourceName = Annotated[str, Field(max_length=253, min_length=1)]
Percent = Annotated[int, Field(ge=0, le=100)]


class _Type(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    cel: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Rules over `self` as the API server sees it, each with the message that a user reads."""


class WorkloadRef(_Type):
    """The running workload to adopt. Always in the ModelService's own namespace."""

    api_version: ShortText = "apps/v1"
    kind: Annotated[str, Field(max_length=63, min_length=1)] = "Deployment"
    name: Name


class Injection(_Type):
    """How the adapter reaches the model server's pods. Unset `mode` means `Workload`."""

    mode: Literal["Workload", "Pod", "Standalone", "Manual"] | None = None
    placement: Literal["container", "native"] = "container"


class OpenAPIBackend(_Type):
    """Where the OpenAPI document is and which operations become tools (shell-style patterns over operation ids)."""

    path: UrlPath = "/openapi.json"
    include: Annotated[tuple[DiscoveredName, ...], Field(max_length=256)] = ()
    exclude: Annotated[tuple[DiscoveredName, ...], Field(max_length=256)] = ()
    tags: Annotated[tuple[DiscoveredName, ...], Field(max_length=64)] = ()


class V2Backend(_Type):
    """Open Inference Protocol servers, such as Triton."""

    models: Annotated[tuple[DiscoveredName, ...], Field(max_length=256)] = ()
    grpc_port: Port | None = None


class OpenAIBackend(_Type):
    """OpenAI-compatible servers."""

    models: Annotated[tuple[DiscoveredName, ...], Field(max_length=256)] = ()


class ArtifactBackend(_Type):
    """A compiled model that the adapter itself runs."""

    artifact: LongText
    function: ShortText = "main"


class SecretKeyRef(_Type):
    """A key of a Secret in the same namespace."""

    name: Name
    key: Annotated[str, Field(max_length=253, min_length=1)] = "token"


class BackendCredential(_Type):
    """How the adapter shows itself to a model server that asks for it: a header, its value from a Secret.

    The kubelet gives the value to the adapter's container; the operator never reads it. `scheme` and a blank stand before it.
    """

    secret_key_ref: SecretKeyRef
    header: Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9][a-z0-9-]*$")] = "authorization"
    scheme: Annotated[str, Field(max_length=32, pattern=r"^[A-Za-z0-9_-]*$")] = "Bearer"


class Backend(_Type):
    """The model server inside the pod. The adapter reaches it on loopback; there is no host to configure.

    In Standalone mode it is reached through a Service that selects the workload's pods; `service` says which, where there are
    several. `forwardHeaders` are the caller's headers, in lower case, that go on to the model server; no others do, and
    credentials never.
    """

    type: Literal["Auto", "OpenAPI", "V2", "OpenAI", "TVM", "Torch", "ONNX"] = "Auto"
    container: ContainerName | None = None
    port: Port | None = None
    service: Annotated[str, Field(max_length=63, min_length=1)] | None = None
    open_api: Annotated[OpenAPIBackend | None, Field(alias="openAPI")] = None
    v2: V2Backend | None = None
    open_ai: Annotated[OpenAIBackend | None, Field(alias="openAI")] = None
    tvm: ArtifactBackend | None = None
    torch: ArtifactBackend | None = None
    onnx: ArtifactBackend | None = None
    forward_headers: Annotated[
        tuple[Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9][a-z0-9-]*$")], ...], Field(max_length=16)
    ] = ()
    credential: BackendCredential | None = None

    cel: ClassVar[tuple[tuple[str, str], ...]] = (
        ("!has(self.openAPI) || self.type in ['Auto', 'OpenAPI']", "openAPI needs type Auto or OpenAPI"),
        ("!has(self.v2) || self.type in ['Auto', 'V2']", "v2 needs type Auto or V2"),
        ("!has(self.openAI) || self.type in ['Auto', 'OpenAI']", "openAI needs type Auto or OpenAI"),
        ("!has(self.tvm) || self.type in ['Auto', 'TVM']", "tvm needs type Auto or TVM"),
        ("!has(self.torch) || self.type in ['Auto', 'Torch']", "torch needs type Auto or Torch"),
        ("!has(self.onnx) || self.type in ['Auto', 'ONNX']", "onnx needs type Auto or ONNX"),
        (
            (
                "!has(self.forwardHeaders) || self.forwardHeaders.all(name, !name.startsWith('mcp-') && !(name in ["
                + ", ".join(f"'{name}'" for name in sorted(NEVER_FORWARDED))
                + "]))"
            ),
            "forwardHeaders may not name credentials, MCP's own headers, or those that the adapter sets itself",
        ),
    )


class TensorSpec(_Type):
    """One declared tensor. A dimension of -1 is free."""

    name: ShortText
    datatype: Datatype
    shape: Annotated[tuple[Annotated[int, Field(ge=-1, le=2**31 - 1)], ...], Field(max_length=16)]


class Model(_Type):
    """What the model is. `version` is published as the MCP server's version.

    `inputs` and `outputs` are compared with what the running model says; where they differ no call reaches it. `nonFinite`
    is about NaN and infinities: `Refuse` makes them errors, `Null` lets them in and tells them as null in JSON results.
    """

    version: Annotated[str, Field(max_length=63)] | None = None
    inputs: Annotated[tuple[TensorSpec, ...], Field(max_length=64)] = ()
    outputs: Annotated[tuple[TensorSpec, ...], Field(max_length=64)] = ()
    non_finite: Literal["Refuse", "Null"] = "Refuse"


class ToolAnnotations(_Type):
    """MCP tool annotations (MCP specification, server/tools)."""

    title: ShortText | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolOverride(_Type):
    """What to change about one discovered tool. Absent fields keep what was discovered."""

    name: ToolName | None = None
    description: LongText | None = None
    annotations: ToolAnnotations | None = None


class Tools(_Type):
    """Which tools are published and how. `filter`: discovered names to publish, empty for all."""

    filter: Annotated[tuple[DiscoveredName, ...], Field(max_length=256)] = ()
    overrides: Annotated[dict[str, ToolOverride], Field(max_length=256)] = {}
    pinning: Literal["Report", "Enforce"] = "Report"


class Mcp(_Type):
    """The MCP endpoint. Unset `port` takes the first of 8931-8999 that no container of the pod declares.

    `binaryTransfer` opens two lanes for tensors as bytes beside it: MessagePack on `/rpc`, and the Open Inference Protocol
    below `/v2`.
    """

    port: Port | None = None
    path: UrlPath = "/mcp"
    binary_transfer: bool = False
    allowed_hosts: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    allowed_origins: Annotated[tuple[Name, ...], Field(max_length=64)] = ()

    cel: ClassVar[tuple[tuple[str, str], ...]] = (
        ("!has(self.port) || self.port >= 1024", "port must be 1024 or higher: the adapter does not run as root"),
        ("!has(self.path) || self.path.size() > 1", "path must be longer than /"),
        ("!has(self.path) || self.path != '/rpc'", "path /rpc is taken by JSON-RPC"),
    )


class Limits(_Type):
    """Bounds on every call."""

    max_body_bytes: Annotated[int, Field(ge=1024, le=1024 * 1024 * 1024)] = 4194304
    timeout: Duration = "30s"
    max_concurrency: Annotated[int, Field(ge=1, le=10000)] = 64


class Auth(_Type):
    """Only callers with a token of one of `issuers` get in. Without this block anybody does who reaches the port.

    `issuers` are names that the platform admin gave in the chart's values. `anonymousTools` are published names that anybody
    may list and call all the same. `publicUrl` is the URL under which clients know this server, where it is not the Service's:
    tokens are then meant for either.
    """

    issuers: Annotated[tuple[IssuerName, ...], Field(min_length=1, max_length=16)]
    anonymous_tools: Annotated[tuple[ToolName, ...], Field(max_length=256)] = ()
    public_url: (
        Annotated[str, Field(max_length=512, pattern=r"^https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?$")] | None
    ) = None


class TokenBucket(_Type):
    """`max_tokens` calls per `refill_period`."""

    max_tokens: Annotated[int, Field(ge=1, le=1000000)]
    refill_period: Duration


class ToolRateLimit(_Type):
    """Buckets for one tool, by its published name, besides those for all tools."""

    name: ToolName
    per_user: TokenBucket | None = None
    shared: TokenBucket | None = None


class RateLimitStore(_Type):
    """A Redis or Valkey behind a Service of this namespace, without a password, that all pods count in.

    While it does not answer, `Open` lets each pod count for itself, and `Closed` lets no call through that has a bucket.
    """

    service_name: Annotated[str, Field(max_length=63, pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$")]
    port: Port = 6379
    failure_mode: Literal["Open", "Closed"]


class RateLimiting(_Type):
    """Token buckets per user, per service and per tool. A user is the verified subject of a token.

    Each pod counts for itself unless there is a `store`.
    """

    per_user: TokenBucket | None = None
    shared: TokenBucket | None = None
    tools: Annotated[tuple[ToolRateLimit, ...], Field(max_length=256)] = ()
    store: RateLimitStore | None = None


class Cache(_Type):
    """Answers of tools that are marked read-only and idempotent. `PerUser`: nobody is answered with what another one asked."""

    ttl: Duration
    max_bytes: Annotated[int, Field(ge=1024, le=1024 * 1024 * 1024)] = 16777216
    scope: Literal["PerUser", "Shared"] = "PerUser"


class CircuitBreaker(_Type):
    """Stops calling a model server that fails."""

    consecutive_failures: Annotated[int, Field(ge=1, le=1000)] = 5
    open_duration: Duration = "2s"


class Retry(_Type):
    """Retries of idempotent tools."""

    max_attempts: Annotated[int, Field(ge=1, le=10)] = 2
    budget_percent: Percent = 10


class Batcher(_Type):
    """Dynamic batching for model servers without their own."""

    max_batch_size: Annotated[int, Field(ge=1, le=4096)]
    max_latency: Duration = "5ms"


class WarmUpRequest(_Type):
    """One call made before the address is published."""

    tool: ToolName
    arguments: dict[str, Any] = {}


class WarmUp(_Type):
    """Calls made, one after another, before the tools and the address are published."""

    requests: Annotated[tuple[WarmUpRequest, ...], Field(max_length=32)] = ()


class Gpu(_Type):
    """GPU limits and visible devices of the model server's container.

    With `manage`, `count` becomes the container's limit of `resource`, and `visibleDevices` its vendor's variable
    (CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, ZE_AFFINITY_MASK): indexes within the container, UUIDs that begin with
    `GPU-`, or one that begins with `MIG-`. What the container sets itself is never changed.
    """

    manage: bool = False
    resource: Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$")] = "nvidia.com/gpu"
    count: Annotated[int, Field(ge=1, le=64)] | None = None
    visible_devices: Annotated[str, Field(max_length=256)] | None = None

    cel: ClassVar[tuple[tuple[str, str], ...]] = (
        (
            (
                "!has(self.visibleDevices) || self.visibleDevices.matches("
                "'^([0-9]{1,3}(,[0-9]{1,3})*|GPU-[0-9A-Za-z-]+(,GPU-[0-9A-Za-z-]+)*|MIG-[0-9A-Za-z/-]+)$')"
            ),
            "visibleDevices must be indexes such as 0,1, or UUIDs that all begin with GPU-, or one that begins with MIG-",
        ),
        (
            (
                "!has(self.visibleDevices) || self.visibleDevices.split(',').all(x,"
                " self.visibleDevices.split(',').exists_one(y, y == x))"
            ),
            "visibleDevices names a device twice, which makes all of them invisible",
        ),
        (
            "!has(self.visibleDevices) || !has(self.count) || self.visibleDevices.split(',').size() <= self.count",
            "visibleDevices names more devices than count",
        ),
        (
            (
                "!has(self.visibleDevices) || !has(self.count) || !self.visibleDevices.matches('^[0-9,]+$')"
                " || self.visibleDevices.split(',').all(x, int(x) < self.count)"
            ),
            "visibleDevices names an index beyond count: indexes within a container start at 0",
        ),
        (
            (
                "!has(self.visibleDevices) || !has(self.resource) || self.resource.startsWith('nvidia.com/')"
                " || self.resource.startsWith('amd.com/') || self.resource.startsWith('gpu.intel.com/')"
            ),
            "visibleDevices needs a resource of nvidia.com, amd.com or gpu.intel.com: others have no known variable",
        ),
    )


class Rollout(_Type):
    """What may happen to running pods."""

    on_risk: Literal["Refuse", "Proceed", "SurgeZero", "Recreate"] = "Refuse"
    upgrade_policy: Literal["Pinned", "Auto"] = "Pinned"
    auto_release_after: Duration | None = None


class Resources(_Type):
    """Requests and limits, as in a container."""

    requests: Annotated[dict[str, Quantity], Field(max_length=8)] = {}
    limits: Annotated[dict[str, Quantity], Field(max_length=8)] = {}

    cel: ClassVar[tuple[tuple[str, str], ...]] = (
        (
            "!has(self.requests) || self.requests.all(k, k in ['cpu', 'memory', 'ephemeral-storage'])",
            "requests may name cpu, memory and ephemeral-storage: the adapter never gets a GPU",
        ),
        (
            "!has(self.limits) || self.limits.all(k, k in ['cpu', 'memory', 'ephemeral-storage'])",
            "limits may name cpu, memory and ephemeral-storage: the adapter never gets a GPU",
        ),
    )


class Stage(_Type):
    """A stage of the adapter's pipeline from another package, by its entry point in `modelservice.pipeline_stages`."""

    name: Name
    config: dict[str, Any] = {}


class Adapter(_Type):
    """The adapter's container. Empty `image` is the one the operator was installed with, pinned at adoption."""

    image: Annotated[str, Field(max_length=512, pattern=r"^[A-Za-z0-9._:/@-]*$")] = ""
    resources: Resources | None = None
    stages: Annotated[tuple[Stage, ...], Field(max_length=16)] = ()


class ModelServiceSpec(_Type):
    """What to adopt and how to publish it. Only `workloadRef` is needed."""

    workload_ref: WorkloadRef
    suspend: bool = False
    injection: Injection | None = None
    backend: Backend | None = None
    model: Model | None = None
    tools: Tools | None = None
    mcp: Mcp | None = None
    limits: Limits | None = None
    auth: Auth | None = None
    rate_limiting: RateLimiting | None = None
    cache: Cache | None = None
    circuit_breaker: CircuitBreaker | None = None
    retry: Retry | None = None
    batcher: Batcher | None = None
    warm_up: WarmUp | None = None
    gpu: Gpu | None = None
    rollout: Rollout | None = None
    adapter: Adapter | None = None
    canary: dict[str, Any] | None = None
    autoscaling: dict[str, Any] | None = None

    cel: ClassVar[tuple[tuple[str, str], ...]] = (
        (
            (
                "!has(self.mcp) || !has(self.mcp.port) || !has(self.backend) || !has(self.backend.port)"
                " || self.mcp.port != self.backend.port"
            ),
            "mcp.port and backend.port must differ: the adapter and the model server share the pod's network",
        ),
        (
            (
                "!has(self.rateLimiting) || has(self.auth) || (!has(self.rateLimiting.perUser)"
                " && (!has(self.rateLimiting.tools) || self.rateLimiting.tools.all(tool, !has(tool.perUser))))"
            ),
            "rateLimiting.perUser needs auth: without a token nobody knows who calls",
        ),
        (
            "self.workloadRef == oldSelf.workloadRef",
            "workloadRef cannot change; delete this ModelService and create another",
        ),
    )


def mode_of(spec: ModelServiceSpec) -> Literal["Workload", "Pod", "Standalone", "Manual"]:
    """How the adapter reaches the pods: what the spec says, else `Workload`."""
    return (spec.injection.mode if spec.injection else None) or "Workload"


class Condition(_Type):
    """One condition (KEP-1623)."""

    type: Annotated[str, Field(max_length=63)]
    status: Literal["True", "False", "Unknown"]
    reason: Annotated[str, Field(max_length=63)]
    message: Annotated[str, Field(max_length=4096)] = ""
    last_transition_time: Annotated[str, Field(max_length=32, json_schema_extra={"format": "date-time"})]
    observed_generation: int | None = None


class Address(_Type):
    """Where MCP clients connect. Set only once a handshake through it succeeded."""

    url: Annotated[str, Field(max_length=512)]


class ServerInfo(_Type):
    """What the MCP server said about itself."""

    name: ShortText
    version: ShortText = ""
    protocol_versions: Annotated[tuple[Annotated[str, Field(max_length=32)], ...], Field(max_length=16)] = ()


class BackendStatus(_Type):
    """The model server that was found. `source` is where its port was read."""

    type: ShortText
    container: ContainerName
    port: Port
    source: Literal["spec", "ports", "probes", "services", "environment", "arguments"] = "spec"


class InjectionStatus(_Type):
    """The adapter as it stands in the pod template."""

    mode: ShortText
    container: ContainerName
    port: Port
    admin_port: Port
    image: Annotated[str, Field(max_length=512)]
    hash: Annotated[str, Field(max_length=128)]


class ToolsStatus(_Type):
    """The published tools; `names` holds the first 64."""

    count: int = 0
    hash: Annotated[str, Field(max_length=128)] = ""
    names: Annotated[tuple[Annotated[str, Field(max_length=64)], ...], Field(max_length=64)] = ()


class ModelServiceStatus(_Type):
    """What was seen and done."""

    observed_generation: int | None = None
    conditions: Annotated[
        tuple[Condition, ...], Field(max_length=32, json_schema_extra={"x-kubernetes-list-map-keys": ["type"]})
    ] = ()
    address: Address | None = None
    server_info: ServerInfo | None = None
    backend: BackendStatus | None = None
    injection: InjectionStatus | None = None
    tools: ToolsStatus | None = None
    traffic: Annotated[tuple[dict[str, Any], ...], Field(max_length=16)] = ()
    scaling_history: Annotated[tuple[dict[str, Any], ...], Field(max_length=10)] = ()


class PrinterColumn(_Type):
    """One column of `kubectl get`."""

    name: str
    type: Literal["string", "integer", "date"]
    json_path: str


PRINTER_COLUMNS = (
    PrinterColumn(name="Ready", type="string", json_path='.status.conditions[?(@.type=="Ready")].status'),
    PrinterColumn(name="Reason", type="string", json_path='.status.conditions[?(@.type=="Ready")].reason'),
    PrinterColumn(name="Tools", type="integer", json_path=".status.tools.count"),
    PrinterColumn(name="Backend", type="string", json_path=".status.backend.type"),
    PrinterColumn(name="URL", type="string", json_path=".status.address.url"),
    PrinterColumn(name="Age", type="date", json_path=".metadata.creationTimestamp"),
)
"""The design's Traffic and Replicas columns come with the canary and the autoscaler: an empty column informs nobody."""

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(duration: str) -> float:
    """Seconds of a `Duration`, for example 0.005 for `5ms`.

    Raises:
        ValueError: It is not one.
    """
    for unit in ("ms", "s", "m", "h"):
        number = duration.removesuffix(unit)
        if number != duration and number.isdecimal():
            return int(number) * _UNIT_SECONDS[unit]
    raise ValueError(f"{duration!r} is not a duration such as 500ms, 30s, 5m or 1h")
