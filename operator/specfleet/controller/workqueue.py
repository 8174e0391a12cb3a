"""A work queue: a key waits at most once, runs alone, is retried with growing delay, returns when it asked to."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
FIRST_RETRY, LAST_RETRY = 0.5, 30.0  # seconds
DOUBLINGS = 6

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Entry:
    due: float
    running: bool = False
    again: float | None = None  # asked for while it ran
    failures: int = 0
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class WorkQueue(Generic[K]):
    """`work(key)` returns the seconds until it should run again, or None to forget it; what it raises is retried.

    `workers` bounds how many keys run at a time.
    """

    work: Callable[[K], Awaitable[float | None]]
    workers: int = 64
    _entries: dict[K, _Entry] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _slots: asyncio.Semaphore | None = None
    _closed: bool = False

    def add(self, key: K, after: float = 0.0) -> None:
        """Run the key `after` so many seconds, or sooner if it is due sooner already.

        A key that fails keeps its delay: what it wrote before it failed comes back as events, and would spin it.
        """
        if self._closed:
            return
        due = _now() + after
        entry = self._entries.setdefault(key, _Entry(due=float("inf")))
        if entry.running:
            entry.again = due if entry.again is None else min(entry.again, due)
        elif due < entry.due and not entry.failures:
            self._schedule(key, entry, due)

    @property
    def depth(self) -> int:
        """Keys that are due or running."""
        return sum(entry.running or entry.due <= _now() for entry in self._entries.values())

    @property
    def overdue(self) -> float:
        """Seconds since the first of those was due that are due or still run; below 0 where none is."""
        return max((_now() - entry.due for entry in self._entries.values()), default=0.0)

    async def close(self) -> None:
        """Start nothing more, and end what runs."""
        self._closed = True
        for entry in self._entries.values():
            if entry.timer:
                entry.timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _schedule(self, key: K, entry: _Entry, due: float) -> None:
        if entry.timer:
            entry.timer.cancel()
        entry.due = due
        entry.timer = asyncio.get_running_loop().call_at(due, self._start, key, entry)

    def _start(self, key: K, entry: _Entry) -> None:
        entry.timer, entry.running = None, True
        task = asyncio.ensure_future(self._run(key, entry))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, key: K, entry: _Entry) -> None:
        self._slots = self._slots or asyncio.Semaphore(self.workers)
        async with self._slots:
            delay = await self._attempt(key, entry)
        entry.running = False
        again, entry.again = entry.again, None
        if entry.failures:
            again = None
        times = [time for time in (again, None if delay is None else _now() + delay) if time is not None]
        if self._closed:
            return
        if times:
            self._schedule(key, entry, min(times))
        else:
            del self._entries[key]

    async def _attempt(self, key: K, entry: _Entry) -> float | None:
        try:
            delay = await self.work(key)
        except Exception as error:
            entry.failures += 1
            wait = min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(entry.failures - 1, DOUBLINGS)) * random.uniform(0.8, 1.2)
            wait = max(wait, getattr(error, "retry_after", 0.0))
            log.warning("%s: %s; again in %.1f s", key, error, wait, exc_info=not hasattr(error, "status"))
            return wait
        entry.failures = 0
        return delay


def _now() -> float:
    return asyncio.get_running_loop().time()
