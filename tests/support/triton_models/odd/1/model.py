"""Does what `mode` says: a number, NaN, or an error whose text nobody outside should read.

What came with the last request beside its tensors is left in a file.
"""

import json
import os
import pathlib

import numpy as np
import triton_python_backend_utils as pb_utils

FOLDER = pathlib.Path(os.environ["MODEL_EVENTS"])


class TritonPythonModel:
    def execute(self, requests):
        return [_answer(request) for request in requests]


def _answer(request):
    (FOLDER / "told").write_text(json.dumps({"id": request.request_id(), **json.loads(request.parameters())}))
    modes = pb_utils.get_input_tensor_by_name(request, "mode").as_numpy()
    if modes.ndim != 1:
        raise AssertionError("reshape was not applied")
    if b"fail" in modes:
        return pb_utils.InferenceResponse([], error=pb_utils.TritonError("the password is hunter2"))
    values = [np.nan if mode == b"nan" else float(mode) for mode in modes]
    return pb_utils.InferenceResponse([pb_utils.Tensor("value", np.array(values, dtype=np.float32))])
