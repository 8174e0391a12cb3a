"""What a node that loses its device plugin means for a canary in the middle of its steps, and for those it serves."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from harness.fleet import NewFleet, is_ready, tokens
from harness.stage import Stage

STEPS = [{"weight": 25, "minSeconds": 15}, {"weight": 50, "minSeconds": 5}]


def allocatable(stage: Stage) -> int:
    (node,) = json.loads(stage.kubectl("get", "nodes", "-o", "json"))["items"]
    return int(node["status"]["allocatable"].get("amd.com/gpu", 0))


@contextmanager
def reads_nodes(stage: Stage) -> Iterator[None]:
    """For as long as the context lasts the operator may read nodes."""
    stage.install({"nodes.read": "true"})
    try:
        yield
    finally:
        stage.install({"nodes.read": "false"})


def test_device_plugin_gone_mid_canary(stage: Stage, new_fleet: NewFleet) -> None:
    """The step waits and says which node; nobody loses a pod, an answer or a share; when it is back, all goes on."""
    with reads_nodes(stage):
        fleet = new_fleet("unplugged", replicas=3, steps=STEPS)
        with fleet.traffic():
            canary = fleet.canary(tokens(5))
            lives, begun = fleet.lives(), fleet.second()
            with stage.cluster.unplugged():
                stage.wait("node without GPUs", 40, lambda: not allocatable(stage))
                stage.say("the device plugin is gone: no GPU is allocatable")
                fleet.wait("wait for GPUs", 60, lambda: fleet.status().get("reason") == "WaitingForGPUs")
                time.sleep(5)
                message, back = fleet.status()["message"], fleet.second()
                assert f"node {stage.cluster.node} has lost its amd.com/gpu: 4 in use, 0 allocatable" in message
                assert fleet.lives() == lives
                assert all(map(is_ready, fleet.pods()))
                assert {round(look.share(canary), 2) for look in fleet.looks(begun)} == {0.25}
                assert 0.05 < fleet.share(canary, begun, back) < 0.5
            stage.wait("its GPUs again", 40, lambda: allocatable(stage) == 8)
            fleet.promoted(canary, 180)
            assert not fleet.aborted(canary)
            fleet.none_failed()
