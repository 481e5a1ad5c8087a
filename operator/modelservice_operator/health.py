"""`/healthz`: whether the process does its work.

Owns the endpoint. It answers 200 while every watcher's thread and every worker lives; the event loop answers it, so a loop
that hangs does not. Nothing about the cluster or about any ModelService makes the operator unhealthy.
"""

from collections.abc import Callable

from aiohttp import web


async def serve(port: int, is_healthy: Callable[[], bool]) -> web.AppRunner:
    """Serves until the returned runner is cleaned up."""

    async def answer(_: web.Request) -> web.Response:
        healthy = is_healthy()
        return web.json_response({"healthy": healthy}, status=200 if healthy else 503)

    app = web.Application()
    app.router.add_get("/healthz", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", port).start()  # noqa: S104 - probes come to the pod's address
    return runner
