"""Brings a kind cluster up and takes it down again. Puts the parts together; how each is made is for its own module.

A cluster's folder exists from before its first container to after its last. Its file ``ready`` is written at the very
end of ``up``; a folder without it is what a killed run left, and is cleared away first.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

from localcluster import (
    base_image,
    cache,
    engine,
    kind_config,
    node_image,
    packages,
    processes,
    programs,
    progress,
    settings,
)
from localcluster.engine import Engine, MachineEngine, OwnEngine
from localcluster.errors import ClusterError, CommandError
from localcluster.programs import Programs
from localcluster.settings import ClusterOptions, Folders

_KIND_LABEL = "io.x-k8s.kind.cluster"
# kind takes it away where the control plane is the only node.
_CONTROL_PLANE_TAINT = "node-role.kubernetes.io/control-plane"


@dataclass(frozen=True, kw_only=True)
class Record:
    """What is written down about a cluster before its first container is made."""

    docker_host: str | None
    options: str


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster by its name; it may exist or not."""

    folders: Folders
    name: str

    @property
    def folder(self) -> Path:
        return self.folders.cluster(self.name)

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def programs(self) -> Path:
        """A folder with kind, kubectl and helm, to put at the end of a PATH."""
        return self.folder / "bin"

    @property
    def is_ready(self) -> bool:
        """Whether ``up`` has come to its end and ``down`` has not begun."""
        return self._ready.is_file()

    @property
    def docker_host(self) -> str | None:
        """DOCKER_HOST of the engine that it lives in."""
        record = self._read_record()
        return record.docker_host if record else None

    def up(self, options: ClusterOptions) -> None:
        """Makes the cluster, and first whatever it needs; does nothing if it is there.

        Raises:
            ClusterError: It is there with other options, or it cannot be made.
        """
        with _one_at_a_time(self.folders):
            target = _ensure_engine(self.folders)
            if self.is_ready and self._is_well(target):
                record = self._read_record()
                if record is None or record.options != _describe(options):
                    raise ClusterError(f"cluster {self.name} is up with other options: take it down first")
                progress.say(f"cluster {self.name} is up")
                return
            self._refuse_if_foreign(target)
            self._remove()
            self._create(target, options)

    def down(self) -> None:
        """Removes the cluster, and our engine with the last one. Nothing to remove is fine."""
        with _one_at_a_time(self.folders):
            self._remove()
            own = OwnEngine(folders=self.folders)
            if not self.folders.clusters() and not own.is_in_use():
                own.stop()

    def load(self, images: Sequence[str]) -> None:
        """Copies images from the engine into every node."""
        if not self.is_ready:
            raise ClusterError(f"cluster {self.name} is not up")
        with progress.step("loading " + ", ".join(images)):
            environment = {"DOCKER_HOST": self.docker_host} if self.docker_host else {}
            command: list[str | Path] = [self.programs / "kind", "load", "docker-image", "--name", self.name, *images]
            processes.run(command, env=environment, timeout=300)

    @property
    def _ready(self) -> Path:
        return self.folder / "ready"

    def _read_record(self) -> Record | None:
        with contextlib.suppress(OSError, ValueError):
            return Record(**json.loads((self.folder / "record.json").read_text()))
        return None

    def _write_record(self, record: Record) -> None:
        self.folder.mkdir(parents=True)
        (self.folder / "record.json").write_text(json.dumps(asdict(record)))

    def _is_well(self, target: Engine) -> bool:
        command = [*self._kubectl(), "get", "--raw", "/readyz"]
        return target.address == self.docker_host and processes.succeeds(command, timeout=10)

    def _kubectl(self) -> list[str | Path]:
        return [self.programs / "kubectl", "--kubeconfig", self.kubeconfig]

    def _refuse_if_foreign(self, target: MachineEngine | OwnEngine) -> None:
        if isinstance(target, MachineEngine) and self._read_record() is None and self.name in _names_in(target):
            raise ClusterError(
                f"the machine's Docker has a kind cluster {self.name} that was not made here:"
                f" choose another --name, or remove it with: kind delete cluster --name {self.name}"
            )

    def _remove(self) -> None:
        """Removes what there is of it, whole or not, from the engine that it was made in."""
        self._ready.unlink(missing_ok=True)
        own = OwnEngine(folders=self.folders)
        if own.has_containers():
            own.ensure_running()
            own.settle()
            _delete(own, self.name)
        record = self._read_record()
        if record and record.docker_host != own.address:
            machine = MachineEngine(address=record.docker_host)
            if not machine.answers():
                where = record.docker_host or "its default address"
                raise ClusterError(f"cluster {self.name} lives in Docker at {where}, which does not answer: start it")
            _delete(machine, self.name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _create(self, target: MachineEngine | OwnEngine, options: ClusterOptions) -> None:
        parts = Programs(folders=self.folders)
        image = _choose_node_image(self.folders, target, options)
        self._write_record(Record(docker_host=target.address, options=_describe(options)))
        programs.link_programs(self.programs, _client_programs(parts, options))
        config = self.folder / "kind.yaml"
        text = options.config.read_text()
        config.write_text(kind_config.build_config(text, nodes=options.nodes, api_address=target.published_on))
        command: list[str | Path] = [self.programs / "kind", "create", "cluster", "--name", self.name]
        command += ["--config", config, "--kubeconfig", self.kubeconfig, "--wait", "180s"]
        command += ["--image", image] if image else []
        log = self.folders.logs / f"create-{self.name}.log"
        try:
            with progress.step(f"creating cluster {self.name}") as step:
                # Sealed: kind calls docker, which must not go on making nodes when we are killed.
                processes.run_watched(command, step=step, log=log, env=engine.environment(target), sealed=True)
            with progress.step("waiting for its nodes"):
                ready = ["wait", "--for=condition=Ready", "--timeout=120s", "nodes", "--all"]
                processes.run([*self._kubectl(), *ready], timeout=150)
            if options.gpus:
                self._advertise_gpus(options.gpus)
        except BaseException:
            with contextlib.suppress(CommandError):
                _delete(target, self.name)
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self._ready.touch()

    def _advertise_gpus(self, count: int) -> None:
        """Gives every node that takes work so many of what a GPU's device plugin would report."""
        kubectl = self._kubectl()
        nodes = json.loads(processes.run([*kubectl, "get", "nodes", "--output", "json"]))["items"]
        patch = [
            {"op": "add", "path": f"/status/{part}/nvidia.com~1gpu", "value": str(count)}
            for part in ("capacity", "allocatable")
        ]
        for node in nodes:
            if not any(taint["key"] == _CONTROL_PLANE_TAINT for taint in node["spec"].get("taints", [])):
                target = [node["metadata"]["name"], "--subresource=status", "--type=json", "--patch", json.dumps(patch)]
                processes.run([*kubectl, "patch", "node", *target])


def ensure_base_image(folders: Folders) -> None:
    """Makes sure that Dockerfiles find the image that they start from."""
    with _one_at_a_time(folders):
        target = _ensure_engine(folders)
        # Our own engine holds what we gave it: an image of an older recipe goes by the same name.
        outdated = isinstance(target, OwnEngine) and not base_image.is_built(folders)
        if engine.has_image(target, settings.BASE_IMAGE) and not outdated:
            return
        if isinstance(target, MachineEngine) and target.reaches_registry():
            with progress.step(f"pulling {settings.BASE_IMAGE}"):
                engine.docker(target, "pull", "--quiet", settings.BASE_IMAGE, timeout=600)
            return
        file = base_image.build(folders)
        with progress.step(f"giving {settings.BASE_IMAGE} to the engine"):
            engine.docker(target, "load", "--quiet", "--input", str(file), timeout=300)


def down_all(folders: Folders) -> None:
    """Removes every cluster that this command made, and our engine, whatever is left of them."""
    own = OwnEngine(folders=folders)
    names = set(folders.clusters())
    if own.has_containers():
        with _one_at_a_time(folders):
            own.ensure_running()
            names |= _names_in(own)
    for name in sorted(names):
        Cluster(folders=folders, name=name).down()
    with _one_at_a_time(folders):
        own.stop()


def prepare(folders: Folders, kubernetes: str | None) -> None:
    """Makes everything that takes long, so that whoever comes next, such as a test with a time limit, has it at hand."""
    own = OwnEngine(folders=folders)
    was_running = own.is_running()
    ensure_base_image(folders)
    with _one_at_a_time(folders):
        options = ClusterOptions(kubernetes=kubernetes)
        _choose_node_image(folders, _ensure_engine(folders), options)
        _client_programs(Programs(folders=folders), options)
        if not was_running and not own.is_in_use():
            own.stop()


def _one_at_a_time(folders: Folders) -> AbstractContextManager[None]:
    return cache.lock(folders.root / "lock", what="another run of this command")


def _ensure_engine(folders: Folders) -> MachineEngine | OwnEngine:
    chosen = engine.find_engine(folders, settings.read_mode())
    if isinstance(chosen, OwnEngine):
        chosen.ensure_running()
    return chosen


def _choose_node_image(folders: Folders, target: MachineEngine | OwnEngine, options: ClusterOptions) -> str | None:
    """The node image to name to kind; None: the one that kind knows by itself."""
    if isinstance(target, MachineEngine) and (settings.read_mode() == "docker" or target.reaches_registry()):
        return f"kindest/node:v{options.kubernetes}" if options.kubernetes else None
    return node_image.ensure(folders, target, options.kubernetes)


def _client_programs(parts: Programs, options: ClusterOptions) -> dict[str, Path]:
    """kind and kubectl of our versions, for they have to fit the node; helm only where the machine has none."""
    clients = {"kind": parts.tool(programs.KIND), "kubectl": parts.kube(options.kubernetes) / "kubectl"}
    helm = packages.find("helm")
    clients["helm"] = Path(helm) if helm else parts.tool(programs.HELM)
    return clients


def _names_in(target: Engine) -> set[str]:
    column = f'{{{{.Label "{_KIND_LABEL}"}}}}'
    return set(engine.docker(target, "ps", "--all", "--filter", f"label={_KIND_LABEL}", "--format", column).split())


def _delete(target: Engine, name: str) -> None:
    """Removes the containers of a cluster as kind does, without needing kind: an earlier run may not have built it."""
    containers = engine.docker(target, "ps", "--all", "--quiet", "--filter", f"label={_KIND_LABEL}={name}").split()
    if containers:
        with progress.step(f"removing the nodes of cluster {name}"):
            engine.docker(target, "rm", "--force", "--volumes", *containers)


def _describe(options: ClusterOptions) -> str:
    return f"nodes={options.nodes} gpus={options.gpus} kubernetes={options.kubernetes} config={options.config}"


def describe(folders: Folders) -> list[str]:
    """A line for the engine that is ours and one for each cluster."""
    running = OwnEngine(folders=folders).is_running()
    lines = [f"engine of our own: {'running' if running else 'not running'}"]
    for name in folders.clusters():
        cluster = Cluster(folders=folders, name=name)
        unfinished = "being made, or left by a run that was killed: up and down mend it"
        lines.append(f"cluster {name}: {f'up, KUBECONFIG={cluster.kubeconfig}' if cluster.is_ready else unfinished}")
    return lines
