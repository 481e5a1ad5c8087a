"""ONNX models in a worker, run by onnxruntime.

Owns onnxruntime: sessions, its names of types, its errors. Types that are no tensors (sequences, maps) are refused as inputs
and left out as outputs.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from modelservice_sidecar.worker.runtimes import arrays
from modelservice_sidecar.worker.runtimes.arrays import RefusedError, UnusableError, Value
from modelservice_sidecar.worker.wire import Facts, Load, Told

_DATATYPES: Final = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}
_CUDA: Final = "CUDAExecutionProvider"


def load(load: Load) -> "OnnxModel":
    """The model, ready to run."""
    if load.memory_fraction is not None:
        raise UnusableError("onnxruntime takes no share of a device's memory; leave memoryFraction out.")
    try:
        import onnxruntime
    except ImportError as error:
        raise UnusableError(
            f"onnxruntime cannot be imported ({error}); install modelservice[onnx], or name an interpreter that has it."
        ) from error
    providers = ["CPUExecutionProvider"]
    if load.has_device:
        if _CUDA not in onnxruntime.get_available_providers():
            raise UnusableError("A device is assigned, but this onnxruntime knows no CUDA; install onnxruntime-gpu.")
        providers.insert(0, _CUDA)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = load.threads
    options.inter_op_num_threads = 1
    # A thread that spins while it waits takes the core from the next model.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(load.artifact, options, providers=providers)
    except Exception as error:
        raise UnusableError(f"onnxruntime cannot load it: {_first_line(error)}") from error
    return OnnxModel(session)


class OnnxModel:
    """One session."""

    def __init__(self, session: Any) -> None:
        self._session = session
        notes: list[str] = []
        inputs, outputs = [], []
        for item in session.get_inputs():
            if item.type not in _DATATYPES:
                raise UnusableError(
                    f"Its input {item.name} is {item.type}; only tensors of common datatypes can be given."
                )
            inputs.append(_told(item))
        for item in session.get_outputs():
            if item.type in _DATATYPES:
                outputs.append(_told(item))
            else:
                notes.append(f"Its output {item.name} is {item.type} and is left out.")
        if not outputs:
            raise UnusableError("None of its outputs is a tensor of a common datatype.")
        self.facts = Facts(inputs=inputs, outputs=outputs, notes=notes)
        self._outputs = [item.name for item in outputs]

    def run(self, inputs: Mapping[str, Value]) -> Mapping[str, Value]:
        """The outputs for these inputs."""
        feed = {
            name: _texts(value.array) if value.datatype == "BYTES" else value.array for name, value in inputs.items()
        }
        try:
            found = self._session.run(self._outputs, feed)
        except Exception as error:
            if type(error).__name__ == "InvalidArgument":
                raise RefusedError(_first_line(error)) from error
            raise
        return {name: arrays.of(np.asarray(array)) for name, array in zip(self._outputs, found, strict=True)}

    def load_weights(self) -> None:
        """Nothing: weights are in the model's file."""


def _told(item: Any) -> Told:
    return Told(
        name=item.name,
        datatype=_DATATYPES[item.type],
        shape=[size if isinstance(size, int) and size >= 0 else -1 for size in item.shape],
    )


def _texts(array: arrays.Array) -> arrays.Array:
    texts = np.empty(array.shape, dtype=object)
    texts.reshape(-1)[:] = [item.decode("utf-8", "replace") for item in array.ravel().tolist()]
    return texts


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
