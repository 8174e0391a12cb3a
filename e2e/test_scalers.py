"""An autoscaler that owns `spec.replicas`, in the middle of a canary."""

import json
from typing import Any

from harness.fleet import Fleet, NewFleet, tokens
from harness.stage import Stage

UNDECIDED = [{"weight": 33, "minSeconds": 40}]  # for as long as the scaler is at work


def test_autoscaler_mid_canary(stage: Stage, new_fleet: NewFleet) -> None:
    fleet = new_fleet("scaled", steps=UNDECIDED)
    with fleet.traffic():
        canary = fleet.canary(tokens(5))
        begun = fleet.second()
        autoscale(fleet, 4, 6)
        fleet.wait("growth", 60, lambda: sizes(fleet) == (4, 4) and serving(fleet) >= 4)
        assert selected(fleet) == {pod["metadata"]["name"] for pod in fleet.pods()}
        autoscale(fleet, 1, 2)
        fleet.wait("shrinkage", 60, lambda: sizes(fleet) == (2, 2) and serving(fleet) <= 3)
        assert fleet.stable() != canary, "it is over before the scaler is"
        shares = [round(look.share(canary), 2) for look in fleet.looks(begun)]
        stage.say(f"the canary's share went {' '.join(f'{100 * share:.0f}%' for share in shares)}")
        assert all(0 < share <= 0.5 for share in shares), "it lost its traffic, or got more than any step gives"
        fleet.promoted(canary)
        assert len(fleet.revisions()) == 2
        fleet.none_failed()


def autoscale(fleet: Fleet, least: int, most: int) -> None:
    """Metrics are not served here, but the bounds of an autoscaler hold without any."""
    target = {"apiVersion": "specfleet.dev/v1alpha1", "kind": "SpecDecodeDeployment", "name": fleet.name}
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    spec = {
        "scaleTargetRef": target,
        "minReplicas": least,
        "maxReplicas": most,
        "metrics": [{"type": "Resource", "resource": cpu}],
    }
    kind = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": fleet.name}}
    fleet.stage.apply({**kind, "spec": spec})
    fleet.stage.say(f"an autoscaler wants {least} to {most} replicas")


def scale(fleet: Fleet) -> dict[str, Any]:
    """What a scaler reads."""
    path = f"/apis/specfleet.dev/v1alpha1/namespaces/default/specdecodedeployments/{fleet.name}/scale"
    found: dict[str, Any] = json.loads(fleet.stage.kubectl("get", "--raw", path))
    return found


def sizes(fleet: Fleet) -> tuple[int, int]:
    """Wanted and present replicas, without surge."""
    seen = scale(fleet)
    return seen["spec"]["replicas"], seen["status"]["replicas"]


def selected(fleet: Fleet) -> set[str]:
    """Names of the pods whose metrics a scaler would ask for."""
    listed = fleet.stage.kubectl("get", "pods", "-l", scale(fleet)["status"]["selector"], "-o", "name")
    return {line.removeprefix("pod/") for line in listed.split()}


def serving(fleet: Fleet) -> int:
    """Pods that new connections can reach."""
    return sum(fleet.log.looks[-1].serving.values())
