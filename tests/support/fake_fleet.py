"""A cluster around the operator: Deployments get pods, pods start and serve, and a proxy spreads requests over the
endpoints of a Service; all on a clock that only the story moves."""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from fake_gateway import FakeGateway
from fake_kube import FakeKube
from fake_vllm import Behaviour, Server
from specfleet.api import names
from specfleet.controller.probes import Answer
from specfleet.controller.telemetry import Unreachable
from specfleet.rollout.world import Pod, Raw, pod, rfc3339
from watchdog import Watchdog, revision_of

Object = dict[str, Any]

LAG = 1.0  # seconds until controllers, schedulers and proxies have heard of a change
PRESTOP = 5.0  # seconds that a pod with nothing to do takes to go
BACKOFF = 15.0  # seconds between two restarts of a container
GPU = "amd.com/gpu"
NODE = "gpu-node"  # where nobody says otherwise


@dataclass(slots=True)
class Clock:
    """Seconds since the epoch."""

    now: float = 1_767_225_600.0  # 2026-01-01T00:00:00Z

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True)
class _Life:
    """What happens to one pod, beside its object."""

    server: Server
    grace: int  # seconds from SIGTERM to SIGKILL
    ready_at: float | None = None
    crash_at: float | None = None
    gone_at: float | None = None


