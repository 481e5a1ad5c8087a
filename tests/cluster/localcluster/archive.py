"""Writes container images as docker-archives, from folders. No engine, no registry; the same folders give the same bytes.

``docker load`` and containerd's ``ctr images import`` read them.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from localcluster import processes

_EPOCH = "1970-01-01T00:00:00Z"
_SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A tar file that images are stacked from; images that share one store it once."""

    file: Path
    digest: str
    """SHA-256 of the file, hexadecimal."""


@dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """How a container of the image runs."""

    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    stop_signal: str = ""

    def as_json(self) -> dict[str, object]:
        variables = {"PATH": _SEARCH_PATH, **self.environment}
        config: dict[str, object] = {"Env": [f"{name}={value}" for name, value in variables.items()]}
        if self.entrypoint:
            config["Entrypoint"] = list(self.entrypoint)
        if self.command:
            config["Cmd"] = list(self.command)
        if self.stop_signal:
            config["StopSignal"] = self.stop_signal
        return config


def build_layer(folder: Path, file: Path) -> Layer:
    """Packs a folder: sorted names, no times, owners by number, capabilities kept (extended attributes)."""
    order = ["--sort=name", "--mtime=@0", "--numeric-owner", "--format=posix"]
    # Without this, posix headers carry the process id of tar and the times.
    order += ["--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime"]
    attributes = ["--xattrs", "--xattrs-include=security.capability"]
    processes.run(["tar", *order, *attributes, "-C", folder, "-cf", file, "."], timeout=600)
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return Layer(file=file, digest=digest)


def write_image(file: Path, name: str, layers: Sequence[Layer], config: ImageConfig) -> None:
    """Writes the image ``name`` (with its tag), its first layer lowest."""
    image = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "created": _EPOCH,
        "config": config.as_json(),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in layers]},
        "history": [{"created": _EPOCH, "created_by": "tests/cluster"} for _ in layers],
    }
    config_bytes = json.dumps(image, sort_keys=True).encode()
    config_name = hashlib.sha256(config_bytes).hexdigest() + ".json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": [f"{layer.digest}.tar" for layer in layers]}]
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as archive:
        _add_bytes(archive, config_name, config_bytes)
        _add_bytes(archive, "manifest.json", json.dumps(manifest).encode())
        for layer in layers:
            _add_file(archive, f"{layer.digest}.tar", layer.file)


def _add_bytes(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _add_file(archive: tarfile.TarFile, name: str, file: Path) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = file.stat().st_size
    with file.open("rb") as content:
        archive.addfile(entry, content)
