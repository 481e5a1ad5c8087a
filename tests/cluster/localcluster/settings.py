"""What is fixed here: names, folders, the Debian release. Owns no behaviour and touches no file.

Versions of Go programs are not repeated here: they stand in ``programs/*/go.mod`` and are read by ``programs``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from localcluster.errors import ClusterError

DEFAULT_NAME = "modelservice"
BASE_IMAGE = "python:3.11-slim-bookworm"
# Debian 12 on purpose, for the node too: its systemd still speaks cgroup v1.
DEBIAN_SUITE = "bookworm"

REPOSITORY = Path(__file__).resolve().parents[3]
KIND_CONFIG = REPOSITORY / "kind-config.yaml"
GO_PROGRAMS = REPOSITORY / "tests" / "cluster" / "programs"

Mode = Literal["auto", "local", "docker"]
# A node's container gets this name and a suffix; Docker and DNS labels allow 63 characters.
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_KUBERNETES = re.compile(r"v?(1\.\d+\.\d+)")


@dataclass(frozen=True, kw_only=True)
class Folders:
    """The folder that holds all that this command keeps between runs."""

    root: Path

    @property
    def cache(self) -> Path:
        """What is expensive to make, by version; may be deleted at any time while no cluster runs."""
        return self.root / "cache"

    @property
    def engine(self) -> Path:
        """The container engine's own data."""
        return self.root / "engine"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    def cluster(self, name: str) -> Path:
        """What one cluster needs while it exists: kubeconfig, kind's configuration, links to programs."""
        return self.root / "clusters" / name

    def clusters(self) -> list[str]:
        """Names of the clusters that exist, or of which a broken run left something."""
        return sorted(path.name for path in (self.root / "clusters").glob("*") if path.is_dir())


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """What can be chosen about a cluster."""

    name: str = DEFAULT_NAME
    nodes: int | None = None
    """Count of nodes; None: as the configuration file says."""
    gpus: int = 0
    """Pretend GPUs on each node that takes work."""
    kubernetes: str | None = None
    """Version without "v"; None: the pinned one."""
    config: Path = KIND_CONFIG

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ClusterError(
                f"cluster name {self.name!r}: lower-case letters, digits and inner dashes, at most 40 characters"
            )
        if self.nodes is not None and not 1 <= self.nodes <= 10:
            raise ClusterError(f"--nodes {self.nodes}: between 1 and 10")
        if not 0 <= self.gpus <= 1000:
            raise ClusterError(f"--gpus {self.gpus}: between 0 and 1000")
        if not self.config.is_file():
            raise ClusterError(f"--config {self.config}: no such file")


def read_folders(environment: Mapping[str, str] = os.environ) -> Folders:
    """Where this user's cache lies.

    Raises:
        ClusterError: The folder is no absolute path, or too long for the engine's socket in it.
    """
    cache = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME", "/root"), ".cache")
    root = Path(cache) / "modelservice" / "cluster"
    if not root.is_absolute():
        raise ClusterError(f"XDG_CACHE_HOME={cache}: must be an absolute path")
    # A socket's path may have 107 bytes; the longest one behind the folder has 37.
    if len(os.fsencode(root)) > 70:
        raise ClusterError(f"{root}: too long for a socket in it; set XDG_CACHE_HOME to a shorter path")
    return Folders(root=root)


def read_mode(environment: Mapping[str, str] = os.environ) -> Mode:
    """What ``MODELSERVICE_CLUSTER`` asks for: our own engine and images, Docker's and the registry's, or what is there."""
    match environment.get("MODELSERVICE_CLUSTER", ""):
        case "" | "auto":
            return "auto"
        case "local":
            return "local"
        case "docker":
            return "docker"
        case other:
            raise ClusterError(f"MODELSERVICE_CLUSTER={other}: must be local, docker or auto")


def parse_kubernetes_version(text: str) -> str:
    """``v1.34.4`` or ``1.34.4`` as ``1.34.4``."""
    match = _KUBERNETES.fullmatch(text)
    if match is None:
        raise ClusterError(f"Kubernetes version {text!r}: must look like 1.34.4")
    return match[1]
