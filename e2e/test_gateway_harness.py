"""The gateway of the harness without the operator: it takes a route, splits as told, and can be made to stand still."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from harness.gateway import Gateway
from harness.load import Load
from harness.stage import Stage

pytestmark = pytest.mark.gateway

HOST = "arms.example.com"
ROUTE, STABLE, CANARY = "arms", "arms-stable", "arms-canary"
ANSWERS = 400  # of which a tenth has a standard deviation of 1.5 points


class Arms:
    """Two servers, and a route that divides requests between them."""

    def __init__(self, stage: Stage) -> None:
        assert stage.gateway is not None
        self.stage, self.gateway = stage, stage.gateway

    def weigh(self, canary: int) -> int:
        """Give the canary this weight of 100; returns the route's new generation."""
        path = "/spec/rules/0/backendRefs/{}/weight"
        values = enumerate((100 - canary, canary))
        patch = [{"op": "replace", "path": path.format(index), "value": value} for index, value in values]
        told = self.stage.kubectl("patch", "httproute", ROUTE, "--type=json", "-p", json.dumps(patch), "-o", "json")
        return int(json.loads(told)["metadata"]["generation"])

    def condition(self, kind: str) -> dict[str, Any]:
        """What the gateway's controller says of the route, empty before it does."""
        route = json.loads(self.stage.kubectl("get", "httproute", ROUTE, "-o", "json"))
        ours = [p for p in route.get("status", {}).get("parents", ()) if p["controllerName"] == self.gateway.controller]
        return next((item for parent in ours for item in parent["conditions"] if item["type"] == kind), {})

    def accepted(self, generation: int) -> bool:
        """The controller has taken the route as of this generation."""
        found = self.condition("Accepted")
        return found.get("status") == "True" and found["observedGeneration"] >= generation

    def share(self, load: Load) -> float:
        """The canary's part of the next `ANSWERS` answers, none of which was asked for before now."""
        begun = len(load.report.timeline) + 2  # the report may be a second old, and an answer take another

        def answers() -> dict[str, int]:
            counts: dict[str, int] = {}
            for second in load.report.timeline[begun:]:
                for pod, number in second.pods.items():
                    counts[pod] = counts.get(pod, 0) + number
            return counts

        self.stage.wait(f"{ANSWERS} answers", 60, lambda: sum(answers().values()) >= ANSWERS)
        counts = answers()
        return sum(number for pod, number in counts.items() if pod.startswith(CANARY)) / sum(counts.values())


@pytest.fixture
def arms(gateway_stage: Stage) -> Iterator[Arms]:
    """Both servers ready, and the canary at 10 of 100."""
    made = Arms(gateway_stage)
    objects = [*_server(STABLE), *_server(CANARY), _route(made.gateway)]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    gateway_stage.kubectl("apply", "-f", "-", input=listed)
    try:
        for name in (STABLE, CANARY):
            gateway_stage.kubectl("rollout", "status", f"deploy/{name}", "--timeout=60s")
        gateway_stage.wait("accepted route", 20, lambda: made.accepted(1))
        with load(made) as first:  # Envoy may listen a moment later than the status says
            gateway_stage.wait("first answer", 20, lambda: first.started() and first.report.answered > 0)
        yield made
    finally:
        gateway_stage.kubectl("delete", "--wait=false", "-f", "-", input=listed)


def load(arms: Arms) -> Any:
    return arms.stage.load(ROUTE, rate=40, mix="chat=1", max_tokens=2, stream_share=0.2, host=HOST)


def test_split_follows_the_weights_and_no_request_fails(arms: Arms) -> None:
    with load(arms) as running:
        arms.stage.wait("first answer", 20, running.started)
        for weight in (10, 50, 0, 100, 10):
            arms.weigh(weight)
            share = arms.share(running)
            arms.stage.say(f"weight {weight}: {share:.1%} of the answers from the canary")
            assert abs(share - weight / 100) < (0.1 if 0 < weight < 100 else 1e-9)
        report = running.finish()
    assert report is not None
    assert report.answered
    assert not report.failed, report.failure_examples
    assert all(pod.startswith((STABLE, CANARY)) for pod in report.pods), "who answered is known through the gateway"


def test_frozen_controller_reads_nothing_while_envoy_serves_on(arms: Arms) -> None:
    with load(arms) as running:
        arms.stage.wait("first answer", 20, running.started)
        with arms.gateway.frozen():
            generation = arms.weigh(100)
            share = arms.share(running)
            assert share < 0.25, "Envoy follows what it was told last"
            assert not arms.accepted(generation)
        arms.stage.wait("the route as it is now", 20, lambda: arms.accepted(generation))
        assert arms.share(running) == 1
        report = running.finish()
    assert report is not None
    assert not report.failed, report.failure_examples


def _server(name: str) -> list[dict[str, Any]]:
    probe = {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 1}
    serve = ["serve", "Qwen/Qwen3-8B", "--port=8000"]
    container = {"name": "vllm", "image": "specfleet.dev/vllm-sim:v0.32.0", "args": serve, "readinessProbe": probe}
    pod = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    template = {"metadata": {"labels": {"app": name}}, "spec": pod}
    deployment = {"selector": {"matchLabels": {"app": name}}, "template": template}
    service = {"selector": {"app": name}, "ports": [{"name": "http", "port": 8000}]}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": deployment},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": service},
    ]


def _route(gateway: Gateway) -> dict[str, Any]:
    weights = ((STABLE, 90), (CANARY, 10))
    references = [{"name": name, "port": 8000, "weight": weight} for name, weight in weights]
    spec = {"parentRefs": [gateway.parent], "hostnames": [HOST], "rules": [{"backendRefs": references}]}
    kind = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute"}
    return {**kind, "metadata": {"name": ROUTE}, "spec": spec}
