"""The operator's own HTTP server: /healthz, /readyz, /metrics."""

from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def serve(
    host: str, port: int, registry: CollectorRegistry, healthy: Callable[[], str], ready: Callable[[], str]
) -> web.AppRunner:
    """Serve until the runner is cleaned up. `healthy` and `ready` say what is wrong; empty is 200."""

    def check(question: Callable[[], str]) -> Handler:
        async def answer(_: web.Request) -> web.StreamResponse:
            wrong = question()
            return web.Response(text=f"{wrong or 'ok'}\n", status=503 if wrong else 200)

        return answer

    async def metrics(_: web.Request) -> web.StreamResponse:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    for path, handler in (("/healthz", check(healthy)), ("/readyz", check(ready)), ("/metrics", metrics)):
        app.router.add_get(path, handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner
