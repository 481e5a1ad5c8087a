"""The two documents that operator and adapter exchange: the config going in, the report coming out.

Owns their shapes and their versions. Facts about one pod template (ports, the backend's port) are *not* here: they stand
in the adapter container's arguments, because old and new pods of a rollout read the same ConfigMap. Everything here may
change while a pod runs and is picked up without a restart.
"""

import hashlib
import json
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from modelservice_api.wellknown import NEVER_FORWARDED

BackendType = Literal["Auto", "OpenAPI", "V2", "OpenAI", "TVM", "Torch", "ONNX"]
"""What this version's adapter can speak. `Auto` probes; it is never the answer in a report that says `Ready`."""

BackendState = Literal[
    "Discovering", "WarmingUp", "Ready", "Unreachable", "NotRecognised", "Invalid", "NoTools", "ModelSpecConflict"
]

Datatype = Literal[
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "BF16",
    "FP32",
    "FP64",
    "BYTES",
]
"""Tensor datatypes by their names in the Open Inference Protocol."""

Algorithm = Literal["ES256", "RS256"]
"""How tokens may be signed. No others: the fewer there are, the fewer can be confused."""


class _Document(BaseModel):
    # Unknown fields are errors: operator and adapter of different versions must notice rather than half obey.
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class ServerConfig(_Document):
    """Who the MCP server says it is (`serverInfo`)."""

    name: str = "modelservice"
    version: str = "0"
    instructions: str = ""


class OpenAPIConfig(_Document):
    """Where the OpenAPI document is and which operations become tools.

    `include` and `exclude` are shell-style patterns over operation ids; `tags` are exact. An empty list selects all.
    """

    path: str = "/openapi.json"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


class V2Config(_Document):
    """An Open Inference Protocol server. Empty `models` publishes every model; `grpc_port` 0 means no gRPC lane."""

    models: tuple[str, ...] = ()
    grpc_port: Annotated[int, Field(ge=0, le=65535)] = 0


class OpenAIConfig(_Document):
    """An OpenAI-compatible server. Empty `models` offers every model that the server lists."""

    models: tuple[str, ...] = ()


class ArtifactConfig(_Document):
    """A model file that the adapter runs itself, in a worker process of its own.

    `name` is the tool's name; empty takes the file's. `devices` is what the worker sees as CUDA_VISIBLE_DEVICES: indices
    within the container, or UUIDs; empty means no GPU. Two workers may name one device only where both say `shared`.
    `memory_fraction` is the share of that device's memory. `threads` are the worker's compute threads. `spare` keeps a second
    worker warm that takes over when the first one dies. `overtime` is how many seconds a call may run on when nobody waits for
    it any more, before the worker is taken to be stuck and is started again. `python` is the interpreter that holds the model's
    runtime; empty is the adapter's own.
    """

    artifact: str
    function: str = "main"
    name: str = ""
    devices: str = ""
    shared: bool = False
    memory_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    spare: bool = False
    overtime: Annotated[float, Field(gt=0)] = 30.0
    python: str = ""


class CredentialConfig(_Document):
    """How the adapter shows itself to the model server: a header with the value of MODELSERVICE_BACKEND_CREDENTIAL.

    `scheme` and a blank stand before the value; empty leaves the value alone.
    """

    header: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")] = "authorization"
    scheme: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{0,32}$")] = "Bearer"


