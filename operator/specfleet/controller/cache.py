"""What watches and LISTs have told: objects by kind, namespace and name; an SDD's own are a look-up. No I/O."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from specfleet.api import names
from specfleet.controller.protocol import SDD, Object, Resource
from specfleet.resources.owned import is_ours
from specfleet.rollout.world import Objects, Raw

_Place = tuple[str, str, str]  # kind, namespace, name


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Names one SDD."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


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

    def put(self, raw: Object, owner: Key | None = None) -> Key | None:
        """Take in an object; returns the SDD that it concerns: `owner`, or the one that it names itself."""
        place = _place(raw)
        known = self._objects.get(place)
        if known is not None and known["metadata"].get("uid") == raw["metadata"].get("uid") and _older(raw, known):
            return owner or key_of(raw)
        self._objects[place] = raw
        key = owner or key_of(raw)
        if key is not None and raw["kind"] != SDD.kind:
            self._children.setdefault(key, set()).add(place)
        return key

    def drop(self, kind: str, namespace: str, name: str, uid: str = "") -> Key | None:
        """Forget an object that is gone; with `uid` only if that is the one known. Returns the SDD concerned."""
        place = (kind, namespace, name)
        known = self._objects.get(place)
        if known is None or (uid and known["metadata"].get("uid") != uid):
            return None
        del self._objects[place]
        key = key_of(known)
        if key is not None and kind != SDD.kind:
            self._children.get(key, set()).discard(place)
        return key

    def replace(self, resource: Resource, listed: Iterable[Object]) -> set[Key]:
        """The outcome of a LIST: what it lacks is gone, whatever a watch failed to say. Returns the SDDs concerned."""
        raws = list(listed)
        there = {_place(raw) for raw in raws}
        gone = [place for place in self._objects if place[0] == resource.kind and place not in there]
        keys = {self.drop(*place) for place in gone} | {self.put(raw) for raw in raws}
        return {key for key in keys if key is not None}

    def keys(self) -> list[Key]:
        """Every SDD."""
        return sorted(Key(namespace, name) for kind, namespace, name in self._objects if kind == SDD.kind)

    def sdd(self, key: Key) -> Object | None:
        """The SDD, or None if there is none."""
        return self._objects.get((SDD.kind, key.namespace, key.name))

    def objects(self, key: Key, uid: str) -> Objects:
        """The objects that the SDD with this uid controls, and its pods. Whatever else has our label is not ours."""
        by_kind: dict[str, dict[str, Any]] = {}
        for place in self._children.get(key, ()):
            by_kind.setdefault(place[0], {})[place[2]] = self._objects[place]
        ours = {
            kind: {name: raw for name, raw in found.items() if kind == "Pod" or is_ours(raw, uid)}
            for kind, found in by_kind.items()
        }
        revisions = ours.get("ControllerRevision", {})
        return Objects(
            revisions=revisions,
            deployments=ours.get("Deployment", {}),
            services=ours.get("Service", {}),
            disruption_budgets=ours.get("PodDisruptionBudget", {}),
            evidence=ours.get("ConfigMap", {}).get(names.evidence_name(key.name)),
            pods=tuple(pod for _, pod in sorted(ours.get("Pod", {}).items())),
        )


def _place(raw: Object) -> _Place:
    metadata = raw["metadata"]
    return raw["kind"], metadata.get("namespace", ""), metadata["name"]


def _older(raw: Object, known: Object) -> bool:
    mine, theirs = (item["metadata"].get("resourceVersion", "") for item in (raw, known))
    return bool(mine.isdigit() and theirs.isdigit() and int(mine) < int(theirs))
