"""Writes down every moment at which a rollout hurts a user, or could: the invariants of a fleet, seen from outside."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fake_kube import FakeKube, matching
from specfleet.api import names
from specfleet.rollout.roles import hard
from specfleet.rollout.world import pod

Object = dict[str, Any]

PATIENCE = 20.0  # seconds for which nobody may be served although somebody could


@dataclass(slots=True)
class Watchdog:
    """Looks at one SDD. `unavailable` and `surge` are the pods that a rollout may go below and above spec.replicas."""

    kube: FakeKube
    namespace: str
    name: str
    unavailable: int = 0
    surge: int = 1
    wrongs: list[str] = field(default_factory=list)
    _whole: bool = False
    _replicas: int = 0
    _unserved_since: float | None = None
    _withdrawn: set[str] = field(default_factory=set)  # aborted revisions that have lost their weight
    _wide: bool = False
    route: str = ""  # the HTTPRoute that clients come by; empty where they use the Service

    def excuse(self) -> None:
        """Pods went for a reason that is not the operator's; capacity counts again once it was whole."""
        self._whole = False

    def look(self, now: float) -> None:
        """Note what is wrong at this instant."""
        if self.replicas() != self._replicas:
            self._replicas, self._whole = self.replicas(), False
        selected = self.selected()
        if len({revision_of(raw) for raw in selected}) > 2:
            self.wrong(f"Service {self.name} selects three revisions")
        fewest = max(min(1, self._replicas), self._replicas - self.unavailable)
        if self._whole and len(selected) < fewest:
            self.wrong(f"only {len(selected)} of at least {fewest} pods are selected")
        self._whole = len(selected) >= fewest
        self._look_for_outage(selected, now)
        if self.route:
            self._look_at_route(fewest)

    def created(self, present: int) -> None:
        """A Deployment got one more pod: so many hold a GPU now, those on their way out among them."""
        if present > self.replicas() + self.surge:
            self.wrong(f"{present} pods for {self.replicas()} replicas and a surge of {self.surge}")

    def scaled_down(self, raw: Object, running: int, drained: bool) -> None:
        """A ReplicaSet removes a pod with so many running requests; `drained`: its time to drain is over."""
        seen = pod(raw)
        if seen.taking_traffic:
            self.wrong(f"{seen.name} is removed while it serves")
        elif running and seen.ready and not drained:
            self.wrong(f"{seen.name} is removed with running requests")

    def weigh(self, probed: set[str]) -> None:
        """Something was written. A revision gets weight when all its pods are probed, and after an abort no more."""
        for record in self.kube.all("ControllerRevision"):
            self._weigh(record, probed)
        self._wide = len({revision_of(raw) for raw in self.selected()}) > 1

    def selected(self) -> list[Object]:
        """Pods that `Service <name>` sends new requests to."""
        found = [raw for service in self.weights() for raw in self.behind(service)]
        return list({raw["metadata"]["uid"]: raw for raw in found}.values())

    def behind(self, service: str) -> list[Object]:
        """Pods that a Service sends new requests to."""
        raw = self.kube.find("Service", self.namespace, service)
        if raw is None:
            return []
        chosen = matching(self.kube.all("Pod"), raw["spec"]["selector"])
        return [item for item in chosen if pod(item).taking_traffic]

    def weights(self) -> dict[str, int]:
        """The Services that clients reach, with their weights in the route."""
        if not self.route:
            return {self.name: 1}
        live = self.kube.find("HTTPRoute", self.namespace, self.route)
        return weights_of(live) if live else {}

    def replicas(self) -> int:
        """spec.replicas; 0 without an SDD."""
        sdd = self.kube.find(names.KIND, self.namespace, self.name)
        return int(sdd["spec"].get("replicas", 1)) if sdd else 0

    def wrong(self, what: str) -> None:
        """Note it, once."""
        if what not in self.wrongs:
            self.wrongs.append(what)

    def _weigh(self, record: Object, probed: set[str]) -> None:
        name, notes = record["metadata"]["name"], record["metadata"].get("annotations") or {}
        serving = [raw for raw in self._chosen(name) if pod(raw).taking_traffic]
        if hard(notes.get(names.ABORTED, "")) and name not in self._withdrawn:
            self.excuse()  # any answer of stable is better than the canary's
        if names.ABORTED not in notes:
            self._withdrawn.discard(name)
        elif not serving:
            self._withdrawn.add(name)
        if serving and name in self._withdrawn:
            self.wrong(f"{name} was aborted and gets weight again")
        if serving and not self._wide and names.PROMOTED not in notes and self._ever_stable():
            unprobed = [raw["metadata"]["name"] for raw in serving if raw["metadata"]["uid"] not in probed]
            if unprobed:
                self.wrong(f"{', '.join(unprobed)} gets weight without a probe")

    def _chosen(self, revision: str) -> Iterator[Object]:
        return (raw for raw in self.selected() if revision_of(raw) == revision)

    def _look_at_route(self, fewest: int) -> None:
        """No weight without ready pods, none that they cannot carry, and never a rule without any weight."""
        weights = self.weights()
        if self.kube.find("HTTPRoute", self.namespace, self.route) and not sum(weights.values()):
            self.wrong("the rule has no weight at all")
        if not self._whole:
            return
        for service, weight in weights.items():
            ready, asked = len(self.behind(service)), weight * fewest / sum(weights.values())
            if ready < asked - 1:
                self.wrong(f"{service} carries {weight} of {sum(weights.values())} with {ready} of {fewest} pods")

    def _look_for_outage(self, selected: list[Object], now: float) -> None:
        able = [raw for raw in self.kube.all("Pod") if pod(raw).taking_traffic and not self._aborted(revision_of(raw))]
        if selected or not able or not self._replicas or not self._ever_stable():
            self._unserved_since = None
            return
        self._unserved_since = self._unserved_since or now
        if now - self._unserved_since > PATIENCE:
            self.wrong(f"nobody serves, though {able[0]['metadata']['name']} could")

    def _aborted(self, revision: str) -> bool:
        record = self.kube.find("ControllerRevision", self.namespace, revision)
        return record is not None and names.ABORTED in (record["metadata"].get("annotations") or {})

    def _ever_stable(self) -> bool:
        records = self.kube.all("ControllerRevision")
        return any(names.PROMOTED in (record["metadata"].get("annotations") or {}) for record in records)


def revision_of(raw: Object) -> str:
    """The revision that a pod belongs to."""
    return str((raw["metadata"].get("labels") or {}).get(names.REVISION, ""))


def weights_of(route: Object) -> dict[str, int]:
    """The weights of the last rule of a route, by Service."""
    references = route["spec"]["rules"][-1].get("backendRefs", ())
    return {item["name"]: item.get("weight", 1) for item in references}
