"""PyTorch models, run in worker processes: programs of `torch.export` (`.pt2`) and TorchScript (`.pt`).

Owns what is particular to PyTorch on the adapter's side: which of the two a file is, and its signature. A `.pt2` file tells it
without PyTorch; TorchScript knows no shapes, so a signature file stands beside it.
"""

import zipfile
from pathlib import Path
from typing import Any, Final

from modelservice_api.adapter_config import AdapterConfig, ArtifactConfig
from modelservice_sidecar.backends.artifact import ArtifactBackend, Files, must_exist, read_signature_file
from modelservice_sidecar.core import pt2
from modelservice_sidecar.core.tensors import Signature
from modelservice_sidecar.worker.supervised import UnusableModelError

_MAX_DOCUMENT: Final = 256 * 1024 * 1024
"""Of the JSON inside a `.pt2` file: the whole graph of a large model."""


def make(config: AdapterConfig) -> ArtifactBackend:
    """The backend for the PyTorch files of a configuration."""
    return ArtifactBackend("Torch", "torch", config.backend.torch, _read, nulls=config.model.non_finite == "Null")


def _read(config: ArtifactConfig) -> Files:
    path = must_exist(config)
    try:
        with zipfile.ZipFile(path) as archive:
            entries = pt2.kind_of(archive.namelist())
            if entries.kind == "exported":
                return _exported(path, archive, entries.document)
    except (zipfile.BadZipFile, OSError) as error:
        raise UnusableModelError(f"{path} is neither a .pt2 file nor TorchScript: {error}.") from error
    if entries.kind == "compiled":
        raise UnusableModelError(
            f"{path} is a package of AOTInductor, which tells no names and checks no shapes; "
            "save the exported program with torch.export.save instead."
        )
    if entries.kind != "script":
        raise UnusableModelError(
            f"{path} is neither a .pt2 file nor TorchScript; save the model with torch.export.save, not torch.save."
        )
    beside = read_signature_file(path, config.function)
    if beside is None:
        raise UnusableModelError(
            f"TorchScript tells no shapes; write the signature file {path.with_suffix('.json').name} beside {path}, "
            "or export the model with torch.export."
        )
    said, content = beside
    return Files(
        model=(path, path.with_suffix(".json")),
        signature=said.signature(),
        description=said.description,
        expected=content,
    )


def _exported(path: Path, archive: zipfile.ZipFile, document: str) -> Files:
    if archive.getinfo(document).file_size > _MAX_DOCUMENT:
        raise UnusableModelError(f"The description inside {path} is larger than 256 MB.")
    try:
        signature = pt2.read(archive.read(document))
    except pt2.Pt2Error as error:
        raise UnusableModelError(f"{path} {error}.") from error
    return Files(model=(path,), signature=signature, expected=_expected(signature))


def _expected(signature: Signature) -> dict[str, Any]:
    return {
        "inputs": [{"name": spec.name} for spec in signature.inputs],
        "outputs": [{"name": spec.name} for spec in signature.outputs],
        "exported": True,
    }
