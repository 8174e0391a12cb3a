"""Rollouts behind a real gateway, under constant load: nobody notices a promotion, an abort, a restart or a scale."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.crowd import RATE, Crowd, Failure, crowd, crowded, pods_by_name
from harness.fleet import Fleet, is_ready, restarts
from harness.stage import PROJECT, Stage

pytestmark = pytest.mark.gateway

STEPS = (10, 33, 50)
DETECTION = 3.0  # seconds until errors are seen: two scrapes, a second each, and a pass
ENDPOINT = 6.0  # until no gateway chooses a pod that has died
GONE = 150  # until a canary is gone: two times the drain, and its streams
FEW = 30.0  # short completions a second
STILL = 30.0  # seconds without an engine step that make a canary stuck
PLOT = os.environ.get("PLOT")

NewCrowd = Callable[..., Any]  # (name, **manifest) -> context manager of a Crowd


@pytest.fixture
def new_crowd(gateway_stage: Stage, request: pytest.FixtureRequest) -> Iterator[NewCrowd]:
    """Makes fleets behind the gateway, each with a crowd; the fleets are removed after the scenario."""
    stage, gateway = gateway_stage, gateway_stage.gateway
    assert gateway is not None
    stage.say(f"--- {request.node.name.removeprefix('test_').replace('_', ' ')}")

    @contextmanager
    def make(name: str, traffic: dict[str, Any] | None = None, rate: float = RATE, **rollout: Any) -> Iterator[Crowd]:
        host = f"{name}.example.com"
        fleet = Fleet(stage, name)
        made.callback(fleet.remove)
        fleet.apply(crowded(name, {"gateway": gateway.parent, "hostnames": [host], **(traffic or {})}, **rollout))
        with crowd(fleet, host, rate) as clients:
            yield clients

    with ExitStack() as made:
        yield make


def test_short_promotion_and_abort(new_crowd: NewCrowd) -> None:
    with new_crowd("brief", replicas=1, weights=(20,)) as clients:
        erroring(clients)
        promotion(clients)
        at_most(clients, 2)


def test_rollouts_and_aborts_side_by_side(new_crowd: NewCrowd) -> None:
    with (
        new_crowd("up", weights=STEPS) as up,
        new_crowd("down", weights=(33,)) as down,
        ThreadPoolExecutor(thread_name_prefix="story") as stories,
    ):
        running = [stories.submit(rollouts, up), stories.submit(aborts, down)]
        for story in as_completed(running):
            story.result()


def test_canaries_that_are_broken_as_servers(new_crowd: NewCrowd) -> None:
    """Fewer requests than elsewhere: all that a canary has in hand while it stands still are open at the same time, and
    a gateway's default limit for that is soon reached."""
    with new_crowd("broken", rate=FEW, weights=(33,)) as clients:
        incorrect(clients)
        stuck(clients)
        dead(clients)
        at_most(clients, 3)


def rollouts(clients: Crowd) -> None:
    """A whole rollout in which the operator is killed and the fleet scaled, and then its undo."""
    fleet, first = clients.fleet, clients.fleet.stable()
    begun = fleet.second()
    second = arrival(clients, "second")
    killed_operator(clients, second)
    fleet.wait("a third", 120, lambda: share(fleet, second) >= 0.33)
    fleet.wait("a half", 150, lambda: share(fleet, second) == 0.5)
    time.sleep(5)
    clients.none_failed("half of the way")
    at_most(clients, 3)
    scaled(clients, second)
    fleet.promote(second)
    fleet.wait("rest", 2 * GONE, lambda: fleet.settled() and not fleet.pods(first))
    clients.none_failed("a whole rollout")
    plotted(clients, clients.follows(second, begun, fleet.second() - 2))
    begun = fleet.second()
    undone(clients, first, second)
    clients.follows(first, begun, fleet.second() - 2)


def aborts(clients: Crowd) -> None:
    """A third revision in the middle, canaries that do not accept, fail and are slow, and a stable pod that dies."""
    third_in_the_middle(clients)
    not_accepting(clients)
    erroring(clients)
    slow(clients)
    killed_stable(clients)
    at_most(clients, 3)


def arrival(clients: Crowd, restart: str) -> str:
    """A new revision gets its first requests."""
    return clients.fleet.canary({"restart": restart}, GONE)


def share(fleet: Fleet, revision: str) -> float:
    """The part of new requests that a revision gets now."""
    return fleet.log.looks[-1].share(revision)


def left(clients: Crowd, canary: str, what: str) -> None:
    """A canary is aborted and goes, and no answer of the next seconds is its."""
    fleet = clients.fleet
    fleet.wait("end of its weight", 60, lambda: not share(fleet, canary))
    since = fleet.second() + 2
    fleet.wait("its end", GONE, lambda: not fleet.pods(canary))
    clients.stage.say(f"{what}: {fleet.aborted(canary)}")
    assert fleet.share(canary, since) == 0
    assert canary not in fleet.promotions()


