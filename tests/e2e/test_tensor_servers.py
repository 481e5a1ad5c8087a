"""Model servers whose tools take tensors, adopted on a real cluster: a real Triton, by its team's own manifests."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from installation import Installation
from kubectl_access import Namespace
from mcp_calls import converse, text_of
from model_servers import VERSION

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "triton-risk"
IMAGE = f"modelservice/example-triton-risk:{VERSION}"


def manifest(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLE / name).read_text(encoding="utf-8"))
    return found


@pytest.mark.promise("triton-tools")
@pytest.mark.promise("warm-up")
@pytest.mark.promise("refuse-model-spec-conflict")
def test_a_running_triton_becomes_typed_tools_and_a_wrong_declaration_stops_its_calls(
    namespace: Namespace, installation: Installation
) -> None:
    installation.cluster.load((IMAGE,))
    namespace.apply(manifest("deployment.yaml"))
    namespace.wait_for_rollout("deployment/risk")
    before = namespace.get("deployment", "risk")["spec"]["template"]
    namespace.apply(manifest("modelservice.yaml"))
    namespace.wait_for_condition("modelservice/risk", "Ready")
    namespace.wait_for_rollout("deployment/risk")
    status = namespace.get("modelservice", "risk")["status"]
    assert (status["backend"]["type"], status["tools"]["names"]) == ("V2", ["risk"])
    with namespace.forwarded("service/risk-mcp", 8931) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        rows = [[0, 0, 0, 0], [1, 2, 3, 4]]
        seen = converse(
            url,
            ("risk", {"features": rows}),
            ("risk", {"features": rows[1]}),
            ("risk", {"features": rows * 9}),
            ("risk", {"features": [[1, 2], [3]]}),
        )
        batched, one_row, too_many, ragged = seen.answers
        assert batched.structured_content is not None
        assert batched.structured_content["band"] == [["medium"], ["high"]]
        assert one_row.structured_content is not None
        assert one_row.structured_content["band"] == ["high"]
        assert one_row.structured_content["score"] == batched.structured_content["score"][1]
        assert too_many.is_error
        assert "more than 16 items" in text_of(too_many)
        assert ragged.is_error
        assert "$.features[0]" in text_of(ragged)
        wrong = '{"spec":{"model":{"inputs":[{"name":"features","datatype":"FP32","shape":[-1,5]}]}}}'
        namespace.kubectl("patch", "modelservice", "risk", "--type=merge", "-p", wrong)
        message = namespace.wait_for_reason("risk", "Discovered", "ModelSpecConflict", seconds=150)
        assert "features is declared as FP32[?, 5], but the model takes FP32[1..16, 4]" in message
        (refused,) = converse(url, ("risk", {"features": rows})).answers
        assert refused.is_error
        assert "The model is not what was declared" in text_of(refused)
        right = '{"spec":{"model":{"inputs":[{"name":"features","datatype":"FP32","shape":[-1,4]}]}}}'
        namespace.kubectl("patch", "modelservice", "risk", "--type=merge", "-p", right)
        namespace.wait_for_condition("modelservice/risk", "Ready")
        (answered,) = converse(url, ("risk", {"features": rows})).answers
        assert answered.structured_content == batched.structured_content
    namespace.kubectl("delete", "modelservice", "risk", "--timeout=60s")
    assert namespace.get("deployment", "risk")["spec"]["template"] == before
