"""Condition types and reasons: the words in which the product tells a user where they stand.

Owns the closed sets and one sentence for each. The same reason stands in the condition, the event, the log line and
`docs/reference/reasons.md`, which is generated from here. Decides nothing: who sets what is in
`modelservice_operator.core`.
"""

from dataclasses import dataclass
from enum import StrEnum


class ConditionType(StrEnum):
    """What a condition answers. `True` is the good side of all but `RolloutRisk`, `Degraded` and `Conflict`."""

    ACCEPTED = "Accepted"
    INJECTED = "Injected"
    DISCOVERED = "Discovered"
    VERIFIED = "Verified"
    CONFIGURED = "Configured"
    ROLLOUT_COMPLETE = "RolloutComplete"
    ROLLOUT_RISK = "RolloutRisk"
    DEGRADED = "Degraded"
    CONFLICT = "Conflict"
    GPU_CONFIGURED = "GPUConfigured"
    CANARY_HEALTHY = "CanaryHealthy"
    SCALING_ACTIVE = "ScalingActive"
    READY = "Ready"


CONDITION_SENTENCES: dict[ConditionType, str] = {
    ConditionType.ACCEPTED: "The spec is understood and the workload may be adopted.",
    ConditionType.INJECTED: "The adapter stands in the workload's pod template as it should.",
    ConditionType.DISCOVERED: "The adapter knows the model server's tools.",
    ConditionType.VERIFIED: "An MCP handshake through the published address succeeded.",
    ConditionType.CONFIGURED: "Running adapters obey the ModelService as it is now.",
    ConditionType.ROLLOUT_COMPLETE: "Every replica of the workload runs the current pod template.",
    ConditionType.ROLLOUT_RISK: "Changing the pod template could leave the workload without a running replica.",
    ConditionType.DEGRADED: "Pods with the adapter do not start or do not stay up.",
    ConditionType.CONFLICT: "Somebody else holds what this ModelService needs.",
    ConditionType.GPU_CONFIGURED: "The model server's GPU settings are as spec.gpu asks.",
    ConditionType.CANARY_HEALTHY: "The canary behaves no worse than the stable version.",
    ConditionType.SCALING_ACTIVE: "Replicas follow the call rate.",
    ConditionType.READY: "MCP clients can list and call the model's tools.",
}


@dataclass(frozen=True, kw_only=True)
class Reason:
    """One word a machine can match and one sentence a person can act on."""

    name: str
    sentence: str


