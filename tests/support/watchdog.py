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
        service = self._service()
        self._wide = service is not None and names.REVISION not in service["spec"]["selector"]

    def selected(self) -> list[Object]:
        """Pods that `Service <name>` sends new requests to."""
        service = self._service()
        if service is None:
            return []
        pods = self.kube.all("Pod")
        return [raw for raw in matching(pods, service["spec"]["selector"]) if pod(raw).taking_traffic]

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
        service = self._service()
        if service is None or service["spec"]["selector"].get(names.REVISION, revision) != revision:
            return iter(())
        return (raw for raw in self.kube.all("Pod") if revision_of(raw) == revision)

    def _look_for_outage(self, selected: list[Object], now: float) -> None:
        able = [raw for raw in self.kube.all("Pod") if pod(raw).taking_traffic and not self._aborted(revision_of(raw))]
        if selected or not able or not self._replicas or not self._ever_stable():
            self._unserved_since = None
            return
        self._unserved_since = self._unserved_since or now
        if now - self._unserved_since > PATIENCE:
            self.wrong(f"nobody serves, though {able[0]['metadata']['name']} could")

    def _service(self) -> Object | None:
        return self.kube.find("Service", self.namespace, self.name)

    def _aborted(self, revision: str) -> bool:
        record = self.kube.find("ControllerRevision", self.namespace, revision)
        return record is not None and names.ABORTED in (record["metadata"].get("annotations") or {})

    def _ever_stable(self) -> bool:
        records = self.kube.all("ControllerRevision")
        return any(names.PROMOTED in (record["metadata"].get("annotations") or {}) for record in records)


def revision_of(raw: Object) -> str:
    """The revision that a pod belongs to."""
    return str((raw["metadata"].get("labels") or {}).get(names.REVISION, ""))