def promotion(clients: Crowd) -> None:
    """A canary becomes stable by a person's word, and the old pods go when their streams have ended."""
    fleet, first, begun = clients.fleet, clients.fleet.stable(), clients.fleet.second()
    second = arrival(clients, "promoted")
    time.sleep(5)
    fleet.promote(second)
    fleet.wait("rest", 2 * GONE, lambda: fleet.settled() and not fleet.pods(first))
    clients.none_failed("a promotion")
    clients.follows(second, begun, fleet.second() - 2)


def killed_operator(clients: Crowd, canary: str) -> None:
    """kill -9 of the operator: traffic stays as it is, and the rollout goes on."""
    stage, fleet = clients.stage, clients.fleet
    before, begun = restarts(stage.operator()), fleet.second()
    stage.kill(stage.operator())
    stage.wait("restart of the operator", 40, lambda: restarts(stage.operator()) > before)
    stage.wait("operator", 60, lambda: is_ready(stage.operator()))
    fleet.wait("news", 30, lambda: fleet.second() > begun + 4)
    assert share(fleet, canary) > 0
    clients.none_failed("the operator is killed")


def scaled(clients: Crowd, canary: str) -> None:
    """Up and down again in the middle of a canary."""
    stage, fleet = clients.stage, clients.fleet
    stage.kubectl("scale", "sdd", fleet.name, "--replicas=3")
    stage.wait("three ready pods", 120, lambda: len([pod for pod in fleet.pods() if is_ready(pod)]) >= 3)
    time.sleep(3)
    at_most(clients, 4)
    stage.kubectl("scale", "sdd", fleet.name, "--replicas=2")
    stage.wait("fewer pods", GONE, lambda: len(fleet.pods()) <= 3)
    assert share(fleet, canary) > 0
    clients.none_failed("scaled up and down")


def undone(clients: Crowd, first: str, second: str) -> None:
    """A person returns to the revision before."""
    fleet = clients.fleet
    fleet.edit({"rollout": {"action": {"type": "Undo", "revision": second, "id": "undo"}}})
    fleet.promoted(first, 2 * GONE)
    fleet.wait("end of the rejected pods", GONE, lambda: not fleet.pods(second))
    assert share(fleet, first) == 1
    clients.none_failed("undone")


def third_in_the_middle(clients: Crowd) -> None:
    """A third revision takes the place of a canary, and ends by the user's word."""
    fleet = clients.fleet
    second = arrival(clients, "second")
    third = arrival(clients, "third")
    assert not share(fleet, second)
    fleet.edit({"rollout": {"action": {"type": "Abort", "revision": third, "id": third}}})
    left(clients, third, "the user's abort")
    assert fleet.aborted(third).startswith("UserAborted")
    clients.none_failed("a third revision in the middle, and the user's abort")


def not_accepting(clients: Crowd) -> None:
    """Nothing of what the canary drafts is accepted any more."""
    fleet, stage = clients.fleet, clients.stage
    canary = arrival(clients, "not accepting")
    pods = fleet.pods(canary)
    stage.turn(pods, acceptance=0)
    fleet.wait("abort", 60, lambda: bool(fleet.aborted(canary)))
    stage.turn(pods, acceptance=1000)  # or its streams would last longer than any drain
    left(clients, canary, "not accepting")
    assert fleet.aborted(canary).startswith("CanaryNotAccepting")
    clients.none_failed("an abort for acceptance")


def erroring(clients: Crowd) -> None:
    """The canary answers 500. These answers are its own, and they are few."""
    fleet, stage = clients.fleet, clients.stage
    canary = arrival(clients, "erroring")
    part, pods, turned = share(fleet, canary), fleet.pods(canary), time.time()
    stage.turn(pods, errors=1)
    left(clients, canary, "errors")
    assert fleet.aborted(canary).startswith("CanaryErroring")
    own = clients.excused(
        "an abort for errors", lambda failure: failure.pod in pods_by_name(pods) and failure.kind == "http 500"
    )
    most = part * RATE * (DETECTION + 1)
    last = max(failure.time for failure in own) + 1 - turned
    stage.say(f"{len(own)} answers of the broken canary itself within {last:.1f} s; at most {most:.0f} may be")
    assert 0 < len(own) <= most


def slow(clients: Crowd) -> None:
    """The canary is slower than stable, by more than the margin."""
    fleet, stage = clients.fleet, clients.stage
    canary = arrival(clients, "slow")
    pods = fleet.pods(canary)
    stage.turn(pods, speed=0.25)
    fleet.wait("abort", 120, lambda: bool(fleet.aborted(canary)))
    stage.turn(pods, speed=0.5)  # or its streams would last longer than any drain
    left(clients, canary, "slow")
    assert fleet.aborted(canary).startswith("CanaryRegressed")
    clients.none_failed("an abort for speed")


