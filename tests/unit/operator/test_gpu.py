"""GPU settings are added where nothing of the kind is, and only what is ours and unchanged is taken away."""

import copy
import json
from typing import Any

import pytest

from kube_objects import adopted, deployment, model_service, observed, with_spec
from modelservice_api import v1alpha1, wellknown
from modelservice_operator.core import gpu, plan, summary

UID = "6217c01a-db50"


def workload(container: dict[str, Any] | None = None, **pod: Any) -> dict[str, Any]:
    found = copy.deepcopy(deployment())
    found["spec"]["template"]["spec"]["containers"][0].update(container or {})
    found["spec"]["template"]["spec"].update(pod)
    return found


def asked(**fields: Any) -> v1alpha1.Gpu:
    return v1alpha1.Gpu.model_validate({"manage": True, **fields})


def patched(target: dict[str, Any], operations: tuple[gpu.Operation, ...]) -> dict[str, Any]:
    """The workload as the API server would make it: RFC 6902, as far as these patches go."""
    result = copy.deepcopy(target)
    for operation in operations:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        node: Any = result
        for part in parts[:-1]:
            node = node[int(part)] if isinstance(node, list) else node[part]
        last = parts[-1]
        match operation["op"]:
            case "test":
                assert node[last] == operation["value"]
            case "remove":
                del node[last]
            case "replace":
                assert last in node
                node[last] = operation["value"]
            case "add":
                node[last] = operation["value"]
    return result


