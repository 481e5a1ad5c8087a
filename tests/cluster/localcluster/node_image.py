"""Makes kind's node image where no image registry is in reach: Debian, kind's own files, our programs, and the images of
the control plane already in the node's containerd.

It follows ``images/base`` and ``pkg/build/nodeimage`` of kind; files that are ours lie in ``node/``. Building needs root
and no network once the parts are there.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from localcluster import archive, debian, engine, packages, processes, programs, progress
from localcluster.archive import ImageConfig, Layer
from localcluster.cache import Cache, key_of
from localcluster.engine import Engine
from localcluster.programs import Programs
from localcluster.settings import Folders

_FILES = Path(__file__).with_name("node")
# fmt: off
_INCLUDE = (
    "bash", "busybox-static", "ca-certificates", "conntrack", "containerd", "containernetworking-plugins", "curl",
    "e2fsprogs", "ethtool", "iproute2", "iptables", "jq", "kmod", "libseccomp2", "mount", "nftables", "pigz", "procps",
    "runc", "socat", "systemd", "systemd-sysv", "util-linux",
)
# fmt: on
# As in kind's Dockerfile: units that make no sense in a container.
_NEEDLESS_UNITS = (
    "lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service",
    "lib/systemd/system/multi-user.target.wants/*",
    "etc/systemd/system/*.wants/*",
    "lib/systemd/system/local-fs.target.wants/*",
    "lib/systemd/system/sockets.target.wants/*udev*",
    "lib/systemd/system/sockets.target.wants/*initctl*",
    "lib/systemd/system/basic.target.wants/*",
)
_CNI_PLUGINS = ("host-local", "loopback", "portmap", "ptp")
_XTABLES_NAMES = ("iptables", "iptables-restore", "iptables-save", "ip6tables", "ip6tables-restore", "ip6tables-save")
_POD_NETWORK_IMAGE = "localhost/pod-network:v1"


def ensure(folders: Folders, target: Engine, kubernetes: str | None) -> str:
    """The name of the node image, which the engine has when this returns."""
    version = kubernetes or programs.default_kubernetes()
    modules = [folder / "go.mod" for folder in (programs.KUBERNETES_MODULE, programs.TOOLS_MODULE)]
    key = key_of(files=[Path(__file__), *_FILES.iterdir(), *modules], texts=[version])
    image = f"localhost/modelservice-node:v{version}-{key}"
    if not engine.has_image(target, image):
        # A short name, because a socket is made below it: see settings.read_folders.
        place = Cache(folder=folders.cache).entry("node", key, lambda place: _fill(folders, version, image, place))
        with progress.step("giving the node image to the engine"):
            engine.docker(target, "load", "--quiet", "--input", str(place / "image.tar"), timeout=300)
    return image


def _fill(folders: Folders, version: str, image: str, place: Path) -> None:
    packages.require_root()
    packages.require(["containerd", "ctr", "unshare"], log=folders.logs / "install-containerd.log")
    parts = Programs(folders=folders)
    # Side by side: one waits for the network and the disk, the other for the processor.
    with ThreadPoolExecutor(1) as pool:
        future_root = pool.submit(_root_file_system, folders)
        kube = parts.kube(version)
        tools = {tool.name: parts.tool(tool) for tool in (programs.CRICTL, programs.COREDNS, programs.PAUSE)}
        root = future_root.result()
    work = place / "w"
    work.mkdir()
    with progress.step(f"node image with Kubernetes {version}, some 40 s") as step:
        build = _Build(folder=work, kube=kube, version=version, tools=tools, log=folders.logs)
        build.run(root, parts.kind_sources(), image, step).rename(place / "image.tar")
        shutil.rmtree(work)


def _root_file_system(folders: Folders) -> Path:
    def fill(place: Path) -> None:
        what = "root file system of a node from Debian packages, some 2 min"
        debian.bootstrap(place / "root", include=_INCLUDE, what=what, log=folders.logs / "node-root.log")

    return Cache(folder=folders.cache).entry("node-root", key_of(texts=_INCLUDE), fill) / "root"


@dataclass(frozen=True, kw_only=True)
class _Build:
    """One making of the image in a folder that is thrown away afterwards."""

    folder: Path
    kube: Path
    version: str
    tools: dict[str, Path]
    log: Path
    images: list[Path] = field(default_factory=list[Path])
    """Archives of the images that the node comes with."""

    @property
    def root(self) -> Path:
        return self.folder / "root"

    def run(self, debian_root: Path, kind: Path, image: str, step: progress.Step) -> Path:
        processes.run(["cp", "-a", debian_root, self.root], timeout=300)
        step.note("kind's files and programs")
        self._copy_kind_files(kind / "images" / "base" / "files")
        self._install_programs()
        self._install_our_files()
        self._enable_units()
        names = self._kubeadm_images()
        self._configure_containerd(names["pause"])
        step.note("images of the control plane")
        self._make_images(names)
        self._import_images()
        debian.trim(self.root)
        for empty in ("etc/machine-id", "etc/resolv.conf", "etc/hostname"):
            (self.root / empty).write_text("")
        step.note("packing")
        layer = archive.build_layer(self.root, self.folder / "node-layer.tar")
        config = ImageConfig(
            entrypoint=["/usr/local/bin/entrypoint", "/sbin/init"],
            environment={"container": "docker"},
            stop_signal="SIGRTMIN+3",
        )
        file = self.folder / "node.tar"
        archive.write_image(file, image, [layer], config)
        layer.file.unlink()
        return file

    def _in_root(self, *command: str) -> str:
        return processes.run(["chroot", self.root, *command])

    def _copy_kind_files(self, files: Path) -> None:
        for source in files.rglob("*"):
            if source.is_file():
                place = source.relative_to(files)
                is_program = place.parent in (Path("usr/local/bin"), Path("kind/bin"))
                _copy(source, self.root / place, mode=0o755 if is_program else 0o644)
        (self.root / "kind/version").write_text(f"v{self.version}")

    def _install_programs(self) -> None:
        for name in ("containerd", "ctr", "containerd-shim-runc-v2"):
            (self.root / "usr/local/bin" / name).symlink_to(f"/usr/bin/{name}")
        for needless in ("containerd-shim", "containerd-shim-runc-v1", "containerd-stress"):
            (self.root / "usr/bin" / needless).unlink(missing_ok=True)
        plugins = self.root / "opt/cni/bin"
        plugins.mkdir(parents=True)
        for name in _CNI_PLUGINS:
            (self.root / "usr/lib/cni" / name).rename(plugins / name)
        shutil.rmtree(self.root / "usr/lib/cni")
        _copy(self.kube / "kube", self.root / "usr/bin/kube", mode=0o755)
        for name in ("kubeadm", "kubectl", "kubelet"):
            (self.root / "usr/bin" / name).symlink_to("kube")
        _copy(self.tools["crictl"], self.root / "usr/local/bin/crictl", mode=0o755)

    def _install_our_files(self) -> None:
        for folder in ("etc/kubernetes/manifests", "etc/cni/net.d", "lib/modules"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        _copy(_FILES / "pod-network.yaml", self.root / "kind/manifests/default-cni.yaml", mode=0o644)
        _copy(_FILES / "default-storage.yaml", self.root / "kind/manifests/default-storage.yaml", mode=0o644)
        _copy(_FILES / "service-guard.service", self.root / "etc/systemd/system/service-guard.service", mode=0o644)

    def _enable_units(self) -> None:
        for pattern in _NEEDLESS_UNITS:
            for path in self.root.glob(pattern):
                path.unlink()
        with (self.root / "etc/systemd/journald.conf").open("a") as file:
            file.write("ReadKMsg=no\n")
        self._in_root("systemctl", "enable", "containerd", "kubelet", "service-guard", "undo-mount-hacks")
        self._in_root("systemctl", "mask", "systemd-binfmt.service")

    def _configure_containerd(self, pause_image: str) -> None:
        file = self.root / "etc/containerd/config.toml"
        lines = file.read_text().splitlines()
        for number, line in enumerate(lines):
            indent = line[: len(line) - len(line.lstrip())]
            if line.lstrip().startswith("sandbox_image"):
                lines[number] = f'{indent}sandbox_image = "{pause_image}"'
            # Where CAP_SYS_RESOURCE is not to be had, a lower oom_score_adj than the parent's is refused.
            elif line.lstrip().startswith("restrict_oom_score_adj"):
                lines[number] = f"{indent}restrict_oom_score_adj = true"
        file.write_text("\n".join(lines) + "\n")
        spec = json.loads(self._in_root("ctr", "oci", "spec"))
        hooks = spec.setdefault("hooks", {}).setdefault("createContainer", [])
        hooks.append({"path": "/kind/bin/mount-product-files.sh"})
        spec["process"].pop("rlimits", None)
        (self.root / "etc/containerd/cri-base.json").write_text(json.dumps(spec, indent=1))

    def _kubeadm_images(self) -> dict[str, str]:
        """Which image kubeadm of this version wants for what, by the last part of the name."""
        listed = processes.run(
            [self.kube / "kubeadm", "config", "images", "list", "--kubernetes-version", f"v{self.version}"]
        )
        return {name.rsplit(":", 1)[0].rsplit("/", 1)[1]: name for name in listed.split()}

    def _make_images(self, names: dict[str, str]) -> None:
        kube = self._layer("kube", programs={"kube": self.kube / "kube"}, links=programs.KUBE_NAMES)
        packet_filter = self._packet_filter_layer()
        for component in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"):
            self._image(component, names[component], [kube], ImageConfig())
        self._image("kube-proxy", names["kube-proxy"], [kube, packet_filter], ImageConfig())
        for name in ("coredns", "pause"):
            layer = self._layer(name, programs={name: self.tools[name]})
            self._image(name, names[name], [layer], ImageConfig(entrypoint=[f"/usr/local/bin/{name}"]))
        shell = self._shell_layer()
        config = ImageConfig(entrypoint=["/usr/local/bin/pod-network"])
        self._image("pod-network", _POD_NETWORK_IMAGE, [packet_filter, shell], config)

    def _image(self, name: str, tag: str, layers: Sequence[Layer], config: ImageConfig) -> None:
        file = self.folder / f"image-{name}.tar"
        archive.write_image(file, tag, layers, config)
        self.images.append(file)

    def _layer(self, name: str, *, programs: dict[str, Path], links: Iterable[str] = ()) -> Layer:
        folder = _new_root(self.folder / f"layer-{name}")
        for program, source in programs.items():
            _copy(source, folder / "usr/local/bin" / program, mode=0o755)
        for link in links:
            (folder / "usr/local/bin" / link).symlink_to(next(iter(programs)))
        return archive.build_layer(folder, folder.with_suffix(".tar"))

    def _packet_filter_layer(self) -> Layer:
        folder = _new_root(self.folder / "layer-packet-filter")
        # The extensions need their libraries too: libxt_statistic wants libm, and without it kube-proxy reports Ready
        # while every Service with two endpoints fails.
        extensions = [f"/{path.relative_to(self.root)}" for path in self.root.glob("usr/lib/*/xtables/*.so")]
        self._copy_with_libraries(["/usr/sbin/xtables-nft-multi", "/usr/sbin/nft", *extensions], folder)
        for name in _XTABLES_NAMES:
            (folder / "usr/sbin" / name).symlink_to("xtables-nft-multi")
        processes.run(["chroot", folder, "/usr/sbin/iptables", "--version"])
        return archive.build_layer(folder, folder.with_suffix(".tar"))

    def _shell_layer(self) -> Layer:
        folder = _new_root(self.folder / "layer-shell")
        _copy(self.root / "bin/busybox", folder / "bin/busybox", mode=0o755)
        for name in ("cat", "mv", "sh", "sleep"):
            (folder / "bin" / name).symlink_to("busybox")
        self._copy_with_libraries(["/usr/bin/curl", "/usr/bin/ip", "/usr/bin/jq"], folder)
        _copy(_FILES / "pod-network.sh", folder / "usr/local/bin/pod-network", mode=0o755)
        return archive.build_layer(folder, folder.with_suffix(".tar"))

    def _copy_with_libraries(self, files: Sequence[str], target: Path) -> None:
        listed = self._in_root("ldd", *files)
        libraries = {word for word in listed.split() if word.startswith("/") and not word.endswith(":")}
        names = [*files, *sorted(libraries)]
        # A library stays under the name that it is looked for by, whatever links the node has there.
        for name, real in zip(names, self._in_root("readlink", "-f", *names).split(), strict=True):
            _copy(self.root / real.lstrip("/"), target / name.lstrip("/"), mode=0o755)

    def _import_images(self) -> None:
        """Puts the images into the node's containerd, contents only, as kind does."""
        state = self.folder / "c"
        state.mkdir()
        socket = state / "s"
        config = state / "config.toml"
        config.write_text(
            f"""version = 2
root = "{self.root}/var/lib/containerd"
state = "{state}/run"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
[grpc]
  address = "{socket}"
[ttrpc]
  address = "{state}/t"
"""
        )
        shutil.rmtree(self.root / "var/lib/containerd", ignore_errors=True)
        ctr = ["ctr", "--address", str(socket), "--namespace", "k8s.io", "images"]
        containerd = processes.start(["containerd", "--config", config], log=self.log / "node-containerd.log")
        try:
            processes.until(lambda: processes.succeeds([*ctr, "list"]), what="an answer of containerd", seconds=30)
            for file in self.images:
                processes.run([*ctr, "import", "--no-unpack", "--all-platforms", file])
            for name in processes.run([*ctr, "list", "--quiet"]).split():
                processes.run([*ctr, "label", name, "io.cri-containerd.image=managed"])
        finally:
            processes.end(containerd)


def _new_root(folder: Path) -> Path:
    for name in ("usr/local/bin", "usr/sbin", "bin", "etc", "run"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    temporary = folder / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    return folder


def _copy(source: Path, target: Path, *, mode: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    os.chmod(target, mode)