def incorrect(clients: Crowd) -> None:
    """The canary answers nonsense from the beginning: nobody gets any of it."""
    fleet = clients.fleet
    env = fleet.spec()["engine"]["env"]
    canary = fleet.revised({"engine": {"env": [*env, {"name": "VLLM_SIM_GARBAGE", "value": "1"}]}})
    fleet.wait("abort", GONE, lambda: bool(fleet.aborted(canary)))
    assert not any(look.share(canary) for look in fleet.log.looks)
    left(clients, canary, "nonsense")
    assert fleet.aborted(canary).startswith("CanaryIncorrect")
    clients.none_failed("an abort for what it answers")
    fleet.edit({"engine": {"env": env}})


def stuck(clients: Crowd) -> None:
    """The canary's engine stands still while its server says that it is healthy. What it has in hand is its own."""
    fleet, stage = clients.fleet, clients.stage
    canary = arrival(clients, "stuck")
    pods = fleet.pods(canary)
    stage.turn(pods, hang=True)
    fleet.wait("abort", STILL + 30, lambda: bool(fleet.aborted(canary)))
    stage.turn(pods, hang=False)
    left(clients, canary, "stands still")
    assert fleet.aborted(canary).startswith("CanaryStuck")
    own = clients.excused("an abort for no progress", lambda failure: failure.pod in pods_by_name(pods))
    assert len(own) <= 0.34 * FEW * (STILL + DETECTION + 1)


def dead(clients: Crowd) -> None:
    """The canary's process dies twice. Lost is what it had in hand, and what came before its endpoint was gone."""
    fleet = clients.fleet
    canary = arrival(clients, "dead")
    (pod,) = fleet.pods(canary)
    name = pod["metadata"]["name"]
    kills = [killed_canary(clients, canary, name) for _ in range(2)]
    fleet.wait("abort", 60, lambda: bool(fleet.aborted(canary)))
    left(clients, canary, "dies")
    assert fleet.aborted(canary).startswith("CanaryDead")
    own = clients.excused("an abort for its deaths", lost_with(name, *kills))
    assert len(own) <= len(kills) * 0.34 * FEW * (ENDPOINT + 1)


def killed_canary(clients: Crowd, canary: str, name: str) -> float:
    """kill -9 of the canary's pod while it serves, until it has begun again or is given up; when that was."""
    fleet, stage = clients.fleet, clients.stage
    fleet.wait("a canary that serves", 90, lambda: share(fleet, canary) > 0 and fleet.log.pods[name].ready)
    (pod,) = fleet.pods(canary)
    before, killed = fleet.log.pods[name].restarts, time.time()
    stage.kill(pod)
    fleet.wait("its restart", 60, lambda: fleet.log.pods[name].restarts > before or bool(fleet.aborted(canary)))
    return killed


def killed_stable(clients: Crowd) -> None:
    """kill -9 of a stable pod beside a canary: what it had in hand is lost, and its part until its endpoint is gone."""
    fleet, stage = clients.fleet, clients.stage
    arrival(clients, "beside a death")
    pod = fleet.pods(fleet.stable())[0]
    name, killed = pod["metadata"]["name"], time.time()
    stage.kill(pod)
    fleet.wait("restart of the pod", 30, lambda: fleet.log.pods[name].restarts == 1)
    fleet.wait("return of the pod", 60, lambda: fleet.log.pods[name].ready and fleet.log.pods[name].serving)
    time.sleep(5)
    own = clients.excused("a stable pod is killed", lost_with(name, killed))
    kinds = {kind: sum(failure.kind == kind for failure in own) for kind in {failure.kind for failure in own}}
    stage.say(f"lost with {name}: {kinds}, the last {max((f.time for f in own), default=killed) - killed:.1f} s after")
    assert len(own) <= 0.5 * RATE * ENDPOINT


def lost_with(pod: str, *kills: float) -> Callable[[Failure], bool]:
    """Whether a request was in the pod's hands when it was killed, or sent to it while it was dead."""

    def lost(failure: Failure) -> bool:
        in_time = any(killed - 1 <= failure.time <= killed + ENDPOINT for killed in kills)
        return in_time and (failure.pod == pod or (not failure.pod and failure.kind in ("http 503", "reset")))

    return lost


def at_most(clients: Crowd, pods: int) -> None:
    """There were never more pods at a time, those that are going included."""
    assert clients.fleet.log.most <= pods, f"{clients.fleet.log.most} pods of {clients.fleet.name}"


def plotted(clients: Crowd, seconds: list[tuple[float, float]]) -> None:
    """Draw the split per second, where the environment asks for it."""
    if PLOT:
        from harness.splitplot import draw

        gateway = clients.stage.gateway
        assert gateway is not None
        draw(seconds, gateway.name, Path(PROJECT) / f"docs/images/split-{gateway.name}.svg")