def server(target: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = target["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.mark.promise("gpu")
@pytest.mark.parametrize(
    ("fields", "limits", "env"),
    [
        ({"count": 2}, {"nvidia.com/gpu": "2"}, None),
        ({"count": 2, "visibleDevices": "0"}, {"nvidia.com/gpu": "2"}, ("CUDA_VISIBLE_DEVICES", "0")),
        (
            {"count": 1, "resource": "nvidia.com/mig-1g.5gb", "visibleDevices": "MIG-7a"},
            {"nvidia.com/mig-1g.5gb": "1"},
            ("CUDA_VISIBLE_DEVICES", "MIG-7a"),
        ),
        (
            {"count": 1, "resource": "amd.com/gpu", "visibleDevices": "0"},
            {"amd.com/gpu": "1"},
            ("ROCR_VISIBLE_DEVICES", "0"),
        ),
        (
            {"count": 1, "resource": "gpu.intel.com/xe", "visibleDevices": "0"},
            {"gpu.intel.com/xe": "1"},
            ("ZE_AFFINITY_MASK", "0"),
        ),
        ({"count": 4, "resource": "habana.ai/gaudi"}, {"habana.ai/gaudi": "4"}, None),
    ],
    ids=["a count", "a narrower choice", "a MIG slice", "AMD", "Intel", "a vendor without a variable"],
)
def test_what_is_asked_for_is_added_recorded_and_taken_away_again(
    fields: dict[str, Any], limits: dict[str, str], env: tuple[str, str] | None
) -> None:
    target = workload({"env": [{"name": "MODE", "value": "fast"}], "resources": {"limits": {"memory": "1Gi"}}})
    decided = gpu.decide(target, "server", asked(**fields))
    assert decided.verdict is not None
    assert (decided.verdict.holds, decided.verdict.reason.name) == (True, "GPUSet")
    after = patched(target, decided.operations)
    assert server(after)["resources"]["limits"] == {"memory": "1Gi", **limits}
    added = [] if env is None else [{"name": env[0], "value": env[1]}]
    assert server(after)["env"] == [{"name": "MODE", "value": "fast"}, *added]
    assert gpu.decide(after, "server", asked(**fields)).operations == ()
    gone = patched(after, gpu.release(after))
    assert gone["spec"] == target["spec"]
    assert wellknown.GPU_ANNOTATION not in gone["metadata"]["annotations"]


@pytest.mark.promise("gpu")
def test_a_container_without_environment_and_resources_is_given_back_without_them() -> None:
    target = workload()
    server(target).pop("env", None)
    server(target).pop("resources", None)
    after = patched(target, gpu.decide(target, "server", asked(count=1, visibleDevices="0")).operations)
    gone = patched(after, gpu.release(after))
    assert "env" not in server(gone)
    assert server(gone).get("resources", {}) == {}


USERS_OWN: list[tuple[str, dict[str, Any], dict[str, Any], str, str]] = [
    (
        "a variable by value",
        workload({"env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}]}),
        {"count": 2, "visibleDevices": "1"},
        "EnvManagedByUser",
        "sets CUDA_VISIBLE_DEVICES itself",
    ),
    (
        "a variable by reference",
        workload(
            {"env": [{"name": "CUDA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}
        ),
        {"count": 2, "visibleDevices": "1"},
        "EnvManagedByUser",
        "sets CUDA_VISIBLE_DEVICES itself",
    ),
    (
        "variables from a ConfigMap",
        workload({"envFrom": [{"configMapRef": {"name": "settings"}}]}),
        {"count": 2, "visibleDevices": "1"},
        "EnvManagedByUser",
        "takes variables from ConfigMap 'settings'",
    ),
    (
        "AMD's other variable",
        workload({"env": [{"name": "HIP_VISIBLE_DEVICES", "value": "0"}]}),
        {"count": 1, "resource": "amd.com/gpu", "visibleDevices": "0"},
        "EnvManagedByUser",
        "sets HIP_VISIBLE_DEVICES itself",
    ),
    (
        "another count",
        workload({"resources": {"limits": {"nvidia.com/gpu": 4}}}),
        {"count": 2},
        "GPUManagedByUser",
        "asks for 4 nvidia.com/gpu itself",
    ),
    (
        "another vendor",
        workload({"resources": {"limits": {"amd.com/gpu": 1}}}),
        {"count": 1},
        "GPUManagedByUser",
        "asks for 1 amd.com/gpu itself",
    ),
    (
        "claims",
        workload({"resources": {"claims": [{"name": "gpu"}]}}),
        {"count": 1},
        "GPUManagedByDRA",
        "by resource claims",
    ),
]


@pytest.mark.promise("gpu")
@pytest.mark.parametrize(
    ("target", "fields", "reason", "says"), [pytest.param(*rest, id=name) for name, *rest in USERS_OWN]
)
def test_what_the_user_set_wins_and_is_told(
    target: dict[str, Any], fields: dict[str, Any], reason: str, says: str
) -> None:
    decided = gpu.decide(target, "server", asked(**fields))
    assert decided.operations == ()
    assert decided.verdict is not None
    assert (decided.verdict.holds, decided.verdict.reason.name) == (False, reason)
    assert says in decided.verdict.message


def test_what_the_user_set_to_the_very_same_is_no_conflict_and_stays_theirs() -> None:
    target = workload(
        {
            "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "1"}],
            "resources": {"limits": {"nvidia.com/gpu": "2"}},
        }
    )
    decided = gpu.decide(target, "server", asked(count=2, visibleDevices="1"))
    assert decided.operations == ()
    assert decided.verdict is not None
    assert decided.verdict.holds


def test_variables_with_another_prefix_cannot_be_meant() -> None:
    target = workload({"envFrom": [{"prefix": "APP_", "secretRef": {"name": "settings"}}]})
    assert gpu.decide(target, "server", asked(count=1, visibleDevices="0")).operations


def test_what_somebody_changed_meanwhile_stays_when_the_rest_is_taken_away() -> None:
    target = workload()
    after = patched(target, gpu.decide(target, "server", asked(count=1, visibleDevices="0")).operations)
    server(after)["env"][0]["value"] = "1"
    gone = patched(after, gpu.release(after))
    assert server(gone)["env"] == [{"name": "CUDA_VISIBLE_DEVICES", "value": "1"}]
    assert server(gone)["resources"].get("limits", {}) == {}


def test_another_count_replaces_ours_and_nothing_managed_takes_it_away() -> None:
    target = workload()
    one = patched(target, gpu.decide(target, "server", asked(count=1)).operations)
    two = patched(one, gpu.decide(one, "server", asked(count=2)).operations)
    assert server(two)["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    none = patched(two, gpu.decide(two, "server", v1alpha1.Gpu(count=2)).operations)
    assert server(none)["resources"].get("limits", {}) == {}


def test_an_index_that_no_device_has_is_told_although_it_is_the_users_own() -> None:
    target = workload(
        {
            "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "0,2"}],
            "resources": {"limits": {"nvidia.com/gpu": 2}},
        }
    )
    decided = gpu.decide(target, "server", None)
    assert decided.operations == ()
    assert decided.verdict is not None
    assert decided.verdict.reason.name == "VisibleDeviceOutOfRange"
    assert "there is no device 2" in decided.verdict.message


def test_a_record_that_cannot_be_read_claims_nothing() -> None:
    for text in ("", "{", "[]", '{"env": 1}', '{"container": "server"}'):
        target = workload()
        target["metadata"]["annotations"] = {wellknown.GPU_ANNOTATION: text}
        assert gpu.recorded(target).empty


@pytest.mark.promise("one-rollout")
def test_adapter_and_gpu_settings_are_one_rollout() -> None:
    service = model_service("fraud", with_spec(gpu={"manage": True, "count": 1}))
    seen = observed(service=service)
    decided = plan.decide(seen)
    assert decided.gpu_settings
    assert decided.one_rollout
    assert decided.workload is not None
    assert decided.rendered is not None
    told = summary.summarise(seen, decided, summary.Result(workload=seen.workload))
    found = {each["type"]: each["reason"] for each in told.status["conditions"]}
    assert found["GPUConfigured"] == "GPUSet"
    live = adopted(patched(deployment(), decided.gpu_settings), decided.rendered, uid=UID)
    again = plan.decide(observed(service=service, workload=live))
    assert (again.gpu_settings, again.workload, again.one_rollout) == ((), None, False)
    assert json.loads(live["metadata"]["annotations"][wellknown.GPU_ANNOTATION])["limits"] == {"nvidia.com/gpu": "1"}
    released = plan.decide_release(observed(service=service, workload=live))
    assert released.gpu_settings
    assert released.one_rollout


def test_a_paused_deployment_stays_as_its_owner_left_it() -> None:
    target = workload()
    target["spec"]["paused"] = True
    decided = plan.decide(
        observed(service=model_service("fraud", with_spec(gpu={"manage": True, "count": 1})), workload=target)
    )
    assert decided.gpu_settings
    assert not decided.one_rollout


def test_a_suspended_model_service_sets_no_gpus() -> None:
    service = model_service("fraud", with_spec(gpu={"manage": True, "count": 1}, suspend=True))
    decided = plan.decide(observed(service=service))
    assert (decided.gpu_settings, decided.gpu_verdict) == ((), None)
