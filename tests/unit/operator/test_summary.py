"""What a user reads after a pass."""

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from kube_objects import NOW, adopted, deployment, model_service, modified, observed, with_spec, with_value
from modelservice_api.adapter_config import (
    AdapterConfig,
    AdapterReport,
    BackendReport,
    BackendState,
    ServerConfig,
    ToolsReport,
)
from modelservice_api.conditions import ConditionType, Reasons
from modelservice_operator.core import plan, summary
from modelservice_operator.core.issuers import AuthSettings
from modelservice_operator.core.observed import AdapterObservation, Handshake, Observed, most_telling
from modelservice_operator.core.refusal import Refusal

UID = "6217c01a-db50"


def report(state: BackendState, message: str = "") -> AdapterReport:
    return AdapterReport(
        server=ServerConfig(name="fraud", version="1"),
        config_digest="sha256:1",
        backend=BackendReport(type="OpenAPI", state=state, message=message),
        tools=ToolsReport(count=2, hash="sha256:2", names=("predict", "train")) if state == "Ready" else ToolsReport(),
        protocol_versions=("2026-07-28",),
    )


SHAKEN = Handshake(server_name="fraud", server_version="1", protocol_versions=("2026-07-28",))


def running(adapters: AdapterObservation, **status: Any) -> summary.Summary:
    """A pass over an adopted workload whose adapters say `adapters`."""
    first = observed()
    decided = plan.decide(first)
    assert decided.rendered is not None
    done = {"observedGeneration": 1, "updatedReplicas": 1, "availableReplicas": 1, "replicas": 1}
    live = modified(adopted(deployment(), decided.rendered, uid=UID), with_value("status", done))
    service = modified(dict(first.model_service), with_value("status", status))
    seen = dataclasses.replace(first, workload=live, adapters=adapters, model_service=service)
    again = plan.decide(seen)
    return summary.summarise(seen, again, summary.Result(workload=live))


def conditions(told: summary.Summary) -> dict[str, tuple[str, str]]:
    return {found["type"]: (found["status"], found["reason"]) for found in told.status["conditions"]}


def test_a_ready_model_publishes_its_address_tools_and_server() -> None:
    told = running(AdapterObservation(ready_endpoints=1, report=report("Ready"), handshake=SHAKEN))
    assert conditions(told) == {
        "Accepted": ("True", "Accepted"),
        "Conflict": ("False", "NoConflict"),
        "RolloutRisk": ("False", "NoRolloutRisk"),
        "Injected": ("True", "Injected"),
        "Discovered": ("True", "Discovered"),
        "Verified": ("True", "Verified"),
        "RolloutComplete": ("True", "RolloutComplete"),
        "Ready": ("True", "Ready"),
    }
    assert told.status["address"] == {"url": "http://fraud-mcp.ml.svc:8931/mcp"}
    assert told.status["tools"] == {"count": 2, "hash": "sha256:2", "names": ["predict", "train"]}
    assert told.status["serverInfo"] == {"name": "fraud", "version": "1", "protocolVersions": ["2026-07-28"]}
    assert told.status["backend"] == {"type": "OpenAPI", "container": "server", "port": 8000, "source": "ports"}
    assert told.look_again_after == summary.READY_RECHECK_SECONDS
    assert [event.reason.name for event in told.events] == ["Injected", "Discovered", "Verified", "Ready"]


