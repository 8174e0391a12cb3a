"""A GitOps controller's apply loop and Argo CD's Promote against the operator's process on a real API server."""

import json
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from deployed import SPEC, Deployed, Stage
from operator_process import OperatorProcess
from puppet_nodes import PuppetNode
from specfleet.api import names
from traffic import Traffic

CRD = Path(__file__).parents[2] / "crds" / "specfleet.dev_specdecodedeployments.yaml"
NAMESPACE = "gitops"
MANAGER = "kustomize-controller"
PERIOD = 2.0  # seconds between two applies

pytestmark = pytest.mark.apiserver


class Git:
    """A manifest that is applied on the server's side, by force, as Flux and Argo CD do."""

    def __init__(self, fleet, length):
        self.fleet, self.applies = fleet, 0
        self.spec = json.loads(json.dumps(SPEC))
        self.spec["rollout"]["steps"] = [{"weight": 50, "minSeconds": 3600}]  # nothing but an order goes on
        self.commit(length)

    def commit(self, length):
        self.spec["speculation"]["numSpeculativeTokens"] = length
        self.apply()

    def apply(self):
        meta = {"name": self.fleet.name, "labels": {"app.kubernetes.io/part-of": "chat"}}
        manifest = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "spec": self.spec}
        how = ("--server-side", "--force-conflicts", f"--field-manager={MANAGER}")
        self.fleet.kubectl("apply", *how, "-f", "-", input=json.dumps(manifest))
        self.applies += 1

    def until(self, what, seconds, done):
        """Apply every period until `done()`."""
        for _ in range(int(seconds / PERIOD)):
            self.apply()
            if done():
                return
            self.fleet.stage.stopped.wait(PERIOD)
        self.fleet.until(what, 0, done)


@pytest.fixture
def fleet(control_plane, tmp_path):
    control_plane.kubectl("apply", "-f", str(CRD))
    control_plane.kubectl("wait", "--for=condition=Established", "-f", str(CRD), "--timeout=30s")
    control_plane.kubectl("create", "namespace", NAMESPACE)
    control_plane.kubectl("wait", "--for=create", "serviceaccount/default", "-n", NAMESPACE, "--timeout=30s")
    with ExitStack() as stack:
        node = stack.enter_context(PuppetNode(control_plane, tmp_path))
        traffic = stack.enter_context(Traffic(node.endpoints))
        stage = Stage(control_plane, node, traffic, threading.Event(), stack.enter_context(ExitStack()))
        stack.callback(stage.stopped.set)
        yield Deployed(stage, stack.enter_context(OperatorProcess(control_plane, NAMESPACE, tmp_path)), "qwen")
    control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def written(fleet):
    """When each manager last changed something of the SDD, by manager and subresource."""
    managed = fleet.get(names.KIND)["metadata"]["managedFields"]
    return {(item["manager"], item.get("subresource", "")): item["time"] for item in managed}


def generation(fleet):
    return fleet.get(names.KIND)["metadata"]["generation"]


def test_an_apply_loop_fights_nobody_and_an_order_by_argo_cd_outlives_it(fleet, argo, scripts):
    git = Git(fleet, 3)
    before = fleet.until_stable()
    flow = fleet.send(rate=4)
    git.commit(5)
    committed, when = generation(fleet), written(fleet)[MANAGER, ""]

    git.until("traffic for both", 60, lambda: fleet.selected is None)
    git.until("dwelling", 30, lambda: fleet.condition("Ready")[1] == "CanaryDwelling")
    for _ in range(3):
        git.apply()

    assert generation(fleet) == committed
    assert set(written(fleet)) == {(MANAGER, ""), (names.FIELD_MANAGER, "status")}
    assert written(fleet)[MANAGER, ""] == when, "the API server found nothing to change in any apply"
    assert argo.run(scripts["health"], fleet.get(names.KIND))["status"] == "Progressing"

    order = argo.act(scripts["promote"], fleet.get(names.KIND))
    patch = ("--type=merge", "--field-manager=argocd-server", "-p", json.dumps(order))
    fleet.kubectl("patch", names.SHORT_NAME, fleet.name, *patch)
    git.until("promotion", 60, lambda: fleet.stable not in ("", before))
    git.until("rest", 60, lambda: fleet.status.get("reason") == "Stable")

    assert generation(fleet) == committed + 1, "the order, and nothing since"
    assert fleet.status["lastHandledAction"]["result"] == "Honoured"
    assert fleet.status["lastHandledAction"]["id"] == order["spec"]["rollout"]["action"]["id"]
    assert fleet.get(names.KIND)["spec"]["rollout"]["action"] == order["spec"]["rollout"]["action"]
    assert argo.run(scripts["health"], fleet.get(names.KIND))["status"] == "Healthy"
    assert git.applies > 10
    assert flow.failures == []
