"""NVIDIA's own client, run as a program of its own environment: one JSON line of calls in, one JSON line of outcomes out.

Usage: ``python triton_calls.py sync|aio HOST:PORT``. Nothing in it knows whether a Triton or something else answers.
"""

import asyncio
import base64
import json
import sys

import ml_dtypes
import numpy as np
import tritonclient.http
import tritonclient.http.aio

PLAIN = {"BOOL": "?", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8", "BF16": ml_dtypes.bfloat16}


def dtype(name):
    if name in PLAIN:
        return np.dtype(PLAIN[name])
    bits = int(name.lstrip("UINT")) // 8
    return np.dtype(f"<{'u' if name.startswith('U') else 'i'}{bits}")


def inputs(call):
    found = []
    for one in call["inputs"]:
        tensor = tritonclient.http.InferInput(one["name"], one["shape"], one["datatype"])
        if one["datatype"] == "BYTES":
            array = np.array([base64.b64decode(item) for item in one["items"]], dtype=object).reshape(one["shape"])
        else:
            array = np.frombuffer(base64.b64decode(one["data"]), dtype(one["datatype"])).reshape(one["shape"])
        tensor.set_data_from_numpy(array, binary_data=call.get("binary", True))
        found.append(tensor)
    return found


def options(call):
    more = {"request_id": call.get("id", "")}
    if "outputs" in call:
        more["outputs"] = [
            tritonclient.http.InferRequestedOutput(name, binary_data=binary) for name, binary in call["outputs"].items()
        ]
    if "parameters" in call:
        more["parameters"] = call["parameters"]
    return more


def told(result):
    response = result.get_response()
    outputs = {}
    for one in response["outputs"]:
        array = result.as_numpy(one["name"])
        entry = {"datatype": one["datatype"], "shape": list(array.shape)}
        if one["datatype"] == "BYTES":
            items = [item if isinstance(item, bytes) else item.encode() for item in array.ravel().tolist()]
            entry["items"] = [base64.b64encode(item).decode() for item in items]
        else:
            entry["data"] = base64.b64encode(array.tobytes()).decode()
        outputs[one["name"]] = entry
    return {"model": response["model_name"], "id": response.get("id", ""), "outputs": outputs}


def failed(error):
    return {"error": error.message(), "status": error.status()}


def sync(url, calls):
    with tritonclient.http.InferenceServerClient(url) as client:
        yield about(
            client.is_server_live(),
            client.is_server_ready(),
            client.get_server_metadata(),
            {name: client.is_model_ready(name) for name in names(calls)},
            {name: client.get_model_metadata(name) for name in names(calls) if client.is_model_ready(name)},
        )
        for call in calls:
            try:
                yield told(client.infer(call["model"], inputs(call), **options(call)))
            except tritonclient.utils.InferenceServerException as error:
                yield failed(error)


async def aio(url, calls):
    async with tritonclient.http.aio.InferenceServerClient(url) as client:
        yield about(
            await client.is_server_live(),
            await client.is_server_ready(),
            await client.get_server_metadata(),
            {name: await client.is_model_ready(name) for name in names(calls)},
            {name: await client.get_model_metadata(name) for name in names(calls) if await client.is_model_ready(name)},
        )
        for call in calls:
            try:
                yield told(await client.infer(call["model"], inputs(call), **options(call)))
            except tritonclient.utils.InferenceServerException as error:
                yield failed(error)


def names(calls):
    return sorted({call["model"] for call in calls})


def about(live, ready, server, models_ready, models):
    return {"live": live, "ready": ready, "server": server, "models_ready": models_ready, "models": models}


async def collected(items):
    return [item async for item in items]


if __name__ == "__main__":
    kind, url = sys.argv[1:]
    asked = json.load(sys.stdin)
    print(json.dumps(list(sync(url, asked)) if kind == "sync" else asyncio.run(collected(aio(url, asked)))))