class BackendConfig(_Document):
    """How to speak to the model server. Its address is not here: always loopback, port from the arguments.

    `forward_headers` are the caller's headers that go on to the model server, in lower case; no others do.
    `tvm`, `torch` and `onnx` are models that the adapter runs itself. Only the block of `type` is looked at; with `Auto`, the
    first of these three that names a file decides.
    """

    type: BackendType = "Auto"
    open_api: OpenAPIConfig = Field(default=OpenAPIConfig(), alias="openAPI")
    v2: V2Config = V2Config()
    open_ai: OpenAIConfig = Field(default=OpenAIConfig(), alias="openAI")
    forward_headers: tuple[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")], ...] = ()
    credential: CredentialConfig | None = None
    tvm: tuple[ArtifactConfig, ...] = ()
    torch: tuple[ArtifactConfig, ...] = ()
    onnx: tuple[ArtifactConfig, ...] = ()

    @model_validator(mode="after")
    def _forwards_no_credentials(self) -> "BackendConfig":
        wrong = [name for name in self.forward_headers if name in NEVER_FORWARDED or name.startswith("mcp-")]
        if wrong:
            raise ValueError(f"forwardHeaders names {', '.join(wrong)}, which never go on to a model server")
        return self


class TensorConfig(_Document):
    """One declared tensor. A dimension of -1 is free."""

    name: str
    datatype: Datatype
    shape: tuple[Annotated[int, Field(ge=-1)], ...] = ()


class ModelConfig(_Document):
    """What the ModelService says the model takes and gives; empty means nothing is said, and nothing is compared.

    `non_finite` is about NaN and infinities: `Refuse` makes them an error in arguments and in JSON results, `Null` lets them
    into the model and tells them as null in JSON results. Binary results always carry them as they are.
    """

    inputs: tuple[TensorConfig, ...] = ()
    outputs: tuple[TensorConfig, ...] = ()
    non_finite: Literal["Refuse", "Null"] = "Refuse"


class WarmUpRequestConfig(_Document):
    """One call that is made before the tools are published; `tool` is the published name."""

    tool: str
    arguments: dict[str, Any] = {}


class ToolAnnotationsConfig(_Document):
    """MCP tool annotations, all optional (MCP specification, server/tools)."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolOverride(_Document):
    """What the ModelService changes about one discovered tool. Absent fields keep what was discovered."""

    name: str | None = None
    description: str | None = None
    annotations: ToolAnnotationsConfig | None = None


class ToolsConfig(_Document):
    """`filter`: discovered names to publish; empty for all, if there are at most 64. `overrides`: by discovered name."""

    filter: tuple[str, ...] = ()
    overrides: dict[str, ToolOverride] = {}


class McpConfig(_Document):
    """The MCP endpoint. Empty `allowed_hosts` accepts any Host; `Origin` is always checked.

    `binary_transfer` opens the binary lanes beside it: MessagePack on `/rpc`, and the Open Inference Protocol below `/v2`.
    """

    path: str = "/mcp"
    binary_transfer: bool = False
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()


class LimitsConfig(_Document):
    """Bounds on every call. `max_body_bytes` counts the request body, `timeout` is seconds from its last byte."""

    max_body_bytes: Annotated[int, Field(ge=1024)] = 4 * 1024 * 1024
    timeout: Annotated[float, Field(gt=0)] = 30.0
    max_concurrency: Annotated[int, Field(ge=1)] = 64


_FETCHED = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(:[0-9]{1,5})?(/[!\"$-~]*)?")
"""No user, no fragment, and nothing that a host name or a request line cannot hold."""


class IssuerConfig(_Document):
    """One identity provider, under the name that the platform admin gave it. Nothing here comes from a ModelService's author.

    `issuer` equals a token's `iss` to the letter; a token is meant for one of `audiences`. Keys (a JWK set) are in `jwks`,
    or come from `jwks_uri`: https, unless the admin said `plain_http`, with `ca` (PEM) in place of the system's authorities.
    `scopes` are given to every token of this issuer, for issuers that know none. With `subject_prefixes` a token's `sub`
    begins with one of them. `leeway` is how many seconds clocks may differ.
    """

    name: Annotated[str, Field(min_length=1, max_length=63)]
    issuer: Annotated[str, Field(min_length=1)]
    audiences: Annotated[tuple[str, ...], Field(min_length=1)]
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)] = ("ES256",)
    jwks: dict[str, Any] | None = None
    jwks_uri: str = ""
    plain_http: bool = False
    ca: str = ""
    scopes: tuple[str, ...] = ()
    subject_prefixes: tuple[str, ...] = ()
    leeway: Annotated[int, Field(ge=0, le=60)] = 30

    @model_validator(mode="after")
    def _has_one_source_of_keys(self) -> "IssuerConfig":
        if (self.jwks is None) == (not self.jwks_uri):
            raise ValueError(f"issuer {self.name!r} needs either jwks or jwksUri")
        if self.jwks_uri and _FETCHED.fullmatch(self.jwks_uri) is None:
            raise ValueError(f"jwksUri of issuer {self.name!r} is not a plain https:// URL")
        if self.jwks_uri.startswith("http:") and not self.plain_http:
            raise ValueError(f"jwksUri of issuer {self.name!r} is not https; plainHttp allows that inside the cluster")
        return self


class AuthConfig(_Document):
    """Who may call. Without this block anybody may; with it only who has a token of one of `issuers`, so none if it is empty.

    `resource` is the URL under which clients know this server; it is published for them and never read from a request.
    `anonymous_tools` are published names that need no token. `log_subject` says how a caller stands in log lines.
    """

    issuers: tuple[IssuerConfig, ...] = ()
    resource: str = ""
    anonymous_tools: tuple[str, ...] = ()
    log_subject: Literal["Omit", "Hash", "Plain"] = "Hash"

    @model_validator(mode="after")
    def _issuers_differ(self) -> "AuthConfig":
        if len({issuer.issuer for issuer in self.issuers}) < len(self.issuers):
            raise ValueError("two issuers have the same issuer URL, so no token would tell them apart")
        return self


class TokenBucketConfig(_Document):
    """`max_tokens` calls at once; used up, they come back evenly within `refill_period` seconds."""

    max_tokens: Annotated[int, Field(ge=1)]
    refill_period: Annotated[float, Field(gt=0)]


class ToolRateLimitConfig(_Document):
    """Buckets of one tool, by its published name, besides those for all tools."""

    name: str
    per_user: TokenBucketConfig | None = None
    shared: TokenBucketConfig | None = None


class RateLimitStoreConfig(_Document):
    """A Redis or Valkey that all pods count in, below `prefix`.

    While it does not answer, `Open` lets each pod count for itself and `Closed` lets no call through that has a bucket.
    """

    host: str
    port: Annotated[int, Field(ge=1, le=65535)] = 6379
    prefix: str
    failure_mode: Literal["Open", "Closed"]


class RateLimitingConfig(_Document):
    """Token buckets. A user is a verified subject; callers without one are one user. Without a store each pod counts alone."""

    per_user: TokenBucketConfig | None = None
    shared: TokenBucketConfig | None = None
    tools: tuple[ToolRateLimitConfig, ...] = ()
    store: RateLimitStoreConfig | None = None


class CacheConfig(_Document):
    """Answers of tools marked read-only and idempotent are kept for `ttl` seconds, in `max_bytes` altogether."""

    ttl: Annotated[float, Field(gt=0)]
    max_bytes: Annotated[int, Field(ge=1024)] = 16 * 1024 * 1024
    scope: Literal["PerUser", "Shared"] = "PerUser"


class CircuitBreakerConfig(_Document):
    """After so many failures in a row the model server is not asked for `open_duration` seconds."""

    consecutive_failures: Annotated[int, Field(ge=1)] = 5
    open_duration: Annotated[float, Field(gt=0)] = 2.0


class RetryConfig(_Document):
    """`max_attempts` counts the first one. Retries are at most `budget_percent` of calls."""

    max_attempts: Annotated[int, Field(ge=1)] = 2
    budget_percent: Annotated[int, Field(ge=0, le=100)] = 10


class BatcherConfig(_Document):
    """Calls of a tensor model are joined up to `max_batch_size` rows; none waits longer than `max_latency` seconds for that."""

    max_batch_size: Annotated[int, Field(ge=1)]
    max_latency: Annotated[float, Field(gt=0)] = 0.005


class StageConfig(_Document):
    """A stage of the pipeline from another package, by the name of its entry point. `config` is that stage's affair."""

    name: str
    config: dict[str, Any] = {}


class TracingConfig(_Document):
    """Where spans of calls go: the base URL of an OTLP/HTTP receiver, to which `/v1/traces` is added. Empty: nowhere.

    `sample_ratio` is the share of calls that is recorded where the caller has not decided it.
    """

    endpoint: str = ""
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = 0.01

    @model_validator(mode="after")
    def _is_a_base_url(self) -> "TracingConfig":
        scheme, separator, rest = self.endpoint.partition("://")
        plain = separator and scheme in ("http", "https") and rest.strip("/") and not set(rest) & set("@?# \t\r\n")
        if self.endpoint and not plain:
            raise ValueError(
                "endpoint is not a plain http:// or https:// URL, such as http://collector.observability:4318"
            )
        return self


class LoggingConfig(_Document):
    """Whether log lines of calls hold arguments and results: `Off`, or `Redacted` by the rules that follow.

    `redact_keys` are names of properties, in any letter case, and `redact_patterns` regular expressions, both beside those
    that are always hidden. `max_body_bytes` bounds what is shown of each.
    """

    bodies: Literal["Off", "Redacted"] = "Off"
    redact_keys: tuple[str, ...] = ()
    redact_patterns: tuple[str, ...] = ()
    max_body_bytes: Annotated[int, Field(ge=64, le=65536)] = 2048

    @model_validator(mode="after")
    def _patterns_compile(self) -> "LoggingConfig":
        for pattern in self.redact_patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"redactPatterns has {pattern!r}, which is no regular expression: {error}") from error
        return self