@pytest.mark.promise("warm")
@pytest.mark.promise("warm-up")
@pytest.mark.promise("refuse-model-spec-conflict")
@pytest.mark.parametrize(
    ("adapters", "condition", "expected"),
    [
        (AdapterObservation(), "Discovered", ("Unknown", "WaitingForAdapter")),
        (AdapterObservation(ready_endpoints=1, report=report("Discovering")), "Discovered", ("Unknown", "Discovering")),
        (
            AdapterObservation(ready_endpoints=1, report=report("Unreachable")),
            "Discovered",
            ("False", "BackendUnreachable"),
        ),
        (
            AdapterObservation(ready_endpoints=1, report=report("NotRecognised")),
            "Discovered",
            ("False", "BackendNotRecognised"),
        ),
        (
            AdapterObservation(ready_endpoints=1, report=report("Invalid")),
            "Discovered",
            ("False", "BackendSchemaInvalid"),
        ),
        (AdapterObservation(ready_endpoints=1, report=report("NoTools")), "Discovered", ("False", "NoTools")),
        (
            AdapterObservation(ready_endpoints=1, report=report("WarmingUp"), handshake=SHAKEN),
            "Verified",
            ("Unknown", "WarmingUp"),
        ),
        (
            AdapterObservation(ready_endpoints=1, report=report("ModelSpecConflict", "a: …"), handshake=SHAKEN),
            "Verified",
            ("False", "ModelSpecConflict"),
        ),
        (
            AdapterObservation(ready_endpoints=1, report=report("Ready"), handshake=Handshake(error="refused")),
            "Verified",
            ("False", "HandshakeFailed"),
        ),
    ],
)
def test_no_address_is_published_before_a_handshake_succeeded(
    adapters: AdapterObservation, condition: str, expected: tuple[str, str]
) -> None:
    told = running(adapters)
    assert conditions(told)[condition] == expected
    assert conditions(told)["Ready"] == ("False", expected[1])
    assert "address" not in told.status


@pytest.mark.parametrize(
    ("refusal", "seconds"),
    [
        (Refusal(reason=Reasons.NOT_PERMITTED, message="no"), summary.UNWATCHED_RECHECK_SECONDS),
        (Refusal(reason=Reasons.TEMPLATE_REJECTED, message="no"), summary.UNWATCHED_RECHECK_SECONDS),
        (
            Refusal(condition=ConditionType.CONFLICT, reason=Reasons.FIELD_CONFLICT, message="no"),
            summary.UNWATCHED_RECHECK_SECONDS,
        ),
        (Refusal(condition=ConditionType.ACCEPTED, reason=Reasons.OPTED_OUT, message="no"), None),
    ],
    ids=["a missing right", "a refused template", "a conflict", "what an event will tell"],
)
def test_what_refuses_is_looked_at_again_where_no_event_tells_that_it_is_gone(
    refusal: Refusal, seconds: float | None
) -> None:
    seen = observed()
    decided = plan.decide(seen)
    told = summary.summarise(seen, decided, summary.Result(workload=seen.workload, refusal=refusal))
    assert told.look_again_after == seconds


def test_one_pod_whose_model_contradicts_the_spec_speaks_for_all() -> None:
    good, bad = report("Ready"), report("ModelSpecConflict", "x: is FP32")
    assert most_telling([None, good, bad]) is bad
    assert most_telling([None, good]) is good
    assert most_telling([None]) is None


def test_a_published_address_and_the_known_tools_stay_while_the_model_server_is_away() -> None:
    told = running(
        AdapterObservation(ready_endpoints=1, report=report("Unreachable"), handshake=SHAKEN),
        address={"url": "http://fraud-mcp.ml.svc:8931/mcp"},
        tools={"count": 2, "hash": "sha256:2", "names": ["predict", "train"]},
    )
    assert conditions(told)["Ready"] == ("False", "BackendUnreachable")
    assert told.status["address"] == {"url": "http://fraud-mcp.ml.svc:8931/mcp"}
    assert told.status["tools"]["count"] == 2


def test_an_address_of_another_port_is_withdrawn() -> None:
    told = running(AdapterObservation(), address={"url": "http://fraud-mcp.ml.svc:9999/mcp"})
    assert "address" not in told.status


def refused(service: dict[str, Any]) -> tuple[Observed, summary.Summary]:
    seen = observed(service=service)
    decided = plan.decide(seen)
    return seen, summary.summarise(seen, decided, summary.Result(workload=seen.workload))


