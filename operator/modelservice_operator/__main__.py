"""`python -m modelservice_operator`: reads the settings, wires the parts, runs kopf until told to stop.

Owns the process: its start, its exit codes and its orderly end. With `let-go` it runs no operator but makes every
ModelService deletable without one, as the chart does when it is uninstalled.

Exit codes: 0 told to stop, or all let go; 1 some could not be let go; 2 settings or arguments cannot be used.
"""

import argparse
import asyncio
import logging
import signal
import sys
from datetime import UTC, datetime
from typing import Any

import kopf

from modelservice_operator import settings as settings_module
from modelservice_operator import telemetry
from modelservice_operator.adapters import HttpAdapters
from modelservice_operator.gather import Sources
from modelservice_operator.handlers import Operator
from modelservice_operator.kube_api import ALL_NAMESPACES, MODEL_SERVICES, ClusterApi
from modelservice_operator.kube_errors import KubeError
from modelservice_operator.reconcile import let_go
from modelservice_operator.settings import Settings

log = logging.getLogger("modelservice_operator")


def main(arguments: list[str] | None = None) -> int:
    """Runs the operator, or lets go; the exit code."""
    parser = argparse.ArgumentParser(prog="modelservice_operator", description="The modelservice operator.")
    parser.add_argument("command", nargs="?", choices=("run", "let-go"), default="run")
    command = parser.parse_args(arguments).command
    try:
        settings = settings_module.from_environment()
    except settings_module.SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201 - before logging is configured, for a person to read
        return 2
    telemetry.configure(settings.log_level)
    if command == "let-go":
        return let_go_of_all(settings)
    asyncio.run(run(settings))
    return 0


def let_go_of_all(settings: Settings) -> int:
    """Lets go of every ModelService in the watched namespaces; the exit code."""
    sources = connect(settings)
    failures = 0
    for namespace in settings.namespaces or (ALL_NAMESPACES,):
        for found in sources.api.list(MODEL_SERVICES, namespace):
            fields = {"namespace": found["metadata"]["namespace"], "name": found["metadata"]["name"]}
            try:
                let_go(sources, **fields)
                log.info("Let go", extra={"fields": fields})
            except KubeError as error:
                failures += 1
                log.error("Not let go: %s", error, extra={"fields": fields})
    return 1 if failures else 0


def connect(settings: Settings) -> Sources:
    """Where passes read from and write to."""
    return Sources(
        api=ClusterApi.connect(),
        adapters=HttpAdapters(),
        clock=lambda: datetime.now(UTC),
        adapter_image=settings.adapter_image,
    )


async def run(settings: Settings) -> None:
    """Watches and works until SIGTERM or SIGINT; passes in progress are finished."""
    operator = Operator(settings=settings, sources=connect(settings))
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(log_in)
    operator.register(registry)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    workers = [asyncio.create_task(operator.work()) for _ in range(settings.workers)]
    sweeper = asyncio.create_task(operator.sweep())
    log.info("Starting", extra={"fields": {"namespaces": settings.namespaces, "clusterWide": settings.cluster_wide}})
    try:
        await kopf.operator(
            registry=registry,
            settings=kopf_settings(),
            standalone=True,
            clusterwide=settings.cluster_wide,
            namespaces=settings.namespaces,
            liveness_endpoint=f"http://0.0.0.0:{settings.health_port}/healthz",
            stop_flag=stop,
        )
    finally:
        operator.queue.close()
        sweeper.cancel()
        await asyncio.gather(*workers)
        log.info("Stopped")


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
    settings.queueing.worker_limit = 32
    return settings


if __name__ == "__main__":
    sys.exit(main())
