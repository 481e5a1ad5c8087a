"""Callers with tokens of the cluster's own ServiceAccounts: real tokens of a real API server, the operator's own passes, and
the real adapter with the document that they wrote. And how the operator verifies a server that it has no token for."""

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from adapter_harness import Reply, Running, adapter, modern_body, modern_headers, request, run
from kube_harness import Harness, api_client
from kube_objects import deployment, model_service, with_spec
from model_apps import model_server, named_app, torture_app
from modelservice_api.adapter_config import AdapterConfig, PeersConfig, ServerConfig
from modelservice_operator import kube_errors, reconcile
from modelservice_operator.adapters import HttpAdapters
from modelservice_operator.core.issuers import AuthSettings
from modelservice_operator.gather import Sources, gather
from modelservice_sidecar.__main__ import CLOSED
from operator_process import grant_chart_rights, running_operator

PLAIN = {"name": "plain", "arguments": {"features": [1.0, 2.0]}}
CLUSTER = AuthSettings.model_validate({"issuers": {"cluster": {"type": "Kubernetes"}}, "logSubject": "Plain"})


def sources_of(harness: Harness, auth: AuthSettings = CLUSTER) -> Sources:
    return dataclasses.replace(harness.sources(), auth=auth)


def adopt(harness: Harness) -> AdapterConfig:
    """A ModelService that asks for ServiceAccounts' tokens; the document that its adapters are given."""
    harness.create(deployment("fraud", namespace=harness.namespace))
    harness.create(model_service("fraud", with_spec(auth={"issuers": ["cluster"]}), namespace=harness.namespace))
    reconcile.reconcile(sources_of(harness), harness.namespace, "fraud")
    written = harness.get("configmaps", "fraud-mcp-config")["data"]["config.json"]
    # The Service leads nowhere here: there is no cluster network.
    return AdapterConfig.model_validate_json(written).model_copy(update={"peers": PeersConfig()})


def token_of(harness: Harness, namespace: str, *audiences: str) -> str:
    """What a pod of the account `default` finds in a projected volume with that audience."""
    core = client.CoreV1Api(harness.client)
    wanted = {"spec": {"audiences": list(audiences), "expirationSeconds": 600}}
    made = core.create_namespaced_service_account_token("default", namespace, wanted)
    return str(made.status.token)


async def call(running: Running, token: str) -> Reply:
    headers = {**modern_headers("tools/call", PLAIN), "authorization": f"Bearer {token}"}
    return await request(running.port, "POST", "/mcp", modern_body("tools/call", PLAIN), headers)


@pytest.mark.promise("auth")
def test_a_service_account_of_the_namespace_gets_in_with_a_token_for_this_service_and_no_other(
    harness: Harness,
) -> None:
    config = adopt(harness)
    assert config.auth is not None
    url = f"http://fraud-mcp.{harness.namespace}.svc:8931/mcp"
    assert config.auth.resource == url
    good = token_of(harness, harness.namespace, url)
    bad = [
        (token_of(harness, harness.namespace, "http://other-mcp.ml.svc:8931/mcp"), "not meant for this server"),
        (token_of(harness, harness.namespace), "not meant for this server"),  # for the API server itself
        (token_of(harness, "default", url), "not one that this server serves"),
    ]

    async def test() -> None:
        with model_server(torture_app()) as port:
            async with adapter(port, config) as running:
                reply = await call(running, good)
                assert reply.status == 200, reply
                assert reply.json["result"]["structuredContent"] == {"score": 3.0, "label": "ok"}
                [line] = running.lines.of("call")
                assert line["user"] == f"system:serviceaccount:{harness.namespace}:default"
                for token, said in bad:
                    refused = await call(running, token)
                    assert refused.status == 401
                    assert said in refused.json["error"]["message"]

    run(test)


class Withheld:
    """An API server that tells this operator no keys."""

    def __init__(self, api: Any) -> None:
        self._api = api

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def get_document(self, path: str) -> Any:
        raise kube_errors.ForbiddenError(path)


@pytest.mark.promise("refuse-unknown-issuer")
@pytest.mark.promise("refuse-not-permitted")
def test_an_unknown_issuer_and_keys_that_are_withheld_change_nothing(harness: Harness) -> None:
    harness.create(deployment("fraud", namespace=harness.namespace))
    harness.create(model_service("fraud", with_spec(auth={"issuers": ["cluster"]}), namespace=harness.namespace))
    status = harness.reconcile("fraud")
    (accepted,) = [found for found in status["conditions"] if found["type"] == "Accepted"]
    assert (accepted["status"], accepted["reason"]) == ("False", "UnknownIssuer")
    withheld = dataclasses.replace(sources_of(harness), api=Withheld(harness.api))
    reconcile.reconcile(withheld, harness.namespace, "fraud")
    status = harness.get("modelservices", "fraud")["status"]
    (accepted,) = [found for found in status["conditions"] if found["type"] == "Accepted"]
    assert (accepted["status"], accepted["reason"]) == ("False", "NotPermitted")
    assert harness.find("configmaps", "fraud-mcp-config") is None
    assert len(harness.get("deployments", "fraud")["spec"]["template"]["spec"]["containers"]) == 1