def test_a_refusal_is_told_once_on_both_objects() -> None:
    service = model_service("fraud", with_spec(canary={"trafficPercent": 1}))
    _, told = refused(service)
    assert conditions(told) == {
        "Accepted": ("False", "NotSupportedYet"),
        "Conflict": ("False", "NoConflict"),
        "Injected": ("False", "NotSupportedYet"),
        "Ready": ("False", "NotSupportedYet"),
    }
    assert [(event.reason.name, event.warning, event.on_workload) for event in told.events] == [
        ("NotSupportedYet", True, True)
    ]
    _, again = refused(modified(service, with_value("status", dict(told.status))))
    assert again.events == ()
    assert again.status == told.status


def test_a_refusal_leaves_what_stands_and_says_so() -> None:
    first = observed()
    rendered = plan.decide(first).rendered
    assert rendered is not None
    live = adopted(deployment(), rendered, uid=UID)
    service = modified(dict(first.model_service), with_value("spec.canary", {"trafficPercent": 1}))
    seen = dataclasses.replace(first, workload=live, model_service=service)
    told = summary.summarise(seen, plan.decide(seen), summary.Result(workload=live))
    assert conditions(told)["Accepted"] == ("False", "NotSupportedYet")
    assert conditions(told)["Injected"] == ("True", "Injected")
    assert conditions(told)["Ready"] == ("False", "NotSupportedYet")


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    told = running(AdapterObservation())
    earlier = [{**found, "lastTransitionTime": "2026-12-01T09:00:00Z"} for found in told.status["conditions"]]
    same = running(AdapterObservation(), conditions=earlier)
    assert {found["lastTransitionTime"] for found in same.status["conditions"]} == {"2026-12-01T09:00:00Z"}
    better = running(
        AdapterObservation(ready_endpoints=1, report=report("Ready"), handshake=SHAKEN), conditions=earlier
    )
    times = {found["type"]: found["lastTransitionTime"] for found in better.status["conditions"]}
    assert times["Injected"] == "2026-12-01T09:00:00Z"
    assert times["Ready"] == "2026-12-01T12:00:00Z"


