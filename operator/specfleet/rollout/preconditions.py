"""One write to the API server, with preconditions on what was observed. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from specfleet.resources.owned import differs
from specfleet.rollout.world import Raw


class Verb(StrEnum):
    """How an object is written. Each carries the uid that was observed; what raises risk the resourceVersion too."""

    CREATE = "create"
    APPLY = "apply"
    PATCH = "patch"
    DELETE = "delete"
    JSON_PATCH = "json-patch"


@dataclass(frozen=True, slots=True)
class Write:
    """One call to the API server. `body` names its object; a PATCH is a JSON merge patch, a JSON_PATCH has the
    operations of RFC 6902 under `patch`."""

    verb: Verb
    body: Raw
    why: str

    @property
    def kind(self) -> str:
        """Kind of the object."""
        return str(self.body["kind"])

    @property
    def name(self) -> str:
        """Name of the object."""
        return str(self.body["metadata"]["name"])


def patched(live: Raw, metadata: Raw, why: str, risky: bool = False) -> Write:
    """A merge patch of metadata, for the object that was observed; `risky` if it must be unchanged since."""
    preconditions = {"name": live["metadata"]["name"], "uid": live["metadata"]["uid"]}
    if risky:
        preconditions["resourceVersion"] = live["metadata"]["resourceVersion"]
    kind = {"apiVersion": live["apiVersion"], "kind": live["kind"]}
    return Write(Verb.PATCH, {**kind, "metadata": {**preconditions, **metadata}}, why)


def applied(desired: dict[str, Any], live: Raw | None, why: str, risky: bool = False) -> Iterator[Write]:
    """Create what is missing; apply over what is ours and differs; leave everything else."""
    if live is None:
        yield Write(Verb.CREATE, desired, why or f"{desired['kind']} {desired['metadata']['name']} is missing")
        return
    difference = differs(desired, live)
    if difference is None:
        return
    preconditions = {"uid": live["metadata"]["uid"]}
    if risky:
        preconditions["resourceVersion"] = live["metadata"]["resourceVersion"]
    desired = {**desired, "metadata": {**desired["metadata"], **preconditions}}
    yield Write(Verb.APPLY, desired, why or difference)


def deleted(live: Raw, why: str) -> Write:
    """A delete of the object that was observed."""
    meta = live["metadata"]
    body = {"apiVersion": live["apiVersion"], "kind": live["kind"]}
    return Write(Verb.DELETE, {**body, "metadata": {"name": meta["name"], "uid": meta["uid"]}}, why)
