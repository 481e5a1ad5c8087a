"""One namespace of a real API server, the operator's own passes in it, and a user beside them.

Owns how integration tests reach the API server: as a user with the official client, and as the operator through the
operator's own modules with adapters that answer from memory (no pod runs on a plain API server).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from modelservice_api.adapter_config import AdapterReport
from modelservice_operator import gather, kube_api, kube_errors, reconcile
from modelservice_operator.core.observed import Handshake
from modelservice_operator.core.workload import ADOPTABLE
from modelservice_operator.kube_api import ClusterApi, Resource

IMAGE = "modelservice/adapter:test"

RESOURCES: Mapping[str, Resource] = {
    **{plural: Resource(api_version=api_version, plural=plural) for (api_version, _), plural in ADOPTABLE.items()},
    "replicasets": Resource(api_version="apps/v1", plural="replicasets"),
    "modelservices": kube_api.MODEL_SERVICES,
    "services": kube_api.SERVICES,
    "configmaps": kube_api.CONFIG_MAPS,
    "events": kube_api.EVENTS,
    "persistentvolumeclaims": kube_api.VOLUME_CLAIMS,
}
_PLURALS = {
    "ModelService": "modelservices",
    "Service": "services",
    "ConfigMap": "configmaps",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    **{kind: plural for (_, kind), plural in ADOPTABLE.items()},
}


@dataclass
class AdaptersInMemory:
    """`Adapters` whose answers a test sets."""

    report_answer: AdapterReport | None = None
    handshake_answer: Handshake = field(default_factory=lambda: Handshake(error="no pod runs here"))

    def report(self, host: str, port: int) -> AdapterReport | None:
        return self.report_answer

    def handshake(self, url: str, expected_name: str) -> Handshake:
        return self.handshake_answer


def api_client(kubeconfig: Path) -> client.ApiClient:
    """The official client for a kubeconfig."""
    configuration = client.Configuration()
    config.load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)
    return client.ApiClient(configuration)


class Harness:
    """A namespace, a user and an operator."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.namespace = namespace
        self.kubeconfig = kubeconfig
        self.client = api_client(kubeconfig)
        self.api = ClusterApi(self.client)
        self.adapters = AdaptersInMemory()

    def sources(self, api: kube_api.KubeApi | None = None) -> gather.Sources:
        return gather.Sources(
            api=api or self.api,
            adapters=self.adapters,
            clock=lambda: datetime.now(UTC),
            adapter_image=IMAGE,
        )

    def reconcile(self, name: str, api: kube_api.KubeApi | None = None) -> Any:
        """One pass of the operator; the status it left. Made again, as by the queue, where a controller wrote meanwhile."""
        for attempt in range(10):
            try:
                reconcile.reconcile(self.sources(api), self.namespace, name)
                break
            except kube_errors.ConflictError as error:
                if error.fields or attempt == 9:
                    raise
        found = self.api.get(kube_api.MODEL_SERVICES, self.namespace, name)
        return (found or {}).get("status")

    def get(self, plural: str, name: str) -> dict[str, Any]:
        found = self.api.get(RESOURCES[plural], self.namespace, name)
        assert found is not None, f"{plural} {name} is not there"
        return found

    def find(self, plural: str, name: str) -> dict[str, Any] | None:
        return self.api.get(RESOURCES[plural], self.namespace, name)

    def list(self, plural: str) -> Sequence[dict[str, Any]]:
        return self.api.list(RESOURCES[plural], self.namespace)

    def wait_for(self, plural: str, name: str, is_met: Callable[[dict[str, Any]], bool], seconds: int = 30) -> None:
        """Watches an object until a condition on it is met."""
        if not any(kind != "DELETED" and is_met(found) for kind, found in self._watch(plural, name, seconds)):
            raise AssertionError(f"{plural} {name}: not met within {seconds} s: {self.find(plural, name)}")

    def wait_until_gone(self, plural: str, name: str, seconds: int = 30) -> None:
        """Watches an object until it is deleted."""
        for _ in range(seconds):
            if self.find(plural, name) is None:
                return
            # It may go between the look and the watch, which then has nothing to tell: so each watch is a short one.
            if any(kind == "DELETED" for kind, _ in self._watch(plural, name, 1)):
                return
        raise AssertionError(f"{plural} {name} is still there after {seconds} s: {self.find(plural, name)}")

    def _watch(self, plural: str, name: str, seconds: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """(type, object) of each event, beginning with the object as it is."""
        query = [("watch", "true"), ("fieldSelector", f"metadata.name={name}"), ("timeoutSeconds", str(seconds))]
        verb, url, headers, _, _ = self.client.param_serialize(
            "GET", RESOURCES[plural].path(self.namespace), query_params=query, auth_settings=["BearerToken"]
        )
        response = self.client.call_api(verb, url, headers, _request_timeout=(5, seconds + 5))
        for line in response.response:
            event = json.loads(line)
            yield event["type"], event["object"]

    def create(self, document: Mapping[str, Any]) -> dict[str, Any]:
        return self._send("POST", _resource(document).path(self.namespace), document)

    def replace(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """A PUT, as `kubectl replace` does."""
        path = _resource(document).path(self.namespace, document["metadata"]["name"])
        return self._send("PUT", path, document)

    def apply_as_user(self, document: Mapping[str, Any], manager: str = "kubectl") -> dict[str, Any]:
        """A server-side apply by somebody who is not the operator."""
        return self.api.apply(_resource(document), document, manager=manager)

    def merge_as_user(self, plural: str, name: str, patch: Any) -> dict[str, Any]:
        """A merge patch by somebody who is not the operator."""
        path = RESOURCES[plural].path(self.namespace, name)
        return self._send("PATCH", path, patch, content_type="application/merge-patch+json")

    def strategic_merge_as_user(self, plural: str, name: str, patch: Any) -> dict[str, Any]:
        """A strategic merge patch by somebody who is not the operator, as `kubectl set image` sends."""
        path = RESOURCES[plural].path(self.namespace, name)
        return self._send("PATCH", path, patch, content_type="application/strategic-merge-patch+json")

    def delete_if_there(self, plural: str, name: str) -> None:
        """Deletes an object, and its finalizers with it: the test is over."""
        found = self.find(plural, name)
        if found is None:
            return
        if found["metadata"].get("finalizers"):
            self.merge_as_user(plural, name, {"metadata": {"finalizers": None}})
        self.delete(plural, name)

    def delete(self, plural: str, name: str) -> None:
        self._send("DELETE", RESOURCES[plural].path(self.namespace, name), None)

    def refusal_of(self, document: Mapping[str, Any], *, strict: bool = False, replace: bool = False) -> str:
        """The API server's message about a document it must refuse."""
        path = _resource(document).path(self.namespace, document["metadata"]["name"] if replace else "")
        body = dict(document)
        if replace:
            live = self.get(_PLURALS[document["kind"]], document["metadata"]["name"])
            body["metadata"] = {**document["metadata"], "resourceVersion": live["metadata"]["resourceVersion"]}
        query = [("fieldValidation", "Strict")] if strict else []
        try:
            self._send("PUT" if replace else "POST", path, body, query=query)
        except ApiException as error:
            assert error.status in (400, 422), error
            return str(json.loads(error.body or "{}")["message"])
        raise AssertionError("the API server accepted the document")

    def table(self, plural: str) -> dict[str, Any]:
        """The columns and rows that `kubectl get` prints."""
        accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
        return self._send("GET", RESOURCES[plural].path(self.namespace), None, accept=accept)

    def _send(
        self,
        method: str,
        path: str,
        body: Any,
        *,
        query: Sequence[tuple[str, str]] = (),
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> dict[str, Any]:
        verb, url, headers, sent, _ = self.client.param_serialize(
            method,
            path,
            query_params=list(query),
            header_params={"Accept": accept, "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        response = self.client.call_api(verb, url, headers, sent, _request_timeout=30)
        raw = response.read().decode()
        if not 200 <= response.status < 300:
            raise ApiException.from_response(http_resp=response, body=raw, data=None)
        parsed: dict[str, Any] = json.loads(raw)
        return parsed


def _resource(document: Mapping[str, Any]) -> Resource:
    return RESOURCES[_PLURALS[document["kind"]]]
