"""Writes down every moment at which the operator's hand on a route hurts somebody, or could: the invariants of traffic
through a gateway, checked at each of its writes and each change in the cluster, seen from outside."""

import json
from dataclasses import dataclass, field
from typing import Any

from fake_gateway import FakeGateway
from fake_kube import FakeKube
from specfleet.api import names
from specfleet.plan import Verb, Write
from specfleet.resources.evidence import read_evidence
from specfleet.rollout.acceptance import refused
from specfleet.rollout.roles import hard
from specfleet.rollout.world import pod, stable_of
from specfleet.telemetry.evidence import from_json
from transcript import revisions_of
from watchdog import STRANGER, Watchdog, manager_of, revision_of

Object = dict[str, Any]

STALE = 8.0  # seconds, and the lag of watches, after which the operator has heard of a pod that broke
SLOW = 40.0  # seconds by which a gateway may be behind; with more, its clients' requests are lost by it
BLOCKS = 3  # of evidence, between two steps
ROUNDED = 0.1  # of a pod, by which weights are whole percents


@dataclass(slots=True)
class RouteWatch:
    """Tells `watchdog` of what is wrong. `lag` is for how many seconds watch events are on their way now."""

    kube: FakeKube
    watchdog: Watchdog
    gateway: FakeGateway
    lag: float = 0.0
    _shares: dict[str, float] = field(default_factory=dict)  # 0..1 by revision, as the route has it
    _foreign: Any = None
    _taking: dict[str, str] = field(default_factory=dict)  # revisions of the pods that take traffic, by uid
    _broke: dict[str, float] = field(default_factory=dict)  # when a pod of a revision last went by itself
    _emptied: dict[str, float] = field(default_factory=dict)  # revisions that lost their last pod so, until when
    _changed: float = 0.0  # when somebody else last changed the route, or a gateway its mind
    _asleep: float = 0.0  # until when nobody is to serve, since spec.replicas was 0
    _late: float = 0.0  # until when the gateway is further behind than anyone can wait for
    _frozen: float | None = None
    _rollout: Object = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.watchdog.carries = False
        self.kube.watches.append(self._heard)
        self.kube.written.append(self._written)
        for raw in self.kube.all("Pod"):
            self._pod("ADDED", raw)
        self._shares, self._foreign = self._read(), self._others()

    @property
    def now(self) -> float:
        """Seconds since the epoch."""
        return self.kube.clock()

    def pardons(self, service: str) -> bool:
        """Whether what is lost on the way to this Service now is lost by an event, not by the operator."""
        self._look_at_gateway()
        revision = self._behind(service) or service
        emptied = self.now < self._emptied.get(revision, 0.0)
        by_itself = self.now < max(self._asleep, self._late) or self.gateway.writer == STRANGER
        return emptied or by_itself or hard(self._aborted(revision))

    # What changes.

    def _heard(self, event: str, raw: Object) -> None:
        kind = raw["kind"]
        self._look_at_gateway()
        if kind == "Pod":
            self._pod(event, raw)
        elif kind == names.KIND and not raw["spec"].get("replicas", 1):
            self._asleep = float("inf")
        elif kind in ("Service", "ControllerRevision") and event == "DELETED":
            self._deleted(kind, raw["metadata"]["name"])
        if kind in ("HTTPRoute", "Service", "ControllerRevision") and not self.kube.writing:
            if kind == "HTTPRoute":
                self._changed = self.now
            self._shares, self._foreign = self._read(), self._others()

    def _look_at_gateway(self) -> None:
        if not self.gateway.frozen:
            self._frozen = None
            return
        self._frozen = self._frozen or self.now
        if self.now > self._frozen + SLOW:
            self._late = self.now + SLOW

    def _pod(self, event: str, raw: Object) -> None:
        uid, revision = raw["metadata"]["uid"], revision_of(raw)
        takes = event != "DELETED" and pod(raw).taking_traffic
        took = self._taking.pop(uid, None)
        if takes:
            self._taking[uid] = revision
            self._woken(revision)
        elif took and self.kube.writing:
            self._drained(revision)
        elif took:
            self._broke[revision] = self.now
            if not self._ready(revision):
                self._emptied[revision] = float("inf")

    def _woken(self, revision: str) -> None:
        """A pod takes traffic: a moment later nobody has an excuse any more."""
        soon = self.now + STALE + self.lag
        if revision in self._emptied:
            self._emptied[revision] = min(self._emptied[revision], soon)
        if self.watchdog.replicas():
            self._asleep = min(self._asleep, soon)

    def _drained(self, revision: str) -> None:
        share, ready = self._shares.get(revision, 0.0), self._ready(revision)
        if not share or self._excused(revision):
            return
        if not ready:
            self.watchdog.wrong(f"the last pod of {revision} is drained while the route gives it requests")
        if ready < share * self.watchdog.fewest() - 1 - ROUNDED:
            self.watchdog.wrong(f"{revision} is left {ready} pods for {share:.0%} of {self.watchdog.fewest()}")

    def _deleted(self, kind: str, name: str) -> None:
        if name in self.watchdog.weights() and not self._strange():
            self.watchdog.wrong(f"{kind} {name} is deleted while the route names it")

    # What the operator writes.

    def _written(self, write: Write) -> None:
        if write.kind in ("HTTPRoute", "Service"):
            before, self._shares = self._shares, self._read()
            self._judge(before, self._shares, write)
        if write.kind == "HTTPRoute":
            others, self._foreign = self._foreign, self._others()
            if others is not None and self._foreign is not None and others != self._foreign:
                self.watchdog.wrong(f"other people's part of the route is changed: {write.why}")
        if write.name == names.evidence_name(self.watchdog.name):
            self._remembered()

    def _judge(self, before: dict[str, float], after: dict[str, float], write: Write) -> None:
        if write.kind == "HTTPRoute" and write.verb is not Verb.DELETE and not after:
            self.watchdog.wrong(f"the rule has no weight of ours any more: {write.why}")
        if not before or not self.watchdog.replicas() or any(self._excused(item) for item in {*before, *after}):
            return
        stable = stable_of(revisions_of(self.kube))
        # From an aborted one stable takes over what it can carry by the load of late, which is not seen here.
        left = any(self._aborted(revision) for revision in before)
        demand = 1 if left else min(self.watchdog.fewest(), len(self._taking))
        for revision, share in after.items():
            if share <= before.get(revision, 0.0) + 0.01:
                continue
            if self._aborted(revision) and stable is not None and revision != stable.name:
                self.watchdog.wrong(f"{revision} was aborted and its weight rises to {share:.0%}")
            if (ready := self._ready(revision)) < share * demand - ROUNDED:
                self.watchdog.wrong(f"{revision} is given {share:.0%} with {ready} pods ready of {demand} demanded")

    def _remembered(self) -> None:
        """The step of a rollout goes on only from one that was reached, accepted, and long enough."""
        live = self.kube.find("ConfigMap", self.watchdog.namespace, names.evidence_name(self.watchdog.name))
        data = (read_evidence(live) if live else None) or {}
        before, self._rollout = self._rollout, json.loads(data.get("memory", "{}")).get("rollout") or {}
        if before and before["uids"] == self._rollout.get("uids") and self._rollout["step"] != before["step"]:
            wrong = self._too_soon(before, self._rollout, data)
            if wrong:
                self.watchdog.wrong(f"step {before['step'] + 1} is left {wrong}")

    def _too_soon(self, before: Object, after: Object, data: Object) -> str:
        spec = self.kube.find(names.KIND, self.watchdog.namespace, self.watchdog.name)["spec"]
        step = spec["rollout"]["steps"][before["step"]]
        if after["step"] != before["step"] + 1:
            return "by more than one"
        if before["reached"] is None or self.now < before["reached"] + step["minSeconds"]:
            return "before its time"
        if spec.get("paused") and not before["ordered"]:
            return "in a pause"
        blocks = from_json(data["evidence"]).seen if "evidence" in data else 0
        if "weight" in step and blocks - before["blocks_before"] < BLOCKS:
            return "without evidence"
        return self._not_in_force(before["canary"], step)

    def _not_in_force(self, canary: str, step: Object) -> str:
        route = self.kube.find("HTTPRoute", self.watchdog.namespace, self.watchdog.route)
        if route is None or self._excused(canary) or self.now <= self._changed + STALE + self.lag:
            return ""
        if note := refused(route):
            return f"while the route is not in force: {note.message}"
        able = 100 * self._ready(canary) / max(1, len(self._taking))
        share = 100 * self._shares.get(canary, 0.0)
        return f"at {share:.0f}%" if share < min(step.get("weight", 0), able) - 1 else ""

    # What is there.

    def _read(self) -> dict[str, float]:
        """The part of our requests that the route gives each revision, of those that get any."""
        parts: dict[str, float] = {}
        for service, weight in self.watchdog.weights().items():
            revision = self._behind(service)
            if revision and weight:
                parts[revision] = parts.get(revision, 0.0) + weight
        total = sum(parts.values())
        return {revision: part / total for revision, part in parts.items()}

    def _behind(self, service: str) -> str:
        """The revision that one of our Services leads to; empty where it is somebody else's."""
        name = self.watchdog.name
        raw = self.kube.find("Service", self.watchdog.namespace, service)
        if raw is not None:
            return str(raw["spec"]["selector"].get(names.REVISION, ""))
        return service if service.startswith(f"{name}-") else ""

    def _others(self) -> Any:
        """All of the route that is not ours: everything but the operator's references in one rule of it."""
        route = self.kube.find("HTTPRoute", self.watchdog.namespace, self.watchdog.route)
        if route is None:
            return None
        rules = route["spec"]["rules"]
        theirs = [{**rules[-1], "backendRefs": [item for item in rules[-1]["backendRefs"] if not self._ours(item)]}]
        if self.watchdog.route == self.watchdog.name:  # the rules are all ours
            rules, theirs = [], []
        meta = {key: route["metadata"].get(key) for key in ("labels", "annotations", "ownerReferences")}
        return [meta, {**route["spec"], "rules": [*rules[:-1], *theirs]}, route.get("status")]

    def _ours(self, reference: Object) -> bool:
        return reference["name"] == self.watchdog.name or reference["name"].startswith(f"{self.watchdog.name}-")

    def _ready(self, revision: str) -> int:
        return sum(known == revision for known in self._taking.values())

    def _aborted(self, revision: str) -> str:
        record = self.kube.find("ControllerRevision", self.watchdog.namespace, revision)
        return ((record["metadata"].get("annotations") or {}) if record else {}).get(names.ABORTED, "")

    def _strange(self) -> bool:
        """Somebody else wrote the route last, or so lately that the operator may not know."""
        route = self.kube.find("HTTPRoute", self.watchdog.namespace, self.watchdog.route)
        recently = self.now <= self._changed + STALE + self.lag
        return route is None or manager_of(route) == STRANGER or (recently and self.gateway.writer == STRANGER)

    def _excused(self, revision: str) -> bool:
        """Pods of it broke so lately that the operator may not know, it answers wrongly, or nobody is to serve."""
        lately = self.now <= self._broke.get(revision, float("-inf")) + STALE + self.lag
        return lately or self.now < self._asleep or self._strange() or hard(self._aborted(revision))
