"""Images are written the same way twice, and as engines read them."""

import json
import os
import tarfile
from pathlib import Path

from localcluster import archive
from localcluster.archive import ImageConfig


def folder_with_program(place: Path, *, modified: float) -> Path:
    """A folder as it would lie in an image."""
    program = place / "usr" / "bin" / "program"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (place / "usr" / "bin" / "alias").symlink_to("program")
    for path in (program, program.parent, place / "usr", place):
        os.utime(path, (modified, modified))
    return place


def write(place: Path, *, modified: float) -> bytes:
    """The bytes of an image of such a folder."""
    folder = folder_with_program(place / "root", modified=modified)
    layer = archive.build_layer(folder, place / "layer.tar")
    archive.write_image(place / "image.tar", "example:1", [layer], ImageConfig(entrypoint=["/usr/bin/program"]))
    return (place / "image.tar").read_bytes()


def test_the_same_contents_give_the_same_bytes_whenever_and_wherever_they_were_made(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "elsewhere" / "second"
    assert write(first, modified=1_000_000_000) == write(second, modified=1_700_000_000)


def test_the_manifest_names_the_image_its_configuration_and_its_layers_lowest_first(tmp_path: Path) -> None:
    layers = []
    for name in ("low", "high"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
        layers.append(archive.build_layer(tmp_path / name, tmp_path / f"{name}.tar"))
    archive.write_image(tmp_path / "image.tar", "example:1", layers, ImageConfig(command=["run"], stop_signal="SIGINT"))
    with tarfile.open(tmp_path / "image.tar") as image:

        def read(name: str) -> bytes:
            file = image.extractfile(name)
            assert file is not None
            return file.read()

        (manifest,) = json.loads(read("manifest.json"))
        config = json.loads(read(manifest["Config"]))
        assert manifest["RepoTags"] == ["example:1"]
        assert [read(name) for name in manifest["Layers"]] == [layer.file.read_bytes() for layer in layers]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{layer.digest}" for layer in layers]
    assert config["config"] == {
        "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        "Cmd": ["run"],
        "StopSignal": "SIGINT",
    }
