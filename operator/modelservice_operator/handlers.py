"""Events → names to look at. `watching` brings events, the work queue schedules, `reconcile` does the rest.

Owns what is watched and which ModelService an event concerns. Events come from watchers' threads; everything here that has
state belongs to the one event loop, so handlers only pass on what they were told. Only `on.event` handlers: they write
nothing to the objects they watch, so a watched Deployment gains no annotation and no finalizer of kopf's. Our own
finalizer is written by `apply`, with everything else.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import kopf

from modelservice_api import wellknown
from modelservice_operator import kube_errors
from modelservice_operator.core import naming, workload
from modelservice_operator.gather import Sources, workload_key
from modelservice_operator.reconcile import reconcile
from modelservice_operator.settings import Settings
from modelservice_operator.workqueue import WorkQueue

log = logging.getLogger("modelservice_operator")

Key = tuple[str, str]
"""(namespace, name) of a ModelService."""


@dataclass
class Interest:
    """Which ModelServices care about which objects. A hint only: every pass reads the cluster anew."""

    by_workload: dict[tuple[str, str, str], set[Key]] = field(default_factory=lambda: defaultdict(set))
    by_label: dict[tuple[str, str], Key] = field(default_factory=dict)
    targets: dict[Key, tuple[str, str, str]] = field(default_factory=dict)
    seen: dict[Key, tuple[str, ...]] = field(default_factory=dict)

    def is_news(self, model_service: workload.KubeObject) -> bool:
        """Whether anything but the status changed since the last event: our own status writes need no pass."""
        metadata = model_service["metadata"]
        key = (str(metadata["namespace"]), str(metadata["name"]))
        now = tuple(str(metadata.get(name)) for name in ("uid", "generation", "deletionTimestamp", "finalizers"))
        before, self.seen[key] = self.seen.get(key), now
        return now != before

    def note(self, model_service: workload.KubeObject) -> None:
        """Remembers what a ModelService names."""
        metadata = model_service["metadata"]
        key = (str(metadata["namespace"]), str(metadata["name"]))
        _, kind, name = workload_key(model_service)
        self.targets[key] = (key[0], kind, name)
        self.by_workload[self.targets[key]].add(key)
        self.by_label[(key[0], naming.label_value(key[1]))] = key

    def forget(self, key: Key) -> set[Key]:
        """Forgets a ModelService; those that waited for the same workload."""
        self.seen.pop(key, None)
        self.by_label.pop((key[0], naming.label_value(key[1])), None)
        target = self.targets.pop(key, None)
        if target is None:
            return set()
        waiting = self.by_workload[target]
        waiting.discard(key)
        if not waiting:
            del self.by_workload[target]
        return set(waiting)

    def of_workload(self, namespace: str, kind: str, name: str) -> set[Key]:
        """The ModelServices that name this workload."""
        return set(self.by_workload.get((namespace, kind, name), ()))


@dataclass
class Operator:
    """The running operator: what it watches for, what waits, who works."""

    settings: Settings
    sources: Sources
    loop: asyncio.AbstractEventLoop
    interest: Interest = field(default_factory=Interest)
    queue: WorkQueue[Key] = field(default_factory=lambda: WorkQueue(time.monotonic))

    def register(self, registry: kopf.OperatorRegistry) -> None:
        """Adds every handler to a watcher's registry."""
        kopf.on.event(wellknown.GROUP, wellknown.VERSION, wellknown.PLURAL, registry=registry)(self._model_service)
        for (api_version, _), plural in workload.ADOPTABLE.items():
            group, version = api_version.split("/")
            kopf.on.event(group, version, plural, registry=registry)(self._workload)
        owned = {wellknown.MANAGED_BY_LABEL: wellknown.MANAGED_BY}
        kopf.on.event("", "v1", "services", labels=owned, registry=registry)(self._owned)
        kopf.on.event("", "v1", "configmaps", labels=owned, registry=registry)(self._owned)
        kopf.on.event("discovery.k8s.io", "v1", "endpointslices", labels=owned, registry=registry)(self._owned)

    async def _model_service(self, *, event: Any, **_: Any) -> None:
        self.loop.call_soon_threadsafe(self.on_model_service, event["type"], event["object"])

    async def _workload(self, *, event: Any, resource: Any, **_: Any) -> None:
        self.loop.call_soon_threadsafe(self.on_workload, str(resource.kind), event["object"]["metadata"])

    async def _owned(self, *, event: Any, **_: Any) -> None:
        self.loop.call_soon_threadsafe(self.on_owned, event["object"]["metadata"])

    def on_model_service(self, event_type: str | None, model_service: workload.KubeObject) -> None:
        """A ModelService appeared, changed or went. The type is None for what was there when watching began."""
        key = (str(model_service["metadata"]["namespace"]), str(model_service["metadata"]["name"]))
        if event_type == "DELETED":
            for waiting in self.interest.forget(key) | {key}:
                self.queue.add(waiting)
            return
        self.interest.note(model_service)
        if self.interest.is_news(model_service) or event_type is None:
            self.queue.add(key)

    def on_workload(self, kind: str, metadata: Mapping[str, Any]) -> None:
        """A Deployment, StatefulSet or DaemonSet appeared, changed or went."""
        namespace = str(metadata["namespace"])
        for key in self.interest.of_workload(namespace, kind, str(metadata["name"])):
            self.queue.add(key)
        if (metadata.get("labels") or {}).get(wellknown.MANAGED_BY_LABEL) == wellknown.MANAGED_BY:
            self.on_owned(metadata)  # the adapter's own Deployment
        holder = naming.parse_owner(str((metadata.get("annotations") or {}).get(wellknown.OWNER_ANNOTATION, "")))
        if holder is not None and holder[0] == namespace and holder[:2] not in self.interest.targets:
            self.queue.add((holder[0], holder[1]))

    def on_owned(self, metadata: Mapping[str, Any]) -> None:
        """A Service, ConfigMap or EndpointSlice of ours changed."""
        label = str((metadata.get("labels") or {}).get(wellknown.NAME_LABEL))
        key = self.interest.by_label.get((str(metadata["namespace"]), label))
        if key is not None:
            self.queue.add(key)

    async def work(self) -> None:
        """One worker: takes names until the queue is closed."""
        while (key := await self.queue.get()) is not None:
            await self._look_at(key)

    async def sweep(self) -> None:
        """Adds every known ModelService now and then, for the event that never came."""
        while True:
            await asyncio.sleep(self.settings.sweep_seconds)
            for key in list(self.interest.targets):
                self.queue.add(key)

    async def _look_at(self, key: Key) -> None:
        fields = {"namespace": key[0], "name": key[1]}
        try:
            again = await asyncio.to_thread(reconcile, self.sources, *key)
        except kube_errors.KubeError as error:
            delay = self.queue.failed(key)
            log.warning("Pass not completed, next in %.1f s: %s", delay, error, extra={"fields": fields})
        except Exception:  # a bug in one pass must not take the others down
            delay = self.queue.failed(key)
            log.exception("Pass ended by a bug, next in %.1f s", delay, extra={"fields": fields})
        else:
            self.queue.done(key, look_again_after=again)
