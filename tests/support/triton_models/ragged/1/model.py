"""The sum of each row."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [_answer(request) for request in requests]


def _answer(request):
    rows = pb_utils.get_input_tensor_by_name(request, "rows").as_numpy()
    return pb_utils.InferenceResponse([pb_utils.Tensor("total", rows.sum(axis=1, keepdims=True))])
