"""Sends requests at a steady random pace and counts from outside which pod answered, what failed, how long it took."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import time
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from harness.loadreport import Report, Second, write

TASKS = {
    "chat": "Tell me about {topic} and what you would do about it",
    "writing": "Write a story in which {topic} matters",
    "rag": "According to the passage about {topic}, answer",
    "math": "Solve for x in the equation of {topic}",
    "code": "Write a Python function for {topic} with a unit test",
}
TOPICS = ("rivers", "maps", "queues", "clocks", "bread", "trains", "weather", "birds", "letters", "tides")
UNKNOWN = "unknown"  # answers without x-served-by
KEPT_FAILURES = 1000


class Failed(Exception):
    """A request did not get its whole answer; kind is what the report counts it under."""

    def __init__(self, kind: str, detail: str = "", pod: str | None = None) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail, self.pod = kind, detail, pod


class LoadGenerator:
    """Open arrivals: a Poisson process sends whether or not earlier answers are back, so a slow server cannot hide.

    Every request has a connection of its own and is tried once. `rate` and `mix` may be changed while it runs.
    """

    def __init__(
        self,
        url: str,
        rate: float,
        mix: dict[str, float] | None = None,
        *,
        stream_share: float = 0.5,
        max_tokens: int = 100,
        filler: int = 40,
        model: str | None = None,
        temperature: float = 0.0,
        headers: dict[str, str] | None = None,
        timeout: float = 120.0,
        seed: int = 1,
    ) -> None:
        self.url, self.rate, self.mix = url.rstrip("/"), rate, mix or {"chat": 1.0}
        self.stream_share, self.filler, self.timeout = stream_share, filler, timeout
        self.body: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature, "ignore_eos": True}
        if model is not None:
            self.body["model"] = model
        self.headers = headers or {}
        self.report = Report(started=time.time())
        self._random = Random(seed)
        self._origin = time.monotonic()
        self._requests: set[asyncio.Task[None]] = set()
        self._arrivals: asyncio.Task[None] | None = None
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Begin to send."""
        connector = aiohttp.TCPConnector(force_close=True, limit=0)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=self.timeout))
        self.report.started, self._origin = time.time(), time.monotonic()
        self._arrivals = asyncio.create_task(self._arrive(self._session))

    async def stop(self, grace: float = 10.0) -> Report:
        """Send no more, wait up to `grace` seconds for answers on their way (then counted as in_flight), and report."""
        if self._arrivals is not None:
            self._arrivals.cancel()
        if self._requests:
            await asyncio.wait(self._requests, timeout=grace)
        self._observe()
        for request in list(self._requests):
            request.cancel()
        if self._session is not None:
            await self._session.close()
        self.report.done = True
        return self.report

    def snapshot(self) -> dict[str, Any]:
        """The report as JSON, as of now."""
        self._observe()
        return self.report.to_json()

    def _observe(self) -> None:
        if not self.report.done:
            self.report.seconds = time.monotonic() - self._origin
            self.report.in_flight = self.report.sent - self.report.answered - self.report.failed

    async def _arrive(self, session: aiohttp.ClientSession) -> None:
        due = time.monotonic()
        while True:
            due += self._random.expovariate(self.rate)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self.report.sent += 1
            workload, prompt, stream = self._next()
            task = asyncio.create_task(self._request(session, workload, prompt, stream))
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)

    def _next(self) -> tuple[str, str, bool]:
        """Workload, prompt (no two alike, marked for the simulated server) and whether to stream."""
        (workload,) = self._random.choices(list(self.mix), weights=list(self.mix.values()))
        task = TASKS.get(workload, TASKS["chat"]).format(topic=self._random.choice(TOPICS))
        filler = " ".join(self._random.choice(TOPICS) for _ in range(self._random.randint(0, self.filler)))
        prompt = f"[workload={workload}] {task} ({self.report.sent}). {filler}"
        return workload, prompt, self._random.random() < self.stream_share

    async def _request(self, session: aiohttp.ClientSession, workload: str, prompt: str, stream: bool) -> None:
        begun = time.monotonic()
        try:
            pod, tokens, first = await self._ask(session, prompt, stream)
        except Failed as failed:
            self._failed(failed)
            return
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self._failed(Failed(kind_of(error), repr(error)))
            return
        now = time.monotonic()
        self.report.answered += 1
        self.report.tokens += tokens
        self.report.e2e.append(now - begun)
        if first is not None:
            self.report.ttft.append(first - begun)
        seconds = ((self._second().pods, pod), (self._second(begun).sent, pod))
        for counts, name in ((self.report.pods, pod), (self.report.workloads, workload), *seconds):
            counts[name] = counts.get(name, 0) + 1

    async def _ask(self, session: aiohttp.ClientSession, prompt: str, stream: bool) -> tuple[str, int, float | None]:
        """(pod, tokens, time of a stream's first event) of a whole answer. Raises Failed or an error of aiohttp."""
        body: dict[str, Any] = {**self.body, "prompt": prompt, "stream": stream}
        if stream:
            body["stream_options"] = {"include_usage": True}
        async with session.post(f"{self.url}/v1/completions", json=body, headers=self.headers) as response:
            pod = response.headers.get("x-served-by", UNKNOWN)
            if response.status != 200:
                raise Failed(f"http {response.status}", (await response.text())[:200], pod)
            try:
                if stream:
                    return (pod, *await read_stream(response))
                return pod, int((await response.json())["usage"]["completion_tokens"]), None
            except (aiohttp.ClientPayloadError, ConnectionError) as error:
                raise Failed("cut" if stream else "reset", repr(error), pod) from error
            except (ValueError, KeyError, TypeError, aiohttp.ContentTypeError) as error:
                raise Failed("broken", repr(error), pod) from error
            except Failed as failed:
                raise Failed(failed.kind, failed.detail, pod) from failed

    def _failed(self, failed: Failed) -> None:
        self.report.failures[failed.kind] = self.report.failures.get(failed.kind, 0) + 1
        self._second().failures += 1
        if len(self.report.failure_examples) < KEPT_FAILURES:
            example = {"second": len(self.report.timeline) - 1, "kind": failed.kind, "pod": failed.pod}
            self.report.failure_examples.append({**example, "detail": failed.detail})

    def _second(self, at: float | None = None) -> Second:
        """The second of the timeline at a monotonic time, by default the current one."""
        missing = int(time.monotonic() - self._origin) + 1 - len(self.report.timeline)
        self.report.timeline += [Second() for _ in range(missing)]
        return self.report.timeline[-1 if at is None else int(at - self._origin)]


