"""The image that Dockerfiles start from, under the name they give it, for machines that reach no image registry.

It holds what the real one is used for: ``python`` and ``python3`` 3.11 on PATH, ``python -m venv``, CA certificates.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from localcluster import archive, debian, progress, settings
from localcluster.archive import ImageConfig
from localcluster.cache import Cache, key_of
from localcluster.settings import Folders

# libpython: programs that embed Python, such as Triton's Python models; Docker's image has it too.
_INCLUDE = ("python3", "python3-venv", "libpython3.11", "ca-certificates")
_ALIASES = ("python", "python3")


def build(folders: Folders) -> Path:
    """The image as a docker-archive; made first if it is not there."""

    def fill(place: Path) -> None:
        root = place / "root"
        what = f"base image {settings.BASE_IMAGE} from Debian packages, some 90 s"
        debian.bootstrap(root, include=_INCLUDE, what=what, log=folders.logs / "base-image.log")
        for alias in _ALIASES:
            (root / "usr/local/bin" / alias).symlink_to("/usr/bin/python3")
        with progress.step(f"packing {settings.BASE_IMAGE}"):
            layer = archive.build_layer(root, place / "layer.tar")
            config = ImageConfig(command=["python3"], environment={"LANG": "C.UTF-8"})
            archive.write_image(place / "image.tar", settings.BASE_IMAGE, [layer], config)
        layer.file.unlink()
        shutil.rmtree(root)

    return Cache(folder=folders.cache).entry("base-image", _key(), fill) / "image.tar"


def is_built(folders: Folders) -> bool:
    """Whether the image of today's recipe has been made."""
    return Cache(folder=folders.cache).has("base-image", _key())


def _key() -> str:
    return key_of(files=[Path(__file__)], texts=[settings.DEBIAN_SUITE])
