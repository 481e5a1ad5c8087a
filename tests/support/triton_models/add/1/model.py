"""Adds two tensors; the second may be missing."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            total = pb_utils.get_input_tensor_by_name(request, "a").as_numpy()
            other = pb_utils.get_input_tensor_by_name(request, "b")
            if other is not None:
                total = total + other.as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("sum", total)]))
        return responses
