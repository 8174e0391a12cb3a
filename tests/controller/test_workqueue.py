"""The work queue: once, alone, again after failures, and back when it asked to be."""

import asyncio
import itertools
from collections import Counter

from specfleet.controller.workqueue import LAST_RETRY, WorkQueue
from virtual_time import run


def test_a_key_added_many_times_before_it_runs_runs_once() -> None:
    async def story() -> int:
        ran: Counter[str] = Counter()

        async def work(key: str) -> None:
            ran[key] += 1

        queue: WorkQueue[str] = WorkQueue(work)
        for _ in range(5):
            queue.add("a")
        await asyncio.sleep(1)
        return ran["a"]

    assert run(story()) == 1


def test_a_key_never_runs_beside_itself_and_runs_again_when_added_meanwhile() -> None:
    async def story() -> tuple[int, int]:
        running, most, ran = 0, 0, 0
        queue: WorkQueue[str]

        async def work(_: str) -> None:
            nonlocal running, most, ran
            running, ran = running + 1, ran + 1
            most = max(most, running)
            await asyncio.sleep(3)
            running -= 1

        queue = WorkQueue(work)
        queue.add("a")
        await asyncio.sleep(1)
        queue.add("a")
        await asyncio.sleep(10)
        return most, ran

    assert run(story()) == (1, 2)


def test_it_comes_back_after_the_seconds_that_the_work_asked_for() -> None:
    async def story() -> list[float]:
        times: list[float] = []

        async def work(_: str) -> float | None:
            times.append(asyncio.get_running_loop().time())
            return 60.0 if len(times) < 3 else None

        queue: WorkQueue[str] = WorkQueue(work)
        queue.add("a")
        await asyncio.sleep(1000)
        return times

    assert [round(time) for time in run(story())] == [0, 60, 120]


def test_failures_are_retried_with_growing_delay_and_events_do_not_spin_them() -> None:
    async def story() -> list[float]:
        times: list[float] = []
        queue: WorkQueue[str]

        async def work(key: str) -> None:
            times.append(asyncio.get_running_loop().time())
            queue.add(key)  # as the event of what it wrote before it failed would
            raise OSError("no")

        queue = WorkQueue(work)
        queue.add("a")
        await asyncio.sleep(300)
        await queue.close()
        return times

    times = run(story())
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert 10 < len(times) < 20
    assert all(gap <= 1.2 * LAST_RETRY for gap in gaps)
    assert gaps[5] > 4 * gaps[0]


def test_a_success_forgets_the_failures_before_it() -> None:
    async def story() -> list[float]:
        times: list[float] = []

        async def work(_: str) -> float:
            times.append(asyncio.get_running_loop().time())
            if len(times) < 4:
                raise OSError("no")
            return 5.0

        queue: WorkQueue[str] = WorkQueue(work)
        queue.add("a")
        await asyncio.sleep(60)
        await queue.close()
        return times

    times = run(story())
    assert [round(later - earlier) for earlier, later in itertools.pairwise(times[3:])][:3] == [5, 5, 5]


def test_no_more_keys_run_at_a_time_than_there_are_workers() -> None:
    async def story() -> int:
        running, most = 0, 0

        async def work(_: int) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(1)
            running -= 1

        queue: WorkQueue[int] = WorkQueue(work, workers=3)
        for key in range(10):
            queue.add(key)
        await asyncio.sleep(20)
        return most

    assert run(story()) == 3


def test_what_hangs_and_what_waits_for_it_are_overdue() -> None:
    async def story() -> list[float]:
        queue: WorkQueue[str] = WorkQueue(lambda _: asyncio.sleep(1000), workers=1)
        queue.add("later", 5000)
        seen = [queue.overdue]
        for key in ("hangs", "waits"):
            queue.add(key)
            await asyncio.sleep(400)
            seen.append(queue.overdue)
        await queue.close()
        return seen

    assert [round(late) for late in run(story())] == [-5000, 400, 800]


def test_closing_ends_what_runs_and_starts_nothing_more() -> None:
    async def story() -> tuple[bool, int]:
        cancelled, ran = False, 0

        async def work(_: str) -> None:
            nonlocal cancelled, ran
            ran += 1
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                cancelled = True
                raise

        queue: WorkQueue[str] = WorkQueue(work)
        queue.add("a")
        await asyncio.sleep(1)
        await queue.close()
        queue.add("b")
        await asyncio.sleep(10)
        return cancelled, ran

    assert run(story()) == (True, 1)
