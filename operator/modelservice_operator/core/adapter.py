"""The adapter beside the model server: its container, its volume, its config document, its ports and probes.

Owns what the adapter looks like. It is rendered from the ModelService and a few facts of the pod template, never from
the live object, so that an apply claims nothing that is somebody else's (kube-green#647). Changes no template: that is
`injection`.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from modelservice_api import adapter_config, v1alpha1, wellknown
from modelservice_api.conditions import ConditionType, Reasons
from modelservice_operator.core import issuers, naming, workload
from modelservice_operator.core.backend import BackendTarget
from modelservice_operator.core.issuers import NO_ISSUERS, AuthSettings, ClusterKeys
from modelservice_operator.core.refusal import Refusal
from modelservice_operator.core.signals import NO_SIGNALS, Signals

DEFAULT_RESOURCES: Mapping[str, Mapping[str, str]] = {
    "requests": {"cpu": "50m", "memory": "64Mi"},
    "limits": {"memory": "128Mi"},
}
"""No CPU limit: throttling a proxy shows up as the model's latency (kserve#894)."""

DRAIN_SECONDS = 5
"""How long a stopping adapter serves at least, while the cluster takes it out of its endpoints. It goes on for as long as
requests still come, up to two thirds of the pod's grace period; the last third is for calls in flight."""

_DEFAULT_GRACE_SECONDS = 30  # Kubernetes' own default for terminationGracePeriodSeconds
_ROOTLESS_UID = 65532


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The adapter's two ports and their names, unique in the pod."""

    mcp: int
    mcp_name: str
    admin: int
    admin_name: str


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """The adapter for one pod template: what is added, and the hash over it."""

    container: Mapping[str, Any]
    volume: Mapping[str, Any]
    ports: Ports
    image: str
    hash: str


def choose_ports(
    template: Mapping[str, Any], mcp: v1alpha1.Mcp, backend: BackendTarget, *, ours: bool
) -> Ports | Refusal:
    """Ports no container of the pod declares; those the adapter already has are kept.

    Args:
        ours: Whether a container of the adapter's name in `template` is this ModelService's own, and so no obstacle.
    """
    others = [
        container
        for container in workload.all_containers(template)
        if not (ours and container.get("name") == wellknown.ADAPTER_CONTAINER)
    ]
    taken = {number for container in others for number, _, _ in workload.declared_ports(container)} | {backend.port}
    names = frozenset(name for container in others for _, name, _ in workload.declared_ports(container) if name)
    current = _current_ports(template) if ours else []
    if mcp.port is not None and mcp.port in taken:
        return Refusal(
            condition=ConditionType.CONFLICT,
            reason=Reasons.PORT_CONFLICT,
            message=f"spec.mcp.port is {mcp.port}, which {_user_of(others, mcp.port)} uses; choose another or leave it out.",
        )
    kept = [number for number in current if number not in taken]
    free = [number for number in wellknown.PORT_POOL if number not in taken]
    mcp_port = mcp.port or next(iter([*kept[:1], *free]), None)
    admin_port = next((number for number in [*kept[1:], *free] if number != mcp_port), None)
    if mcp_port is None or admin_port is None:
        return Refusal(
            condition=ConditionType.CONFLICT,
            reason=Reasons.PORT_CONFLICT,
            message="The pod declares every port of 8931-8999; set spec.mcp.port and free one more for the admin port.",
        )
    return Ports(
        mcp=mcp_port,
        mcp_name=naming.port_name(wellknown.MCP_PORT_NAME, names),
        admin=admin_port,
        admin_name=naming.port_name(wellknown.ADMIN_PORT_NAME, names),
    )


def render(
    *,
    name: str,
    spec: v1alpha1.ModelServiceSpec,
    template: Mapping[str, Any],
    backend: BackendTarget,
    ports: Ports,
    image: str,
    backend_host: str = "",
) -> Rendered:
    """The adapter's container and volume for `template`. Equal inputs give equal bytes.

    `backend_host` is set where the model server is in another pod: the name of a Service.
    """
    container = {
        "name": wellknown.ADAPTER_CONTAINER,
        "image": image,
        "args": [
            f"--config={wellknown.CONFIG_MOUNT_PATH}/{wellknown.CONFIG_KEY}",
            f"--mcp-port={ports.mcp}",
            f"--admin-port={ports.admin}",
            *([f"--backend-host={backend_host}"] if backend_host else []),
            f"--backend-port={backend.port}",
            *_drain_arguments(template),
        ],
        # A CUDA runtime on the node shows GPUs to any container that does not say it wants none (k8s-device-plugin#61).
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}, *_credential(spec.backend)],
        "ports": [
            {"name": ports.mcp_name, "containerPort": ports.mcp, "protocol": "TCP"},
            {"name": ports.admin_name, "containerPort": ports.admin, "protocol": "TCP"},
        ],
        "resources": _resources(spec.adapter),
        "livenessProbe": _probe("/healthz", ports.admin, period=10, failures=6),
        "readinessProbe": _probe("/readyz", ports.admin, period=5, failures=3),
        "securityContext": _security_context(template),
        "volumeMounts": [{"name": wellknown.CONFIG_VOLUME, "mountPath": wellknown.CONFIG_MOUNT_PATH, "readOnly": True}],
    }
    volume = {
        "name": wellknown.CONFIG_VOLUME,
        # Optional, so that a pod of an old revision still starts after the ModelService and its ConfigMap are gone.
        "configMap": {"name": naming.config_map(name), "optional": True},
    }
    return Rendered(container=container, volume=volume, ports=ports, image=image, hash=_hash(container, volume))


