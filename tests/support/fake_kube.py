"""An API server in memory: the `Kube` of controller/protocol.py, with preconditions, ownership, and induced failures.

Objects are never changed in place, so nobody needs a copy.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from schema import faults
from specfleet.api import crd, names
from specfleet.controller.protocol import (
    HTTP_ROUTE,
    RESOURCES,
    SDD,
    UNLABELLED,
    ApiError,
    Conflict,
    Exists,
    Forbidden,
    Missing,
    Object,
    Resource,
)
from specfleet.plan import Verb, Write
from specfleet.rollout.world import rfc3339

Place = tuple[str, str, str]  # kind, namespace, name
STATUS = crd.schema()["properties"]["status"]
ATOMIC = (("spec", "selector"),)  # maps that server-side apply replaces whole


class Crash(BaseException):
    """The operator's process dies here."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call that came in. `how` is what was made to go wrong with it, or empty."""

    verb: str
    kind: str
    name: str
    how: str = ""


@dataclass(slots=True)
class FakeKube:
    """Objects by kind, namespace and name; `watches` are told of every change, as (event type, object)."""

    clock: Callable[[], float]
    watches: list[Callable[[str, Object], None]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    written: list[Callable[[Write], None]] = field(default_factory=list)  # told of every planned write that was done
    writing: bool = False  # the operator writes now
    terminating: set[str] = field(default_factory=set)
    quotas: dict[str, str] = field(default_factory=dict)  # kinds that may not be created, with the quota's name
    _objects: dict[Place, Object] = field(default_factory=dict)
    _kinds: dict[str, dict[Place, Object]] = field(default_factory=dict)
    _applied: dict[Place, Object] = field(default_factory=dict)  # what the last server-side apply of it said
    broken: dict[str, str] = field(default_factory=dict)  # verbs of which every call goes wrong, and how
    _failures: dict[int, str] = field(default_factory=dict)
    _version: int = 100
    _uids: int = 0

    def fail_at(self, call: int, how: str) -> None:
        """Let the `call`-th call (from 1) go wrong: an HTTP status such as "409" or "500", "timeout" (nobody answers,
        nothing done), "lost" (done, but nobody answers), "crash-before" or "crash-after" it took effect."""
        self._failures[call] = how

    def spare(self) -> None:
        """No more calls go wrong."""
        self._failures.clear()
        self.broken.clear()

    def copy_from(self, other: "FakeKube") -> None:
        """Hold what another one holds."""
        self._objects, self._applied = dict(other._objects), dict(other._applied)
        self._kinds = {kind: dict(held) for kind, held in other._kinds.items()}
        self._version, self._uids = other._version, other._uids

    # The protocol.

    async def list(self, resource: Resource) -> list[Object]:
        self._before("list", resource.kind, "")
        return [raw for raw in self.all(resource.kind) if resource in UNLABELLED or names.DEPLOYMENT in _labels(raw)]

    async def everything(self, resource: Resource) -> Sequence[Object]:
        self._before("list", resource.kind, "")
        return self.all(resource.kind)

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        how = self._before("get", resource.kind, name)
        found = self._live(resource.kind, namespace, name)
        self._after(how)
        return found

    async def write(self, namespace: str, write: Write) -> Object:
        how = self._before(write.verb.value, write.kind, write.name)
        body = {**write.body, "metadata": {**write.body["metadata"], "namespace": namespace}}
        verbs = {
            Verb.CREATE: self._create,
            Verb.APPLY: self._apply,
            Verb.PATCH: self._patch,
            Verb.DELETE: self._delete,
            Verb.JSON_PATCH: self._json_patch,
        }
        self.writing = True
        try:
            written = verbs[write.verb](body)
        finally:
            self.writing = False
        for told in self.written:
            told(write)
        self._after(how)
        return written

    async def patch_status(self, namespace: str, name: str, status: Object, uid: str) -> Object:
        how = self._before("status", SDD.kind, name)
        live = self._live(SDD.kind, namespace, name)
        if live["metadata"]["uid"] != uid:
            raise Conflict(409, f"uid mismatch: {uid} was given, {live['metadata']['uid']} is there")
        wrong = list(faults(status, STATUS, "status"))
        assert not wrong, wrong  # the API server refuses it, or drops what it does not know
        written = self.put({**live, "status": status})
        self._after(how)
        return written

    async def create(self, resource: Resource, namespace: str, body: Object) -> Object:
        how = self._before("create", resource.kind, body["metadata"].get("name", ""))
        written = self._create({**body, "metadata": {**body["metadata"], "namespace": namespace}})
        self._after(how)
        return written

    async def replace(self, resource: Resource, namespace: str, body: Object) -> Object:
        how = self._before("replace", resource.kind, body["metadata"]["name"])
        live = self._live(resource.kind, namespace, body["metadata"]["name"])
        _check(live, body["metadata"])
        written = self.put(body)
        self._after(how)
        return written

    # What tests and the fake controllers do, without preconditions, failures or a line in the log.

    def all(self, kind: str) -> Sequence[Object]:
        """Every object of a kind, by name."""
        return [raw for _, raw in sorted(self._kinds.get(kind, {}).items())]

    def find(self, kind: str, namespace: str, name: str) -> Object | None:
        """An object; None where there is none."""
        return self._objects.get((kind, namespace, name))

    def put(self, raw: Object) -> Object:
        """Create or replace; sets uid, resourceVersion, creationTimestamp and generation as the API server would."""
        place, meta = _place(raw), dict(raw["metadata"])
        old = self._objects.get(place)
        self._version += 1
        if old is None:
            self._uids += 1
            meta |= {"uid": f"uid-{self._uids}", "creationTimestamp": rfc3339(self.clock())}
        before = old["metadata"]["generation"] if old else 0
        meta["generation"] = before + (old is None or old.get("spec") != raw.get("spec"))
        meta["resourceVersion"] = str(self._version)
        if self.writing and raw["kind"] == HTTP_ROUTE.kind:
            meta["managedFields"] = [self._managed_by(names.FIELD_MANAGER)]
        raw = {**raw, "metadata": meta}
        self._objects[place] = self._kinds.setdefault(raw["kind"], {})[place] = raw
        self._tell("ADDED" if old is None else "MODIFIED", raw)
        return raw

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object, and everything that it owns; nothing if it is gone already."""
        raw = self._objects.pop((kind, namespace, name), None)
        self._applied.pop((kind, namespace, name), None)
        if raw is None:
            return
        del self._kinds[kind][kind, namespace, name]
        self._version += 1
        self._tell("DELETED", {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(self._version)}})
        for place, owned in list(self._objects.items()):
            owners = owned["metadata"].get("ownerReferences") or ()
            if place[0] != "Pod" and any(owner["uid"] == raw["metadata"]["uid"] for owner in owners):
                self.remove(*place)  # pods take their time: the fake kubelet ends them

    def _tell(self, event: str, raw: Object) -> None:
        for watch in self.watches:
            watch(event, raw)

    def managed(self, raw: Object, manager: str) -> Object:
        """The rules of a route belong to who wrote them last."""
        return self.put({**raw, "metadata": {**raw["metadata"], "managedFields": [self._managed_by(manager)]}})

    def _managed_by(self, manager: str) -> Object:
        owned = {"f:spec": {"f:rules": {}}}
        return {"manager": manager, "operation": "Apply", "time": rfc3339(self.clock()), "fieldsV1": owned}

    # Verbs.

    def _json_patch(self, body: Object) -> Object:
        live = self._live(*_place(body))
        patched = deepcopy(live)
        for operation in body["patch"]:
            _operate(patched, operation)
        return live if patched == live else self.put(patched)

    def _create(self, body: Object) -> Object:
        kind, namespace, name = _place(body)
        plural = RESOURCES[kind].plural
        if (kind, namespace, name) in self._objects:
            raise Exists(409, f'{plural} "{name}" already exists')
        if kind in self.quotas:
            raise Forbidden(403, f'{plural} "{name}" is forbidden: exceeded quota: {self.quotas[kind]}')
        if namespace in self.terminating:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise Forbidden(403, f'{plural} "{name}" is forbidden: {why}')
        return self.put(body)

    def _apply(self, body: Object) -> Object:
        """Merge over what is there. Only what the last *apply* said and this one does not is taken off: fields that a
        create set belong to the create."""
        place = _place(body)
        live = self._objects.get(place)
        if live is None:
            raise Conflict(
                409, f"uid mismatch: {body['metadata'].get('uid')} was given, and no existing object was found"
            )
        _check(live, body["metadata"])
        wanted = {
            **body,
            "metadata": {k: v for k, v in body["metadata"].items() if k not in ("uid", "resourceVersion")},
        }
        merged = _merged(live, self._applied.get(place, {}), wanted)
        self._applied[place] = wanted
        return live if merged == live else self.put(merged)

    def _patch(self, body: Object) -> Object:
        live = self._live(*_place(body))
        _check(live, body["metadata"])
        merged = _json_merge(live, {**body, "metadata": {k: v for k, v in body["metadata"].items() if k not in _GIVEN}})
        return live if merged == live else self.put(merged)

    def _delete(self, body: Object) -> Object:
        live = self._live(*_place(body))
        _check(live, body["metadata"])
        self.remove(*_place(body))
        return live

    def _live(self, kind: str, namespace: str, name: str) -> Object:
        live = self._objects.get((kind, namespace, name))
        if live is None:
            raise Missing(404, f'{RESOURCES[kind].plural} "{name}" not found')
        return live

    def _before(self, verb: str, kind: str, name: str) -> str:
        how = self._failures.pop(len(self.calls) + 1, self.broken.get(verb, ""))
        self.calls.append(Call(verb, kind, name, how))
        if how == "crash-before":
            raise Crash(f"before {verb} of {kind} {name}")
        if how == "409":
            raise Conflict(409, "the object has been modified; please apply your changes to the latest version")
        if how.isdigit():
            raise ApiError(int(how), "induced", retry_after=1.0 if how == "429" else 0.0)
        if how == "timeout":
            raise ApiError(0, "timed out")
        return how

    @staticmethod
    def _after(how: str) -> None:
        if how == "crash-after":
            raise Crash("after it took effect")
        if how == "lost":
            raise ApiError(0, "connection reset by peer")


_GIVEN = ("name", "namespace", "uid", "resourceVersion")


def _labels(raw: Object) -> dict[str, str]:
    return raw["metadata"].get("labels") or {}


def _place(raw: Object) -> Place:
    return raw["kind"], raw["metadata"]["namespace"], raw["metadata"]["name"]


def _check(live: Object, given: Object) -> None:
    for precondition in ("uid", "resourceVersion"):
        if precondition in given and given[precondition] != live["metadata"][precondition]:
            is_there = live["metadata"][precondition]
            raise Conflict(409, f"{precondition} mismatch: {given[precondition]} was given, {is_there} is there")


def _merged(live: Any, before: Any, wanted: Any, path: tuple[str, ...] = ()) -> Any:
    if not all(isinstance(value, dict) for value in (live, wanted)) or path in ATOMIC:
        return wanted
    before = before if isinstance(before, dict) else {}
    kept = {key: value for key, value in live.items() if key in wanted or key not in before}
    return {
        **kept,
        **{key: _merged(live.get(key), before.get(key), value, (*path, key)) for key, value in wanted.items()},
    }


def _json_merge(live: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(live) if isinstance(live, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _json_merge(result.get(key), value)
    return result


def _operate(document: Any, operation: Object) -> None:
    """One operation of RFC 6902 on paths without escapes."""
    *way, last = operation["path"].split("/")[1:]
    for step in way:
        document = document[int(step)] if isinstance(document, list) else document.get(step, {})
    place = int(last) if isinstance(document, list) else last
    verb, value = operation["op"], operation.get("value")
    if verb == "test":
        found = document[place] if isinstance(document, list) and place < len(document) else None
        found = document.get(place) if isinstance(document, dict) else found
        if found != value:
            raise Conflict(409, "the object is not the one that was read")
    elif verb == "remove":
        del document[place]
    elif verb == "add" and isinstance(document, list):
        document.insert(place, value)
    else:
        document[place] = value


def matching(pods: Sequence[Object], selector: dict[str, str]) -> Iterator[Object]:
    """The pods that carry all of the selector's labels."""
    return (pod for pod in pods if selector.items() <= _labels(pod).items())
