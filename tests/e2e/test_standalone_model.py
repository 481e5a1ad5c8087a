"""A compiled model that the adapter runs itself, on a real cluster, without a workload to adopt."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from artifact_models import torch_models, tvm_model
from installation import Installation
from kubectl_access import Namespace
from mcp_calls import converse, text_of
from model_servers import VERSION

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "tvm-standalone"
ROW = [1.0, 1.0, 1.0, 1.0]
ONES = [41.0, 41.0, 41.0]


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLE / "standalone.yaml").read_text(encoding="utf-8")))


def model_files(model: Path) -> dict[str, Any]:
    """The ConfigMap that `kubectl create configmap --from-file` makes of a compiled model."""
    content = {path.name: base64.b64encode(path.read_bytes()).decode() for path in model.parent.glob(f"{model.stem}.*")}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "scorer-model"}, "binaryData": content}


@pytest.mark.promise("tvm-tools")
@pytest.mark.promise("isolated")
def test_a_compiled_model_is_served_by_the_adapter_and_a_crash_of_it_is_one_error(
    namespace: Namespace, installation: Installation
) -> None:
    model = tvm_model(torch_models() / "net.pt2")
    installation.cluster.load((f"modelservice/adapter-tvm:{VERSION}",))
    namespace.apply(model_files(model), *manifests())
    namespace.wait_for_rollout("deployment/scorer")
    with namespace.forwarded("service/scorer", 8931) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        seen = converse(url, ("score", {"x": [ROW, ROW]}), ("score", {"x": [ROW] * 65}), ("score", {"x": [[1, 2]]}))
        assert list(seen.tools) == ["score"]
        good, too_many, wrong = seen.answers
        assert good.structured_content == {"output": [ONES, ONES]}
        assert too_many.is_error
        assert "more than 64 items" in text_of(too_many)
        assert wrong.is_error
        kill = (
            "import os, pathlib, signal\n"
            "for place in pathlib.Path('/proc').glob('[0-9]*'):\n"
            "    words = (place / 'cmdline').read_bytes().split(bytes(1))\n"
            "    if any(word.endswith(b'/worker/program.py') for word in words):\n"
            "        os.kill(int(place.name), signal.SIGSEGV)\n"
        )
        namespace.kubectl("exec", "deployment/scorer", "--", "python", "-c", kill)
        (again,) = converse(url, ("score", {"x": [ROW]})).answers
        if again.is_error:  # the call that met the dying process
            assert "SIGSEGV" in text_of(again)
            (again,) = converse(url, ("score", {"x": [ROW]})).answers
        assert again.structured_content == {"output": [ONES]}
