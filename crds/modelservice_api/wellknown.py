"""Names that more than one part, or a user, must know. Changing one is a breaking change.

Owns constants only. Names that are computed (child objects, label values) are made in
`modelservice_operator.core.naming`.
"""

from typing import Final

GROUP: Final = "modelservice.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "ModelService"
PLURAL: Final = "modelservices"
SINGULAR: Final = "modelservice"
SHORT_NAME: Final = "msvc"

FINALIZER: Final = f"{GROUP}/release"
"""On a ModelService: the workload is released before the object may go."""

OWNER_ANNOTATION: Final = f"{GROUP}/owner"
"""On an adopted workload: `<namespace>/<name>/<uid>` of the ModelService that holds it. The lock of one CR per target."""

HASH_ANNOTATION: Final = f"{GROUP}/adapter-hash"
"""On the pod template: sha256 of the rendered adapter container and its volumes, and of nothing else."""

INJECT_ANNOTATION: Final = f"{GROUP}/inject"
"""Set by a workload's owner to `"false"`: never adopt this workload."""

PAUSE_ANNOTATION: Final = f"{GROUP}/pause"
"""Set by a workload's owner to `"true"`: leave the pod template as it is, also when the adapter is missing from it."""

SAVED_STRATEGY_ANNOTATION: Final = f"{GROUP}/saved-strategy"
"""On a workload whose update strategy is lent to the operator for one rollout: the owner's own, as JSON."""

GPU_ANNOTATION: Final = f"{GROUP}/gpu"
"""On a workload whose GPU settings the operator made: what was added to which container, as JSON."""

RESUME_ANNOTATION: Final = f"{GROUP}/resume"
"""On a Deployment that the operator paused while it makes several changes that shall be one rollout."""

NAME_LABEL: Final = f"{GROUP}/name"
"""On the pod template and on owned objects: the ModelService's name, shortened to a label value."""

ROLE_LABEL: Final = f"{GROUP}/role"
ROLE_STANDALONE: Final = "standalone"
"""On pods of an adapter that is a Deployment of its own."""

MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "modelservice-operator"

DEFAULT_CONTAINER_ANNOTATION: Final = "kubectl.kubernetes.io/default-container"

FIELD_MANAGER_PREFIX: Final = "modelservice-operator"
"""Never starts with `kubectl`: Flux takes over fields of managers so named (kustomize-controller#527)."""

ADAPTER_CONTAINER: Final = "mcp-adapter"
CONFIG_VOLUME: Final = "modelservice-config"
CONFIG_MOUNT_PATH: Final = "/etc/modelservice"
CREDENTIAL_VARIABLE: Final = "MODELSERVICE_BACKEND_CREDENTIAL"
"""In the adapter's container: what the model server asks of the adapter, from a Secret that only the kubelet reads."""

NEVER_FORWARDED: Final = frozenset(
    {"authorization", "proxy-authorization", "cookie", "host", "connection", "content-length", "content-type", "te"}
    | {
        "content-encoding",
        "expect",
        "keep-alive",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "accept",
        "accept-encoding",
    }
    | {"traceparent", "tracestate", "x-request-id"}
)
"""Headers of callers that never go on to a model server: credentials, framing, and what the adapter sets itself."""

CONFIG_KEY: Final = "config.json"
PATCH_KEY: Final = "patch.yaml"
"""In Manual mode: what the workload's owner commits, as a strategic merge patch."""
MCP_PORT_NAME: Final = "mcp"
ADMIN_PORT_NAME: Final = "mcp-admin"

PORT_POOL: Final = range(8931, 9000)
"""Where the adapter's ports are chosen from, less every port that any container of the pod declares."""

HELPER_CONTAINERS: Final = frozenset(
    {
        "istio-proxy",
        "istio-validation",
        "linkerd-proxy",
        "envoy",
        "envoy-sidecar",
        "daprd",
        "kuma-sidecar",
        "consul-dataplane",
        "consul-connect-envoy-sidecar",
        "queue-proxy",
        "kube-rbac-proxy",
        "cloud-sql-proxy",
        "vault-agent",
        "otc-container",
        "jaeger-agent",
        "datadog-agent",
        "fluent-bit",
        "fluentd",
        "filebeat",
        "promtail",
    }
)
"""Containers of meshes, proxies and log shippers, by their exact names: never the model server, never by substring."""
