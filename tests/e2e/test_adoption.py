"""The main job on a real cluster: adopt, serve, drift, release, refuse; as a user with kubectl and an MCP client sees it.

Test numbers T1-T15 are those of the injection study. Oracles are exact: ReplicaSets, `metadata.generation`, managed
fields, bytes of the user's container.
"""

import copy
import json
from typing import Any

import mcp
import pytest

from constant_load import constant_load
from installation import DOOMED_NAMESPACE, LONG_NAMESPACE, OPERATOR_NAMESPACE, Installation
from kubectl_access import Namespace
from mcp_calls import ERAS, MODERN, ZERO, converse, text_of
from model_servers import ADAPTER_IMAGE, DIGITS_IMAGE, digits, html_server, model_service

ADAPTER = "mcp-adapter"
PREDICT = "predict"
NO_FINALIZERS = '{"metadata":{"finalizers":null}}'


def adopt(namespace: Namespace, workload: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A running model server with its ModelService, ready; the Deployment as it was before."""
    workload = workload or digits()
    name = workload["metadata"]["name"]
    namespace.apply(workload)
    namespace.wait_for_rollout(f"deployment/{name}")
    before = namespace.get("deployment", name)
    namespace.apply(model_service(name, **spec))
    namespace.wait_for_condition(f"modelservice/{name}", "Ready")
    namespace.wait_for_rollout(f"deployment/{name}")
    return before


def containers(workload: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = workload["spec"]["template"]["spec"]["containers"]
    return found


def names(workload: dict[str, Any]) -> list[str]:
    return [container["name"] for container in containers(workload)]


def generation(namespace: Namespace, name: str = "digits") -> int:
    return int(namespace.get("deployment", name)["metadata"]["generation"])


def replica_sets(namespace: Namespace) -> int:
    return len(namespace.find_all("replicasets"))


@pytest.mark.promise("openapi-tools")
@pytest.mark.promise("mcp-eras")
def test_a_running_fastapi_server_becomes_an_mcp_server_for_clients_of_both_eras(namespace: Namespace) -> None:
    adopt(namespace)
    status = namespace.get("modelservice", "digits")["status"]
    assert status["address"]["url"] == f"http://digits-mcp.{namespace.name}.svc:8931/mcp"
    assert PREDICT in status["tools"]["names"]
    with namespace.forwarded("service/digits-mcp", 8931) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        for era in ERAS:
            seen = converse(
                url, (PREDICT, {"pixels": ZERO}), (PREDICT, {"pixels": [["ink"] * 8] * 8}), (PREDICT, {}), mode=era
            )
            assert sorted(seen.tools) == sorted(status["tools"]["names"])
            assert seen.tools[PREDICT].input_schema["properties"]["pixels"]["minItems"] == 8
            good, wrong_type, missing = seen.answers
            assert good.structured_content is not None
            assert good.structured_content["digit"] == 0
            assert json.loads(text_of(good)) == good.structured_content
            assert wrong_type.is_error
            assert "pixels" in text_of(wrong_type)
            assert missing.is_error
            assert "pixels" in text_of(missing)
            with pytest.raises((mcp.MCPError, ExceptionGroup)):
                converse(url, ("no-such-tool", {}), mode=era)


@pytest.mark.promise("one-rollout")
@pytest.mark.promise("no-touch")
def test_t1_adoption_is_one_rollout_whatever_the_operator_goes_through(
    namespace: Namespace, installation: Installation
) -> None:
    before = adopt(namespace)
    assert replica_sets(namespace) == 2
    for _ in range(2):
        installation.cluster.kubectl("-n", OPERATOR_NAMESPACE, "rollout", "restart", "deployment/modelservice")
        installation.wait_until_ready()
    # A change that the new operator has taken in proves that its pass over this object is behind us.
    namespace.kubectl("patch", "modelservice", "digits", "--type=merge", "-p", '{"spec":{"model":{"version":"2"}}}')
    namespace.watch(
        "modelservice", "digits", lambda found: found["status"].get("serverInfo", {}).get("version") == "2", seconds=150
    )
    after = namespace.get("deployment", "digits")
    assert replica_sets(namespace) == 2
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
    assert containers(after)[0] == containers(before)[0]
    assert names(after) == ["server", ADAPTER]
    uid = namespace.get("modelservice", "digits")["metadata"]["uid"]
    (ours,) = [
        entry for entry in after["metadata"]["managedFields"] if entry["manager"] == f"modelservice-operator.{uid[:8]}"
    ]
    assert list(ours["fieldsV1"]["f:spec"]["f:template"]["f:spec"]) == ["f:containers", "f:volumes"]
    assert list(ours["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"]) == ['k:{"name":"mcp-adapter"}']


@pytest.mark.promise("adopt")
def test_t2_the_owner_goes_on_as_before_with_apply_server_side_apply_and_replace(namespace: Namespace) -> None:
    workload = digits()
    adopt(namespace, workload)
    start = generation(namespace)
    namespace.apply(workload)
    assert generation(namespace) == start
    template = namespace.get("deployment", "digits")["spec"]["template"]
    # Kubernetes counts the change of manager from client-side to server-side as a generation; no template changes.
    namespace.apply(workload, server_side=True)
    assert namespace.get("deployment", "digits")["spec"]["template"] == template
    start = generation(namespace)
    assert names(namespace.get("deployment", "digits")) == ["server", ADAPTER]
    assert replica_sets(namespace) == 2
    namespace.replace(workload)
    namespace.watch("deployment", "digits", lambda found: names(found) == ["server", ADAPTER], seconds=10)
    namespace.wait_for_rollout("deployment/digits")
    namespace.wait_for_condition("modelservice/digits", "Ready")
    assert generation(namespace) == start + 2
    repaired = [reason for reason, _ in namespace.events_of("ModelService", "digits") if reason == "DriftRepaired"]
    assert repaired == ["DriftRepaired"]
    assert replica_sets(namespace) == 2, "the repaired template is the one from before, so it needs no new ReplicaSet"


@pytest.mark.promise("release")
def test_t3_deleting_the_model_service_gives_everything_back(namespace: Namespace) -> None:
    before = adopt(namespace)
    namespace.kubectl("delete", "modelservice", "digits", "--timeout=60s")
    after = namespace.get("deployment", "digits")
    assert after["spec"] == before["spec"]
    assert json.dumps(after["spec"]["template"], sort_keys=True) == json.dumps(
        before["spec"]["template"], sort_keys=True
    )
    assert not namespace.exists("service", "digits-mcp")
    assert not namespace.exists("configmap", "digits-mcp-config")
    namespace.wait_for_rollout("deployment/digits")
    assert ("Released", "The workload's pod template is what it was before adoption.") in namespace.events_of(
        "Deployment", "digits"
    )


@pytest.mark.promise("release")
def test_t3_a_model_service_goes_after_its_workload_and_with_its_namespace(installation: Installation) -> None:
    namespace = Namespace(cluster=installation.cluster, name=DOOMED_NAMESPACE)
    namespace.apply(digits(), model_service())
    namespace.watch("modelservice", "digits", lambda found: "injection" in found.get("status", {}))
    namespace.kubectl("delete", "deployment", "digits")
    namespace.kubectl("delete", "modelservice", "digits", "--timeout=15s")
    namespace.apply(digits(), model_service())
    namespace.watch("modelservice", "digits", lambda found: "injection" in found.get("status", {}))
    namespace.cluster.kubectl("delete", "namespace", namespace.name, "--wait=false")
    # Kubernetes waits for the namespace's pods to end before it deletes what is not its own, so this is their grace too.
    namespace.wait_until_gone("modelservice/digits", seconds=90)
    namespace.cluster.kubectl("wait", f"namespace/{namespace.name}", "--for=delete", "--timeout=120s")


@pytest.mark.promise("refuse")
@pytest.mark.parametrize("image", ["example/own:1", "ours"])
def test_t4_a_container_of_the_adapters_name_is_never_written(
    namespace: Namespace, installation: Installation, image: str
) -> None:
    workload = digits(replicas=0)
    own = copy.deepcopy(containers(workload)[0])
    own |= {"name": ADAPTER, "ports": [], "image": ADAPTER_IMAGE if image == "ours" else image}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        del own[probe]
    containers(workload).append(own)
    namespace.apply(workload, model_service())
    namespace.wait_for_reason("digits", "Injected", "NameConflict")
    assert generation(namespace) == 1
    assert not namespace.exists("service", "digits-mcp")
    assert "NameConflict" in namespace.describe("modelservice", "digits")
    assert "NameConflict" in namespace.describe("deployment", "digits")


@pytest.mark.promise("refuse")
def test_t5_ports_and_names_of_others_are_avoided_and_never_taken(namespace: Namespace) -> None:
    workload = digits(replicas=0)
    containers(workload)[0]["ports"].append({"containerPort": 8931})
    neighbour = {"name": "sidecar", "image": DIGITS_IMAGE, "ports": [{"containerPort": 9000, "name": "mcp"}]}
    containers(workload).append(neighbour)
    namespace.apply(workload, model_service(backend={"container": "server", "port": 8000}))
    found = namespace.watch("modelservice", "digits", lambda found: "injection" in found.get("status", {}))
    assert (found["status"]["injection"]["port"], found["status"]["injection"]["adminPort"]) == (8932, 8933)
    ports = containers(namespace.get("deployment", "digits"))[-1]["ports"]
    assert ports[0]["name"] != "mcp"
    start = generation(namespace)
    namespace.kubectl("patch", "modelservice", "digits", "--type=merge", "-p", '{"spec":{"mcp":{"port":9000}}}')
    message = namespace.wait_for_reason("digits", "Conflict", "PortConflict")
    assert "'sidecar'" in message
    assert generation(namespace) == start


@pytest.mark.promise("adopt")
def test_t12_order_of_appearance_does_not_matter(namespace: Namespace, installation: Installation) -> None:
    def is_adopted(found: dict[str, Any]) -> bool:
        return names(found) == ["server", ADAPTER]

    namespace.apply(model_service())
    namespace.wait_for_reason("digits", "Accepted", "WorkloadNotFound")
    version = namespace.get("modelservice", "digits")["metadata"]["resourceVersion"]
    namespace.apply(digits(replicas=0))
    namespace.watch("deployment", "digits", is_adopted, seconds=5)
    assert version != namespace.get("modelservice", "digits")["metadata"]["resourceVersion"]
    namespace.kubectl("delete", "deployment", "digits")
    namespace.wait_for_reason("digits", "Accepted", "WorkloadNotFound")
    namespace.apply(digits(replicas=0))
    namespace.watch("deployment", "digits", is_adopted, seconds=5)

    installation.cluster.kubectl("-n", OPERATOR_NAMESPACE, "scale", "deployment/modelservice", "--replicas=0")
    try:
        namespace.apply(digits("later", replicas=0), model_service("later"))
    finally:
        installation.cluster.kubectl("-n", OPERATOR_NAMESPACE, "scale", "deployment/modelservice", "--replicas=1")
    namespace.watch("deployment", "later", is_adopted, seconds=60)
    assert generation(namespace, "later") == 2


@pytest.mark.promise("refuse")
def test_each_kind_of_bad_input_has_its_own_reason_and_changes_nothing(namespace: Namespace) -> None:
    cases = {
        "missing": "WorkloadNotFound",
        "port-taken": "PortConflict",
        "name-taken": "ServiceNameTaken",
        "in-deletion": "WorkloadBeingDeleted",
        "ambiguous": "AmbiguousBackend",
        "not-yet": "NotSupportedYet",
    }
    workloads = {name: digits(name, replicas=0) for name in cases if name != "missing"}
    workloads["in-deletion"]["metadata"]["finalizers"] = ["example.com/held-by-the-test"]
    containers(workloads["ambiguous"]).append(
        {"name": "other", "image": DIGITS_IMAGE, "ports": [{"containerPort": 9000}]}
    )
    namespace.apply(*workloads.values())
    namespace.kubectl("create", "service", "clusterip", "name-taken-mcp", "--tcp=80:80")
    namespace.kubectl("delete", "deployment", "in-deletion", "--wait=false")
    before = {name: generation(namespace, name) for name in workloads}
    specs: dict[str, dict[str, Any]] = {
        "port-taken": {"mcp": {"port": 8000}},
        "not-yet": {"canary": {"trafficPercent": 10}},
    }
    namespace.apply(*(model_service(name, **specs.get(name, {})) for name in cases))
    try:
        for name, reason in cases.items():
            namespace.wait_for_reason(name, "Ready", reason)
            assert reason in namespace.describe("modelservice", name), name
            if name != "missing":
                assert reason in namespace.describe("deployment", name), name
                assert generation(namespace, name) == before[name], name
                assert names(namespace.get("deployment", name)) == names(workloads[name]), name
    finally:
        namespace.kubectl("patch", "deployment", "in-deletion", "--type=merge", "-p", NO_FINALIZERS)


@pytest.mark.promise("refuse")
def test_a_server_that_answers_html_is_named_and_its_pod_stays_up(namespace: Namespace) -> None:
    namespace.apply(html_server("web"))
    namespace.wait_for_rollout("deployment/web")
    namespace.apply(model_service("web"))
    message = namespace.wait_for_reason("web", "Discovered", "BackendNotRecognised", seconds=120)
    assert "/openapi.json" in message
    assert "BackendNotRecognised" in namespace.describe("modelservice", "web")
    assert "address" not in namespace.get("modelservice", "web")["status"]
    namespace.wait_for_rollout("deployment/web")


@pytest.mark.promise("nothing-lost")
def test_a_model_server_that_dies_is_an_error_with_a_sentence_and_serves_again_when_it_is_back(
    namespace: Namespace,
) -> None:
    adopt(namespace)
    (pod,) = [
        found["metadata"]["name"]
        for found in namespace.find_all("pods", "modelservice.dev/name=digits")
        if not found["metadata"].get("deletionTimestamp")
    ]
    with namespace.forwarded(f"pod/{pod}", 8931) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        assert not converse(url, (PREDICT, {"pixels": ZERO}), mode=MODERN).answers[0].is_error
        namespace.kubectl(
            "exec", pod, "-c", "server", "--", "python", "-c", "import os, signal; os.kill(1, signal.SIGTERM)"
        )

        def restarts(found: dict[str, Any]) -> bool:
            statuses = {status["name"]: status for status in found["status"]["containerStatuses"]}
            return bool(statuses["server"]["restartCount"] == 1 and statuses["server"]["ready"])

        namespace.watch("pod", pod, restarts)
        seen = converse(url, (PREDICT, {"pixels": ZERO}), mode=MODERN)
        assert not seen.answers[0].is_error
    statuses = {status["name"]: status for status in namespace.get("pod", pod)["status"]["containerStatuses"]}
    assert statuses[ADAPTER]["restartCount"] == 0


@pytest.mark.promise("nothing-lost")
def test_rolling_restarts_under_constant_load_lose_no_call(namespace: Namespace) -> None:
    adopt(namespace, digits(replicas=2))
    with constant_load(namespace, "digits-mcp", 8931, {"pixels": ZERO}, PREDICT) as load:
        for _ in range(2):
            namespace.kubectl("rollout", "restart", "deployment/digits")
            namespace.wait_for_rollout("deployment/digits")
            leaving = "--field-selector=status.phase=Running"
            current = max(namespace.find_all("replicasets"), key=lambda found: int(revision_of(found)))
            template = current["metadata"]["labels"]["pod-template-hash"]
            namespace.kubectl(
                "wait",
                "pods",
                "-l",
                f"app.kubernetes.io/name=digits,pod-template-hash!={template}",
                leaving,
                "--for=delete",
                "--timeout=120s",
            )
    assert load.lost == 0, load.examples
    assert load.calls >= 2000


def revision_of(replica_set: dict[str, Any]) -> str:
    return str(replica_set["metadata"]["annotations"]["deployment.kubernetes.io/revision"])


@pytest.mark.promise("survives")
def test_ten_kills_of_the_operator_during_adoptions_end_in_one_rollout_each(
    namespace: Namespace, installation: Installation
) -> None:
    workloads = [digits(f"digits-{number}", replicas=0) for number in range(10)]
    namespace.apply(*workloads)
    for workload in workloads:
        namespace.apply(model_service(workload["metadata"]["name"]))
        # No grace: the kubelet sends SIGKILL, at whatever moment of the adoption this is.
        installation.cluster.kubectl(
            *("-n", OPERATOR_NAMESPACE, "delete", "pod", "-l", "app.kubernetes.io/name=modelservice"),
            *("--grace-period=0", "--force", "--wait=false"),
        )
    installation.wait_until_ready()
    for workload in workloads:
        name = workload["metadata"]["name"]
        namespace.watch("modelservice", name, lambda found: "injection" in found.get("status", {}), seconds=120)
        after = namespace.get("deployment", name)
        assert names(after) == ["server", ADAPTER], name
        assert after["metadata"]["generation"] == 2, name


@pytest.mark.promise("release")
def test_t15_long_names_work_and_a_restored_model_service_is_adopted(installation: Installation) -> None:
    namespace = Namespace(cluster=installation.cluster, name=LONG_NAMESPACE)
    name = "m" * 63
    namespace.apply(digits(name, replicas=0), model_service(name))
    found = namespace.watch("modelservice", name, lambda found: "injection" in found.get("status", {}))
    for kind in ("service", "configmap"):
        for owned in namespace.find_all(kind, "app.kubernetes.io/managed-by=modelservice-operator"):
            assert len(owned["metadata"]["name"]) <= 63
    saved = copy.deepcopy(found)
    namespace.kubectl("delete", "modelservice", name, "--timeout=60s")
    for key in ("resourceVersion", "uid", "managedFields", "creationTimestamp"):
        saved["metadata"].pop(key, None)
    namespace.apply(saved)
    namespace.watch("modelservice", name, lambda found: "injection" in found.get("status", {}))
