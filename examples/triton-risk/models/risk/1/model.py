"""A logistic regression over four features, as a Triton Python model."""

import numpy as np
import triton_python_backend_utils as pb_utils

WEIGHTS = np.array([0.8, -1.2, 0.5, 2.0], dtype=np.float32)
BIAS = np.float32(-0.4)


class TritonPythonModel:
    """Answers every request of a batch with its rows' scores."""

    def execute(self, requests):
        """One response for each request."""
        responses = []
        for request in requests:
            features = pb_utils.get_input_tensor_by_name(request, "features").as_numpy()
            score = 1 / (1 + np.exp(-(features @ WEIGHTS + BIAS)))
            band = np.where(score < 0.3, "low", np.where(score < 0.7, "medium", "high")).astype(object)
            outputs = [
                pb_utils.Tensor("score", score.astype(np.float32).reshape(-1, 1)),
                pb_utils.Tensor("band", band.reshape(-1, 1)),
            ]
            responses.append(pb_utils.InferenceResponse(output_tensors=outputs))
        return responses
