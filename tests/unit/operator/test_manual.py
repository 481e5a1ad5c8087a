"""Manual mode: the workload is never written; its owner commits what the ConfigMap holds."""

import json
from typing import Any

import pytest

from kube_objects import deployment, model_service, modified, observed, with_container, with_spec
from modelservice_operator.core import plan, summary
from modelservice_operator.core.observed import Observed

MANUAL = with_spec(injection={"mode": "Manual"})


def manual(workload: dict[str, Any] | None = None, **blocks: Any) -> Observed:
    service = model_service("fraud", with_spec(injection={"mode": "Manual"}, **blocks))
    return observed(service=service, workload=workload)


def patch_of(decided: plan.Plan) -> dict[str, Any]:
    config_map = next(document for document in decided.owned if document["kind"] == "ConfigMap")
    found: dict[str, Any] = json.loads(config_map["data"]["patch.yaml"])
    return found


def committed(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """The workload with the patch in it, as a strategic merge leaves it."""
    template, added = target["spec"]["template"], patch["spec"]["template"]
    result = modified(target)
    result["spec"]["template"]["metadata"] = {
        key: {**(template["metadata"].get(key) or {}), **added["metadata"][key]} for key in ("labels", "annotations")
    }
    pod = result["spec"]["template"]["spec"]
    pod["containers"] = [*template["spec"]["containers"], *added["spec"]["containers"]]
    pod["volumes"] = [*(template["spec"].get("volumes") or []), *added["spec"]["volumes"]]
    return result


def conditions(seen: Observed, decided: plan.Plan) -> dict[str, tuple[str, str]]:
    told = summary.summarise(seen, decided, summary.Result(workload=seen.workload))
    return {each["type"]: (each["status"], each["reason"]) for each in told.status["conditions"]}


@pytest.mark.promise("manual")
def test_nothing_is_written_to_the_workload_and_the_patch_says_where_it_is() -> None:
    seen = manual()
    decided = plan.decide(seen)
    assert (decided.workload, decided.strategy, decided.gpu_settings, decided.refusal) == (None, None, (), None)
    assert sorted(document["kind"] for document in decided.owned) == ["ConfigMap", "Service"]
    assert decided.held_back is not None
    assert "kubectl get configmap fraud-mcp-config --namespace ml" in decided.held_back.message
    assert r"jsonpath='{.data.patch\.yaml}'" in decided.held_back.message
    assert conditions(seen, decided)["Injected"] == ("False", "WaitingForCommit")
    patch = patch_of(decided)
    assert patch["metadata"] == {"name": "fraud"}
    assert [container["name"] for container in patch["spec"]["template"]["spec"]["containers"]] == ["mcp-adapter"]


@pytest.mark.promise("manual")
def test_the_committed_patch_is_the_adapter_and_stays_the_same_document() -> None:
    patch = patch_of(plan.decide(manual()))
    seen = manual(committed(deployment(), patch))
    decided = plan.decide(seen)
    assert (decided.injected, decided.held_back, decided.workload) == (True, None, None)
    assert patch_of(decided) == patch
    assert conditions(seen, decided)["Injected"] == ("True", "Injected")
    assert plan.decide_release(seen).releases == ()


def test_a_patch_that_is_outdated_is_told_and_goes_on_serving() -> None:
    patch = patch_of(plan.decide(manual()))
    seen = manual(committed(deployment(), patch), mcp={"port": 8940})
    decided = plan.decide(seen)
    assert not decided.injected
    assert decided.held_back is not None
    assert "differs from what spec now asks for" in decided.held_back.message
    assert conditions(seen, decided)["Injected"] == ("True", "WaitingForCommit")


def test_a_container_of_the_adapters_name_with_another_label_is_not_ours() -> None:
    seen = manual(modified(deployment(), with_container({"name": "mcp-adapter", "image": "x"})))
    decided = plan.decide(seen)
    assert not decided.injected
    assert conditions(seen, decided)["Injected"] == ("False", "WaitingForCommit")


def test_gpu_settings_are_the_owners_business_then() -> None:
    decided = plan.decide(manual(gpu={"manage": True, "count": 1}))
    assert decided.refusal is not None
    assert "spec.gpu.manage" in decided.refusal.message