@dataclass(slots=True)
class FakeFleet:
    """Plays the Deployment controller, the scheduler, the kubelet and the proxy for one SDD.

    `behaviours` is by revision number; `arrivals` are requests per second; `gpus` are those of one node,
    or by node, None is plenty: a pod takes one.
    """

    kube: FakeKube
    clock: Clock
    watchdog: Watchdog
    gpus: int | Mapping[str, int] | None = None
    gateway: FakeGateway | None = None
    quota: int | None = None  # pods that the API server lets be made
    arrivals: float = 40.0
    behaviours: dict[int, Behaviour] = field(default_factory=dict)
    lost: float = 0.0  # requests that reached a pod which could not answer, and which no fault had broken
    pardons: Callable[[str], bool] = lambda _: False  # whether requests to this Service are lost by somebody else
    _served: bool = False
    _broken: set[str] = field(default_factory=set)
    _lives: dict[str, _Life] = field(default_factory=dict)
    _endpoints: list[str] = field(default_factory=list)  # uids that the proxies send requests to
    _due: float | None = None
    _pods: int = 0
    _nodes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kube.watches.append(self._heard)
        for node, count in ({NODE: self.gpus} if isinstance(self.gpus, int) else self.gpus or {}).items():
            self.plug(node, count)

    def copy_from(self, other: "FakeFleet") -> None:
        """Stand where another one stands."""
        self.behaviours, self._lives = dict(other.behaviours), deepcopy(other._lives)
        self._endpoints, self._due, self._pods = list(other._endpoints), other._due, other._pods
        self._nodes = dict(other._nodes)
        if self.gateway and other.gateway:
            self.gateway.copy_from(other.gateway)

    # Time.

    def next_change(self) -> float | None:
        """When something will happen by itself."""
        times = [self._due, self.gateway.next_change() if self.gateway else None]
        for life in self._lives.values():
            times += [life.ready_at, life.crash_at, life.gone_at]
        return min((time for time in times if time is not None), default=None)

    def advance(self, now: float) -> None:
        """Let the time pass until `now`."""
        while True:
            change = self.next_change()
            until = now if change is None else max(self.clock.now, min(now, change))
            self._flow(until - self.clock.now)
            self.clock.now = until
            if change is None or change > now:
                break
            self._act()
            self.watchdog.look(self.clock.now)
        self.watchdog.look(self.clock.now)

    # What a story does to it.

    def behave(self, number: int, how: Behaviour) -> None:
        """From now on revision `number` behaves so."""
        self.behaviours[number] = how

    def pods(self, revision: str = "") -> list[Object]:
        """Pod objects, of one revision or of all."""
        return [raw for raw in self.kube.all("Pod") if revision in ("", revision_of(raw))]

    def plug(self, node: str, gpus: int) -> None:
        """From now on a node has so many GPUs to give; what its pods hold they keep."""
        self._nodes[node] = gpus
        status = {"allocatable": {GPU: str(gpus)}}
        self.kube.put({"kind": "Node", "metadata": {"name": node, "namespace": ""}, "status": status})
        self._due = self.clock.now + LAG

    def kill(self, raw: Object) -> None:
        """The pod's node is gone, and the pod with it."""
        self._breaks(raw)
        self._remove(raw)

    def restart(self, raw: Object) -> None:
        """The pod's container exits and starts again."""
        self._breaks(raw)
        self._crash(raw, self._life(raw))

    def _breaks(self, raw: Object) -> None:
        self.watchdog.excuse()
        self._broken.add(raw["metadata"]["uid"])

    async def scrape(self, seen: Pod) -> bytes:
        """The page of a pod, as the operator asks for it."""
        raw = self.kube.find("Pod", self.watchdog.namespace, seen.name)
        if raw is None or not pod(raw).ready or self._how(raw).dark:
            raise Unreachable("connection timed out")
        return self._life(raw).server.page(self._how(raw), self.clock.now)

    async def ask(self, namespace: str, seen: Pod, payload: Raw, path: str, body: dict[str, Any]) -> Answer:
        """The answer of a pod to a probe prompt."""
        raw = self.kube.find("Pod", namespace, seen.name)
        if raw is None or not pod(raw).ready or self._how(raw).dark:
            return Answer(None, "connection timed out")
        return self._life(raw).server.reply(self._how(raw), path, body)

    # The cluster's controllers.

    def _heard(self, event: str, raw: Object) -> None:
        if raw["kind"] in ("Deployment", "Service", "Pod"):
            self._due = min(self._due or self.clock.now + LAG, self.clock.now + LAG)
        if raw["kind"] in ("Service", "ControllerRevision", "HTTPRoute"):
            self.watchdog.weigh({uid for uid, life in self._lives.items() if life.server.probed})

    def _act(self) -> None:
        now = self.clock.now
        if self._due is not None and self._due <= now:
            self._due = None
            self._endpoints = [raw["metadata"]["uid"] for raw in self.watchdog.behind(self.watchdog.name)]
            if self.gateway:
                self.gateway.resolve()
            self._deployments()
            self._schedule()
        if self.gateway:
            self.gateway.act()
        for raw in self.pods():
            self._live(raw, self._life(raw), now)

    def _deployments(self) -> None:
        deployments = {raw["metadata"]["name"]: raw for raw in self.kube.all("Deployment")}
        missing: list[Object] = []
        for name, deployment in deployments.items():
            mine = [raw for raw in self.pods(name) if not pod(raw).going]
            missing += [deployment] * (deployment["spec"]["replicas"] - len(mine))
            for raw in sorted(mine, key=_first_to_go)[: max(0, len(mine) - deployment["spec"]["replicas"])]:
                self._scale_down(raw)
        for raw in self.pods():
            if revision_of(raw) not in deployments and not pod(raw).going:
                self._end(raw)
        for deployment in missing:
            if self.quota is None or len(self.pods()) < self.quota:
                self._create(deployment)
        self._say_refused({deployment["metadata"]["name"] for deployment in missing})

    def _say_refused(self, wanting: set[str]) -> None:
        """A Deployment says so while the API server does not let its ReplicaSet make pods."""
        full = self.quota is not None and len(self.pods()) >= self.quota
        why = "pods is forbidden: exceeded quota: gpus, requested: requests.amd.com/gpu=1"
        failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": why}
        for raw in self.kube.all("Deployment"):
            name = raw["metadata"]["name"]
            here = sum(not pod(item).going for item in self.pods(name))
            said = [failure] if full and name in wanting and here < raw["spec"]["replicas"] else []
            if said != (raw.get("status") or {}).get("conditions", []):
                self.kube.put({**raw, "status": {"conditions": said}})

    def _create(self, deployment: Object) -> None:
        if self.watchdog.namespace in self.kube.terminating:
            return
        self._pods += 1
        revision = deployment["metadata"]["name"]
        meta = {
            "name": f"{revision}-{self._pods}",
            "namespace": self.watchdog.namespace,
            "labels": dict(deployment["spec"]["template"]["metadata"]["labels"]),
            "ownerReferences": [{"kind": "ReplicaSet", "name": revision, "uid": f"rs-{revision}", "controller": True}],
        }
        status = {"phase": "Pending", "conditions": []}
        raw = self.kube.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {}, "status": status})
        record = self.kube.find("ControllerRevision", self.watchdog.namespace, revision)
        length = record["data"].get("numSpeculativeTokens") if record else None
        self._lives[raw["metadata"]["uid"]] = _Life(
            Server(str(self._pods), length or None, self.clock.now),
            deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"],
        )
        self.watchdog.created(len(self.pods()))

    def _schedule(self) -> None:
        for raw in self.pods():
            if raw["spec"] or pod(raw).going:
                continue
            if (node := self._room()) is None:
                self._refuse(raw)
            else:
                self._start(raw, node)

    def _room(self) -> str | None:
        if self.gpus is None:
            return NODE
        taken = [raw["spec"].get("nodeName") for raw in self.pods()]
        return next((node for node, count in self._nodes.items() if taken.count(node) < count), None)

    def _refuse(self, raw: Object) -> None:
        if not raw["status"]["conditions"]:
            why = f"0/{len(self._nodes)} nodes are available: {len(self._nodes)} Insufficient {GPU}."
            said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
            self.kube.put({**raw, "status": {**raw["status"], "conditions": [said]}})

    def _start(self, raw: Object, node: str) -> None:
        life, how = self._life(raw), self._how(raw)
        at = self.clock.now + how.start
        life.ready_at, life.crash_at = (None, at) if how.crash else (at, None)
        address = f"10.0.0.{raw['metadata']['name'].rpartition('-')[2]}"
        container = {"name": names.CONTAINER, "restartCount": 0, "state": {"running": {}}}
        spec = {"nodeName": node, "containers": [{"resources": {"limits": {GPU: "1"}}}]}
        self._say({**raw, "spec": spec}, False, container, podIP=address, phase="Running")

    def _live(self, raw: Object, life: _Life, now: float) -> None:
        if life.gone_at is not None and life.gone_at <= now:
            self._remove(raw)
        elif life.crash_at is not None and life.crash_at <= now:
            self._crash(raw, life)
        elif life.ready_at is not None and life.ready_at <= now:
            life.ready_at = None
            self._say(raw, True, {**raw["status"]["containerStatuses"][0], "state": {"running": {}}})

    def _crash(self, raw: Object, life: _Life) -> None:
        old, how = raw["status"]["containerStatuses"][0], self._how(raw)
        restarts = old["restartCount"] + 1
        exited = {"terminated": {"reason": "Error", "exitCode": 1}}
        state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}} if how.crash else {"running": {}}
        life.server = Server(f"{life.server.seed}/{restarts}", life.server.length, self.clock.now)
        again = self.clock.now + BACKOFF + how.start
        life.ready_at, life.crash_at = (None, again) if how.crash else (again, None)
        self._say(raw, False, {**old, "restartCount": restarts, "lastState": exited, "state": state})

    def _say(self, raw: Object, ready: bool, container: Object, **status: Any) -> None:
        known = {item["type"]: item for item in raw["status"]["conditions"]}
        since = known.get("PodScheduled", {}).get("lastTransitionTime") or rfc3339(self.clock.now)
        conditions = [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": since},
            {"type": "Ready", "status": "True" if ready else "False"},
        ]
        before = (raw["status"].get("containerStatuses") or [{}])[0]
        container = {**container, "started": ready or bool(before.get("started"))}
        said = {**raw["status"], **status, "conditions": conditions, "containerStatuses": [container]}
        self.kube.put({**raw, "status": said})

    def _scale_down(self, raw: Object) -> None:
        running = self._life(raw).server.running(self._how(raw), self.clock.now)
        sdd = self.kube.find(names.KIND, self.watchdog.namespace, self.watchdog.name)
        patience = (sdd["spec"].get("pod") or {}).get("drainSeconds", 300) if sdd else 0
        since = pod(raw).draining_since
        self.watchdog.scaled_down(raw, running, since is not None and self.clock.now >= since + patience)
        self._end(raw)

    def _end(self, raw: Object) -> None:
        """SIGTERM: it leaves the endpoints, and is gone when its requests are answered."""
        life = self._life(raw)
        life.ready_at = life.crash_at = None
        life.gone_at = max(self.clock.now + PRESTOP, life.server.busy_until) if raw["spec"] else self.clock.now
        killed = rfc3339(self.clock.now + life.grace)  # the API server counts the grace period in
        self.kube.put({**raw, "metadata": {**raw["metadata"], "deletionTimestamp": killed}})

    def _remove(self, raw: Object) -> None:
        self._lives.pop(raw["metadata"]["uid"])
        self.kube.remove("Pod", self.watchdog.namespace, raw["metadata"]["name"])

    def _life(self, raw: Object) -> _Life:
        return self._lives[raw["metadata"]["uid"]]

    def _how(self, raw: Object) -> Behaviour:
        record = self.kube.find("ControllerRevision", self.watchdog.namespace, revision_of(raw))
        return self.behaviours.get(record["revision"] if record else 0, Behaviour())

    # Requests.

    def _flow(self, seconds: float) -> None:
        if seconds <= 0 or not self.arrivals:
            return
        there = {raw["metadata"]["uid"]: raw for raw in self.pods()}
        for service, part, uids in self._parts():
            self._served = self._served or bool(uids)
            if not uids and self._served:  # until then there is nothing to lose
                self._lose(service, self.arrivals * part * seconds)
            for uid in uids:
                rate, raw = self.arrivals * part / len(uids), there.get(uid)
                if raw is not None and pod(raw).ready:
                    self._life(raw).server.serve(self._how(raw), rate, self.clock.now, seconds)
                elif uid not in self._broken:
                    self._lose(service, rate * seconds)

    def _lose(self, service: str, requests: float) -> None:
        if not self.pardons(service):
            self.lost += requests

    def _parts(self) -> Iterator[tuple[str, float, list[str]]]:
        if self.gateway:
            yield from self.gateway.parts()
        elif self._endpoints:
            yield self.watchdog.name, 1.0, self._endpoints

    def shares(self) -> dict[str, int]:
        """Percent of new requests by revision, as the Service, or the route, has it now."""
        parts: dict[str, float] = {}
        weights = {service: weight for service, weight in self.watchdog.weights().items() if weight}
        for service, weight in weights.items():
            behind = [revision_of(raw) for raw in self.watchdog.behind(service)]
            for revision in behind:
                parts[revision] = parts.get(revision, 0.0) + 100 * weight / sum(weights.values()) / len(behind)
        return {revision: round(part) for revision, part in parts.items()}


def _first_to_go(raw: Object) -> tuple[bool, bool, bool, int, float, str]:
    """A ReplicaSet's order: not assigned, pending, not ready, low deletion cost, ready last, young."""
    seen = pod(raw)
    return bool(seen.node), seen.ip != "", seen.ready, seen.deletion_cost, -seen.started, raw["metadata"]["name"]
