"""What watches and LISTs have told: objects by kind, namespace and name; an SDD's own are a look-up. No I/O."""

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from specfleet.api import names
from specfleet.controller.protocol import ENDPOINT_SLICE, GATEWAY, HTTP_ROUTE, SDD, Object, Resource
from specfleet.resources.owned import is_ours
from specfleet.rollout.rivals import clash, gateway_of, older, route_of
from specfleet.rollout.routefindings import meet, parents_of
from specfleet.rollout.world import Objects, Raw

_Place = tuple[str, str, str]  # kind, namespace, name


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Names one SDD."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


_NOT_OWNED = ("Pod", ENDPOINT_SLICE.kind)  # by the SDD itself, but by something that it owns


def key_of(raw: Raw) -> Key | None:
    """The SDD that an object belongs to: itself, or the one that its label names."""
    metadata = raw["metadata"]
    if raw.get("kind") == SDD.kind:
        return Key(metadata["namespace"], metadata["name"])
    owner = (metadata.get("labels") or {}).get(names.DEPLOYMENT)
    return Key(metadata["namespace"], owner) if owner else None


@dataclass(slots=True)
class Cache:
    """The last that was heard of every object. An older resourceVersion never replaces a newer one."""

    _objects: dict[_Place, Object] = field(default_factory=dict)
    _children: dict[Key, set[_Place]] = field(default_factory=dict)
    _sdds: dict[Key, Object] = field(default_factory=dict)
    _listings: list[set[_Place]] = field(default_factory=list)  # what was heard of while each LIST is under way
    gateway_api: bool = True  # the cluster has its kinds
    sees_gateways: bool = False  # every Gateway of the cluster is told of, so that one unknown is one absent

    def put(self, raw: Object, owner: Key | None = None) -> set[Key]:
        """Take in an object; returns the SDDs that it concerns: `owner`, the one that it names, those that name it."""
        place = _place(raw)
        self._heard(place)
        known = self._objects.get(place)
        key, left = owner or key_of(raw), set[Key]()
        if known is None or known["metadata"].get("uid") != raw["metadata"].get("uid") or not _older(raw, known):
            left = self._left(known, key) if known else left
            raw = self._objects[place] = _lean(raw)
            if key is not None and raw["kind"] == SDD.kind:
                self._sdds[key] = raw
            elif key is not None:
                self._children.setdefault(key, set()).add(place)
        return left | ({key} if key else self._users(place))

    def _left(self, known: Object, key: Key | None) -> set[Key]:
        """Whom a pod leaves whose label names another SDD from now on: people detach pods so. What an SDD controls
        stays its own, whatever its labels say."""
        former = key_of(known)
        if known["kind"] not in _NOT_OWNED or former is None or former == key:
            return set()
        self._children.get(former, set()).discard(_place(known))
        return {former}

    def _owners(self, place: _Place) -> set[Key]:
        return {owner for owner, children in self._children.items() if place in children}

    def drop(self, kind: str, namespace: str, name: str, uid: str = "") -> set[Key]:
        """Forget an object that is gone; with `uid` only if that is the one known. Returns the SDDs concerned."""
        place = (kind, namespace, name)
        known = self._objects.get(place)
        if known is None or (uid and known["metadata"].get("uid") != uid):
            return set()
        self._heard(place)
        del self._objects[place]
        key = key_of(known)
        if key is not None and kind == SDD.kind:
            del self._sdds[key]
            return {key}
        owners = self._owners(place)  # its label may name another by now, or none, as the user's own route
        for owner in owners:
            self._children[owner].discard(place)
        return owners | self._users(place)

    def _users(self, place: _Place) -> set[Key]:
        """The SDDs whose spec names this route or Gateway."""
        kind, namespace, name = place
        named = {HTTP_ROUTE.kind: route_of, GATEWAY.kind: gateway_of}.get(kind)
        if named is None:
            return set()
        return {key for key, sdd in self._sdds.items() if named(sdd) == (namespace, name)}

    def rival(self, key: Key) -> str:
        """An older SDD that has the same route, rule or hostname; empty where there is none."""
        mine = self.sdd(key)
        if mine is None or (route_of(mine) is None and gateway_of(mine) is None):
            return ""
        others = (raw for other, raw in self._sdds.items() if other != key and clash(mine, raw) and older(raw, mine))
        first = next(others, None)
        return f"{first['metadata']['namespace']}/{first['metadata']['name']}" if first else ""

    @contextmanager
    def listing(self) -> Iterator[Container[_Place]]:
        """While a LIST is under way: what is heard of meanwhile, which may be newer than what the LIST will say."""
        meanwhile: set[_Place] = set()
        self._listings.append(meanwhile)
        try:
            yield meanwhile
        finally:
            self._listings.remove(meanwhile)

    def _heard(self, place: _Place) -> None:
        for meanwhile in self._listings:
            meanwhile.add(place)

    def replace(self, resource: Resource, listed: Iterable[Object], meanwhile: Container[_Place] = ()) -> set[Key]:
        """The outcome of a LIST: what it lacks is gone, whatever a watch failed to say, but for what was heard of
        meanwhile. Returns the SDDs concerned."""
        raws = [raw for raw in listed if _place(raw) not in meanwhile]
        there = {_place(raw) for raw in raws}
        kept = (place for place in self._objects if place[0] == resource.kind and place not in meanwhile)
        gone = [place for place in kept if place not in there]
        news = [raw for raw in raws if _version(raw) != _version(self._objects.get(_place(raw)))]
        return set().union(*(self.drop(*place) for place in gone), *(self.put(raw) for raw in news))

    def keys(self) -> list[Key]:
        """Every SDD."""
        return sorted(self._sdds)

    def sdd(self, key: Key) -> Object | None:
        """The SDD, or None if there is none."""
        return self._sdds.get(key)

    def objects(self, key: Key, uid: str) -> Objects:
        """The objects that the SDD with this uid controls, and its pods. Whatever else has our label is not ours."""
        by_kind: dict[str, dict[str, Any]] = {}
        for place in self._children.get(key, ()):
            by_kind.setdefault(place[0], {})[place[2]] = self._objects[place]
        ours = {
            kind: {name: raw for name, raw in found.items() if kind in _NOT_OWNED or is_ours(raw, uid)}
            for kind, found in by_kind.items()
        }
        gateways, neighbours = self._around(key)
        return Objects(
            revisions=ours.get("ControllerRevision", {}),
            deployments=ours.get("Deployment", {}),
            services=ours.get("Service", {}),
            disruption_budgets=ours.get("PodDisruptionBudget", {}),
            evidence=ours.get("ConfigMap", {}).get(names.evidence_name(key.name)),
            pods=tuple(pod for _, pod in sorted(ours.get("Pod", {}).items())),
            routes=self._routes(key),
            endpoint_slices=tuple(raw for _, raw in sorted(ours.get(ENDPOINT_SLICE.kind, {}).items())),
            gateway_api=self.gateway_api,
            no_gateway=self._no_gateway(key),
            gateways=gateways,
            neighbours=neighbours,
        )

    def _routes(self, key: Key) -> Mapping[str, Object]:
        """The route of the SDD's own name, whoever has made it, and the one that its spec names."""
        sdd = self.sdd(key)
        named = route_of(sdd) if sdd else None
        wanted = {key.name, *([named[1]] if named else [])}
        found = {name: self._objects.get((HTTP_ROUTE.kind, key.namespace, name)) for name in wanted}
        return {name: raw for name, raw in found.items() if raw is not None}

    def _around(self, key: Key) -> tuple[list[Object], list[Object]]:
        """The Gateways that the SDD's route is attached to, and every HTTPRoute that is attached there too."""
        sdd = self.sdd(key)
        gateway, named = (gateway_of(sdd), route_of(sdd)) if sdd else (None, None)
        route = self._objects.get((HTTP_ROUTE.kind, *named)) if named else None
        parents: list[Raw] = parents_of(route) if route else []
        if gateway:
            parents.append({"namespace": gateway[0], "name": gateway[1]})
        if not parents:
            return [], []
        known = [self._objects.get((GATEWAY.kind, parent["namespace"], parent["name"])) for parent in parents]
        routes = [raw for place, raw in self._objects.items() if place[0] == HTTP_ROUTE.kind]
        return [raw for raw in known if raw], [raw for raw in routes if meet(parents, parents_of(raw))]

    def _no_gateway(self, key: Key) -> str:
        """The Gateway that the SDD names and that is known to be absent, as namespace/name."""
        sdd = self.sdd(key)
        wanted = gateway_of(sdd) if sdd else None
        if wanted is None or not self.sees_gateways or (GATEWAY.kind, *wanted) in self._objects:
            return ""
        return "/".join(wanted)


def _place(raw: Object) -> _Place:
    metadata = raw["metadata"]
    return raw["kind"], metadata.get("namespace", ""), metadata["name"]


def _lean(raw: Object) -> Object:
    """Without what is half of an object and nobody reads, but on routes, where it tells who else writes them."""
    if raw["kind"] == HTTP_ROUTE.kind or "managedFields" not in raw["metadata"]:
        return raw
    kept = {key: value for key, value in raw["metadata"].items() if key != "managedFields"}
    return {**raw, "metadata": kept}


def _version(raw: Object | None) -> tuple[str, str] | None:
    return (raw["metadata"].get("uid", ""), raw["metadata"].get("resourceVersion", "")) if raw else None


def _older(raw: Object, known: Object) -> bool:
    mine, theirs = (item["metadata"].get("resourceVersion", "") for item in (raw, known))
    return bool(mine.isdigit() and theirs.isdigit() and int(mine) < int(theirs))