async def read_stream(response: aiohttp.ClientResponse) -> tuple[int, float | None]:
    """(tokens, time of the first event) of a stream that came to its end. Failed("cut"): it did not."""
    first: float | None = None
    tokens, reason = 0, None
    async for line in response.content:
        if not line.startswith(b"data: "):
            continue
        first = first or time.monotonic()
        if line.startswith(b"data: [DONE]"):
            if reason not in {"stop", "length"}:
                raise Failed("cut", f"finish_reason {reason}")
            return tokens, first
        event = json.loads(line[6:])
        if "error" in event:
            raise Failed("cut", str(event["error"])[:200])
        tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
        reason = next((c["finish_reason"] for c in event["choices"] if c.get("finish_reason")), reason)
    raise Failed("cut", "the stream ended without [DONE]")


def kind_of(error: Exception) -> str:
    """What the report calls an error before any answer began."""
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "refused" if isinstance(error.os_error, ConnectionRefusedError) else "connect"
    return "reset"


def _mix(text: str) -> dict[str, float]:
    return {name: float(weight or 1) for name, _, weight in (part.partition("=") for part in text.split(","))}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m harness.loadgen", description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--rate", type=float, default=4.0, help="requests per second")
    parser.add_argument("--seconds", type=float, default=30.0, help="stops sending then, at the latest")
    parser.add_argument("--grace", type=float, default=10.0, help="seconds to wait for answers on their way at the end")
    parser.add_argument("--json", type=Path, help="file for the report, rewritten every second")
    parser.add_argument("--mix", type=_mix, default={"chat": 1.0}, help="chat=0.2,code=0.8")
    parser.add_argument("--stream-share", type=float, default=0.5)
    parser.add_argument("--max-tokens", type=int, default=100)
    parser.add_argument("--filler", type=int, default=40, help="words by which prompts are made longer, at most")
    parser.add_argument("--model")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--header", action="append", default=[], help="name: value")
    parser.add_argument("--timeout", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


async def _run(given: argparse.Namespace) -> dict[str, Any]:
    headers = {name.strip(): value.strip() for name, _, value in (header.partition(":") for header in given.header)}
    named = ("stream_share", "max_tokens", "filler", "model", "temperature", "timeout", "seed")
    chosen = {name: getattr(given, name) for name in named}
    generator = LoadGenerator(given.url, given.rate, given.mix, headers=headers, **chosen)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await generator.start()
    ends = time.monotonic() + given.seconds
    while not stopped.is_set() and time.monotonic() < ends:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), max(0.01, min(1.0, ends - time.monotonic())))
        if given.json:
            write(given.json, generator.snapshot())
    return (await generator.stop(given.grace)).to_json()


def main() -> None:
    """Run until --seconds or SIGTERM, then write the final report to --json, or to stdout."""
    given = _arguments()
    final = asyncio.run(_run(given))
    if given.json:
        write(given.json, final)
    else:
        print(json.dumps(final))


if __name__ == "__main__":
    main()
