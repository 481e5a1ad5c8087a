"""Keeps one total per sequence."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.totals = {}

    def execute(self, requests):
        responses = []
        for request in requests:
            value = pb_utils.get_input_tensor_by_name(request, "value").as_numpy()
            start = pb_utils.get_input_tensor_by_name(request, "START").as_numpy()
            sequence = int(pb_utils.get_input_tensor_by_name(request, "CORRID").as_numpy().ravel()[0])
            before = 0 if start.ravel()[0] else self.totals[sequence]
            self.totals[sequence] = before + int(value.sum())
            total = np.array([[self.totals[sequence]]], dtype=np.int64)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("total", total)]))
        return responses
