"""The sum of each row, of whatever comes in: the server itself checks neither type nor shape."""

import pathlib

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse

FOLDER = pathlib.Path(__file__).parent


class Sums(MLModel):
    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        with (FOLDER / "requests").open("a") as log:
            log.write(".")
        rows = NumpyCodec.decode_input(payload.inputs[0])
        total = NumpyCodec.encode_output("total", rows.sum(axis=-1).astype(np.float32))
        return InferenceResponse(model_name=self.name, outputs=[total])
