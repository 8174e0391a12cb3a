"""A gateway that is away, stands still or refuses, a rival, a cohort: each has its reason, and stable keeps serving."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from harness.crowd import crowded
from harness.fleet import Fleet, is_ready
from harness.gateway import GATEWAY, NAMESPACE
from harness.stage import Stage

pytestmark = pytest.mark.gateway

RATE = 100.0
SECONDS = 6  # of answers by which it is seen who serves
CLOSED = "closed"  # a listener that admits routes of the gateway's own namespace only

NewBehind = Callable[..., Fleet]  # (name, at_rest, rollout, **traffic)


@pytest.fixture
def behind(gateway_stage: Stage, request: pytest.FixtureRequest) -> Iterator[NewBehind]:
    """Makes fleets behind the gateway, or what was said instead of it; they are removed after the scenario."""
    stage, gateway = gateway_stage, gateway_stage.gateway
    assert gateway is not None
    stage.say(f"--- {request.node.name.removeprefix('test_').replace('_', ' ')}")

    def make(name: str, at_rest: bool = True, rollout: dict[str, Any] | None = None, **traffic: Any) -> Fleet:
        fleet = Fleet(stage, name)
        made.callback(fleet.remove)
        given = {"gateway": gateway.parent, "hostnames": [host(name)], **traffic}
        stage.apply(crowded(name, given, **(rollout or {})))
        if at_rest:
            fleet.wait("first rollout", 90, fleet.settled)
        else:
            fleet.wait("first pods", 90, lambda: bool(fleet.stable()) and all(map(is_ready, fleet.pods())))
        return fleet

    with ExitStack() as made:
        yield make


def test_without_its_gateway_stable_keeps_serving(behind: NewBehind) -> None:
    fleet = behind("absent", at_rest=False, gateway={"name": "nobody", "namespace": NAMESPACE})
    hindered(fleet, "GatewayNotFound")
    with load(fleet):
        stable_alone(fleet, edited(fleet))
        assert hindered(fleet, "GatewayNotFound")["status"] == "True"
        fleet.none_failed()


def test_a_listener_that_does_not_admit_the_namespace(gateway_stage: Stage, behind: NewBehind) -> None:
    closed = {"name": GATEWAY, "namespace": NAMESPACE, "sectionName": CLOSED}
    with closed_listener(gateway_stage):
        fleet = behind("refused", at_rest=False, gateway=closed, hostnames=["closed.example.com"])
        assert "NotAllowedByListeners" in hindered(fleet, "RouteNotAccepted")["message"]
        with load(fleet):
            stable_alone(fleet, edited(fleet))
            hindered(fleet, "RouteNotAccepted")
            fleet.none_failed()


def test_a_frozen_gateway_holds_the_canary(behind: NewBehind) -> None:
    fleet = behind("frozen")
    gateway = fleet.stage.gateway
    assert gateway is not None
    with load(fleet, host("frozen")):
        with gateway.frozen():
            canary = edited(fleet)
            fleet.wait("word of it", 60, lambda: fleet.status().get("reason") == "RouteNotAccepted")
            stable_alone(fleet, canary)
            assert "generation" in fleet.status()["message"]
        fleet.wait("canary traffic", 60, lambda: fleet.carrying(canary))
        fleet.none_failed()


def test_of_two_on_one_hostname_the_older_has_it(behind: NewBehind) -> None:
    elder = behind("elder")
    time.sleep(1.1)  # ages are told to the second
    younger = behind("younger", at_rest=False, hostnames=[host("elder")])
    with load(elder, host("elder")), younger.stage.load("younger", 20, "code=1", max_tokens=8) as inside:
        assert "elder" in hindered(younger, "RouteConflict")["message"]
        stable_alone(elder, edited(younger))
        hindered(younger, "RouteConflict")
        assert not younger.stage.items("httproutes", "younger")
        report = inside.finish()
        assert report is not None
        assert report.answered
        assert not report.failed, report.failure_examples
        assert all(pod.startswith("elder-") for pod in elder.none_failed().pods)


def test_only_its_cohort_meets_the_canary_first(behind: NewBehind) -> None:
    internal = {"name": "x-audience", "value": "internal"}
    steps = [{"cohort": "internal", "minSeconds": 15}, {"weight": 33, "minSeconds": 5}]
    fleet = behind("cohort", rollout={"steps": steps}, cohorts=[{"name": "internal", "header": internal}])
    first = fleet.stable()
    with (
        load(fleet, host("cohort")),
        fleet.stage.load(
            "cohort", RATE / 2, "code=1", 8, 0, host=host("cohort"), headers={"x-audience": "internal"}, filler=0
        ) as insiders,
    ):
        canary = edited(fleet)
        fleet.wait("the cohort's rule", 60, lambda: len(rules(fleet)) == 2)
        begun = time.time() + 2
        fleet.wait("its answers", 30, lambda: time.time() > begun + SECONDS)
        assert len(rules(fleet)) == 2, "the step is over"
        ours, theirs = fleet.report, insiders.report
        pods = fleet.seen_pods(canary)
        since = int(begun - ours.started), int(begun - theirs.started)
        assert ours.share(pods, since[0], since[0] + SECONDS - 2) == 0
        assert theirs.share(pods, since[1], since[1] + SECONDS - 2) == 1
        fleet.wait("a share for all", 60, lambda: fleet.log.looks[-1].share(canary) > 0.3 and len(rules(fleet)) == 1)
        fleet.wait("answers for all", 30, lambda: fleet.share(canary, fleet.second() - 5) > 0.1)
        report = insiders.finish()
        assert report is not None
        assert not report.failed, report.failure_examples
        assert fleet.none_failed().answered
        assert fleet.stable() == first


def test_when_the_gateway_is_deleted_the_service_goes_on(behind: NewBehind) -> None:
    """It takes the gateway from all, so nobody else may be under load."""
    fleet = behind("bereft")
    stage = fleet.stage
    told = json.loads(stage.kubectl("-n", NAMESPACE, "get", "gateway", GATEWAY, "-o", "json"))
    kept = {key: told[key] for key in ("apiVersion", "kind", "spec")}
    with load(fleet):
        stage.kubectl("-n", NAMESPACE, "delete", "gateway", GATEWAY)
        hindered(fleet, "GatewayNotFound")
        stable_alone(fleet, edited(fleet))
        hindered(fleet, "GatewayNotFound")
        stage.apply({**kept, "metadata": {"name": GATEWAY, "namespace": NAMESPACE}})
        fleet.wait("weight of the canary", 90, lambda: fleet.log.looks[-1].share(fleet.newest()) > 0)
        fleet.none_failed()


def host(name: str) -> str:
    return f"{name}.example.com"


def load(fleet: Fleet, at: str = "") -> Any:
    """Short completions, through the gateway if a host is given, else by the Service."""
    return fleet.traffic(rate=RATE, mix="code=1", max_tokens=8, stream_share=0, host=at, filler=0)


def edited(fleet: Fleet) -> str:
    """A new revision, whose pod gets ready."""
    canary = fleet.revised({"restart": "again"})
    fleet.wait("a ready canary", 60, lambda: any(map(is_ready, fleet.pods(canary))))
    return canary


def stable_alone(fleet: Fleet, canary: str) -> None:
    """For some seconds all answers are stable's."""
    begun = fleet.second() + 1
    fleet.wait("answers", 30, lambda: fleet.second() > begun + SECONDS)
    assert sum(sum(second.pods.values()) for second in fleet.report.timeline[begun:]) > SECONDS * RATE / 2
    assert fleet.share(canary, begun) == 0
    assert canary not in fleet.promotions()


