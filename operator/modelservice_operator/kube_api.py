"""The API server as the operator sees it: six verbs over raw objects.

Owns how requests are made: paths, content types, field managers, time limits. Knows nothing of ModelServices. Calls
block and belong into a thread. `KubeApi` is the seam where tests inject faults.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from modelservice_api import wellknown
from modelservice_operator import kube_errors

Object = dict[str, Any]

_TIMEOUT = (5.0, 25.0)
"""Seconds to connect and to wait for an answer; the longest the API server itself spends on a mutating request is 34 s,
so a slow write may be reported as unavailable and is then found done by the next pass."""


ALL_NAMESPACES = ""
"""In place of a namespace: `list` in all of them, `get` of what lies in none."""


@dataclass(frozen=True, kw_only=True)
class Resource:
    """A kind: `/api/v1/…/services`, `/apis/apps/v1/…/deployments`."""

    api_version: str
    plural: str

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """The URL path of a collection, an object or a subresource."""
        root = "/api/" if "/" not in self.api_version else "/apis/"
        scope = ["namespaces", namespace] if namespace else []
        return root + "/".join([self.api_version, *scope, *(part for part in (self.plural, name, subresource) if part)])


MODEL_SERVICES = Resource(api_version=wellknown.API_VERSION, plural=wellknown.PLURAL)
NAMESPACES = Resource(api_version="v1", plural="namespaces")
SERVICES = Resource(api_version="v1", plural="services")
DEPLOYMENTS = Resource(api_version="apps/v1", plural="deployments")
CONFIG_MAPS = Resource(api_version="v1", plural="configmaps")
VOLUME_CLAIMS = Resource(api_version="v1", plural="persistentvolumeclaims")
EVENTS = Resource(api_version="v1", plural="events")
ENDPOINT_SLICES = Resource(api_version="discovery.k8s.io/v1", plural="endpointslices")


class KubeApi(Protocol):
    """What gather and apply need. Every method raises a `kube_errors.KubeError`."""

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """The object, None when there is none."""

    def get_document(self, path: str) -> Object:
        """What the API server says about itself at a path that is no resource's."""

    def list(self, resource: Resource, namespace: str, label_selector: str = "") -> Sequence[Object]:
        """All objects of the namespace that match."""

    def apply(
        self,
        resource: Resource,
        document: Mapping[str, Any],
        *,
        manager: str,
        force: bool = False,
        dry_run: bool = False,
    ) -> Object:
        """Server-side apply; the object as it then is."""

    def json_patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        subresource: str = "",
    ) -> Object:
        """RFC 6902 patch; the object as it then is."""

    def create(self, resource: Resource, namespace: str, body: Mapping[str, Any]) -> None:
        """Creates an object."""

    def delete(self, resource: Resource, namespace: str, name: str, *, uid: str) -> None:
        """Deletes the object of that uid; one that is gone is no error."""


class ClusterApi:
    """`KubeApi` over the official client, which brings kubeconfig, in-cluster tokens and their rotation."""

    def __init__(self, api_client: client.ApiClient) -> None:
        """Takes a configured client; `connect` makes one."""
        self._client = api_client

    @classmethod
    def connect(cls) -> "ClusterApi":
        """In a pod: its service account. Elsewhere: kubectl's current context."""
        configuration = client.Configuration()
        try:
            config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException:
            config.load_kube_config(client_configuration=configuration)
        return cls(client.ApiClient(configuration))

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """The object, None when there is none."""
        try:
            return self._request("GET", resource.path(namespace, name))
        except kube_errors.NotFoundError:
            return None

    def get_document(self, path: str) -> Object:
        """What the API server says about itself at a path that is no resource's."""
        return self._request("GET", path, accept="application/json, application/jwk-set+json")

    def list(self, resource: Resource, namespace: str, label_selector: str = "") -> Sequence[Object]:
        """All objects of the namespace, or of `ALL_NAMESPACES`, that match."""
        query = [("labelSelector", label_selector)] if label_selector else []
        items = self._request("GET", resource.path(namespace), query=query).get("items") or []
        return [dict(item) for item in items]

    def apply(
        self,
        resource: Resource,
        document: Mapping[str, Any],
        *,
        manager: str,
        force: bool = False,
        dry_run: bool = False,
    ) -> Object:
        """Server-side apply; the object as it then is."""
        query = [("fieldManager", manager), ("force", "true" if force else "false")]
        if dry_run:
            query.append(("dryRun", "All"))
        metadata = document["metadata"]
        path = resource.path(metadata["namespace"], metadata["name"])
        return self._request("PATCH", path, query=query, body=document, content_type="application/apply-patch+yaml")

    def json_patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        subresource: str = "",
    ) -> Object:
        """RFC 6902 patch; the object as it then is."""
        return self._request(
            "PATCH",
            resource.path(namespace, name, subresource),
            query=[("fieldManager", wellknown.FIELD_MANAGER_PREFIX)],
            body=list(operations),
            content_type="application/json-patch+json",
        )

    def create(self, resource: Resource, namespace: str, body: Mapping[str, Any]) -> None:
        """Creates an object."""
        query = [("fieldManager", wellknown.FIELD_MANAGER_PREFIX)]
        self._request("POST", resource.path(namespace), query=query, body=body)

    def delete(self, resource: Resource, namespace: str, name: str, *, uid: str) -> None:
        """Deletes the object of that uid; one that is gone is no error."""
        try:
            self._request("DELETE", resource.path(namespace, name), body={"preconditions": {"uid": uid}})
        except kube_errors.NotFoundError:
            return

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Object:
        headers = {"Accept": accept, "Content-Type": content_type}
        try:
            verb, url, headers, sent, _ = self._client.param_serialize(
                method,
                path,
                query_params=list(query),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
            )
            response = self._client.call_api(verb, url, headers, sent, _request_timeout=_TIMEOUT)
            raw = response.read()
            if not 200 <= response.status < 300:
                raise ApiException.from_response(http_resp=response, body=raw.decode(errors="replace"), data=None)
        except Exception as error:
            raise kube_errors.translate(error) from error
        parsed = json.loads(raw) if raw else {}
        return parsed if isinstance(parsed, dict) else {}
