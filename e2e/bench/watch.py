"""Inside a cluster's network: what its Services offer from moment to moment, and what Argo and Flagger ask for.

A line of JSON goes to a file whenever something changes; its time is when the API server's watch told it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import ssl
import time
from collections import deque
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import aiohttp
from aiohttp import web

from bench.look import APPS, REVISIONS, Item, Look, label, look
from harness.nodeconfig import ADDRESS, URL
from harness.witness import counters

PORT = 9911  # of the metric
GATE_SECONDS = 19.0  # between two steps of Flagger, whose own steps are as long as the interval of its analysis
SCRAPE_SECONDS = 2.0
WINDOW_SECONDS = 10.0
PATHS = {
    "pods": "/api/v1/namespaces/default/pods",
    "slices": "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
    "revisions": "/apis/apps/v1/namespaces/default/controllerrevisions",
    "fleets": "/apis/specfleet.dev/v1alpha1/namespaces/default/specdecodedeployments",
    "rollouts": "/apis/argoproj.io/v1alpha1/namespaces/default/rollouts",  # not served before Argo is installed
    "canaries": "/apis/flagger.app/v1beta1/namespaces/default/canaries",  # nor these before Flagger is
    "routes": "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes",
}
DRAFTS, ACCEPTED = "vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"


@dataclass(slots=True)
class Windows:
    """Draft and accepted tokens of each pod at each of the last scrapes."""

    points: dict[str, deque[tuple[float, float, float]]] = field(default_factory=dict)

    def note(self, pod: str, now: float, page: str) -> None:
        """Take a page in; what is older than the window goes."""
        sums = counters(page)
        points = self.points.setdefault(pod, deque())
        points.append((now, sums.get(DRAFTS, 0.0), sums.get(ACCEPTED, 0.0)))
        while points and points[0][0] < now - WINDOW_SECONDS:
            points.popleft()

    def ratio(self, pods: list[str]) -> float | None:
        """Accepted over drafted tokens of these pods within the window; None where nothing was drafted."""
        windows = [self.points[pod] for pod in pods if self.points.get(pod)]
        drafts = sum(window[-1][1] - window[0][1] for window in windows)
        accepted = sum(window[-1][2] - window[0][2] for window in windows)
        return accepted / drafts if drafts > 0 else None


@dataclass(slots=True)
class Gate:
    """Lets each name pass at most once in GATE_SECONDS."""

    passed: dict[str, float] = field(default_factory=dict)

    def opens(self, name: str, now: float) -> bool:
        """May it pass now, in seconds of any clock? If so, that was it for a while."""
        if (last := self.passed.get(name)) is not None and now - last < GATE_SECONDS:
            return False
        self.passed[name] = now
        return True


class Watcher:
    """The objects as they are now, and who is told when they change."""

    def __init__(self, keys: Path, file: Path) -> None:
        self._tls = ssl.create_default_context(cafile=str(keys / "ca.crt"))
        self._tls.load_cert_chain(keys / "admin.crt", keys / "admin.key")
        self._file = file.open("a", buffering=1)
        self._last = Look(0.0)
        self.objects: dict[str, dict[str, Item]] = {kind: {} for kind in PATHS}
        self.windows = Windows()
        self.gate = Gate()

    async def run(self) -> None:
        """For ever: the watches, the scrapes and the answers."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        async with aiohttp.ClientSession(timeout=timeout, read_bufsize=2**22) as session, asyncio.TaskGroup() as group:
            for kind in PATHS:
                group.create_task(self._watch(session, kind))
            group.create_task(self._scrape(session))
            await self._serve()

    async def _watch(self, session: aiohttp.ClientSession, kind: str) -> None:
        while True:
            found = self.objects[kind]
            found.clear()
            query = {"watch": "1", "resourceVersion": "0", "timeoutSeconds": "7200"}
            with contextlib.suppress(aiohttp.ClientError, OSError):
                async with session.get(URL + PATHS[kind], params=query, ssl=self._tls, raise_for_status=True) as answer:
                    async for line in answer.content:
                        self._take(found, json.loads(line))
            await asyncio.sleep(0.5)

    def _take(self, found: dict[str, Item], event: Item) -> None:
        item = event["object"]
        name = item["metadata"].get("name", "")
        if event["type"] == "DELETED":
            found.pop(name, None)
        elif event["type"] in ("ADDED", "MODIFIED"):
            found[name] = item
        seen = look(self.objects, time.time())
        if replace(seen, time=self._last.time) != self._last:
            self._last = seen
            self._file.write(json.dumps(asdict(seen)) + "\n")

    async def _scrape(self, session: aiohttp.ClientSession) -> None:
        while True:
            pods = [
                pod for pod in self.objects["pods"].values() if label(pod, APPS[1:])
            ]  # ours: the operator reads them
            await asyncio.gather(*(self._read(session, pod) for pod in pods))
            await asyncio.sleep(SCRAPE_SECONDS)

    async def _read(self, session: aiohttp.ClientSession, pod: Item) -> None:
        name, address = pod["metadata"]["name"], pod["status"].get("podIP")
        if not address:
            return
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with asyncio.timeout(2), session.get(f"http://{address}:8000/metrics") as answer:
                self.windows.note(name, time.time(), await answer.text())

    async def _serve(self) -> None:
        app = web.Application()
        found = [web.get("/ratio", self._ratio), web.get("/api/v1/query", self._query), web.post("/gate", self._gate)]
        app.add_routes(found)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, ADDRESS, PORT).start()

    async def _ratio(self, request: web.Request) -> web.Response:
        """Argo's metric, as a Prometheus would have it: 0/0 is NaN, which JSON can only hold as text."""
        ratio = self._of(REVISIONS, request.query["hash"])
        return web.json_response({"ratio": "NaN" if ratio is None else ratio})

    def _of(self, names: tuple[str, ...], value: str) -> float | None:
        """Accepted over drafted tokens of the pods with that label."""
        return self.windows.ratio([name for name, pod in self.objects["pods"].items() if label(pod, names) == value])

    async def _query(self, request: web.Request) -> web.Response:
        """Flagger's metric, of the pods whose label `app` its query names; and 1 to `vector(1)`, by which it looks
        whether we are there."""
        named = re.search(r'app="([^"]+)"', request.query["query"])
        ratio = self._of(("app",), named[1]) if named else 1.0
        sample = {"metric": {}, "value": [time.time(), "NaN" if ratio is None else str(ratio)]}
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": [sample]}})

    async def _gate(self, request: web.Request) -> web.Response:
        """Flagger's `confirm-traffic-increase`: a canary may take a step if its last one was long enough ago."""
        opens = self.gate.opens((await request.json())["name"], time.monotonic())
        return web.Response(status=200 if opens else 403)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=Path, required=True)
    parser.add_argument("--file", type=Path, required=True)
    given = parser.parse_args()
    asyncio.run(Watcher(given.keys, given.file).run())


if __name__ == "__main__":
    main()
