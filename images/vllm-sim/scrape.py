"""Serves /metrics, with the faults that a page can have, and counts HTTP answers as vLLM's instrumentation does."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import re
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from aiohttp import web
from completions import State
from pump import Pump

from specfleet.simulation.page import Exchange, Http, Identity, Process, render

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
UNCOUNTED = frozenset({"/metrics", "/health", "/load", "/ping", "/version", "/sim"})
HUGE_MEGABYTES = 100
STARTED = time.time()
_TOKENS = re.compile(rb"^(vllm:generation_tokens_total\{.*\}) .*$", re.MULTILINE)
#: Pages in which one counter is nothing that a counter can be.
SPOILED: dict[str, Callable[[bytes], bytes]] = {
    "nan": lambda page: _TOKENS.sub(rb"\1 NaN", page),
    "negative": lambda page: _TOKENS.sub(rb"\1 -5.0", page),
    "duplicate": lambda page: _TOKENS.sub(rb"\1 1.0\n\1 2.0", page),
}


def process_facts() -> Process:
    """Facts on this process from /proc and the garbage collector."""
    sizes = Path("/proc/self/statm").read_text().split()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return Process(
        python=(sys.version_info.major, sys.version_info.minor, sys.version_info.micro),
        gc=tuple((s["collections"], s["collected"], s["uncollectable"]) for s in gc.get_stats()),
        virtual_bytes=int(sizes[0]) * resource.getpagesize(),
        resident_bytes=int(sizes[1]) * resource.getpagesize(),
        started=STARTED,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        open_fds=len(os.listdir("/proc/self/fd")),
        max_fds=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )


class Metrics:
    """The metrics page of one server."""

    def __init__(self, state: State, pump: Pump) -> None:
        self.state, self.pump = state, pump
        self.http = Http()
        speculation = state.options.speculation
        self.identity = Identity(
            state.options.served_names[0], speculation.method if speculation else None, time.time()
        )

    def page(self) -> bytes:
        """The page as of now."""
        self.pump.turn()
        identity = replace(self.identity, kv=self.state.dials.kv)
        return render(identity, self.pump.engine.counters, self.http, process_facts()).encode()

    async def scrape(self, request: web.Request) -> web.StreamResponse:
        """GET /metrics, or what the dial makes of it."""
        fault = self.state.dials.metrics
        if fault == "missing":
            return web.json_response({"detail": "Not Found"}, status=404)
        if fault == "redirect":
            raise web.HTTPFound("http://127.0.0.1:1/metrics")
        if fault == "binary":
            return web.Response(body=os.urandom(65536), headers={"Content-Type": CONTENT_TYPE})
        if fault in SPOILED:
            return web.Response(body=SPOILED[fault](self.page()), headers={"Content-Type": CONTENT_TYPE})
        if fault == "ok":
            return web.Response(body=self.page(), headers={"Content-Type": CONTENT_TYPE})
        return await self._long(request, {"huge": self._huge, "endless": self._endless, "slow": self._slow}[fault])

    async def _long(
        self, request: web.Request, write: Callable[[web.StreamResponse], Awaitable[None]]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):  # whoever scrapes has seen enough
            await write(response)
        return response

    async def _huge(self, response: web.StreamResponse) -> None:
        line = b'vllm:filler_total{engine="0"} 1.0\n'
        await response.write(self.page())
        for _ in range(HUGE_MEGABYTES):
            await response.write(line * (2**20 // len(line)))

    async def _endless(self, response: web.StreamResponse) -> None:
        while True:
            await response.write(self.page())
            await asyncio.sleep(0.05)

    async def _slow(self, response: web.StreamResponse) -> None:
        for line in self.page().splitlines(keepends=True):
            await response.write(line)
            await asyncio.sleep(1)

    @web.middleware
    async def count(
        self, request: web.Request, handler: Callable[..., Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Middleware: one answer more, with its sizes and its duration."""
        resource_ = request.match_info.route.resource
        label = resource_.canonical if resource_ is not None else "none"
        started = time.monotonic()
        status, size = 500, 0
        try:
            response = await handler(request)
            status, size = response.status, getattr(response, "content_length", None) or 0
            return response
        except web.HTTPException as error:
            status = error.status
            raise
        finally:
            if label not in UNCOUNTED:
                self._add(label, request, status, size, time.monotonic() - started)

    def _add(self, label: str, request: web.Request, status: int, size: int, seconds: float) -> None:
        exchange = self.http.exchanges.setdefault((label, request.method), Exchange(time.time()))
        group = f"{status // 100}xx"
        exchange.statuses[group] = exchange.statuses.get(group, 0) + 1
        exchange.request_bytes += request.content_length or 0
        exchange.response_bytes += size
        exchange.duration.observe(seconds)
        self.http.duration.observe(seconds)
