"""Says that a request came in with a file `entered`, and waits for a file `release`, or to be cancelled."""

import os
import pathlib
import time

import triton_python_backend_utils as pb_utils

FOLDER = pathlib.Path(os.environ["MODEL_EVENTS"])


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            (FOLDER / "entered").touch()
            while not (FOLDER / "release").exists():
                if request.is_cancelled():
                    (FOLDER / "cancelled").touch()
                    break
                time.sleep(0.005)
            value = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", value * 2)]))
        return responses
