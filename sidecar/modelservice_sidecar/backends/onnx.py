"""ONNX files, run by onnxruntime in worker processes.

Owns what is particular to ONNX on the adapter's side: nothing but the file. onnxruntime tells the signature in the worker.
"""

from modelservice_api.adapter_config import AdapterConfig, ArtifactConfig
from modelservice_sidecar.backends.artifact import ArtifactBackend, Files, must_exist


def make(config: AdapterConfig) -> ArtifactBackend:
    """The backend for the ONNX files of a configuration."""
    return ArtifactBackend("ONNX", "onnx", config.backend.onnx, _read, nulls=config.model.non_finite == "Null")


def _read(config: ArtifactConfig) -> Files:
    return Files(model=(must_exist(config),))
