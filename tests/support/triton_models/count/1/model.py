"""Sends n answers. At `pause_at` it waits to be cancelled, and leaves a file that says it was.

What came with the last request beside its tensors is left in a file, too.
"""

import json
import os
import pathlib
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

FOLDER = pathlib.Path(os.environ["MODEL_EVENTS"])


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=_answer, args=(request,), daemon=True).start()


def _answer(request):
    sender = request.get_response_sender()
    (FOLDER / "told").write_text(json.dumps({"id": request.request_id(), **json.loads(request.parameters())}))
    wanted = int(pb_utils.get_input_tensor_by_name(request, "n").as_numpy()[0])
    pause = pb_utils.get_input_tensor_by_name(request, "pause_at")
    pause_at = int(pause.as_numpy()[0]) if pause is not None else -1
    for number in range(wanted):
        if number == pause_at:
            while not sender.is_cancelled():
                time.sleep(0.005)
            (FOLDER / "cancelled").touch()
            break
        text = np.array([f"part {number}".encode()], dtype=np.object_)
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("text", text)]))
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
