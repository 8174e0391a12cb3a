"""A gateway around the fake cluster: it reads routes, says so in their status, and sends requests by their weights."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fake_kube import FakeKube
from specfleet.api import names
from specfleet.rollout.world import pod
from watchdog import Watchdog, manager_of, weights_of

Object = dict[str, Any]

LAG = 0.5  # seconds until the gateway has read a change of the route
CONTROLLER = "example.com/gateway"


@dataclass(slots=True)
class FakeGateway:
    """Plays the gateway's controller, its data plane and the EndpointSlice controller for one SDD.

    `late` is by how many seconds the data plane is behind what the controller says; `frozen` stops the controller;
    `unresolved` are Services that it cannot use; `ignores` makes it send everything to the first backend.
    """

    kube: FakeKube
    clock: Callable[[], float]
    watchdog: Watchdog
    late: float = 0.0
    frozen: bool = False
    ignores: bool = False
    clings: float = 0.0  # part of the requests that stays with the last backend, whatever its weight
    refuses: str = ""
    cohort: float = 0.0  # part of the requests that carry the header of a header rule
    unresolved: set[str] = field(default_factory=set)
    weights: dict[str, int] = field(default_factory=dict)  # by which requests are sent now
    headed: str = ""  # the Service that requests with the header go to
    endpoints: dict[str, list[str]] = field(default_factory=dict)  # uids of pods by Service, as the proxies know them
    _read_at: float | None = None
    writer: str = ""  # who wrote the weights by which requests are sent now
    _later: list[tuple[float, dict[str, int], str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kube.watches.append(self._heard)

    def copy_from(self, other: "FakeGateway") -> None:
        """Stand where another one stands."""
        self.late, self.frozen, self.ignores, self.refuses = other.late, other.frozen, other.ignores, other.refuses
        self.cohort, self.unresolved = other.cohort, set(other.unresolved)
        self.weights, self.headed, self.writer = dict(other.weights), other.headed, other.writer
        self.endpoints = dict(other.endpoints)
        self._read_at, self._later = other._read_at, list(other._later)

    def next_change(self) -> float | None:
        """When something will happen by itself."""
        times = [None if self.frozen else self._read_at, *(time for time, _, _ in self._later[:1])]
        return min((time for time in times if time is not None), default=None)

    def act(self) -> None:
        """What is due now."""
        now = self.clock()
        if self._read_at is not None and self._read_at <= now and not self.frozen:
            self._read_at = None
            self._read()
        while self._later and self._later[0][0] <= now:
            _, self.weights, self.writer = self._later.pop(0)

    def kick(self) -> None:
        """Let the controller look at the route again, as it does when something else that it watches has changed."""
        self._read_at = self.clock() + LAG

    def resolve(self) -> None:
        """EndpointSlices and proxies follow pods and Services."""
        services = {raw["metadata"]["name"]: raw for raw in self.kube.all("Service")}
        for gone in [raw for raw in self.kube.all("EndpointSlice") if raw["metadata"]["name"] not in services]:
            self.kube.remove("EndpointSlice", self.watchdog.namespace, gone["metadata"]["name"])
        for name, service in services.items():
            behind = self.watchdog.behind(name)
            self.endpoints[name] = [raw["metadata"]["uid"] for raw in behind]
            self._slice(name, service, [pod(raw).ip for raw in behind])

    def parts(self) -> Iterator[tuple[str, float, list[str]]]:
        """Service, its part of new requests 0..1, and the pods that they go to."""
        total = sum(self.weights.values()) or 1
        if self.headed and self.cohort:
            yield self.headed, self.cohort, self.endpoints.get(self.headed, [])
        for number, (service, weight) in enumerate(self.weights.items()):
            part = float(number == 0) if self.ignores else weight / total
            part = part * (1.0 - self.clings) + self.clings * (number == len(self.weights) - 1)
            part *= 1.0 - (self.cohort if self.headed else 0.0)
            if part and service in self.endpoints:  # other people's backends are no concern of ours
                yield service, part, self.endpoints.get(service, [])

    def _slice(self, name: str, service: Object, addresses: list[str]) -> None:
        labels = {**service["metadata"]["labels"], "kubernetes.io/service-name": name}
        endpoints = [{"addresses": [address], "conditions": {"ready": True}} for address in addresses]
        before = self.kube.find("EndpointSlice", self.watchdog.namespace, name)
        meta = {"name": name, "namespace": self.watchdog.namespace, **(before["metadata"] if before else {})}
        meta = {**meta, "labels": labels}
        if before is None or before["endpoints"] != endpoints:
            kind = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice"}
            self.kube.put({**kind, "metadata": meta, "endpoints": endpoints})

    def _heard(self, event: str, raw: Object) -> None:
        if raw["kind"] == "HTTPRoute" and raw["metadata"]["name"] == self.watchdog.route and self._read_at is None:
            self._read_at = self.clock() + LAG

    def _read(self) -> None:
        route = self.kube.find("HTTPRoute", self.watchdog.namespace, self.watchdog.route)
        if route is None:
            self.weights, self._later = {}, []
            return
        found = weights_of(route)
        first = route["spec"]["rules"][0]
        self.headed = first["backendRefs"][0]["name"] if (first.get("matches") or [{}])[0].get("headers") else ""
        if not self._later or self._later[-1][1] != found:
            self._later.append((self.clock() + self.late, found, manager_of(route)))
        status = {"parents": [self._parent(route, parent) for parent in route["spec"]["parentRefs"]]}
        if route.get("status") != status:
            self.kube.put({**route, "status": status})

    def _parent(self, route: Object, parent: Object) -> Object:
        generation = route["metadata"]["generation"]
        broken = sorted(self.unresolved & weights_of(route).keys())
        conditions = [
            _condition("Accepted", not self.refuses, self.refuses or "Accepted", generation),
            _condition("ResolvedRefs", not broken, "BackendNotFound" if broken else "ResolvedRefs", generation),
        ]
        return {"parentRef": parent, "controllerName": CONTROLLER, "conditions": conditions}


def _condition(type: str, true: bool, reason: str, generation: int) -> Object:
    status = "True" if true else "False"
    return {"type": type, "status": status, "reason": reason, "message": "", "observedGeneration": generation}


def gateway_object() -> Object:
    """The Gateway that the stories name."""
    kind = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway"}
    return {**kind, "metadata": {"name": "public", "namespace": "gateways"}, "spec": {"gatewayClassName": "fake"}}


def user_route(name: str, rules: list[Object], manager: str = "kubectl") -> Object:
    """A route of the user's own, as it lies in Git."""
    spec = {"parentRefs": [{"name": "public", "namespace": "gateways"}], "rules": rules}
    owned = [{"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {"f:rules": {}}}}]
    meta = {"name": name, "namespace": "chat", "managedFields": owned}
    return {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": meta, "spec": spec}


def backend(name: str, weight: int | None = None) -> Object:
    """A backend reference."""
    reference = {"group": "", "kind": "Service", "name": name, "port": names.PORT}
    return reference if weight is None else {**reference, "weight": weight}
