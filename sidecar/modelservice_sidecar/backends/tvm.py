"""Compiled TVM modules, run in worker processes.

Owns what is particular to TVM on the adapter's side: the signature file beside the module (`m.so`, `m.json`), and the file of
weights that it names. The module itself is looked at in the worker only.
"""

from pathlib import Path

from modelservice_api.adapter_config import AdapterConfig, ArtifactConfig
from modelservice_sidecar.backends.artifact import ArtifactBackend, Files, must_exist, read_signature_file
from modelservice_sidecar.worker.supervised import UnusableModelError


def make(config: AdapterConfig) -> ArtifactBackend:
    """The backend for the TVM modules of a configuration."""
    return ArtifactBackend("TVM", "tvm", config.backend.tvm, _read, nulls=config.model.non_finite == "Null")


def _read(config: ArtifactConfig) -> Files:
    path = must_exist(config)
    read = read_signature_file(path, config.function)
    if read is None:
        return Files(model=(path,), absent=(path.with_suffix(".json"),))
    said, content = read
    beside = path.with_suffix(".json")
    weights: Path | None = None
    if said.weights is not None:
        weights = beside.parent / said.weights.file
        if not weights.is_file():
            raise UnusableModelError(f"There is no file {weights}, which {beside.name} names as the weights.")
    return Files(
        model=(path, beside),
        weights=weights,
        signature=said.signature(),
        description=said.description,
        expected=content,
    )
