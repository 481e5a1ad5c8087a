"""A `KubeApi` that ends the process at a chosen write. Everything else is passed on to the real one."""

from collections.abc import Mapping, Sequence
from typing import Any

from modelservice_operator.kube_api import KubeApi, Resource


class CrashError(BaseException):
    """The process is gone. Not an Exception: nothing may handle it."""


class CrashingApi:
    """`KubeApi` that lets a number of writes through and then ends the process, before or after the next one."""

    def __init__(self, api: KubeApi, *, writes: int, after: bool) -> None:
        self._api = api
        self._left = writes
        self._after = after

    def get(self, resource: Resource, namespace: str, name: str) -> Any:
        return self._api.get(resource, namespace, name)

    def get_document(self, path: str) -> Any:
        return self._api.get_document(path)

    def list(self, resource: Resource, namespace: str, label_selector: str = "") -> Sequence[Any]:
        return self._api.list(resource, namespace, label_selector)

    def apply(self, resource: Resource, document: Mapping[str, Any], **options: Any) -> Any:
        if options.get("dry_run"):
            return self._api.apply(resource, document, **options)
        return self._write(lambda: self._api.apply(resource, document, **options))

    def json_patch(self, resource: Resource, namespace: str, name: str, operations: Any, subresource: str = "") -> Any:
        return self._write(lambda: self._api.json_patch(resource, namespace, name, operations, subresource))

    def create(self, resource: Resource, namespace: str, body: Mapping[str, Any]) -> None:
        self._write(lambda: self._api.create(resource, namespace, body))

    def delete(self, resource: Resource, namespace: str, name: str, *, uid: str) -> None:
        self._write(lambda: self._api.delete(resource, namespace, name, uid=uid))

    def _write(self, act: Any) -> Any:
        if self._left == 0:
            if self._after:
                act()
            raise CrashError
        self._left -= 1
        return act()
