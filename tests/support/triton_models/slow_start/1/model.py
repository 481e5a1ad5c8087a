"""Says that it is being loaded with a file `loading`, and waits for a file `go`."""

import os
import pathlib
import time

import triton_python_backend_utils as pb_utils

FOLDER = pathlib.Path(os.environ["MODEL_EVENTS"])


class TritonPythonModel:
    def initialize(self, args):
        (FOLDER / "loading").touch()
        while not (FOLDER / "go").exists():
            time.sleep(0.01)

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("y", pb_utils.get_input_tensor_by_name(request, "x").as_numpy())]
            )
            for request in requests
        ]
