"""The signature file: what is read, and what is refused with the place of the mistake."""

import json
from typing import Any

import pytest

from modelservice_sidecar.core import signature_file

X: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [-1, 4], "bounds": {"0": [1, 64]}}
WHOLE: dict[str, Any] = {
    "version": "v1",
    "description": "Rate rows.",
    "maxBatch": 64,
    "inputs": [X],
    "outputs": [{"name": "y", "datatype": "BF16", "shape": [-1]}],
    "weights": {
        "file": "m.safetensors",
        "transform": "prepare",
        "tensors": [{"name": "a", "parameter": "p_a", "datatype": "FP32", "shape": [2]}],
    },
    "made": {"triple": "x86_64-linux-gnu", "mcpu": "x86-64-v3", "features": ["avx2"], "tvm": "0.27", "tvmFfi": "0.1"},
}


def test_a_whole_file_is_read_and_written_alike() -> None:
    found = signature_file.read(json.dumps(WHOLE).encode())
    signature = found.signature()
    assert [str(spec) for spec in (*signature.inputs, *signature.outputs)] == ["FP32[1..64, 4]", "BF16[?]"]
    assert signature.max_batch == 64
    assert signature_file.read(json.dumps(found.document()).encode()) == found


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"version": "v2"}, "version"),
        ({"version": None}, "version"),
        ({"surprise": 1}, "surprise"),
        ({"inputs": []}, "inputs"),
        ({"inputs": [{**X, "datatype": "FP31"}]}, "inputs.0.datatype"),
        ({"inputs": [{**X, "shape": [-2, 4]}]}, "inputs.0.shape"),
        ({"inputs": [{**X, "shape": [1] * 17, "bounds": {}}]}, "inputs.0.shape"),
        ({"inputs": [{**X, "bounds": {"1": [1, 2]}}]}, "dimension 1, which is not free"),
        ({"inputs": [{**X, "bounds": {"0": [9, 2]}}]}, "dimension 0 has 2 as its largest"),
        ({"inputs": [{**X, "name": ""}]}, "inputs.0.name"),
    ],
)
def test_a_mistake_is_told_with_its_place(change: dict[str, Any], where: str) -> None:
    with pytest.raises(signature_file.BadSignatureError, match=where):
        signature_file.read(json.dumps(WHOLE | change).encode())


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"version": "v1"'])
def test_what_is_no_document_is_refused(content: bytes) -> None:
    with pytest.raises(signature_file.BadSignatureError):
        signature_file.read(content)
