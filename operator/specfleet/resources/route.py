"""Decides what an HTTPRoute says: ours whole, or our references in one rule of the user's own."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specfleet.api import names
from specfleet.api.traffic import Header, Traffic
from specfleet.resources.owned import metadata

API_VERSION = "gateway.networking.k8s.io/v1"
KIND = "HTTPRoute"
GROUP = "gateway.networking.k8s.io"
PARENT_DEFAULTS = {"group": GROUP, "kind": "Gateway"}  # of a parent reference that leaves them out
EVERY_PATH = {"path": {"type": "PathPrefix", "value": "/"}}

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Backend:
    """A Service with its weight; its share of a rule is its weight by the sum of all weights."""

    name: str
    weight: int


@dataclass(frozen=True, slots=True)
class Cohort:
    """Requests with this header go to one Service and nowhere else."""

    header: Header
    backend: str


def http_route(
    sdd: Raw, traffic: Traffic, backends: Sequence[Backend], cohorts: Sequence[Cohort] = ()
) -> dict[str, Any]:
    """The route that the operator owns: a rule per cohort, then the weighted one. Every default of the API server is
    written out: a server-side apply of atomic lists compares them with what is stored."""
    rules = [_rule(traffic, [Backend(cohort.backend, 1)], cohort.header) for cohort in cohorts]
    rules.append(_rule(traffic, backends, None))
    # An empty list of hostnames is written too: left out, those of before would stay.
    spec = {"parentRefs": [parent_reference(sdd, traffic)], "hostnames": list(traffic.hostnames), "rules": rules}
    name = sdd["metadata"]["name"]
    meta = metadata(sdd, name, names.labels(name))
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": spec}


def parent_reference(sdd: Raw, traffic: Traffic) -> dict[str, Any]:
    """The Gateway, and where the user names it the listener, that our own route is attached to."""
    gateway = traffic.gateway
    assert gateway is not None
    namespace = gateway.namespace or sdd["metadata"]["namespace"]
    reference = {**PARENT_DEFAULTS, "namespace": namespace, "name": gateway.name}
    return {**reference, "sectionName": gateway.section_name} if gateway.section_name else reference


def _rule(traffic: Traffic, backends: Sequence[Backend], header: Header | None) -> dict[str, Any]:
    match: dict[str, Any] = dict(EVERY_PATH)
    if header:
        match["headers"] = [{"type": "Exact", "name": header.name, "value": header.value}]
    return {
        "matches": [match],
        "backendRefs": [_reference(backend) for backend in backends],
        "timeouts": {"request": traffic.request_timeout},
    }


def _reference(backend: Backend) -> dict[str, Any]:
    service = {"group": "", "kind": "Service", "name": backend.name, "port": names.PORT}
    return {**service, "weight": backend.weight}


def rule_index(route: Raw, traffic: Traffic) -> int | None:
    """Which rule of the user's route is meant: the one of that name, or the only one. None where there is no such."""
    found = rules(route)
    if traffic.route is None or traffic.route.rule is None:
        return 0 if len(found) == 1 else None
    return next((index for index, rule in enumerate(found) if rule.get("name") == traffic.route.rule), None)


def weighted(rule: Raw) -> list[Backend]:
    """The Services of a rule in order, with their weights; other kinds of backends are left out."""
    return [Backend(item["name"], weight_of(item)) for item in references(rule) if _is_service(item)]


def references(rule: Raw) -> list[Raw]:
    """The backend references of a rule, all of them."""
    return list(rule.get("backendRefs") or ())


def weight_of(reference: Raw) -> int:
    """Its weight; 1 where none is written."""
    return int(reference.get("weight", 1))


def _is_service(reference: Raw) -> bool:
    return reference.get("kind", "Service") == "Service" and not reference.get("group") and "name" in reference


def rules(route: Raw) -> list[Raw]:
    """The rules of a route in order."""
    return list((route.get("spec") or {}).get("rules") or ())


def patch(route: Raw, index: int, ours: frozenset[str], wanted: Sequence[Backend], risky: bool) -> list[dict[str, Any]]:
    """A JSON Patch (RFC 6902) that makes our references in rule `index` the `wanted` ones and touches nothing else.

    `ours` are the names of our Services. It is refused as a whole (422) unless the route is the one that was read, and
    where `risky` also unchanged since. A new reference is a copy of the first of ours, so that its filters and port
    hold for it too. Raises ValueError where the rule has no reference of ours to start from.
    """
    found = references(rules(route)[index])
    mine = [place for place, item in enumerate(found) if _is_service(item) and item["name"] in ours]
    if not mine:
        raise ValueError("no reference of ours")
    at = f"/spec/rules/{index}/backendRefs"
    return [
        *_guards(route, index, found, mine, at, risky),
        *_edits(found, mine, wanted, at),
    ]


def _guards(
    route: Raw, index: int, found: Sequence[Raw], mine: Sequence[int], at: str, risky: bool
) -> Iterator[dict[str, Any]]:
    meta = route["metadata"]
    yield _test("/metadata/uid", meta["uid"])
    if risky:
        yield _test("/metadata/generation", meta["generation"])
    if name := rules(route)[index].get("name"):
        yield _test(f"/spec/rules/{index}/name", name)
    for place in mine:
        yield _test(f"{at}/{place}/name", found[place]["name"])


def _edits(found: Sequence[Raw], mine: Sequence[int], wanted: Sequence[Backend], at: str) -> Iterator[dict[str, Any]]:
    """Overwrite what is there, insert what is missing behind it, take away what is too much, the last first."""
    first = found[mine[0]]
    for place, backend in zip(mine, wanted, strict=False):
        if found[place]["name"] != backend.name:
            yield {"op": "replace", "path": f"{at}/{place}/name", "value": backend.name}
        if weight_of(found[place]) != backend.weight:
            verb = "replace" if "weight" in found[place] else "add"
            yield {"op": verb, "path": f"{at}/{place}/weight", "value": backend.weight}
    for backend in reversed(wanted[len(mine) :]):
        value = {**first, "name": backend.name, "weight": backend.weight}
        yield {"op": "add", "path": f"{at}/{mine[-1] + 1}", "value": value}
    for place in reversed(mine[len(wanted) :]):
        yield {"op": "remove", "path": f"{at}/{place}"}


def _test(path: str, value: Any) -> dict[str, Any]:
    return {"op": "test", "path": path, "value": value}
