"""What spoils a rollout by a route before it starts: sticky sessions, time-outs, neighbours, closed listeners. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from specfleet.api import names
from specfleet.api.traffic import Traffic
from specfleet.resources.route import EVERY_PATH, PARENT_DEFAULTS, parent_reference, rule_index, rules
from specfleet.rollout.rivals import agree

Raw = Mapping[str, Any]
NO_LIMIT = re.compile(r"(0+(h|m|s|ms))+")  # a Gateway API duration of zero
OTHER_PROTOCOLS = ("TCP", "TLS", "UDP")
NAME_LABEL = "kubernetes.io/metadata.name"  # which every namespace has


def route_findings(
    sdd: Raw, traffic: Traffic, route: Raw | None, gateways: Iterable[Raw], neighbours: Iterable[Raw]
) -> tuple[str, ...]:
    """One sentence per finding, its field first.

    `route` is the user's own where the spec names one and it is known. Of `gateways` those count that it, or our own
    route, is attached to; of `neighbours`, which are HTTPRoutes, those that are attached there too.
    """
    if traffic.gateway is not None:
        parents = [parent_reference(sdd, traffic)]
        return (*_shared_hostnames(sdd, traffic, parents, neighbours), *_closed(sdd, "gateway", parents, gateways))
    if traffic.route is None or route is None:
        return ()
    closed, index = _closed(sdd, "route", parents_of(route), gateways), rule_index(route, traffic)
    if index is None:
        return tuple(closed)
    rule = rules(route)[index]
    return (*_rule(route, rule), *_same_matches(route, rule, neighbours), *closed)


def parents_of(route: Raw) -> list[Raw]:
    """The parent references of a route, with the namespace that each means."""
    found = (route.get("spec") or {}).get("parentRefs") or ()
    return [{**parent, "namespace": parent.get("namespace") or route["metadata"]["namespace"]} for parent in found]


def meet(one: Iterable[Raw], other: Iterable[Raw]) -> bool:
    """Whether two lists of `parents_of` have a listener in common, as far as the references tell."""
    theirs = list(other)
    return any(_same_parent(mine, parent) for mine in one for parent in theirs)


def _same_parent(mine: Raw, theirs: Raw) -> bool:
    same = all(_part(mine, key) == _part(theirs, key) for key in ("group", "kind", "namespace", "name"))
    return same and all(agree(mine.get(key), theirs.get(key)) for key in ("sectionName", "port"))


def _part(parent: Raw, key: str) -> Any:
    return parent.get(key) or PARENT_DEFAULTS.get(key)


def _rule(route: Raw, rule: Raw) -> Iterator[str]:
    where = f"spec.traffic.route: rule {rule.get('name', 1)} of HTTPRoute {route['metadata']['name']}"
    if rule.get("sessionPersistence"):
        yield f"{where} has sessionPersistence: clients stay with a revision whatever its weight; remove it"
    limits = rule.get("timeouts") or {}
    if "request" not in limits:
        yield f"{where} has no timeouts.request: gateways then cut answers, many after 15s; set it to 0s"
    for key, limit in limits.items():
        if not NO_LIMIT.fullmatch(str(limit)):
            yield f"{where} cuts answers after {limit} by timeouts.{key}; set it to 0s"


def _shared_hostnames(sdd: Raw, traffic: Traffic, parents: Sequence[Raw], neighbours: Iterable[Raw]) -> Iterator[str]:
    """Our own route matches every path, so that whatever another one matches there goes to that one."""
    mine = (sdd["metadata"]["namespace"], sdd["metadata"]["name"])
    for other in neighbours:
        common = _common(traffic.hostnames, other)
        if _place(other) == mine or _of_a_fleet(other) or common is None or not meet(parents, parents_of(other)):
            continue
        who = f"HTTPRoute {'/'.join(_place(other))} of the same Gateway"
        yield f"spec.traffic.hostnames: {who} has {common} too: what it matches does not come here; change one of them"


def _same_matches(route: Raw, rule: Raw, neighbours: Iterable[Raw]) -> Iterator[str]:
    hostnames = (route.get("spec") or {}).get("hostnames") or ()
    mine = _matches(rule)
    for other in neighbours:
        common = _common(hostnames, other)
        if _place(other) == _place(route) or common is None or not meet(parents_of(route), parents_of(other)):
            continue
        if any(match in mine for their in rules(other) for match in _matches(their)):
            who = f"HTTPRoute {'/'.join(_place(other))} of the same Gateway matches the same requests for {common}"
            yield f"spec.traffic.route: {who} as {route['metadata']['name']}: the older route gets them; change one"


def _matches(rule: Raw) -> list[dict[str, Any]]:
    """The matches of a rule with what the API server writes where nothing is said."""
    found: list[Raw] = list(rule.get("matches") or ({},))
    return [{**match, "path": {**EVERY_PATH["path"], **(match.get("path") or {})}} for match in found]


def _common(hostnames: Iterable[str], other: Raw) -> str | None:
    """A hostname that both have, in words; None where there is none."""
    mine, theirs = set(hostnames), set((other.get("spec") or {}).get("hostnames") or ())
    if not mine and not theirs:
        return "no hostname"
    return min(mine & theirs, default=None)


def _place(route: Raw) -> tuple[str, str]:
    return route["metadata"]["namespace"], route["metadata"]["name"]


def _of_a_fleet(route: Raw) -> bool:
    """Another fleet's own route: which of the two has the hostname is told as RouteConflict."""
    owners = route["metadata"].get("ownerReferences") or ()
    return any(owner.get("kind") == names.KIND and owner.get("controller") for owner in owners)


def _closed(sdd: Raw, field: str, parents: Iterable[Raw], gateways: Iterable[Raw]) -> Iterator[str]:
    namespace = sdd["metadata"]["namespace"]
    known = {_place(gateway): gateway for gateway in gateways}
    for parent in parents:
        place = (parent["namespace"], parent["name"])
        if _part(parent, "kind") != "Gateway" or place not in known:
            continue
        listeners = [item for item in (known[place].get("spec") or {}).get("listeners") or () if _named(parent, item)]
        which = parent.get("sectionName") or parent.get("port")
        if not listeners and which:
            yield f"spec.traffic.{field}: Gateway {'/'.join(place)} has no listener {which}; correct the name"
        elif listeners and not any(_admits(listener, place[0], namespace) for listener in listeners):
            what = f"no listener of Gateway {'/'.join(place)} admits HTTPRoutes of namespace {namespace}"
            yield f"spec.traffic.{field}: {what}; change its allowedRoutes"


def _named(parent: Raw, listener: Raw) -> bool:
    return all(
        agree(parent.get(key), listener.get(other)) for key, other in (("sectionName", "name"), ("port", "port"))
    )


def _admits(listener: Raw, home: str, namespace: str) -> bool:
    """Whether it takes our routes; what only a namespace's labels could tell counts as yes."""
    allowed = listener.get("allowedRoutes") or {}
    kinds = [item.get("kind") for item in allowed.get("kinds") or ()]
    if listener.get("protocol") in OTHER_PROTOCOLS or (kinds and "HTTPRoute" not in kinds):
        return False
    chosen = allowed.get("namespaces") or {}
    named = ((chosen.get("selector") or {}).get("matchLabels") or {}).get(NAME_LABEL, namespace)
    taken = {"All": True, "Same": home == namespace, "None": False, "Selector": named == namespace}
    return bool(taken.get(chosen.get("from", "Same"), True))