class PeersConfig(_Document):
    """The Service in front of all adapters of this ModelService; an empty `host` means there is none to ask."""

    host: str = ""
    port: Annotated[int, Field(ge=0, le=65535)] = 0


class AdapterConfig(_Document):
    """The config document: what `config.json` in the ConfigMap holds. A block that is absent switches its stage off."""

    version: Literal["v1"] = "v1"
    server: ServerConfig = ServerConfig()
    backend: BackendConfig = BackendConfig()
    model: ModelConfig = ModelConfig()
    warm_up: tuple[WarmUpRequestConfig, ...] = ()
    tools: ToolsConfig = ToolsConfig()
    mcp: McpConfig = McpConfig()
    limits: LimitsConfig = LimitsConfig()
    auth: AuthConfig | None = None
    peers: PeersConfig = PeersConfig()
    rate_limiting: RateLimitingConfig | None = None
    cache: CacheConfig | None = None
    circuit_breaker: CircuitBreakerConfig | None = None
    retry: RetryConfig | None = None
    batcher: BatcherConfig | None = None
    stages: tuple[StageConfig, ...] = ()
    tracing: TracingConfig = TracingConfig()
    logging: LoggingConfig = LoggingConfig()

    def to_json(self) -> str:
        """The document as canonical JSON: sorted keys, defaults written out, absent optionals left out."""
        return json.dumps(
            self.model_dump(by_alias=True, exclude_none=True, mode="json"), sort_keys=True, separators=(",", ":")
        )

    def digest(self) -> str:
        """`sha256:…` of the canonical JSON; the adapter reports it, so the operator sees which version a pod obeys."""
        return "sha256:" + hashlib.sha256(self.to_json().encode()).hexdigest()


class BackendReport(_Document):
    """What the adapter found at the model server's port.

    `message` is one sentence for the ModelService's author; it never holds a body of the model server.
    """

    type: BackendType
    state: BackendState
    message: str = ""


class ToolsReport(_Document):
    """The published tools: how many, their names in list order, and a hash over their definitions."""

    count: int = 0
    hash: str = ""
    names: tuple[str, ...] = ()


class AdapterReport(_Document):
    """What `GET /tools` on the admin port answers; the operator turns it into conditions."""

    version: Literal["v1"] = "v1"
    server: ServerConfig
    config_digest: str
    config_error: str = ""
    """What is wrong with a newer document than the one that is obeyed; empty where there is none."""
    backend: BackendReport
    tools: ToolsReport = ToolsReport()
    protocol_versions: tuple[str, ...] = ()
