"""A gateway for a real API server: it says of each HTTPRoute that it has read it, and sends requests by its weights."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

from harness.controlplane import ControlPlane
from kube_http import MERGE, KubeHttp, Object
from puppet_nodes import Endpoint
from specfleet.api import names
from specfleet.rollout.world import rfc3339

ROUTES = "/apis/gateway.networking.k8s.io/v1/httproutes"
SLICES = "/apis/discovery.k8s.io/v1"
CONTROLLER = "example.com/gateway"
LOOK_SECONDS = 0.2
SLOTS = 20  # into which requests are divided: parts of 5 percent
NOBODY = Endpoint("", "127.255.255.254")  # what a backend without endpoints gives: no answer


class GatewayController:
    """Plays the EndpointSlice controller too, in a thread, until the context ends. `endpoints` are those of a Service,
    as a proxy knows them."""

    def __init__(self, plane: ControlPlane, endpoints: Callable[[str, str], Sequence[Endpoint]]) -> None:
        self._plane, self._endpoints = plane, endpoints
        self._weights: Mapping[tuple[str, str], Mapping[str, int]] = {}
        self._slices: dict[tuple[str, str], list[Object]] = {}
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raise if it has failed."""
        if self._error:
            raise RuntimeError("the gateway has failed") from self._error

    def endpoints(self, namespace: str, route: str) -> Sequence[Endpoint]:
        """Where the next SLOTS requests of the last rule of a route go, in order; empty while there is none."""
        weights = self._weights.get((namespace, route))
        return list(self._divided(namespace, weights)) if weights else ()

    def _divided(self, namespace: str, weights: Mapping[str, int]) -> Iterator[Endpoint]:
        """Smooth weighted round robin."""
        credit = dict.fromkeys(weights, 0)
        turns = dict.fromkeys(weights, int(time.monotonic()))
        for _ in range(SLOTS):
            credit = {name: have + weights[name] for name, have in credit.items()}
            name = max(credit, key=lambda name: credit[name])
            credit[name] -= sum(weights.values())
            found = self._endpoints(namespace, name)
            turns[name] += 1
            yield found[turns[name] % len(found)] if found else NOBODY

    def _run(self) -> None:
        try:
            with KubeHttp(self._plane) as kube:
                while not self._stop.wait(LOOK_SECONDS):
                    self._look(kube)
        except BaseException as error:
            self._error = error

    def _look(self, kube: KubeHttp) -> None:
        for service in kube.items(f"/api/v1/services?labelSelector={names.DEPLOYMENT}"):
            self._tell_endpoints(kube, service)
        routes = kube.items(ROUTES)
        for raw in routes:
            self._answer(kube, raw)
        self._weights = {(raw["metadata"]["namespace"], raw["metadata"]["name"]): _weights(raw) for raw in routes}

    def _tell_endpoints(self, kube: KubeHttp, service: Object) -> None:
        """The API server refuses loopback addresses in an EndpointSlice, but they pass as domain names."""
        namespace, name = service["metadata"]["namespace"], service["metadata"]["name"]
        told = [{"addresses": [item.ip], "conditions": {"ready": True}} for item in self._endpoints(namespace, name)]
        if self._slices.get((namespace, name)) == told:
            return
        path = f"{SLICES}/namespaces/{namespace}/endpointslices"
        if not kube.call("PATCH", f"{path}/{name}", {"endpoints": told}, MERGE):
            labels = {**service["metadata"]["labels"], "kubernetes.io/service-name": name}
            owner = {"apiVersion": "v1", "kind": "Service", "name": name, "uid": service["metadata"]["uid"]}
            meta = {"name": name, "labels": labels, "ownerReferences": [owner]}
            kube.call("POST", path, {"metadata": meta, "addressType": "FQDN", "endpoints": told})
        self._slices[namespace, name] = told

    def _answer(self, kube: KubeHttp, raw: Object) -> None:
        meta = raw["metadata"]
        told = ((raw.get("status") or {}).get("parents") or [{}])[0].get("conditions") or [{}]
        if told[0].get("observedGeneration") != meta["generation"]:
            status = {
                "status": {"parents": [_parent(parent, meta["generation"]) for parent in raw["spec"]["parentRefs"]]}
            }
            path = f"/apis/{raw['apiVersion']}/namespaces/{meta['namespace']}/httproutes/{meta['name']}/status"
            kube.call("PATCH", f"{path}?fieldManager=gateway", status, MERGE)


def _weights(raw: Object) -> dict[str, int]:
    references: list[dict[str, Any]] = raw["spec"]["rules"][-1].get("backendRefs") or []
    return {item["name"]: item["weight"] for item in references}


def _parent(parent: Object, generation: int) -> Object:
    said = {
        "status": "True",
        "message": "",
        "observedGeneration": generation,
        "lastTransitionTime": rfc3339(time.time()),
    }
    conditions = [{"type": type, "reason": type, **said} for type in ("Accepted", "ResolvedRefs")]
    return {"parentRef": parent, "controllerName": CONTROLLER, "conditions": conditions}
