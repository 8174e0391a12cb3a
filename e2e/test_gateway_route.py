"""The user's own HTTPRoute under constant load: only our references in one rule move, and at rest it is as applied."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from harness.crowd import Crowd, crowd, crowded
from harness.fleet import Fleet
from harness.stage import Stage

pytestmark = pytest.mark.gateway

NAME, HOST, FOREIGN = "own", "own.example.com", "painter"
GONE = 150  # seconds until pods are gone: two times the drain, and their streams
EVERY = 5.0  # seconds between two applies of the other writer


@pytest.fixture
def own(gateway_stage: Stage) -> Iterator[Fleet]:
    """A fleet behind a route of the user's, at rest."""
    stage, fleet = gateway_stage, Fleet(gateway_stage, NAME)
    objects = [*foreign(), route(stage)]
    stage.say("--- the user's own route")
    try:
        for item in objects:
            stage.apply(item)
        fleet.apply(crowded(NAME, {"route": {"name": NAME, "rule": "chat"}}, weights=(20, 50)))
        yield fleet
    finally:
        for item in objects:
            stage.kubectl("delete", item["kind"], item["metadata"]["name"], "--ignore-not-found", "--wait=false")
        fleet.remove()


def test_the_route_is_as_it_was_applied_after_a_rollout_and_after_an_abort(own: Fleet) -> None:
    stage, before = own.stage, spec_of(own)
    assert before == text(route(stage)["spec"]), "the API server has changed what was applied"
    with crowd(own, HOST) as clients:
        first, begun = own.stable(), own.second()
        second = arrival(clients, "second")
        assert spec_of(own) != before
        assert rest_of(own) == rest(route(stage)["spec"]), "only our references move"
        own.wait("a half", GONE, lambda: own.log.looks[-1].share(second) == 0.5)
        own.promote(second)
        own.wait("rest", 2 * GONE, lambda: own.settled() and not own.pods(first))
        clients.none_failed("a whole rollout by the user's route")
        clients.follows(second, begun, own.second() - 2)
        assert spec_of(own) == before
        third = arrival(clients, "third")
        own.edit({"rollout": {"action": {"type": "Abort", "revision": third, "id": third}}})
        own.wait("end of the canary", GONE, lambda: not own.pods(third))
        clients.none_failed("an abort by the user's route")
        assert spec_of(own) == before
        assert own.log.most <= 3


def test_whoever_applies_the_route_again_and_again_is_named(own: Fleet) -> None:
    stage, before = own.stage, spec_of(own)
    with crowd(own, HOST) as clients, applied_again(own, lambda: stage.apply(route(stage))):
        first = own.stable()
        own.edit({"restart": "second"})
        own.wait("word of it", 180, lambda: own.status().get("reason") == "RouteContested")
        stalled = next(item for item in own.status()["conditions"] if item["type"] == "Stalled")
        assert (stalled["status"], stalled["reason"]) == ("True", "RouteContested")
        assert "kubectl-client-side-apply" in stalled["message"]
        own.wait("the route as it was applied", 20, lambda: spec_of(own) == before)
        clients.none_failed("another writer")
        assert own.stable() == first


def arrival(clients: Crowd, restart: str) -> str:
    """A new revision gets its first requests."""
    return clients.fleet.canary({"restart": restart}, GONE)


@contextmanager
def applied_again(fleet: Fleet, apply: Callable[[], None]) -> Iterator[None]:
    """Another writer, as a GitOps controller without server-side apply is."""
    over = threading.Event()

    def write() -> None:
        while not over.wait(EVERY):
            apply()

    writer = threading.Thread(target=write, name="other writer")
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


def text(spec: Any) -> str:
    return json.dumps(spec, sort_keys=True)


def live(fleet: Fleet) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(fleet.stage.kubectl("get", "httproute", NAME, "-o", "json"))
    return found


def spec_of(fleet: Fleet) -> str:
    """What the API server tells, byte for byte but for the order of keys."""
    return text(live(fleet)["spec"])


def rest(spec: dict[str, Any]) -> str:
    """All but the references of the rule that is ours."""
    return text({**spec, "rules": [spec["rules"][0], {**spec["rules"][1], "backendRefs": None}]})


def rest_of(fleet: Fleet) -> str:
    return rest(live(fleet)["spec"])


def foreign() -> list[dict[str, Any]]:
    """Somebody else's Service, which another rule of the route leads to."""
    ports = [{"name": "http", "port": 80, "targetPort": 8000}]
    probe = {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 1}
    serve = ["serve", "Qwen/Qwen3-8B", "--port=8000"]
    container = {"name": "vllm", "image": "specfleet.dev/vllm-sim:v0.32.0", "args": serve, "readinessProbe": probe}
    template = {"metadata": {"labels": {"app": FOREIGN}}, "spec": {"containers": [container]}}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": FOREIGN},
            "spec": {"selector": {"matchLabels": {"app": FOREIGN}}, "template": template},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": FOREIGN},
            "spec": {"selector": {"app": FOREIGN}, "ports": ports},
        },
    ]


def route(stage: Stage) -> dict[str, Any]:
    """The route with every default written out, as it is then stored."""
    assert stage.gateway is not None
    parent = {"group": "gateway.networking.k8s.io", "kind": "Gateway", **stage.gateway.parent}
    set_header = {"set": [{"name": "x-from", "value": "the-route"}]}
    rules = [
        {
            "name": "images",
            "matches": [{"path": {"type": "PathPrefix", "value": "/images"}}],
            "backendRefs": [reference(FOREIGN, 80)],
        },
        {
            "name": "chat",
            "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
            "filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": set_header}],
            "backendRefs": [reference(NAME, 8000)],
            "timeouts": {"request": "0s"},
        },
    ]
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        # The label is for the witness.
        "metadata": {"name": NAME, "labels": {"specfleet.dev/deployment": NAME}},
        "spec": {"parentRefs": [parent], "hostnames": [HOST], "rules": rules},
    }


def reference(service: str, port: int) -> dict[str, Any]:
    return {"group": "", "kind": "Service", "name": service, "port": port, "weight": 1}
