"""Builds the Go programs of a cluster from ``tests/cluster/programs`` and keeps them by version.

The versions stand in the two ``go.mod`` files and nowhere else. Kubernetes has a module of its own, so that its
dependencies are those it was released with and another version of it leaves the tools alone.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localcluster import packages, processes, progress, settings
from localcluster.cache import Cache, key_of
from localcluster.errors import ClusterError
from localcluster.settings import Folders

KUBERNETES_MODULE = settings.GO_PROGRAMS / "kubernetes"
TOOLS_MODULE = settings.GO_PROGRAMS / "tools"
KUBE_NAMES = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubeadm",
    "kubectl",
    "kubelet",
)
_BUILD = ("build", "-trimpath")
_STATIC = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A Go program of the tools' module."""

    name: str
    package: str
    module: str | None = None
    """The module whose version it carries; None: its source is ours."""
    version_variable: str | None = None
    """Go variable that is to hold the version, for a program that would not know it."""


KIND = Tool(name="kind", package="sigs.k8s.io/kind", module="sigs.k8s.io/kind")
HELM = Tool(
    name="helm",
    package="helm.sh/helm/v3/cmd/helm",
    module="helm.sh/helm/v3",
    version_variable="helm.sh/helm/v3/internal/version.version",
)
CRICTL = Tool(
    name="crictl",
    package="sigs.k8s.io/cri-tools/cmd/crictl",
    module="sigs.k8s.io/cri-tools",
    version_variable="sigs.k8s.io/cri-tools/pkg/version.Version",
)
COREDNS = Tool(name="coredns", package="./coredns", module="github.com/coredns/coredns")
PAUSE = Tool(name="pause", package="./pause")


def pinned_version(module: str, go_mod: str) -> str:
    """The version that a ``go.mod`` requires of ``module``, without "v"."""
    match = re.search(rf"^(?:require)?\s*{re.escape(module)} v(\S+)", go_mod, re.MULTILINE)
    if match is None:
        raise ClusterError(f"go.mod requires no {module}")
    return match[1]


def default_kubernetes() -> str:
    """The version of Kubernetes that a cluster has if nobody says otherwise."""
    return pinned_version("k8s.io/kubernetes", (KUBERNETES_MODULE / "go.mod").read_text())


def build_go_mod(version: str, pinned: str) -> str:
    """The Kubernetes module's ``go.mod`` for another version, its indirect requirements left for Go to find."""
    old = pinned_version("k8s.io/kubernetes", pinned)
    staging = "v0." + version.removeprefix("1.")
    etcd = pinned_version("go.etcd.io/etcd/server/v3", pinned)
    replaced = re.findall(r"^replace (\S+) => \S+ \S+$", pinned, re.MULTILINE)
    header = re.search(r"\A.*?^go \S+$", pinned, re.MULTILINE | re.DOTALL)
    if header is None or not replaced:
        raise ClusterError(f"go.mod of Kubernetes {old} has no go line or no replace lines")
    requires = f"require k8s.io/kubernetes v{version}\nrequire go.etcd.io/etcd/server/v3 v{etcd}\n"
    return "\n\n".join([header[0], requires]) + "\n" + "".join(f"replace {m} => {m} {staging}\n" for m in replaced)


@dataclass(frozen=True, kw_only=True)
class Programs:
    """Where programs are; whatever is asked for is built if it is not there yet."""

    folders: Folders

    def kube(self, version: str | None = None) -> Path:
        """A folder with Kubernetes' programs by their names, all of them links to ``kube``."""
        version = version or default_kubernetes()
        sources = [KUBERNETES_MODULE / name for name in ("main.go", "go.mod", "go.sum")]
        key = key_of(files=sources, texts=[version, *_BUILD])
        return self._cache.entry(f"kubernetes-{version}", key, lambda place: self._build_kube(version, place))

    def tool(self, tool: Tool) -> Path:
        """The tool's program."""
        go_mod = TOOLS_MODULE / "go.mod"
        source = sorted(TOOLS_MODULE.joinpath(tool.package).glob("*.go")) if tool.package.startswith("./") else []
        pinned = pinned_version(tool.module, go_mod.read_text()) if tool.module else ""
        # Only what is in the tool's own name and source: a change to another tool must not rebuild this one.
        key = key_of(files=source, texts=[tool.package, pinned, *_BUILD])
        flags = ["-s", "-w"]
        if tool.version_variable:
            flags += ["-X", f"{tool.version_variable}=v{pinned}"]

        def build(place: Path) -> None:
            self._go_build(
                f"building {tool.name} {pinned}".rstrip(), TOOLS_MODULE, tool.package, flags, place / tool.name
            )

        return self._cache.entry(tool.name, key, build) / tool.name

    def kind_sources(self) -> Path:
        """kind's module as Go unpacked it: the files of its node image are there."""
        go = packages.require_go()
        processes.run([go, "mod", "download", "sigs.k8s.io/kind"], cwd=TOOLS_MODULE, timeout=600)
        return Path(processes.run([go, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kind"], cwd=TOOLS_MODULE).strip())

    @property
    def _cache(self) -> Cache:
        return Cache(folder=self.folders.cache / "programs")

    def _build_kube(self, version: str, place: Path) -> None:
        source = place / "source"
        source.mkdir()
        for name in ("main.go", "go.mod", "go.sum"):
            shutil.copyfile(KUBERNETES_MODULE / name, source / name)
        if version != default_kubernetes():
            (source / "go.mod").write_text(build_go_mod(version, (source / "go.mod").read_text()))
            with progress.step(f"resolving the modules of Kubernetes {version}") as step:
                command = [packages.require_go(), "mod", "tidy", "-e"]
                processes.run_watched(command, step=step, log=self.folders.logs / "kubernetes-modules.log", cwd=source)
        variable = "k8s.io/component-base/version.git"
        major, minor, _ = version.split(".")
        values = {"Version": f"v{version}", "Major": major, "Minor": minor}
        flags = ["-s", "-w", *(part for k, v in values.items() for part in ("-X", f"{variable}{k}={v}"))]
        self._go_build(f"building Kubernetes {version}, some 7 min on 2 cores", source, ".", flags, place / "kube")
        shutil.rmtree(source)
        for name in KUBE_NAMES:
            (place / name).symlink_to("kube")

    def _go_build(self, what: str, module: Path, package: str, linker_flags: list[str], output: Path) -> None:
        go = packages.require_go()
        command: list[str | Path] = [go, *_BUILD, "-v", "-ldflags", " ".join(linker_flags), "-o", output, package]
        log = self.folders.logs / f"build-{output.name}.log"
        with progress.step(what) as step:
            processes.run_watched(command, step=step, log=log, env=_STATIC, cwd=module, sealed=True)


def link_programs(folder: Path, targets: Mapping[str, Path]) -> None:
    """Makes ``folder`` hold links by name, for a PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, target in targets.items():
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(target)