@pytest.mark.promise("auth")
def test_the_same_keys_write_nothing_a_second_time(harness: Harness) -> None:
    adopt(harness)
    version = harness.get("configmaps", "fraud-mcp-config")["metadata"]["resourceVersion"]
    reconcile.reconcile(sources_of(harness), harness.namespace, "fraud")
    assert harness.get("configmaps", "fraud-mcp-config")["metadata"]["resourceVersion"] == version
    seen = gather(sources_of(harness), harness.get("modelservices", "fraud"))
    assert seen.cluster_keys is not None
    assert json.dumps(seen.cluster_keys.jwks).count('"kid"') >= 1


@pytest.mark.promise("warm")
def test_a_server_that_asks_for_tokens_is_verified_by_what_it_says_to_who_has_none(harness: Harness) -> None:
    config = adopt(harness)

    async def test() -> None:
        adapters = HttpAdapters()
        with model_server(named_app("one")) as port:
            async with adapter(port, config) as running:
                found = await asyncio.to_thread(adapters.handshake, running.url, "fraud")
                assert (found.error, found.wants_token, found.server_name) == ("", True, "fraud")
                other = await asyncio.to_thread(adapters.handshake, running.url, "digits")
                assert "does not say that it is this ModelService's server" in other.error
            async with adapter(port, CLOSED.model_copy(update={"server": ServerConfig(name="fraud")})) as running:
                closed = await asyncio.to_thread(adapters.handshake, running.url, "fraud")
                assert closed.error, "it lets nobody in and says nothing about itself"
            async with adapter(port, AdapterConfig(server=ServerConfig(name="fraud"))) as running:
                plain = await asyncio.to_thread(adapters.handshake, running.url, "fraud")
                assert (plain.error, plain.wants_token) == ("", False)

    run(test)


@pytest.mark.promise("auth")
def test_an_issuer_that_the_admin_took_away_is_trusted_no_longer_and_nothing_else_changes(harness: Harness) -> None:
    before = adopt(harness)
    assert before.auth is not None
    template = harness.get("deployments", "fraud")["spec"]["template"]
    nothing = sources_of(harness, AuthSettings())
    for _ in range(2):
        reconcile.reconcile(nothing, harness.namespace, "fraud")
    found = harness.get("configmaps", "fraud-mcp-config")
    after = AdapterConfig.model_validate_json(found["data"]["config.json"]).model_copy(update={"peers": PeersConfig()})
    closed = before.auth.model_copy(update={"issuers": ()})
    assert after == before.model_copy(update={"auth": closed}), "asked for as before, and nobody has one"
    assert harness.get("deployments", "fraud")["spec"]["template"] == template
    conditions = {
        each["type"]: each["reason"] for each in harness.get("modelservices", "fraud")["status"]["conditions"]
    }
    assert conditions["Accepted"] == "UnknownIssuer"
    reconcile.reconcile(sources_of(harness), harness.namespace, "fraud")
    again = harness.get("configmaps", "fraud-mcp-config")["data"]["config.json"]
    assert AdapterConfig.model_validate_json(again).auth == before.auth


@contextlib.contextmanager
def without_the_default_right(kubeconfig: Path) -> Iterator[None]:
    """Kubernetes lets every ServiceAccount read the keys; administrators may take that away, and this one does."""
    rbac = client.RbacAuthorizationV1Api(api_client(kubeconfig))
    name = "system:service-account-issuer-discovery"
    binding = rbac.read_cluster_role_binding(name)
    rbac.delete_cluster_role_binding(name)
    try:
        yield
    finally:
        binding.metadata = client.V1ObjectMeta(name=name)
        rbac.create_cluster_role_binding(binding)


@pytest.mark.promise("least-privilege")
@pytest.mark.promise("auth")
@pytest.mark.parametrize(("granted", "reason"), [(True, "Accepted"), (False, "NotPermitted")])
def test_the_operator_reads_the_clusters_keys_with_the_charts_own_right_and_not_without_it(
    harness: Harness, kubeconfig: Path, tmp_path: Path, granted: bool, reason: str
) -> None:
    issuers = {"cluster": {"type": "Kubernetes"}}
    rights = ["--set", f"watchNamespaces={{{harness.namespace}}},fullnameOverride={harness.namespace}"]
    if granted:
        rights += ["--set-json", f"auth.issuers={json.dumps(issuers)}"]
    account = grant_chart_rights(kubeconfig, tmp_path, *rights)
    harness.create(deployment("fraud", namespace=harness.namespace))
    harness.create(model_service("fraud", with_spec(auth={"issuers": ["cluster"]}), namespace=harness.namespace))

    def is_told(found: dict[str, Any]) -> bool:
        conditions = (found.get("status") or {}).get("conditions") or []
        return any((each["type"], each["reason"]) == ("Accepted", reason) for each in conditions)

    auth, log = json.dumps({"issuers": issuers}), tmp_path / "operator.log"
    with (
        without_the_default_right(kubeconfig),
        running_operator(account, log, namespaces=harness.namespace, auth=auth) as operator,
    ):
        harness.wait_for("modelservices", "fraud", is_told)
        assert operator.stop() == 0
    assert (harness.find("configmaps", "fraud-mcp-config") is not None) == granted
