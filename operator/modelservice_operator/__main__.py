"""`python -m modelservice_operator`: reads the settings, wires the parts, runs until told to stop.

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

from modelservice_operator import health, telemetry
from modelservice_operator import settings as settings_module
from modelservice_operator.adapters import HttpAdapters
from modelservice_operator.gather import Sources
from modelservice_operator.handlers import Operator
from modelservice_operator.kube_api import ALL_NAMESPACES, MODEL_SERVICES, ClusterApi
from modelservice_operator.kube_errors import KubeError
from modelservice_operator.reconcile import let_go
from modelservice_operator.settings import Settings
from modelservice_operator.watching import Watcher

log = logging.getLogger("modelservice_operator")

STOP_SECONDS = 10.0
"""How long all watchers together may take to end. They write nothing, so whoever is late is left behind."""


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
        auth=settings.auth,
        signals=settings.signals,
    )


async def run(settings: Settings) -> None:
    """Watches and works until SIGTERM or SIGINT; passes in progress are finished."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    operator = Operator(settings=settings, sources=connect(settings), loop=loop)
    scopes: tuple[str | None, ...] = settings.namespaces or (None,)
    watchers = [Watcher(scope, operator.register) for scope in scopes]
    tasks = [asyncio.create_task(operator.work()) for _ in range(settings.workers)]
    sweeper = asyncio.create_task(operator.sweep())
    health_server = await health.serve(
        settings.health_port,
        lambda: all(watcher.is_alive for watcher in watchers) and not any(task.done() for task in (*tasks, sweeper)),
    )
    for watcher in watchers:
        watcher.start()
    log.info("Started", extra={"fields": {"namespaces": settings.namespaces, "clusterWide": settings.cluster_wide}})
    await stop.wait()
    for watcher in watchers:
        watcher.stop()
    operator.queue.close()
    sweeper.cancel()
    await asyncio.gather(*tasks)
    await health_server.cleanup()
    for watcher in watchers:
        await asyncio.to_thread(watcher.join, STOP_SECONDS / len(watchers))
    log.info("Stopped")


if __name__ == "__main__":
    sys.exit(main())