class Reasons:
    """Every reason there is. `docs/reference/reasons.md` lists them; a contract test keeps names and attributes equal."""

    # Accepted
    ACCEPTED = Reason(name="Accepted", sentence="The spec is understood and the workload may be adopted.")
    NOT_SUPPORTED_YET = Reason(
        name="NotSupportedYet",
        sentence="The spec asks for something this version cannot do; remove the named fields or upgrade the operator.",
    )
    INVALID_SPEC = Reason(
        name="InvalidSpec", sentence="The spec contradicts itself or cannot be read; the message names the field."
    )
    WORKLOAD_NOT_FOUND = Reason(
        name="WorkloadNotFound",
        sentence="No workload of that kind and name exists in this namespace yet; it is adopted when it appears.",
    )
    UNSUPPORTED_KIND = Reason(
        name="UnsupportedKind",
        sentence="Only Deployments, StatefulSets and DaemonSets of apps/v1 can be adopted by changing their pod template.",
    )
    WORKLOAD_BEING_DELETED = Reason(
        name="WorkloadBeingDeleted", sentence="The workload is being deleted, so it is left alone."
    )
    CONTROLLED_BY_OTHER = Reason(
        name="ControlledByOther",
        sentence="Another controller owns the workload and would undo every change; adopt the owner's pods another way.",
    )
    HOST_NETWORK = Reason(
        name="HostNetwork", sentence="The pods use the node's network, where the adapter's ports would be node ports."
    )
    WINDOWS_NODES = Reason(
        name="WindowsNodes", sentence="The pods run on Windows nodes; the adapter runs on Linux only."
    )
    OPTED_OUT = Reason(
        name="OptedOut", sentence='The workload carries modelservice.dev/inject: "false", so it is never changed.'
    )

    UNKNOWN_ISSUER = Reason(
        name="UnknownIssuer",
        sentence="spec.auth.issuers names an issuer of tokens that the platform admin has not set up in the chart's values.",
    )

    # Conflict
    NO_CONFLICT = Reason(name="NoConflict", sentence="Nobody else holds what this ModelService needs.")
    WORKLOAD_TAKEN = Reason(
        name="WorkloadTaken",
        sentence="An older ModelService has adopted the workload; one workload has one ModelService.",
    )
    NAME_CONFLICT = Reason(
        name="NameConflict", sentence="The pod template already has a container or volume of the adapter's name."
    )
    PORT_CONFLICT = Reason(
        name="PortConflict", sentence="A container of the pod already uses the port that spec.mcp.port asks for."
    )
    SERVICE_NAME_TAKEN = Reason(
        name="ServiceNameTaken", sentence="A Service of the name the adapter needs exists and belongs to somebody else."
    )
    CONFIG_MAP_NAME_TAKEN = Reason(
        name="ConfigMapNameTaken",
        sentence="A ConfigMap of the name the adapter needs exists and belongs to somebody else.",
    )
    DEPLOYMENT_NAME_TAKEN = Reason(
        name="DeploymentNameTaken",
        sentence="A Deployment of the name that the adapter needs exists and belongs to somebody else.",
    )
    FIELD_CONFLICT = Reason(
        name="FieldConflict", sentence="Another field manager owns a field of the adapter; the message names both."
    )

    # Injected
    INJECTED = Reason(name="Injected", sentence="The adapter stands in the workload's pod template.")
    AMBIGUOUS_BACKEND = Reason(
        name="AmbiguousBackend",
        sentence="More than one container or port could be the model server; set spec.backend.container and spec.backend.port.",
    )
    BACKEND_CONTAINER_NOT_FOUND = Reason(
        name="BackendContainerNotFound", sentence="spec.backend.container names a container the pod template has not."
    )
    BACKEND_PORT_UNKNOWN = Reason(
        name="BackendPortUnknown", sentence="The model server's container declares no port; set spec.backend.port."
    )
    BACKEND_SERVICE_NOT_FOUND = Reason(
        name="BackendServiceNotFound",
        sentence="In Standalone mode the model server is reached through a Service, and none selects the workload's pods.",
    )
    TEMPLATE_REJECTED = Reason(
        name="TemplateRejected",
        sentence="The API server refused the pod template with the adapter in a dry run; nothing was changed.",
    )
    NOT_PERMITTED = Reason(
        name="NotPermitted", sentence="The operator may not do this; the message names the verb and the resource."
    )
    PAUSED = Reason(
        name="Paused",
        sentence='The workload carries modelservice.dev/pause: "true", so its pod template is left alone.',
    )
    WAITING_FOR_COMMIT = Reason(
        name="WaitingForCommit",
        sentence="In Manual mode the adapter comes when its patch, which is in the ConfigMap, is committed to the workload.",
    )
    SUSPENDED = Reason(name="Suspended", sentence="spec.suspend is true: the workload is not touched, traffic goes on.")
    DRIFT_REPAIRED = Reason(
        name="DriftRepaired", sentence="Somebody removed the adapter from the pod template; it was put back."
    )
    RELEASED = Reason(name="Released", sentence="The workload's pod template is what it was before adoption.")
    RELEASE_FAILED = Reason(
        name="ReleaseFailed",
        sentence="The workload could not be released in time; the ModelService was let go and parts of the adapter may remain.",
    )

    # Discovered
    DISCOVERED = Reason(name="Discovered", sentence="The model server described itself and its tools are known.")
    WAITING_FOR_ADAPTER = Reason(
        name="WaitingForAdapter", sentence="No pod with a ready adapter answers yet; it is asked again in moments."
    )
    DISCOVERING = Reason(
        name="Discovering", sentence="The adapter is up and is asking the model server what it offers."
    )
    BACKEND_UNREACHABLE = Reason(
        name="BackendUnreachable", sentence="The adapter cannot connect to the model server's port in its own pod."
    )
    BACKEND_NOT_RECOGNISED = Reason(
        name="BackendNotRecognised",
        sentence="The model server answers, but in no protocol that the adapter speaks; the message says what was tried.",
    )
    BACKEND_SCHEMA_INVALID = Reason(
        name="BackendSchemaInvalid", sentence="What the model server says about itself cannot be turned into tools."
    )
    NO_TOOLS = Reason(
        name="NoTools",
        sentence="The model server offers nothing that is published, or more than anybody chose; "
        "check include, exclude, filter and models.",
    )

    TOOL_DEFINITION_CHANGED = Reason(
        name="ToolDefinitionChanged",
        sentence="What clients read about the tools has changed; look whether the model server's new words are meant.",
    )
    MODEL_SPEC_CONFLICT = Reason(
        name="ModelSpecConflict",
        sentence="The model takes or gives other tensors than spec.model says; no call reaches it until they agree.",
    )
    WARMING_UP = Reason(
        name="WarmingUp",
        sentence="The calls of spec.warmUp are being made; the tools are published when all succeeded.",
    )

    # Verified
    VERIFIED = Reason(name="Verified", sentence="An MCP handshake through the Service succeeded.")
    HANDSHAKE_FAILED = Reason(
        name="HandshakeFailed", sentence="The adapter is up but an MCP handshake through the Service failed."
    )

    # Configured
    CONFIGURED = Reason(name="Configured", sentence="Running adapters obey the ModelService as it is now.")
    CONFIG_PENDING = Reason(
        name="ConfigPending",
        sentence="Adapters still obey the configuration from before; nodes bring them the new one within about a minute.",
    )
    CONFIG_REJECTED = Reason(
        name="ConfigRejected",
        sentence="An adapter cannot obey its new configuration and serves on with the one from before; see the message.",
    )

    AUTH_NOT_ENFORCED = Reason(
        name="AuthNotEnforced",
        sentence="spec.auth asks for tokens, and the server answered without one; adapters take up a configuration in minutes.",
    )

    # RolloutComplete
    ROLLOUT_COMPLETE = Reason(name="RolloutComplete", sentence="Every replica runs the current pod template.")
    ROLLING_OUT = Reason(name="RollingOut", sentence="Pods with the current pod template are still being started.")
    ROLLOUT_PAUSED = Reason(
        name="RolloutPaused", sentence="The workload is paused; the adapter comes when its owner resumes it."
    )
    ROLLOUT_STALLED = Reason(
        name="RolloutStalled", sentence="The workload made no progress before its deadline; see its own conditions."
    )

    # RolloutRisk
    NO_ROLLOUT_RISK = Reason(
        name="NoRolloutRisk", sentence="Nothing is about to be changed that could leave the workload without a replica."
    )
    NO_DEVICE_TO_SURGE = Reason(
        name="NoDeviceToSurge",
        sentence="A new pod would wait for a GPU or other device that the old pods hold, and they for it.",
    )
    VOLUME_HELD_BY_ONE_POD = Reason(
        name="VolumeHeldByOnePod",
        sentence="A new pod may wait for a volume that only one node can hold, and the old pod for it.",
    )
    HOST_PORT_HELD = Reason(
        name="HostPortHeld",
        sentence="A new pod may wait for a port of the node that an old pod holds, and the old pod for it.",
    )
    ANTI_AFFINITY_BLOCKS_SURGE = Reason(
        name="AntiAffinityBlocksSurge",
        sentence="A new pod may find no node, for required anti-affinity keeps it away from the old ones, which wait for it.",
    )
    CLAIM_HELD_BY_ONE_POD = Reason(
        name="ClaimHeldByOnePod",
        sentence="A new pod would wait for a resource claim that the old pods hold, and they for it.",
    )
    SLOW_START = Reason(
        name="SlowStart",
        sentence="Pods need ten minutes or more to start, and the strategy lets all old ones go first.",
    )
    MODEL_IN_POD_ONLY = Reason(
        name="ModelInPodOnly",
        sentence="Pods fetch their model into their own file system at start, and the strategy lets all old ones go first.",
    )

    # GPUConfigured
    GPU_SET = Reason(name="GPUSet", sentence="The model server's container has the GPUs that spec.gpu asks for.")
    GPU_MANAGED_BY_USER = Reason(
        name="GPUManagedByUser", sentence="The container asks for devices itself; its own settings stay."
    )
    GPU_MANAGED_BY_DRA = Reason(
        name="GPUManagedByDRA", sentence="The pods get their devices by resource claims; their settings stay."
    )
    ENV_MANAGED_BY_USER = Reason(
        name="EnvManagedByUser",
        sentence="The container sets the visibility variable itself, or may; its own settings stay.",
    )
    VISIBLE_DEVICE_OUT_OF_RANGE = Reason(
        name="VisibleDeviceOutOfRange",
        sentence="The container's own visibility variable names a device that it has not; the process will see none.",
    )

    # Ready
    READY = Reason(name="Ready", sentence="MCP clients can list and call the model's tools.")
    NOT_READY = Reason(name="NotReady", sentence="Another condition is not met yet; the message names it.")

    @classmethod
    def all(cls) -> list[Reason]:
        """Every reason, in the order they are declared here."""
        return [value for value in vars(cls).values() if isinstance(value, Reason)]
