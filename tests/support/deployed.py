"""One SpecDecodeDeployment on a real API server: what its user does with kubectl, and what can be seen from outside."""

import json
import re
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from gateway_controller import GatewayController
from harness.controlplane import ControlPlane
from harness.manifest import manifest
from kube_http import KubeHttp, Object
from operator_process import OperatorProcess
from puppet_nodes import PuppetNode
from specfleet.api import names
from specfleet.controller.protocol import CHILDREN, RESOURCES
from specfleet.resources.evidence import read_evidence
from specfleet.telemetry.evidence import from_json
from traffic import Flow, Traffic

POSITION = re.compile(r'position="(\d+)"')
COUNTER = re.compile(r"^vllm:(\w+)(?:\{.*\})? (\S+)$", re.MULTILINE)
# A few short blocks on a busy machine prove little: with the widest margins that is enough.
ANALYSIS = {
    "scrapeSeconds": 1,
    "blockSeconds": 2,
    "maxSeconds": 240,
    "margins": {"speedPercent": 50, "errorPoints": 50},
}
STEPS = [{"weight": 50, "minSeconds": 0}]
SPEC: dict[str, Any] = {
    **manifest("", replicas=1, pod={"drainSeconds": 10}, steps=STEPS, retainSeconds=2, analysis=ANALYSIS)["spec"],
    "accelerator": {"count": 1},
}


class Stopped(Exception):
    """The tests are over before the story is."""


@dataclass(frozen=True)
class Stage:
    """What stories have in common. `stopped` ends them early; `closing` is closed when all have ended;
    `gateway` is the one that requests come by, where they do not come by Services."""

    plane: ControlPlane
    node: PuppetNode
    traffic: Traffic
    stopped: threading.Event
    closing: ExitStack
    gateway: GatewayController | None = None


class Deployed:
    """An SDD in the namespace of its operator; for one thread."""

    def __init__(self, stage: Stage, operator: OperatorProcess, name: str) -> None:
        self.stage, self.operator, self.name = stage, operator, name
        self.namespace = operator.namespace
        self._kube = stage.closing.enter_context(KubeHttp(stage.plane))

    # What a user does.

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        """kubectl in the namespace."""
        return self.stage.plane.kubectl("--namespace", self.namespace, *arguments, input=input)

    def create(self, **spec: Any) -> None:
        """Create it, with these parts of the spec in place of the usual ones."""
        self.create_object({"apiVersion": names.API_VERSION, "kind": names.KIND, "spec": {**deepcopy(SPEC), **spec}})

    def create_object(self, raw: Object) -> None:
        """Create any object under its name."""
        self.kubectl("create", "-f", "-", input=json.dumps({**raw, "metadata": {"name": self.name}}))

    def edit(self, **spec: Any) -> None:
        """A merge patch of the spec."""
        self.kubectl("patch", names.SHORT_NAME, self.name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def send(self, rate: float) -> Flow:
        """Send requests to `Service <name>` from now on."""
        return self.stage.traffic.start(self.namespace, self.name, rate)

    # What is there.

    def get(self, kind: str, name: str = "") -> Object:
        """An object of the namespace, by default the one that is named as the SDD; empty if there is none."""
        resource = RESOURCES[kind]
        return self._kube.get(f"{resource.root}/namespaces/{self.namespace}/{resource.plural}/{name or self.name}")

    def items(self, kind: str) -> list[Object]:
        """Its objects of a kind."""
        resource = RESOURCES[kind]
        path = f"{resource.root}/namespaces/{self.namespace}/{resource.plural}"
        return self._kube.items(f"{path}?labelSelector={names.DEPLOYMENT}={self.name}")

    def children(self) -> list[str]:
        """Everything that belongs to it, as kind/name."""
        return [f"{item.kind}/{raw['metadata']['name']}" for item in CHILDREN for raw in self.items(item.kind)]

    def gone(self) -> bool:
        """Neither it nor anything that belongs to it is there."""
        return not self.get(names.KIND) and not self.children()

    @property
    def status(self) -> Object:
        """Its status, empty before there is one."""
        found: Object = self.get(names.KIND).get("status") or {}
        return found

    def condition(self, kind: str) -> tuple[str, str]:
        """(status, reason) of one of its conditions, empty before there is one."""
        found = [item for item in self.status.get("conditions") or () if item["type"] == kind]
        return (found[0]["status"], found[0]["reason"]) if found else ("", "")

    @property
    def selected(self) -> str | None:
        """The revision that `Service <name>` selects; None when that is every one, empty when there is no Service."""
        service = self.get("Service")
        return service["spec"]["selector"].get(names.REVISION) if service else ""

    @property
    def revisions(self) -> dict[int, str]:
        """Names of its revisions by number."""
        return {raw["revision"]: raw["metadata"]["name"] for raw in self.items("ControllerRevision")}

    @property
    def stable(self) -> str:
        """The revision that was promoted last, by the annotations of the ControllerRevisions."""
        numbers = {
            raw["metadata"]["name"]: int(raw["metadata"]["annotations"].get(names.PROMOTED, "0").split()[0])
            for raw in self.items("ControllerRevision")
        }
        last = max(numbers, key=lambda name: numbers[name], default="")
        return last if numbers.get(last) else ""

    def pods(self, revision: str = "") -> set[str]:
        """Names of its pods, of one revision or of all."""
        return {
            raw["metadata"]["name"]
            for raw in self.items("Pod")
            if revision in ("", raw["metadata"]["labels"][names.REVISION])
        }

    @property
    def blocks(self) -> int | None:
        """Blocks of evidence in the ConfigMap; None where there is none, or its checksum does not hold."""
        raw = self.get("ConfigMap", names.evidence_name(self.name))
        data = read_evidence(raw) if raw else None
        return len(from_json(data["evidence"]).blocks) if data and "evidence" in data else None

    def counters(self, pod: str) -> dict[str, float]:
        """A pod's own counters, summed over labels, and how many draft positions it tells of."""
        page = self.stage.node.page(pod)
        sums: dict[str, float] = {"positions": len(set(POSITION.findall(page)))}
        for name, value in COUNTER.findall(page):
            sums[name] = sums.get(name, 0.0) + float(value)
        return sums

    # Waiting.

    def until(self, what: str, seconds: float, done: Callable[[], bool]) -> None:
        """Poll; an AssertionError with what the operator says of itself when it takes too long."""
        end = time.monotonic() + seconds
        while not done():
            self.stage.node.check()
            self.operator.check()
            if self.stage.gateway:
                self.stage.gateway.check()
            if self.stage.stopped.wait(0.2):
                raise Stopped
            if time.monotonic() > end:
                raise AssertionError(f"{self.name}: no {what} in {seconds:.0f} s: {self._tell()}")

    def until_stable(self, seconds: float = 60) -> str:
        """Wait until the newest spec is stable and all is at rest; returns the revision."""
        self.until("rest", seconds, self._at_rest)
        return self.stable

    def _at_rest(self) -> bool:
        raw = self.get(names.KIND)
        status = raw.get("status") or {}
        current = status.get("observedGeneration") == raw["metadata"]["generation"]
        return current and status.get("reason") == "Stable"

    def _tell(self) -> str:
        status = {key: value for key, value in self.status.items() if key not in ("conditions", "findings")}
        return f"{json.dumps(status, indent=1)}\n{self.children()}\n{self.operator.log_end()}"