def build_config(
    *,
    namespace: str,
    name: str,
    spec: v1alpha1.ModelServiceSpec,
    ports: Ports,
    auth: AuthSettings = NO_ISSUERS,
    cluster_keys: ClusterKeys | None = None,
    signals: Signals = NO_SIGNALS,
) -> adapter_config.AdapterConfig:
    """The config document for the adapters of the ModelService `name`."""
    tools = spec.tools or v1alpha1.Tools()
    mcp = spec.mcp or v1alpha1.Mcp()
    limits = spec.limits or v1alpha1.Limits()
    model = spec.model or v1alpha1.Model()
    return adapter_config.AdapterConfig(
        server=adapter_config.ServerConfig(name=name, version=model.version or "0"),
        backend=_backend(spec.backend or v1alpha1.Backend()),
        model=adapter_config.ModelConfig(
            inputs=_tensors(model.inputs), outputs=_tensors(model.outputs), non_finite=model.non_finite
        ),
        warm_up=tuple(
            adapter_config.WarmUpRequestConfig(tool=request.tool, arguments=request.arguments)
            for request in (spec.warm_up.requests if spec.warm_up else ())
        ),
        tools=adapter_config.ToolsConfig(
            filter=tools.filter,
            overrides={key: _override(value) for key, value in tools.overrides.items()},
        ),
        mcp=adapter_config.McpConfig(
            path=mcp.path,
            binary_transfer=mcp.binary_transfer,
            # A list keeps out whoever is not on it: also clients in the cluster, and the operator's own handshake.
            allowed_hosts=(*mcp.allowed_hosts, *naming.service_hosts(namespace, name)) if mcp.allowed_hosts else (),
            allowed_origins=mcp.allowed_origins,
        ),
        limits=adapter_config.LimitsConfig(
            max_body_bytes=limits.max_body_bytes,
            timeout=v1alpha1.seconds(limits.timeout),
            max_concurrency=limits.max_concurrency,
        ),
        auth=issuers.build_auth(
            spec.auth,
            auth,
            cluster_keys,
            namespace=namespace,
            service_url=f"http://{naming.service_host(namespace, name)}:{ports.mcp}{mcp.path}",
        ),
        peers=adapter_config.PeersConfig(host=naming.service_host(namespace, name), port=ports.mcp),
        rate_limiting=_rate_limiting(spec.rate_limiting, namespace, name) if spec.rate_limiting else None,
        cache=_cache(spec.cache) if spec.cache else None,
        circuit_breaker=_circuit_breaker(spec.circuit_breaker) if spec.circuit_breaker else None,
        retry=_retry(spec.retry) if spec.retry else None,
        batcher=_batcher(spec.batcher) if spec.batcher else None,
        stages=tuple(
            adapter_config.StageConfig(name=stage.name, config=stage.config)
            for stage in (spec.adapter.stages if spec.adapter else ())
        ),
        tracing=signals.tracing,
        logging=signals.logging,
    )


def _credential(backend: v1alpha1.Backend | None) -> list[dict[str, Any]]:
    """Optional, so that a pod starts without it: the adapter then says what the model server refuses."""
    if backend is None or backend.credential is None:
        return []
    reference = backend.credential.secret_key_ref
    source = {"secretKeyRef": {"name": reference.name, "key": reference.key, "optional": True}}
    return [{"name": wellknown.CREDENTIAL_VARIABLE, "valueFrom": source}]


def _backend(backend: v1alpha1.Backend) -> adapter_config.BackendConfig:
    open_api = backend.open_api or v1alpha1.OpenAPIBackend()
    v2 = backend.v2 or v1alpha1.V2Backend()
    open_ai = backend.open_ai or v1alpha1.OpenAIBackend()
    return adapter_config.BackendConfig(
        type=backend.type,
        open_api=adapter_config.OpenAPIConfig(
            path=open_api.path, include=open_api.include, exclude=open_api.exclude, tags=open_api.tags
        ),
        v2=adapter_config.V2Config(models=v2.models, grpc_port=v2.grpc_port or 0),
        open_ai=adapter_config.OpenAIConfig(models=open_ai.models),
        forward_headers=backend.forward_headers,
        credential=None
        if backend.credential is None
        else adapter_config.CredentialConfig(header=backend.credential.header, scheme=backend.credential.scheme),
    )


