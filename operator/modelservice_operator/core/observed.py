"""The frozen snapshot that one decision needs.

Owns the shape of what was seen: gathered once by `gather`, passed by value to every rule. Nothing here looks anything
up later; what is not in the snapshot does not take part in the decision.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from modelservice_api.adapter_config import AdapterReport
from modelservice_operator.core.issuers import NO_ISSUERS, AuthSettings, ClusterKeys
from modelservice_operator.core.signals import NO_SIGNALS, Signals
from modelservice_operator.core.workload import KubeObject


@dataclass(frozen=True, kw_only=True)
class Rival:
    """Another ModelService of the same namespace that names the same workload."""

    name: str
    uid: str
    created: str
    deleting: bool


@dataclass(frozen=True, kw_only=True)
class Handshake:
    """What an MCP handshake through the Service gave: an answer, or the sentence why not."""

    server_name: str = ""
    server_version: str = ""
    protocol_versions: tuple[str, ...] = ()
    wants_token: bool = False
    """It asked for a token, which the operator has not; that it is the right server was seen without one."""
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class AdapterObservation:
    """What the running adapters say. `ready_endpoints` counts the pods behind the Service that are ready."""

    ready_endpoints: int = 0
    report: AdapterReport | None = None
    handshake: Handshake | None = None


def most_telling(reports: Sequence[AdapterReport | None]) -> AdapterReport | None:
    """The report that speaks for all: of a pod whose model contradicts the spec, if there is one, or that cannot obey its
    configuration, else the first.

    In a rollout the others may still run the model from before.
    """
    known = [report for report in reports if report is not None]
    contradicting = [report for report in known if report.backend.state == "ModelSpecConflict"]
    refusing = [report for report in known if report.config_error]
    return next(iter([*contradicting, *refusing, *known]), None)


@dataclass(frozen=True, kw_only=True)
class Observed:
    """All that one pass over one ModelService knows."""

    now: datetime
    model_service: KubeObject
    workload: KubeObject | None
    rivals: tuple[Rival, ...]
    live_uids: frozenset[str]
    """uids of every ModelService in the namespace, for telling a held lock from an abandoned one."""
    service: KubeObject | None
    config_map: KubeObject | None
    own_deployment: KubeObject | None
    """A Deployment of the name that the adapter has in Standalone mode, whosever it is."""
    adapters: AdapterObservation
    claims: Mapping[str, tuple[str, ...]]
    """Access modes of the PersistentVolumeClaims that the workload's pod template names."""
    services: Sequence[KubeObject]
    """The namespace's Services, for workloads that declare no port; empty where nothing had to be looked up."""
    adapter_image: str
    """The image for adoptions that name none."""
    auth: AuthSettings = NO_ISSUERS
    """Whose tokens may be trusted, as the platform admin said."""
    signals: Signals = NO_SIGNALS
    """Where adapters send spans and what they log, as the platform admin said."""
    cluster_keys: ClusterKeys | None = None
    """Looked up only where a named issuer needs them; None where they may not be had."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The ModelService's metadata."""
        metadata: Mapping[str, Any] = self.model_service["metadata"]
        return metadata

    @property
    def namespace(self) -> str:
        """The namespace everything is in."""
        return str(self.metadata["namespace"])

    @property
    def name(self) -> str:
        """The ModelService's name."""
        return str(self.metadata["name"])

    @property
    def uid(self) -> str:
        """The ModelService's uid."""
        return str(self.metadata["uid"])
