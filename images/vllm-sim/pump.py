"""Moves the engine's virtual time along the host's clock and hands its outputs to the requests that wait for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from specfleet.simulation.engine import Engine, Job

TICK = 0.02  # seconds between looks at the engine: outputs are seen a little late, but counted at their own time
LOOKS_PER_CHECK = 25  # how often a look also asks whether clients have left


@dataclass(slots=True)
class Live:
    """A request in flight. ended: None, "finished", "aborted" (shutdown without a drain), "cut" (the drain ran out of
    time) or "left" (its client has gone)."""

    streams: bool
    has_left: Callable[[], bool]
    number: int = 0
    tokens: int = 0
    ended: str | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, tokens: int, finished: bool) -> None:
        """Take an output in; who does not stream is only woken by the last one."""
        self.tokens += tokens
        if finished:
            self.ended = "finished"
        if self.streams or finished:
            self.changed.set()

    def end(self, why: str) -> None:
        """End before the engine does."""
        if self.ended is None:
            self.ended = why
            self.changed.set()


class Pump:
    """Owns the engine; all of it runs on one event loop, so nothing needs a lock."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.live: dict[int, Live] = {}
        self._work = asyncio.Event()

    def submit(self, job: Job, live: Live) -> Live:
        """Queue `job` for the engine now."""
        self.turn()
        live.number = self.engine.submit(time.monotonic(), job)
        self.live[live.number] = live
        self._work.set()
        return live

    def leave(self, live: Live) -> None:
        """The handler of `live` is done, with the answer or before it."""
        self.live.pop(live.number, None)
        if live.ended != "finished":
            self.engine.abort(time.monotonic(), live.number)
        if not self.live:
            self._work.clear()

    def turn(self) -> None:
        """Bring the engine up to now."""
        for output in self.engine.advance(time.monotonic()):
            live = self.live.get(output.request)
            if live is not None:
                live.add(output.tokens, output.finished)

    def end_all(self, why: str) -> None:
        """End every request in flight."""
        for live in self.live.values():
            live.end(why)

    async def run(self) -> None:
        """Turn for ever, and only while there is work."""
        looks = 0
        while True:
            await self._work.wait()
            await asyncio.sleep(TICK)
            self.turn()
            looks += 1
            if looks % LOOKS_PER_CHECK == 0:
                for live in [live for live in self.live.values() if live.has_left()]:
                    live.end("left")
