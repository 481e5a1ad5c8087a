"""kopf as a watcher: one instance per scope, in a thread of its own, begun again whenever it ends.

Owns the life of kopf instances and nothing they report: events go to handlers that others register. A scope is one
namespace, or the whole cluster. Scopes are kept apart because kopf ends as a whole when one of its watches is refused
for good, and a watched namespace that is deleted takes the rights to watch it away: that must not blind the operator
to all the others. It is also the answer to every other error that ends kopf's watches (any `ERROR` event but 410).
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import kopf

from modelservice_api import wellknown

log = logging.getLogger("modelservice_operator")

SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
_HEALTHY_SECONDS = 120.0
"""An instance that lived this long had watched well; the pause before the next one is short again."""


class Watcher:
    """Watches one scope until stopped.

    Args:
        namespace: The namespace; None for the whole cluster.
        register: Adds the handlers to a registry. They run in the watcher's thread.
    """

    def __init__(self, namespace: str | None, register: Callable[[kopf.OperatorRegistry], None]) -> None:
        """Starts nothing yet."""
        self._namespace = namespace
        self._register = register
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._instance: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._thread = threading.Thread(target=self._run, name=f"watcher-{namespace or 'cluster'}", daemon=True)

    def start(self) -> None:
        """Begins to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Asks the watcher to end; `join` waits for it."""
        self._stop.set()
        with self._lock:
            if self._instance is not None:
                loop, flag = self._instance
                loop.call_soon_threadsafe(flag.set)

    def join(self, seconds: float) -> None:
        """Waits at most so long for the end."""
        self._thread.join(seconds)

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs. It does so until stopped, unless there is a bug in this file."""
        return self._thread.is_alive()

    def _run(self) -> None:
        pause = SHORTEST_PAUSE_SECONDS
        while not self._stop.is_set():
            began = time.monotonic()
            fields = {"namespace": self._namespace or "all"}
            try:
                asyncio.run(self._watch())
                reason = "it ended"
            except Exception as error:  # noqa: BLE001 - whatever kopf ends with, the next instance is the answer
                reason = f"{type(error).__name__}: {str(error)[:300]}"
            if self._stop.is_set():
                return
            if time.monotonic() - began > _HEALTHY_SECONDS:
                pause = SHORTEST_PAUSE_SECONDS
            log.warning("Watching again in %.0f s, because %s", pause, reason, extra={"fields": fields})
            self._stop.wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _watch(self) -> None:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(log_in)
        self._register(registry)
        # A flag of this loop: kopf waits for a `threading.Event` in a thread that then cannot be ended when kopf fails.
        flag = asyncio.Event()
        with self._lock:
            self._instance = (asyncio.get_running_loop(), flag)
        try:
            if not self._stop.is_set():
                await kopf.operator(
                    registry=registry,
                    # Else kopf asks the system for a user's name, and an arbitrary uid has none.
                    identity=cast("Any", wellknown.MANAGED_BY),
                    settings=kopf_settings(),
                    standalone=True,
                    clusterwide=self._namespace is None,
                    namespaces=() if self._namespace is None else (self._namespace,),
                    stop_flag=flag,
                )
        finally:
            with self._lock:
                self._instance = None


def log_in(**kwargs: Any) -> Any:
    """kopf's credentials, from where `ClusterApi.connect` takes ours: the pod's service account, else kubeconfig."""
    return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)


def kopf_settings() -> kopf.OperatorSettings:
    """kopf as a watcher: no scanning of the cluster, no events from log lines, streams that notice their own death."""
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.watching.server_timeout = 290
    settings.watching.client_timeout = 300
    settings.watching.connect_timeout = 10
    settings.networking.request_timeout = 30
    # About ten seconds of trying, then the instance ends and the next one takes over: longer only hides the reason.
    settings.networking.error_backoffs = (1, 1, 2, 3, 5)
    settings.queueing.worker_limit = 32
    return settings
