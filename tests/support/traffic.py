"""Requests to Services spread evenly over their endpoints, as a proxy would; each is tried once, every answer kept."""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Self

import aiohttp

from puppet_nodes import Endpoint
from specfleet.api import names

TOPICS = ("rivers", "maps", "queues", "clocks", "bread")
MAX_TOKENS = 40


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: when (monotonic), by which pod in its own words, and with which status; 0 is none."""

    at: float
    pod: str
    status: int


@dataclass(slots=True)
class Flow:
    """The answers of one Service so far."""

    answers: list[Answer] = field(default_factory=list)

    @property
    def failures(self) -> list[Answer]:
        """What was not answered well."""
        return [answer for answer in self.answers if answer.status != 200]

    def by(self, pods: set[str], since: float = 0.0) -> int:
        """How many answers these pods gave."""
        return sum(answer.pod in pods and answer.at >= since for answer in self.answers)


class Traffic:
    """Sends from a thread of its own until the context ends."""

    def __init__(self, endpoints: Callable[[str, str], Sequence[Endpoint]]) -> None:
        self._endpoints = endpoints
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="traffic", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._cancel(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def start(self, namespace: str, service: str, rate: float) -> Flow:
        """Send `rate` requests a second from now on."""
        flow = Flow()
        self._loop.call_soon_threadsafe(lambda: self._spawn(self._flow(flow, namespace, service, 1 / rate)))
        return flow

    def _spawn(self, what: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _flow(self, flow: Flow, namespace: str, service: str, pause: float) -> None:
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=30)) as session:
            for number in itertools.count():
                found = self._endpoints(namespace, service)
                if found:
                    self._spawn(_ask(flow, session, found[number % len(found)], number))
                else:
                    flow.answers.append(Answer(time.monotonic(), "", 0))
                await asyncio.sleep(pause)


async def _ask(flow: Flow, session: aiohttp.ClientSession, endpoint: Endpoint, number: int) -> None:
    prompt = f"[workload=code] Write a function for {TOPICS[number % len(TOPICS)]} ({number})"
    body = {"prompt": prompt, "max_tokens": MAX_TOKENS, "temperature": 0, "ignore_eos": True}
    try:
        async with session.post(f"http://{endpoint.ip}:{names.PORT}/v1/completions", json=body) as answer:
            await answer.read()
            pod, status = answer.headers.get("x-served-by", ""), answer.status
    except (aiohttp.ClientError, OSError, TimeoutError):
        pod, status = endpoint.pod, 0
    flow.answers.append(Answer(time.monotonic(), pod, status))