def _rate_limiting(given: v1alpha1.RateLimiting, namespace: str, name: str) -> adapter_config.RateLimitingConfig:
    return adapter_config.RateLimitingConfig(
        per_user=_bucket(given.per_user),
        shared=_bucket(given.shared),
        tools=tuple(
            adapter_config.ToolRateLimitConfig(
                name=tool.name, per_user=_bucket(tool.per_user), shared=_bucket(tool.shared)
            )
            for tool in given.tools
        ),
        store=_store(given.store, namespace, name) if given.store else None,
    )


def _store(given: v1alpha1.RateLimitStore, namespace: str, name: str) -> adapter_config.RateLimitStoreConfig:
    return adapter_config.RateLimitStoreConfig(
        host=f"{given.service_name}.{namespace}.svc",
        port=given.port,
        prefix=f"{namespace}/{name}",
        failure_mode=given.failure_mode,
    )


def _bucket(given: v1alpha1.TokenBucket | None) -> adapter_config.TokenBucketConfig | None:
    if given is None:
        return None
    return adapter_config.TokenBucketConfig(
        max_tokens=given.max_tokens, refill_period=v1alpha1.seconds(given.refill_period)
    )


def _cache(given: v1alpha1.Cache) -> adapter_config.CacheConfig:
    return adapter_config.CacheConfig(ttl=v1alpha1.seconds(given.ttl), max_bytes=given.max_bytes, scope=given.scope)


def _circuit_breaker(given: v1alpha1.CircuitBreaker) -> adapter_config.CircuitBreakerConfig:
    return adapter_config.CircuitBreakerConfig(
        consecutive_failures=given.consecutive_failures, open_duration=v1alpha1.seconds(given.open_duration)
    )


def _retry(given: v1alpha1.Retry) -> adapter_config.RetryConfig:
    return adapter_config.RetryConfig(max_attempts=given.max_attempts, budget_percent=given.budget_percent)


def _batcher(given: v1alpha1.Batcher) -> adapter_config.BatcherConfig:
    return adapter_config.BatcherConfig(
        max_batch_size=given.max_batch_size, max_latency=v1alpha1.seconds(given.max_latency)
    )


def _tensors(tensors: tuple[v1alpha1.TensorSpec, ...]) -> tuple[adapter_config.TensorConfig, ...]:
    return tuple(
        adapter_config.TensorConfig(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        for tensor in tensors
    )


def _override(override: v1alpha1.ToolOverride) -> adapter_config.ToolOverride:
    annotations = override.annotations
    return adapter_config.ToolOverride(
        name=override.name,
        description=override.description,
        annotations=adapter_config.ToolAnnotationsConfig(**annotations.model_dump()) if annotations else None,
    )


def _current_ports(template: Mapping[str, Any]) -> list[int]:
    container = workload.container_named(template, wellknown.ADAPTER_CONTAINER)
    return [number for number, _, _ in workload.declared_ports(container)] if container else []


def _user_of(others: list[Mapping[str, Any]], port: int) -> str:
    for container in others:
        if any(number == port for number, _, _ in workload.declared_ports(container)):
            return f"container {container.get('name')!r}"
    return "the model server"


def _drain_arguments(template: Mapping[str, Any]) -> list[str]:
    given = workload.pod_spec(template).get("terminationGracePeriodSeconds")
    third = int(_DEFAULT_GRACE_SECONDS if given is None else given) // 3
    return [f"--drain-seconds={min(DRAIN_SECONDS, third)}", f"--drain-most-seconds={2 * third}"]


def _resources(adapter: v1alpha1.Adapter | None) -> Mapping[str, Mapping[str, str]]:
    if adapter is None or adapter.resources is None:
        return DEFAULT_RESOURCES
    given = {"requests": adapter.resources.requests, "limits": adapter.resources.limits}
    return {key: dict(sorted(value.items())) for key, value in given.items() if value}


def _probe(path: str, port: int, *, period: int, failures: int) -> dict[str, Any]:
    """Every field is written out: what is left to defaulting would look like drift."""
    return {
        "httpGet": {"path": path, "port": port, "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
        "successThreshold": 1,
    }


def _security_context(template: Mapping[str, Any]) -> dict[str, Any]:
    """PodSecurity `restricted`. The user id is the image's own, unless the pod would make it root."""
    context: dict[str, Any] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if (workload.pod_spec(template).get("securityContext") or {}).get("runAsUser") == 0:
        context["runAsUser"] = _ROOTLESS_UID
    return context


def _hash(container: Mapping[str, Any], volume: Mapping[str, Any]) -> str:
    document = json.dumps([container, volume], sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(document.encode()).hexdigest()
