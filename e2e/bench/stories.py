"""The stories that each contender goes through behind the gateway, under one load: what happens, and what it costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from bench import tally
from bench.arena import Arena
from bench.contenders import REPLICAS
from bench.look import Look, State
from bench.losses import Killed, Lost, counted, ended
from bench.routed import Routed, host
from harness.crowd import RATE, SHORT, STREAM, STREAMS, listed
from harness.errors import HarnessError
from harness.load import Load

WARM_SECONDS = 10.0
SECONDS = 7200.0  # of load, at most
QUARTER = 0.249  # of the requests are the canary's
PROMOTED_WITHIN, GONE_WITHIN = 900.0, 240.0
LEVEL_SECONDS = 3.0  # of the quarter, before anything happens
TAIL_SECONDS = 3.0  # after the last old pod has gone


@dataclass(frozen=True, slots=True)
class Story:
    """One promotion. Times in seconds since the edit: until the newest revision was stable, and until no other pod was
    left. requests: of the controller until promoted. outcome: "promoted" or "aborted", with the controller's words."""

    outcome: str
    seconds: float
    gone: float
    requests: dict[str, int]
    peak: int
    short: Lost
    streams: Lost


@dataclass(frozen=True, slots=True)
class Clients:
    """The two loads of one contender."""

    short: Load
    streams: Load

    def lost(self, begin: float, end: float, killed: Killed | None) -> tuple[Lost, Lost]:
        """Of short requests and of streams, what ended in [begin, end)."""
        reports = self.short.report, self.streams.report
        short, streams = (
            counted(ended(one.timeline, one.started, begin, end), listed(one), begin, end, killed) for one in reports
        )
        return short, streams


@contextmanager
def clients(arena: Arena, name: str) -> Iterator[Clients]:
    """Short completions and streams of a minute through the gateway, for as long as the context lasts."""
    stage = arena.stage
    load = partial(stage.load, name, mix="code=1", seconds=SECONDS, host=host(name), filler=0)
    with (
        load(rate=RATE, max_tokens=SHORT, stream_share=0.0) as short,
        load(rate=STREAMS, max_tokens=STREAM, stream_share=1.0, grace=1) as streams,
    ):
        stage.wait("first answers", 60, lambda: streams.started() and short.started() and short.report.answered > 0)
        time.sleep(WARM_SECONDS)
        yield Clients(short, streams)


Happening = Callable[[Arena, Routed], Killed | None]


def story(arena: Arena, one: Routed, crowd: Clients, run: str, happening: Happening | None) -> Story:
    """A promotion; something may happen when a quarter of the requests are the canary's."""
    state, begin, killed = arena.state(one.name), time.time(), None
    arena.stage.say(f"{one.title}: {run}")
    one.revise(run)
    passed = {"", state.stable, state.newest}
    if happening:
        arena.wait(one.name, "a quarter of the requests", 300, lambda: _share(arena, one) >= QUARTER)
        time.sleep(LEVEL_SECONDS)
        second = arena.state(one.name).newest
        killed = happening(arena, one)
        if killed is None:
            passed.add(second)

    def end() -> float | None:
        return ended_at(arena.since(begin), one.name, passed)

    arena.wait(one.name, "promotion", PROMOTED_WITHIN, lambda: end() is not None)
    promoted = end() or time.time()
    arena.wait(one.name, "end of the other pods", GONE_WITHIN, lambda: _alone(arena, one))
    gone = time.time()
    time.sleep(TAIL_SECONDS)
    return _told(arena, one, crowd, begin, promoted, gone, killed)


def _told(
    arena: Arena, one: Routed, crowd: Clients, begin: float, promoted: float, gone: float, killed: Killed | None
) -> Story:
    state = arena.state(one.name)
    requests = tally.read(arena.stage.cluster.settings.audit_log, one.user, begin, promoted)
    outcome = f"aborted: {state.said}" if state.aborted else "promoted"
    short, streams = crowd.lost(begin, time.time(), killed)
    peak = arena.peak(one.name, begin)
    found = Story(outcome, promoted - begin, gone - begin, dict(requests), peak, short, streams)
    arena.stage.say(f"{one.title}: {outcome} after {found.seconds:.0f} s; {tally.work(requests)} requests; {peak} pods")
    arena.stage.say(f"{one.title}: lost {short.kinds} of {short.sent}, streams {streams.kinds} of {streams.sent}")
    if killed:
        arena.stage.say(f"{one.title}: with the pod {short.killed}, streams {streams.killed}")
    return found


def _share(arena: Arena, one: Routed) -> float:
    return arena.looks()[-1].routed.get(one.name, 0.0)


def ended_at(looks: Iterable[Look], name: str, passed: Collection[str]) -> float | None:
    """When a newest revision that is not in `passed` was first seen to be stable, or aborted."""
    for look in looks:
        state = look.states.get(name, State())
        if state.newest not in passed and (state.aborted or state.stable == state.newest):
            return look.time
    return None


def _alone(arena: Arena, one: Routed) -> bool:
    """As many pods as are wanted, terminating ones included, and nothing under way."""
    look = arena.looks()[-1]
    state = look.states[one.name]
    return look.pods.get(one.name, 0) == REPLICAS and (state.rest or state.aborted)


def kill(arena: Arena, one: Routed) -> Killed:
    """kill -9 of a pod of stable."""
    pods = one.stable()
    if not pods:
        raise HarnessError(f"{one.title} has no stable pod that could be killed")
    when = time.time()
    arena.stage.kill(pods[0])
    return Killed(str(pods[0]["metadata"]["name"]), when)


def third(arena: Arena, one: Routed) -> None:
    """Another edit: the canary is no longer what is wanted."""
    one.revise("another")


STORIES: dict[str, Happening | None] = {"promotion": None, "killed": kill, "third": third}


def stories(arena: Arena, one: Routed, asked: Iterable[str]) -> dict[str, Story]:
    """Those that are asked for, one after the other."""
    found: dict[str, Story] = {}
    with clients(arena, one.name) as crowd:
        for name in asked:
            found[name] = story(arena, one, crowd, name, STORIES[name])
    return found