def hindered(fleet: Fleet, reason: str) -> dict[str, Any]:
    """The condition Stalled, once the reason is told and stable is Ready."""
    fleet.wait(f"word of {reason}", 60, lambda: fleet.status().get("reason") == reason)
    conditions = {item["type"]: item for item in fleet.status()["conditions"]}
    assert conditions["Ready"]["status"] == "True"
    assert conditions["Ready"]["reason"] == reason
    return {**conditions["Ready"], "status": conditions["Stalled"]["status"]}


def rules(fleet: Fleet) -> list[Any]:
    found = fleet.stage.items("httproutes", fleet.name)
    return list(found[0]["spec"]["rules"]) if found else []


@contextmanager
def closed_listener(stage: Stage) -> Iterator[None]:
    """A second listener of the Gateway, at the same port."""
    gateway = stage.gateway
    assert gateway is not None
    listener = {
        "name": CLOSED,
        "protocol": "HTTP",
        "port": gateway.port,
        "hostname": "closed.example.com",
        "allowedRoutes": {"namespaces": {"from": "Same"}},
    }
    add = json.dumps([{"op": "add", "path": "/spec/listeners/-", "value": listener}])
    remove = json.dumps([{"op": "remove", "path": "/spec/listeners/1"}])
    patch = ("-n", NAMESPACE, "patch", "gateway", GATEWAY, "--type=json", "-p")
    stage.kubectl(*patch, add)
    try:
        yield
    finally:
        stage.kubectl(*patch, remove)
