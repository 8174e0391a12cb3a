"""Starts, serves and stops the simulated vLLM server: loading, ports, signals, the drain."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from dataclasses import replace
from random import Random

from aiohttp import web
from completions import Completions, State
from pump import Pump
from scrape import Metrics

from specfleet.simulation import commandline, dials
from specfleet.simulation.engine import Engine, Settings

VERSION = "0.32.0"
ACCEPTS_NOTHING = "accepts-nothing"  # in a draft's name
CRASHES = "crash-on-load"  # in a target's or a draft's name
CRASH_TEXT = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"


def log(message: str) -> None:
    """One line on stdout at once, as a container's log wants it."""
    print(f"INFO {message}", flush=True)


def main(argv: list[str]) -> int:
    """`vllm serve ...` or `vllm --version`; the exit code."""
    if argv[:1] in (["--version"], ["-v"]):
        print(VERSION)
        return 0
    if argv[:1] != ["serve"]:
        print(
            "usage: vllm [-h] [-v] {serve} ...\nvllm: error: the simulated server only knows `serve`", file=sys.stderr
        )
        return 2
    try:
        options = commandline.parse(argv[1:], os.environ)
        turned = dials.from_environment(os.environ)
    except (commandline.Refused, ValueError) as refused:
        print(refused, file=sys.stderr, flush=True)
        return 1
    draft = options.speculation.draft if options.speculation else None
    if ACCEPTS_NOTHING in (draft or ""):
        turned = replace(turned, acceptance=0.0)
    crashes = turned.crash or any(CRASHES in name for name in (options.model, draft or ""))
    code = asyncio.run(Server(options, turned).run(crashes))
    sys.stdout.flush()
    os._exit(code)  # connections that nobody reads must not keep a pod


class Server:
    """One server from loading to exit."""

    def __init__(self, options: commandline.Options, turned: dials.Dials) -> None:
        self.options = options
        name = os.environ.get("VLLM_SIM_NAME") or socket.gethostname()
        seed = os.environ.get("VLLM_SIM_SEED") or name
        speculation = options.speculation
        settings = Settings(
            seed=seed,
            method=speculation.method if speculation else None,
            length=speculation.length if speculation else 0,
            schedule=speculation.schedule if speculation else (),
            max_num_seqs=options.max_num_seqs,
            max_model_len=options.max_model_len,
        )
        self.state = State(options, name, turned, Random(f"server {seed}"))
        self.pump = Pump(Engine(settings, turned))
        self.metrics = Metrics(self.state, self.pump)
        self.stop = asyncio.Event()

    async def run(self, crashes: bool) -> int:
        """Load, serve until SIGTERM, drain; the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop.set)
        if await self._loading():
            return 0
        if crashes:
            print(CRASH_TEXT, file=sys.stderr, flush=True)
            return 1
        runner = web.AppRunner(self._app(), handle_signals=False, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, self.options.host, self.options.port)
        await site.start()
        turning = asyncio.create_task(self.pump.run())
        log(f"Starting vLLM server on http://{self.options.host}:{self.options.port}")
        await self.stop.wait()
        await self._drain(site)
        turning.cancel()
        await asyncio.wait([asyncio.create_task(runner.cleanup())], timeout=2)
        return 0

    async def _loading(self) -> bool:
        """Wait as long as loading takes; True if told to stop meanwhile."""
        log(f"Loading {self.options.model}, speculation {self.options.speculation}")
        try:
            await asyncio.wait_for(self.stop.wait(), self.state.dials.start_seconds or 0.001)
        except TimeoutError:
            return False
        return True

    async def _drain(self, site: web.TCPSite) -> None:
        """What vLLM 0.32 does on SIGTERM: with a shutdown timeout requests in flight may end, the port stays open and
        /health good while new requests get 500; without one the port closes and everything in flight is aborted."""
        self.state.draining = True
        timeout = self.options.shutdown_timeout
        log(f"Shutting down, {len(self.pump.live)} requests in flight, timeout {timeout:g} s")
        if timeout > 0:
            await self._emptied(timeout)
            self.pump.end_all("cut")
        else:
            await site.stop()
            self.pump.end_all("aborted")
        await self._emptied(1)

    async def _emptied(self, seconds: float) -> None:
        """Wait until no request is in flight, but not longer than `seconds`."""
        deadline = asyncio.get_running_loop().time() + seconds
        while self.pump.live and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.05)

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self.metrics.count], client_max_size=2**26)
        app.on_response_prepare.append(self._sign)
        app.add_routes(Completions(self.state, self.pump).routes())
        app.add_routes([web.get("/metrics", self.metrics.scrape), web.get("/load", self._load)])
        app.add_routes([web.get(path, self._health) for path in ("/health", "/ping")])
        app.add_routes([web.post("/ping", self._health), web.get("/version", self._version)])
        app.add_routes([web.get("/sim", self._dials), web.put("/sim", self._turn)])
        return app

    async def _sign(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers["x-served-by"] = self.state.name

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": VERSION})

    async def _load(self, request: web.Request) -> web.Response:
        return web.json_response({"server_load": len(self.pump.live)})

    async def _dials(self, request: web.Request) -> web.Response:
        return web.json_response(dials.as_json(self.state.dials))

    async def _turn(self, request: web.Request) -> web.Response:
        """PUT /sim: change the dials that the JSON object names, from now on."""
        try:
            turned = dials.changed(self.state.dials, await request.json())
        except (ValueError, TypeError) as error:
            return web.json_response({"error": str(error)}, status=400)
        self.pump.turn()
        self.state.dials = self.pump.engine.dials = turned
        if turned.crash:
            asyncio.get_running_loop().call_later(0.05, os._exit, 1)
        return await self._dials(request)
