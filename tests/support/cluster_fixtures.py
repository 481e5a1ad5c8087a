"""Pytest fixtures for tests against a real Kubernetes: ``api_server`` and ``cluster``.

Owns how a test session gets them. A test sees a kubeconfig, kubectl, helm, and a way to load images; where the cluster
runs, and who made it, it cannot tell. Variables that decide:

=========================== ==========================================================================================
``CLUSTER=current``         use the cluster of kubectl's current context and leave it as it is
``CLUSTER_LOAD``            with it: a command that gets images to its nodes; it is called with their names
``MODELSERVICE_CLUSTER_NAME`` the cluster's name (``modelservice-test``); one that is up already is used and left up
``KEEP_CLUSTER=1``          leave the cluster up at the end
=========================== ==========================================================================================
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from localcluster import packages, settings
from localcluster.api_server import ApiServer
from localcluster.cluster import Cluster, ensure_base_image
from localcluster.settings import ClusterOptions

_COMMAND_SECONDS = 300


@dataclass(frozen=True, kw_only=True)
class ClusterAccess:
    """A running cluster as tests see it."""

    kubeconfig: Path
    docker_host: str | None
    """DOCKER_HOST of an engine to build images in; None: the docker program's own default."""
    load_command: tuple[str, ...]
    """Called with images' names; empty: the cluster pulls them."""
    search_path: str

    @property
    def environment(self) -> Mapping[str, str]:
        """What a program needs to meet this cluster and its engine, on top of ``os.environ``."""
        docker = {"DOCKER_HOST": self.docker_host} if self.docker_host else {}
        return {"KUBECONFIG": str(self.kubeconfig), "PATH": self.search_path, **docker}

    def load(self, images: Sequence[str]) -> None:
        """Gets images of the engine to the cluster's nodes; on a foreign cluster they must be pullable from there."""
        if self.load_command:
            self._run([*self.load_command, *images])
        else:
            print(f"CLUSTER=current: nothing loads images here, so its nodes must be able to pull {', '.join(images)}")

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002  as subprocess names it
        """Calls kubectl and returns what it wrote.

        Raises:
            AssertionError: It ended with an error; says which.
        """
        return self._run(["kubectl", *arguments], stdin=input)

    def helm(self, *arguments: str) -> str:
        """The same for Helm."""
        return self._run(["helm", *arguments])

    def _run(self, command: Sequence[str], stdin: str | None = None) -> str:
        done = subprocess.run(
            command,
            input=stdin or "",
            capture_output=True,
            text=True,
            env={**os.environ, **self.environment},
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"{shlex.join(command)}: exit code {done.returncode}\n{done.stderr}{done.stdout}")
        return done.stdout


@pytest.fixture(scope="session")
def api_server() -> Iterator[ApiServer]:
    """A plain API server on loopback, for the whole session: use a namespace of your own in it."""
    with ApiServer() as server:
        yield server


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterAccess]:
    """A cluster with nodes that run containers, for the whole session."""
    if os.environ.get("CLUSTER") == "current":
        yield current_cluster(tmp_path_factory.mktemp("cluster"))
        return
    folders = settings.read_folders()
    local = Cluster(folders=folders, name=os.environ.get("MODELSERVICE_CLUSTER_NAME", "modelservice-test"))
    was_up = local.is_ready
    ensure_base_image(folders)
    if not was_up:
        local.up(ClusterOptions(name=local.name))
    try:
        yield access_to(local)
    finally:
        if not was_up and os.environ.get("KEEP_CLUSTER") != "1":
            local.down()


def access_to(local: Cluster) -> ClusterAccess:
    """A cluster of ours that is up."""
    return ClusterAccess(
        kubeconfig=local.kubeconfig,
        docker_host=local.docker_host,
        load_command=_loader(local),
        # In front: these are the versions that fit the cluster.
        search_path=os.pathsep.join([str(local.programs), os.environ.get("PATH", "")]),
    )


def current_cluster(folder: Path) -> ClusterAccess:
    """The cluster of kubectl's current context, which from here on no one can switch."""
    if packages.find("kubectl") is None or packages.find("helm") is None:
        pytest.fail("CLUSTER=current needs kubectl and helm on PATH")
    view = ["kubectl", "config", "view", "--minify", "--flatten", "--raw"]
    kubeconfig = folder / "kubeconfig"
    kubeconfig.touch(0o600)
    kubeconfig.write_text(subprocess.run(view, capture_output=True, text=True, check=True, timeout=60).stdout)
    return ClusterAccess(
        kubeconfig=kubeconfig,
        docker_host=os.environ.get("DOCKER_HOST"),
        load_command=tuple(shlex.split(os.environ.get("CLUSTER_LOAD", ""))),
        search_path=os.environ.get("PATH", ""),
    )


def _loader(local: Cluster) -> tuple[str, ...]:
    return (str(local.programs / "kind"), "load", "docker-image", "--name", local.name)
