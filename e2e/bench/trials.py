"""The measurements, the same for each contender: a promotion, collapses of acceptance, a canary without users."""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench import tally
from bench.arena import Answers, Arena
from bench.contenders import REPLICAS, Contender, Item
from bench.look import State
from bench.meter import Cost, Meter

QUIET_SECONDS = 120.0  # how long a canary without users is watched
SETTLE_SECONDS = 30.0  # after a promotion, for what is tidied up


@dataclass(frozen=True, slots=True)
class Promotion:
    """Times in seconds since the edit. requests and cost: until promoted; later: until SETTLE_SECONDS after that."""

    seconds: float
    requests: dict[str, int]
    later: dict[str, int]
    peak: int
    cost: Cost
    answers: Answers


def promotion(arena: Arena, one: Contender) -> Promotion:
    """From the edit until the new revision is stable, under load."""
    arena.stage.say(f"{one.name}: promotion of a longer proposal length")
    before = arena.state(one.name).stable
    with arena.traffic(one.name) as traffic:
        meter, begin = Meter(one.pids()), time.time()
        one.lengthen()
        arena.wait(one.name, "promotion", 420, lambda: _promoted(arena, one, before))
        end, cost = _since(arena, one, before, begin), meter.read()
        arena.stage.say(f"{one.name}: promoted after {end - begin:.1f} s; {cost.cpu:.2f} CPU s, {cost.peak:.0f} MB")
        time.sleep(SETTLE_SECONDS)
        answers = traffic.finish()
    arena.stage.say(f"{one.name}: {answers}")
    log = arena.stage.cluster.settings.audit_log
    requests = dict(tally.read(log, one.user, begin, end))
    later = dict(tally.read(log, one.user, begin, end + SETTLE_SECONDS))
    arena.stage.say(f"{one.name}: {tally.work(requests)} requests: {tally.told(requests)}")
    return Promotion(end - begin, requests, later, arena.peak(one.name, begin), cost, answers)


def _promoted(arena: Arena, one: Contender, before: str) -> bool:
    state = arena.state(one.name)
    return state.rest and state.stable == state.newest != before


def _since(arena: Arena, one: Contender, before: str, begin: float) -> float:
    """When the promotion was first seen."""
    seen = [look for look in arena.since(begin) if look.states[one.name].stable not in ("", before)]
    return seen[0].time


@dataclass(frozen=True, slots=True)
class Collapses:
    """Seconds from each collapse until the canary was offered to nobody, and what users got meanwhile."""

    seconds: tuple[float, ...]
    answers: Answers


def collapses(arena: Arena, one: Contender, runs: int, phase: float) -> Collapses:
    """At a quarter of the traffic the canary accepts nothing any more, at a random moment within `phase` seconds."""
    one.hold()
    found: list[float] = []
    with arena.traffic(one.name, brisk=True) as traffic:
        for run in range(1, runs + 1):
            found.append(_collapse(arena, one, run, phase))
            arena.stage.say(f"{one.name}: run {run} of {runs}: no canary traffic {found[-1]:.1f} s after the collapse")
        answers = traffic.finish()
    return Collapses(tuple(found), answers)


def _collapse(arena: Arena, one: Contender, run: int, phase: float) -> float:
    stable = arena.state(one.name).stable
    one.next(run)
    arena.wait(one.name, "a quarter of the traffic", 180, lambda: _carried(arena, one, stable) >= 2)
    canary = arena.state(one.name).newest
    time.sleep(arena.random.uniform(2.0, 2.0 + phase))
    begin = time.time()
    turned: set[str] = set()

    def gone() -> bool:
        new = [pod for pod in one.pods(canary) if _answers(pod) and pod["metadata"]["name"] not in turned]
        arena.stage.turn(new, acceptance=0)
        turned.update(pod["metadata"]["name"] for pod in new)
        return arena.emptied(one.name, canary, begin) is not None

    arena.wait(one.name, f"end of {canary}'s traffic", 120, gone)
    seconds = (arena.emptied(one.name, canary, begin) or begin) - begin
    arena.wait(one.name, "rest after the abort", 120, lambda: _recovered(arena, one, canary))
    return seconds


def _carried(arena: Arena, one: Contender, stable: str) -> int:
    state = arena.state(one.name)
    return 0 if state.newest in ("", stable) or state.aborted else arena.endpoints(one.name, state.newest)


def _answers(pod: Item) -> bool:
    conditions = {item["type"]: item["status"] for item in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def _recovered(arena: Arena, one: Contender, canary: str) -> bool:
    """Every pod is the stable revision's again, and serves."""
    look = arena.looks()[-1]
    serving = look.serving.get(one.name, {})
    return not serving.get(canary) and look.pods.get(one.name, 0) == sum(serving.values()) == REPLICAS


@dataclass(frozen=True, slots=True)
class Quiet:
    """A canary without users. said: the controller's last words about it. seconds: when it ended, None: it did not."""

    promoted: bool
    aborted: bool
    said: str
    seconds: float | None
    watched: float


def quiet(arena: Arena, one: Contender) -> Quiet:
    """A new canary while nobody sends a request to the whole deployment."""
    arena.stage.say(f"{one.name}: a canary without users")
    one.walk()
    before, begin = arena.state(one.name).stable, time.time()
    one.next(0)
    arena.wait(one.name, "canary", 60, lambda: _carried(arena, one, before) > 0)
    started = time.time()
    end = started + QUIET_SECONDS
    arena.wait(one.name, "end", QUIET_SECONDS + 9, lambda: time.time() > end or _ended(arena.state(one.name), before))
    state = arena.state(one.name)
    ended = [look.time for look in arena.since(started) if _ended(look.states[one.name], before)]
    arena.stage.say(f"{one.name}: {state}")
    seconds = ended[0] - begin if ended else None
    return Quiet(state.stable != before, state.aborted, state.said, seconds, time.time() - begin)


def _ended(state: State, before: str) -> bool:
    return state.aborted or state.stable != before
