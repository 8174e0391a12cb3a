"""The operator's process with a gateway on a real API server, which at first has never heard of the Gateway API."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from apiserver import define, serve
from deployed import SPEC, Deployed, Stage
from gateway_controller import GatewayController
from harness.controlplane import ControlPlane
from harness.gatewaybins import ensure_gateway_crds
from operator_process import OperatorProcess
from puppet_nodes import PuppetNode
from specfleet.api import names
from traffic import Traffic

CRD = Path(__file__).parents[2] / "crds" / "specfleet.dev_specdecodedeployments.yaml"
NAMESPACE = "gated"
KINDS = [next(ensure_gateway_crds().glob(f"*_{plural}.yaml")) for plural in ("gateways", "httproutes")]
TRAFFIC = {"gateway": {"name": "public", "namespace": "gateways"}, "hostnames": ["qwen.example.com"]}

pytestmark = pytest.mark.apiserver


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    """A control plane of its own, since the story begins without the Gateway API."""
    with ControlPlane() as plane:
        define(plane, CRD)
        plane.kubectl("create", "namespace", NAMESPACE)
        plane.kubectl("wait", "--for=create", "serviceaccount/default", "--namespace", NAMESPACE, "--timeout=30s")
        yield plane


@pytest.fixture
def stage(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Stage]:
    """A puppet node, and requests to whatever Services are behind a route."""
    with ExitStack() as stack:
        node = stack.enter_context(PuppetNode(control_plane, tmp_path))
        gateway = GatewayController(control_plane, node.endpoints)
        traffic = stack.enter_context(Traffic(gateway.endpoints))
        yield Stage(control_plane, node, traffic, threading.Event(), stack.enter_context(ExitStack()), gateway)


def test_a_cluster_learns_the_gateway_api_and_a_canary_is_promoted_by_a_route(stage: Stage, tmp_path: Path) -> None:
    with OperatorProcess(stage.plane, NAMESPACE, tmp_path, "--resync-seconds=2") as operator:
        plain, gated = Deployed(stage, operator, "plain"), Deployed(stage, operator, "qwen")
        plain.create()
        gated.create(traffic=TRAFFIC, rollout={**SPEC["rollout"], "steps": [{"weight": 40}]}, replicas=2)
        plain.until_stable()
        without_the_gateway_api(stage, gated)
        before = {fleet: fleet.pods() for fleet in (plain, gated)}

        serve(stage.plane, *KINDS)

        assert "ended with code 1" in operator.ended(30), operator.log_end()
        assert "the Gateway API has been installed" in operator.log
        operator.start()
        gated.until("RouteNotAccepted", 60, lambda: gated.condition("Ready")[1] == "RouteNotAccepted")
        assert weights(gated) == {"qwen": 1}
        assert stage.gateway
        with stage.gateway:
            gated.until_stable()
            assert {fleet: fleet.pods() for fleet in (plain, gated)} == before, "nobody was restarted"
            a_canary_is_promoted(gated)
        managers = {item["manager"] for item in gated.get("HTTPRoute")["metadata"]["managedFields"]}
        assert managers == {names.FIELD_MANAGER, "gateway"}


def without_the_gateway_api(stage: Stage, gated: Deployed) -> None:
    gated.until("GatewayNotFound", 60, lambda: gated.condition("Stalled") == ("True", "GatewayNotFound"))
    assert gated.status["message"] == "the Gateway API is not installed"
    gated.until("pods all the same", 30, lambda: len(stage.node.endpoints(NAMESPACE, "qwen")) == 2)


def a_canary_is_promoted(fleet: Deployed) -> None:
    stable, old, flow = fleet.stable, fleet.pods(), fleet.send(rate=8)

    fleet.edit(speculation={"numSpeculativeTokens": 5}, rollout={"steps": [{"weight": 40, "minSeconds": 0}]})

    fleet.until("a weight", 60, lambda: any(weight for name, weight in weights(fleet).items() if name != "qwen"))
    canary = next(name for name in weights(fleet) if name != "qwen")
    assert fleet.stable == stable
    assert 0 < weights(fleet)[canary] <= 40
    fleet.until("answers of the canary", 30, lambda: flow.by(fleet.pods(canary)) > 0)
    fleet.until("promotion", 120, lambda: fleet.stable == canary)
    fleet.until_stable()
    at_rest, new = time.monotonic(), fleet.pods()
    fleet.until("answers at rest", 30, lambda: flow.by(new, at_rest) >= 10)
    assert weights(fleet) == {"qwen": 1}, "as before"
    assert flow.failures == []
    assert not new & old
    assert flow.by(old, at_rest + 1) == 0


def weights(fleet: Deployed) -> dict[str, int]:
    (rule,) = fleet.get("HTTPRoute")["spec"]["rules"]
    return {item["name"]: item["weight"] for item in rule["backendRefs"]}
