"""A model server made with the KServe SDK, run as a program in its own environment: adds the values of each row.

Owns one model that counts its requests in a file. Started by `kserve_server`.
"""

import argparse
import pathlib

import numpy as np
import uvicorn
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer, model_server


class Loopback(uvicorn.Config):
    """The SDK listens on every address of the machine; a test's server has no business there."""

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **{**options, "host": "127.0.0.1"})


class Sums(Model):
    def __init__(self, log: pathlib.Path) -> None:
        super().__init__("sums")
        self.log = log
        self.ready = True

    def load(self) -> bool:
        self.ready = True
        return True

    async def get_input_types(self):
        return [{"name": "rows", "datatype": "FP32", "shape": [-1, 2]}]

    async def get_output_types(self):
        return [{"name": "total", "datatype": "FP32", "shape": [-1]}]

    async def predict(self, payload: InferRequest, headers=None, response_headers=None) -> InferResponse:
        with self.log.open("a") as log:
            log.write(".")
        total = payload.inputs[0].as_numpy().sum(axis=-1).astype(np.float32)
        output = InferOutput("total", list(total.shape), "FP32")
        output.set_data_from_numpy(total, binary_data=False)
        return InferResponse(payload.id, self.name, [output])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(parents=[model_server.parser])
    parser.add_argument("--counted_in", type=pathlib.Path, required=True)
    options = parser.parse_args()
    uvicorn.Config = Loopback
    ModelServer(http_port=options.http_port, enable_grpc=False, workers=1).start([Sums(options.counted_in)])
