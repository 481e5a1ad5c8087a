"""Gives every input back under its output's name."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([_echo(tensor) for tensor in request.inputs()]) for request in requests]


def _echo(tensor):
    name = tensor.name().replace("in/", "out/")
    if name == "out/bf16":  # numpy has no such type
        return pb_utils.Tensor.from_dlpack(name, tensor)
    return pb_utils.Tensor(name, tensor.as_numpy())
