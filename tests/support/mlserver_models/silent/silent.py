"""Takes and gives anything, and tells nobody what."""

from mlserver import MLModel
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput


class Silent(MLModel):
    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        outputs = [
            ResponseOutput(name=f"{one.name}_back", datatype=one.datatype, shape=one.shape, data=one.data)
            for one in payload.inputs
        ]
        return InferenceResponse(model_name=self.name, outputs=outputs)