@pytest.mark.parametrize(("age", "wait"), [(0, 1.0), (20, 5.0), (3600, 30.0)])
def test_what_is_not_ready_is_looked_at_often_at_first_and_less_later(age: int, wait: float) -> None:
    since = (NOW - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
    earlier = [{"type": "Ready", "status": "False", "reason": "WaitingForAdapter", "lastTransitionTime": since}]
    assert running(AdapterObservation(), conditions=earlier).look_again_after == wait


def test_repaired_drift_is_one_warning_on_both_objects() -> None:
    injected = {
        "type": "Injected",
        "status": "True",
        "reason": "Injected",
        "lastTransitionTime": "2026-12-01T09:00:00Z",
    }
    seen = observed(service=modified(model_service(), with_value("status", {"conditions": [injected]})))
    decided = plan.decide(seen)
    assert decided.rendered is not None
    written = adopted(deployment(), decided.rendered, uid=UID)
    told = summary.summarise(seen, decided, summary.Result(workload=written, wrote_workload=True))
    assert [(event.reason.name, event.on_workload) for event in told.events] == [("DriftRepaired", True)]


def test_a_paused_workload_says_why_its_rollout_does_not_come() -> None:
    first = observed()
    rendered = plan.decide(first).rendered
    assert rendered is not None
    live = modified(adopted(deployment(), rendered, uid=UID), with_value("spec.paused", True))
    seen = dataclasses.replace(first, workload=live)
    told = summary.summarise(seen, plan.decide(seen), summary.Result(workload=live))
    assert conditions(told)["RolloutComplete"] == ("False", "RolloutPaused")


def obeying(adapters: AdapterReport, document: str) -> summary.Summary:
    """A pass whose ConfigMap holds this document."""
    first = observed()
    decided = plan.decide(first)
    assert decided.rendered is not None
    done = {"observedGeneration": 1, "updatedReplicas": 1, "availableReplicas": 1, "replicas": 1}
    live = modified(adopted(deployment(), decided.rendered, uid=UID), with_value("status", done))
    observation = AdapterObservation(ready_endpoints=1, report=adapters, handshake=SHAKEN)
    [config_map] = [dict(owned) for owned in decided.owned if owned["kind"] == "ConfigMap"]
    config_map["data"] = {"config.json": document}
    seen = dataclasses.replace(first, workload=live, adapters=observation, config_map=config_map)
    return summary.summarise(seen, plan.decide(seen), summary.Result(workload=live))


@pytest.mark.promise("config-live")
def test_it_is_told_whether_adapters_obey_the_newest_configuration_and_one_that_cannot_takes_nothing_away() -> None:
    config = AdapterConfig(server=ServerConfig(name="fraud"))
    good = report("Ready").model_copy(update={"config_digest": config.digest()})
    told = obeying(good, config.to_json())
    assert (conditions(told)["Configured"], told.look_again_after) == (
        ("True", "Configured"),
        summary.READY_RECHECK_SECONDS,
    )
    told = obeying(report("Ready"), config.to_json())
    assert (conditions(told)["Configured"], told.look_again_after) == (
        ("Unknown", "ConfigPending"),
        summary.CONFIG_RECHECK_SECONDS,
    )
    assert "ConfigPending" not in [event.reason.name for event in told.events]
    rejecting = report("Ready").model_copy(update={"config_error": "config.json: limits.timeout: too small"})
    speaking = most_telling([None, good, rejecting])
    assert speaking is rejecting
    told = obeying(rejecting, config.to_json())
    assert conditions(told)["Configured"] == ("False", "ConfigRejected")
    assert conditions(told)["Ready"] == ("True", "Ready")
    [event] = [event for event in told.events if event.reason.name == "ConfigRejected"]
    assert (event.warning, event.message) == (True, "config.json: limits.timeout: too small")


ISSUERS = AuthSettings.model_validate({"issuers": {"corp": {"issuer": "https://idp.test", "jwks": {"keys": []}}}})


@pytest.mark.promise("auth")
@pytest.mark.parametrize(
    ("auth", "wants_token", "verified"),
    [
        ({"issuers": ["corp"]}, True, ("True", "Verified")),
        ({"issuers": ["corp"]}, False, ("False", "AuthNotEnforced")),
        ({"issuers": ["corp"], "anonymousTools": ["status"]}, False, ("True", "Verified")),
    ],
)
def test_a_server_that_answers_without_a_token_is_not_verified_where_tokens_are_asked_for(
    auth: dict[str, Any], wants_token: bool, verified: tuple[str, str]
) -> None:
    service = model_service("fraud", with_spec(auth=auth))
    first = dataclasses.replace(observed(service=service), auth=ISSUERS)
    rendered = plan.decide(first).rendered
    assert rendered is not None
    answers = AdapterObservation(
        ready_endpoints=1, report=report("Ready"), handshake=dataclasses.replace(SHAKEN, wants_token=wants_token)
    )
    seen = dataclasses.replace(first, workload=adopted(deployment(), rendered, uid=UID), adapters=answers)
    told = summary.summarise(seen, plan.decide(seen), summary.Result(workload=seen.workload))
    assert conditions(told)["Verified"] == verified


@pytest.mark.promise("tools-watched")
@pytest.mark.parametrize(
    ("before", "said"),
    [
        ({"count": 2, "hash": "sha256:2", "names": ["predict", "train"]}, None),
        ({}, None),
        ({"count": 2, "hash": "sha256:1", "names": ["predict", "train"]}, "the same names with other definitions"),
        ({"count": 2, "hash": "sha256:1", "names": ["predict", "delete"]}, "added train; gone delete"),
    ],
    ids=["the same", "the first", "other words", "other tools"],
)
def test_a_change_of_the_tools_is_an_event_that_says_what_changed(before: dict[str, Any], said: str | None) -> None:
    told = running(AdapterObservation(ready_endpoints=1, report=report("Ready"), handshake=SHAKEN), tools=before)
    events = [event.message for event in told.events if event.reason.name == "ToolDefinitionChanged"]
    assert len(events) == (said is not None)
    assert said is None or said in events[0]
