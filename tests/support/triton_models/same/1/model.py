"""The identity."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [_answer(request) for request in requests]


def _answer(request):
    values = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
    return pb_utils.InferenceResponse([pb_utils.Tensor("y", values)])
