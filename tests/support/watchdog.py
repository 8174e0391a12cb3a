"""Writes down every moment at which a rollout hurts a user, or could: the invariants of a fleet, seen from outside."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fake_kube import FakeKube, matching
from specfleet.api import names
from specfleet.rollout.revision import identity
from specfleet.rollout.world import pod

Object = dict[str, Any]

STRANGER = "argocd-controller"  # a manager that writes to the route: what it breaks is its own fault
HEARD = 15.0  # seconds after which an operator has heard of fewer replicas
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
    _deserted_since: float | None = None
    _withdrawn: set[str] = field(default_factory=set)  # aborted revisions that have lost their weight
    _carried: set[str] = field(default_factory=set)  # revisions that had requests at the last write
    lag: float = 0.0  # of watch events: what the operator cannot know is not its fault
    _replaced: float = 0.0  # until when pods that went by themselves get others in their place
    _more: tuple[float, int] = (0.0, 0)  # until when so many replicas may still be what the operator knows
    carries: bool = True  # whether to look for weights beyond capacity; a RouteWatch does it at each write
    route: str = ""  # the HTTPRoute that clients come by; empty where they use the Service

    def excuse(self) -> None:
        """Pods went for a reason that is not the operator's; capacity counts again once it was whole."""
        self._whole = False
        self._replaced = self.kube.clock() + HEARD

    def look(self, now: float) -> None:
        """Note what is wrong at this instant."""
        if self.replicas() != self._replicas:
            self._more = (now + HEARD, max(self._replicas, self._more[1] if now < self._more[0] else 0))
            self._replicas, self._whole = self.replicas(), False
        selected = self.selected()
        if len({revision_of(raw) for raw in selected}) > 2:
            self.wrong(f"Service {self.name} selects three revisions")
        fewest = self.fewest()
        if self._whole and len(selected) < fewest:
            self.wrong(f"only {len(selected)} of at least {fewest} pods are selected")
        self._whole = len(selected) >= fewest
        self._look_for_outage(selected, now)
        if self.route:
            self._look_at_route(fewest)
            self._look_inside(selected, now)

    def created(self, present: int) -> None:
        """A Deployment got one more pod: so many hold a GPU now, those on their way out among them."""
        if self.lag or self.kube.clock() < self._replaced:
            return  # in the place of one that is still going, or that the operator cannot have heard of
        known = self._more[1] if self.kube.clock() < self._more[0] else 0
        if present > max(self.replicas(), known) + self.surge:
            self.wrong(f"{present} pods for {self.replicas()} replicas and a surge of {self.surge}")

    def scaled_down(self, raw: Object, running: int, drained: bool) -> None:
        """A ReplicaSet removes a pod with so many running requests; `drained`: its time to drain is over."""
        seen = pod(raw)
        if seen.taking_traffic and raw["metadata"]["uid"] in {item["metadata"]["uid"] for item in self.selected()}:
            self.wrong(f"{seen.name} is removed while it serves")
        elif running and seen.ready and not drained:
            self.wrong(f"{seen.name} is removed with running requests")

    def weigh(self, probed: set[str]) -> None:
        """Something was written. A revision gets weight when all its pods are probed, and after an abort no more."""
        for record in self.kube.all("ControllerRevision"):
            self._weigh(record, probed)
        self._carried = {revision_of(raw) for raw in self.selected()}

    def selected(self) -> list[Object]:
        """Pods that `Service <name>` sends new requests to."""
        found = [raw for service, weight in self.weights().items() if weight for raw in self.behind(service)]
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

    def fewest(self) -> int:
        """Pods that must serve at any time."""
        replicas = self.replicas()
        return max(min(1, replicas), replicas - self.unavailable)

    def wrong(self, what: str) -> None:
        """Note it, once."""
        if what not in self.wrongs:
            self.wrongs.append(what)

    def _weigh(self, record: Object, probed: set[str]) -> None:
        name, notes = record["metadata"]["name"], record["metadata"].get("annotations") or {}
        serving = [raw for raw in self._chosen(name) if pod(raw).taking_traffic]
        if names.ABORTED in notes and name not in self._withdrawn:
            self.excuse()  # it may leave as soon as stable can carry the load, if with fewer pods than usual
        if names.ABORTED not in notes:
            self._withdrawn.discard(name)
        elif not serving:
            self._withdrawn.add(name)
        if serving and name in self._withdrawn and not self._by_stranger():
            self.wrong(f"{name} was aborted and gets weight again")
        if (
            serving
            and name not in self._carried
            and not self.lag
            and names.PROMOTED not in notes
            and self._ever_stable()
        ):
            unprobed = [raw["metadata"]["name"] for raw in serving if raw["metadata"]["uid"] not in probed]
            if unprobed:
                self.wrong(f"{', '.join(unprobed)} gets weight without a probe")

    def _by_stranger(self) -> bool:
        live = self.kube.find("HTTPRoute", self.namespace, self.route)
        return live is not None and manager_of(live) == STRANGER

    def _chosen(self, revision: str) -> Iterator[Object]:
        return (raw for raw in self.selected() if revision_of(raw) == revision)

    def _look_at_route(self, fewest: int) -> None:
        """No weight without ready pods, none that they cannot carry, and never a rule without any weight."""
        weights = self.weights()
        live = self.kube.find("HTTPRoute", self.namespace, self.route)
        if live is None or self._by_stranger():
            return
        if not sum(weights.values()):
            self.wrong("the rule has no weight at all")
        if not self._whole or not self.carries:
            return
        ours = {service: weight for service, weight in weights.items() if service.startswith(self.name)}
        for service, weight in ours.items():
            ready, asked = len(self.behind(service)), weight * fewest / max(1, sum(ours.values()))
            if ready < asked - 1:
                self.wrong(f"{service} carries {weight} of {sum(ours.values())} with {ready} of {fewest} pods")

    def _look_for_outage(self, selected: list[Object], now: float) -> None:
        able = [raw for raw in self.kube.all("Pod") if pod(raw).taking_traffic and self._may_serve(revision_of(raw))]
        if selected or not able or not self._replicas or not self._ever_stable() or self._closed():
            self._unserved_since = None
            return
        self._unserved_since = self._unserved_since or now
        if now - self._unserved_since > PATIENCE:
            self.wrong(f"nobody serves, though {able[0]['metadata']['name']} could")

    def _look_inside(self, selected: list[Object], now: float) -> None:
        """Callers inside the cluster use the Service, whatever the route says: they find somebody where its do."""
        if self.behind(self.name) or not selected or not self._ever_stable() or self._by_stranger():
            self._deserted_since = None
            return
        self._deserted_since = self._deserted_since or now
        if now - self._deserted_since > PATIENCE:
            self.wrong(f"nobody is behind Service {self.name}, though {selected[0]['metadata']['name']} serves")

    def _closed(self) -> bool:
        """The user's own route is not there, or sends nobody."""
        live = self.kube.find("HTTPRoute", self.namespace, self.route)
        ours = sum(weight for service, weight in self.weights().items() if service.startswith(self.name))
        gone = live is None or (manager_of(live) == STRANGER and not ours)
        return bool(self.route) and self.route != self.name and gone

    def _may_serve(self, revision: str) -> bool:
        """It was promoted, or is the current spec's, and is not aborted."""
        record = self.kube.find("ControllerRevision", self.namespace, revision)
        sdd = self.kube.find(names.KIND, self.namespace, self.name)
        if record is None or sdd is None:
            return False
        notes = record["metadata"].get("annotations") or {}
        current = names.PROMOTED in notes or notes.get(names.IDENTITY) == identity(sdd["spec"])
        return current and names.ABORTED not in notes

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


def manager_of(route: Object) -> str:
    """Who wrote the rules of a route last."""
    entries = route["metadata"].get("managedFields") or [{}]
    return str(entries[0].get("manager", ""))
