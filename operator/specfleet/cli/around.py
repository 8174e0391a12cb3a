"""What resources in the same files say about each other: fleets that want one route, routes that do not fit. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from specfleet.api.reasons import Reason
from specfleet.api.traffic import Traffic
from specfleet.resources.route import GROUP
from specfleet.rollout.rivals import clash
from specfleet.rollout.routefindings import route_findings
from specfleet.rollout.routing import through_route
from specfleet.rollout.world import Objects

Raw = Mapping[str, Any]
KINDS = ("HTTPRoute", "Gateway")


class _Named(BaseModel):
    name: str
    namespace: str | None = None


class _Reference(_Named):
    weight: Annotated[int, Field(strict=True)] = 1


class _Match(BaseModel):
    path: dict[str, Any] | None = None
    headers: list[dict[str, Any]] | None = None


class _Rule(BaseModel):
    matches: list[_Match] | None = None
    backendRefs: list[_Reference] | None = None
    timeouts: dict[str, Any] | None = None


class _Selector(BaseModel):
    matchLabels: dict[str, str] | None = None


class _From(BaseModel):
    name: Annotated[str, Field(alias="from")] = "Same"
    selector: _Selector | None = None


class _Allowed(BaseModel):
    namespaces: _From | None = None
    kinds: list[dict[str, Any]] | None = None


class _Listener(BaseModel):
    protocol: str = ""
    allowedRoutes: _Allowed | None = None


class _Spec(BaseModel):
    hostnames: list[str] | None = None
    parentRefs: list[_Named] | None = None
    rules: list[_Rule] | None = None
    listeners: list[_Listener] | None = None


class _Shape(BaseModel):
    """What is read of an HTTPRoute or a Gateway, which nobody has validated."""

    metadata: _Named
    spec: _Spec | None = None


@dataclass(slots=True)
class Around:
    """All resources of the files that have to do with routes; `fleets` with where each one stands."""

    fleets: list[tuple[str, Raw]] = field(default_factory=list)
    routes: list[Raw] = field(default_factory=list)
    gateways: list[Raw] = field(default_factory=list)

    def take(self, where: str, raw: Raw, ours: bool) -> bool:
        """Take in a resource; returns whether it has to do with routes. What has not the shape of its kind is left
        out."""
        if ours:
            metadata = raw.get("metadata")
            if isinstance(metadata, Mapping) and isinstance(metadata.get("name"), str):
                self.fleets.append((where, placed(raw)))
            return True
        kind, version = raw.get("kind"), raw.get("apiVersion")
        if kind not in KINDS or not isinstance(version, str) or version.partition("/")[0] != GROUP:
            return False
        if _sound(raw):
            known = {"metadata": {"name": raw["metadata"]["name"], "namespace": raw["metadata"].get("namespace")}}
            (self.routes if kind == "HTTPRoute" else self.gateways).append(placed({**known, "spec": raw.get("spec")}))
        return True

    def errors(self, sdd: Raw, traffic: Traffic) -> Iterator[str]:
        """Why one of these fleets would get no request: another one has its route, or its route lacks its backend."""
        for where, other in self.fleets:
            if _place(other) != _place(sdd) and clash(sdd, other):
                who = f"{'/'.join(part for part in _place(other) if part)} in {where}"
                yield f"spec.traffic: {who} has the same hostname, rule or listener: only the older gets it; change one"
        route = self._route(sdd, traffic)
        if route is not None:
            pending = through_route(sdd, traffic, Objects(routes={route["metadata"]["name"]: route}), {}, "").pending
            if pending is not None and pending.reason is Reason.ROUTE_UNUSABLE:
                yield f"spec.traffic.route: {pending.message}"

    def findings(self, sdd: Raw, traffic: Traffic) -> tuple[str, ...]:
        """What is to be known of its route."""
        return route_findings(sdd, traffic, self._route(sdd, traffic), self.gateways, self.routes)

    def _route(self, sdd: Raw, traffic: Traffic) -> Raw | None:
        wanted = (_place(sdd)[0], traffic.route.name) if traffic.route else None
        return next((route for route in self.routes if _place(route) == wanted), None)


def placed(raw: Raw) -> Raw:
    """The resource with a namespace: where none is written all have the same unknown one."""
    metadata = raw["metadata"]
    return {**raw, "metadata": {**metadata, "namespace": metadata.get("namespace") or ""}}


def _place(raw: Raw) -> tuple[str, str]:
    return raw["metadata"]["namespace"], raw["metadata"]["name"]


def _sound(raw: Raw) -> bool:
    try:
        _Shape.model_validate(raw)
    except ValidationError:
        return False
    return True
