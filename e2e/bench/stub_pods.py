"""Pods without nodes: makes every pod of an SDD Running and Ready, and answers for all of them as vLLM would."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import aiohttp

from bench.report import ROOT
from harness.controlplane import ControlPlane
from puppet_nodes import running
from specfleet.api import names

PAGE = ROOT / "tests" / "telemetry" / "pages" / "draft-k4-greedy20.txt"
POSITIONS = 4  # of that page
DRAFTS = 25.0  # a second and pod
CHANCE = 0.7  # of a drafted token, if those before it are accepted
CHANCE_SPREAD = 0.028  # over a minute as much as counting alone makes of the 6000 drafts of four pods: 0.5 points
AT_ONCE = 16  # pods that are made ready at a time
PODS = f"/api/v1/pods?labelSelector={names.DEPLOYMENT}"
# It passes as text and as the beginning of a JSON object. The page counts no tokens of it.
CHOICE = {"text": '{"an answer": "like any other", ', "finish_reason": "length"}
USAGE = {"prompt_tokens": 0, "completion_tokens": 0}
COMPLETION = json.dumps({"choices": [CHOICE], "usage": USAGE}).encode()

Object = dict[str, Any]


class StubPods:
    """One thread; all ends with the context. `most` is how many pods there may ever be."""

    def __init__(self, plane: ControlPlane, most: int) -> None:
        self._plane = plane
        block = random.SystemRandom().randint(1, 254)  # two runs on one machine do not meet at vLLM's port
        self._free = [f"127.{block}.{number >> 8}.{number & 255}" for number in range(1, most + 1)]
        self._addresses = tuple(self._free)
        self._namespaces: dict[str, str] = {}  # by address
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stub pods", daemon=True)
        self.scrapes: Counter[str] = Counter()  # pages served, by namespace
        self.ready: Counter[str] = Counter()  # pods made ready, by namespace

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=10)

    def check(self) -> None:
        """Raise if the stub has failed."""
        if self._error:
            raise RuntimeError("the stub of the pods has failed") from self._error

    def served(self, address: str) -> None:
        """A page of the pod at `address` was read."""
        self.scrapes[self._namespaces.get(address, "")] += 1

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error

    async def _serve(self) -> None:
        page = Page()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: _Connection(page, self.served), list(self._addresses), names.PORT, backlog=128
        )
        keys = self._plane.kubeconfig.parent
        context = ssl.create_default_context(cafile=str(keys / "ca.crt"))
        context.load_cert_chain(keys / "admin.crt", keys / "admin.key")
        connector = aiohttp.TCPConnector(ssl=context)
        async with server, aiohttp.ClientSession(self._plane.url, connector=connector, read_bufsize=1 << 21) as session:
            kubelet = asyncio.ensure_future(self._kubelet(session))
            while not self._stop.is_set() and not kubelet.done():
                await asyncio.sleep(0.2)
            if kubelet.done():
                kubelet.result()
            kubelet.cancel()

    async def _kubelet(self, session: aiohttp.ClientSession) -> None:
        """List, then watch; every pod that is not running becomes ready."""
        slots, known = asyncio.Semaphore(AT_ONCE), set[str]()
        tasks: set[asyncio.Task[None]] = set()

        async def start(raw: Object) -> None:
            async with slots:
                await self._start(session, raw)

        while True:
            async with session.get(PODS) as answer:
                listed = await answer.json()
            version = listed["metadata"]["resourceVersion"]
            news = [{"type": "ADDED", "object": raw} for raw in listed["items"]]
            url = f"{PODS}&watch=1&resourceVersion={version}"
            async with session.get(url, timeout=aiohttp.ClientTimeout(total=None)) as stream:
                for event in news:
                    _begin(event, known, start, tasks)
                async for line in stream.content:
                    _begin(json.loads(line), known, start, tasks)

    async def _start(self, session: aiohttp.ClientSession, raw: Object) -> None:
        meta = raw["metadata"]
        address = self._free.pop()
        self._namespaces[address] = meta["namespace"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
        headers = {"Content-Type": "application/merge-patch+json"}
        async with session.patch(path, json={"status": running(raw, address)}, headers=headers) as answer:
            if answer.status not in (200, 404):
                raise RuntimeError(f"{path}: {answer.status} {await answer.text()}")
        self.ready[meta["namespace"]] += 1


def _begin(event: Object, known: set[str], start: Callable[[Object], Any], tasks: set[asyncio.Task[None]]) -> None:
    if event["type"] == "ERROR":
        raise RuntimeError(f"watch of pods: {event['object']}")
    raw = event["object"]
    uid = raw["metadata"]["uid"]
    if event["type"] == "DELETED" or uid in known:
        return
    known.add(uid)
    task = asyncio.ensure_future(start(raw))
    tasks.add(task)
    task.add_done_callback(tasks.discard)


class Page:
    """A real page, of which the counters that are read move on with the time, with noise.

    It is rendered once a second, for all pods: what they answer costs the machine next to nothing.
    """

    def __init__(self, path: Path = PAGE) -> None:
        self._lines = path.read_bytes().split(b"\n")
        self._random = random.Random(1)
        self._values: dict[bytes, float] = {}
        self._second = int(time.time())
        self._answer = b""
        self._places = {line.rpartition(b" ")[0]: number for number, line in enumerate(self._lines) if line[:1] != b"#"}

    def answer(self) -> bytes:
        """The whole HTTP answer."""
        second = int(time.time())
        if second != self._second or not self._answer:
            for _ in range(min(60, second - self._second)):
                self._move()
            self._second = second
            page = b"\n".join(self._lines)
            self._answer = http(page, b"text/plain; version=0.0.4; charset=utf-8")
        return self._answer

    def _move(self) -> None:
        drafts = max(1.0, self._random.gauss(DRAFTS, DRAFTS / 5))
        chance, tokens = min(0.9, max(0.1, self._random.gauss(CHANCE, CHANCE_SPREAD))), drafts
        accepted = [drafts * chance ** (position + 1) for position in range(POSITIONS)]
        tokens += sum(accepted)
        self._add(b"vllm:spec_decode_num_drafts_total", drafts)
        self._add(b"vllm:spec_decode_num_draft_tokens_total", POSITIONS * drafts)
        self._add(b"vllm:spec_decode_num_accepted_tokens_total", sum(accepted))
        for position, count in enumerate(accepted):
            self._add(b"vllm:spec_decode_num_accepted_tokens_per_pos_total", count, b'position="%d"' % position)
        self._add(b"vllm:generation_tokens_total", tokens)
        self._add(b"vllm:prompt_tokens_total", tokens)
        self._add(b"vllm:inter_token_latency_seconds_count", drafts)
        self._add(b"vllm:inter_token_latency_seconds_sum", drafts * self._random.gauss(0.020, 0.001))
        self._add(b"vllm:time_to_first_token_seconds_count", 0.25)
        self._add(b"vllm:iteration_tokens_total_count", drafts)
        self._add(b"vllm:request_success_total", 0.25, b'finished_reason="length"')
        self._add(b"http_requests_total", 0.25, b'handler="/v1/completions"')

    def _add(self, name: bytes, more: float, label: bytes = b"") -> None:
        place = next(key for key in self._places if key.partition(b"{")[0] == name and label in key)
        number = self._places[place]
        value = self._values.get(place, float(self._lines[number].rpartition(b" ")[2])) + more
        self._values[place] = value
        self._lines[number] = place + b" %r" % value


def http(body: bytes, kind: bytes) -> bytes:
    """A 200 that keeps the connection."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (kind, len(body), body)


class _Connection(asyncio.Protocol):
    """HTTP/1.1 with just what the operator asks: GET /metrics, and any POST with a Content-Length."""

    def __init__(self, page: Page, served: Callable[[str], None]) -> None:
        self._page, self._served = page, served
        self._held = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._address = transport.get_extra_info("sockname")[0]

    def data_received(self, data: bytes) -> None:
        self._held += data
        head, end, body = self._held.partition(b"\r\n\r\n")
        if not end or len(body) < _length(head):
            return
        self._held = body[_length(head) :]
        if head.startswith(b"GET /metrics "):
            self._transport.write(self._page.answer())
            self._served(self._address)
        else:
            self._transport.write(http(COMPLETION, b"application/json"))


def _length(head: bytes) -> int:
    lowered = head.lower()
    return int(lowered.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
