"""Whether every gateway that a route names has taken what was written to it last. Pure.

It proves that a gateway's controller has read the route, not that its data plane serves it: for that there are the
dwell of a step and the requests that the pods count.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from specfleet.api.reasons import Reason
from specfleet.resources.route import PARENT_DEFAULTS
from specfleet.rollout.note import Note

Raw = Mapping[str, Any]
IDENTITY = ("group", "kind", "namespace", "name", "sectionName", "port")


def refused(route: Raw) -> Note | None:
    """Why the route is not known to be in force as it is written; None if every parent has taken this generation."""
    parents = list((route.get("spec") or {}).get("parentRefs") or ())
    if not parents:
        return Note(Reason.ROUTE_NOT_ACCEPTED, f"HTTPRoute {route['metadata']['name']} names no parentRefs")
    return next((note for parent in parents if (note := _refused_by(route, parent))), None)


def _refused_by(route: Raw, parent: Raw) -> Note | None:
    namespace = route["metadata"]["namespace"]
    gateway = f"Gateway {parent.get('namespace', namespace)}/{parent['name']}"
    told = [item for item in _told(route) if _identity(item["parentRef"], namespace) == _identity(parent, namespace)]
    if not told:
        return Note(Reason.ROUTE_NOT_ACCEPTED, f"{gateway} has not taken the route: is it there, and its controller?")
    notes = [_lacking(item, route["metadata"].get("generation", 0), gateway) for item in told]
    return None if None in notes else notes[0]


def _told(route: Raw) -> Iterator[Raw]:
    for item in (route.get("status") or {}).get("parents") or ():
        if isinstance(item.get("parentRef"), Mapping) and "name" in item["parentRef"]:
            yield item


def _identity(parent: Raw, namespace: str) -> tuple[Any, ...]:
    """Two references to the same parent are equal in this, whatever defaults were written out."""
    defaults = {**PARENT_DEFAULTS, "namespace": namespace}
    return tuple(parent.get(key) or defaults.get(key) for key in IDENTITY)


def _lacking(told: Raw, generation: int, gateway: str) -> Note | None:
    conditions = {item["type"]: item for item in told.get("conditions") or ()}
    accepted, resolved = conditions.get("Accepted"), conditions.get("ResolvedRefs")
    if accepted is None:
        return Note(Reason.ROUTE_NOT_ACCEPTED, f"{gateway} has not said whether it accepts the route")
    if accepted.get("status") != "True":
        return Note(Reason.ROUTE_NOT_ACCEPTED, f"{gateway} refuses the route: {_said(accepted)}")
    read = accepted.get("observedGeneration")
    if read is None:
        return Note(Reason.ROUTE_NOT_ACCEPTED, f"{gateway} does not say which generation of the route it has read")
    if read < generation:
        return Note(Reason.ROUTE_NOT_ACCEPTED, f"{gateway} has read generation {read} of the route, not {generation}")
    partial = conditions.get("PartiallyInvalid")
    if partial is not None and partial.get("status") == "True":
        return Note(Reason.ROUTE_NOT_ACCEPTED, f"{gateway} serves only a part of the route: {_said(partial)}")
    if resolved is not None and resolved.get("status") != "True":
        return Note(Reason.ROUTE_REFS_NOT_RESOLVED, f"{gateway} cannot use a backend: {_said(resolved)}")
    return None


def _said(condition: Raw) -> str:
    return f"{condition.get('reason', '')}: {condition.get('message', '')}".strip(": ")
