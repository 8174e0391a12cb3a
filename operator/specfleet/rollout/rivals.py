"""Whether two SDDs want the same requests, and which of them came first; over raw objects, valid or not. Pure."""

from collections.abc import Mapping
from typing import Any

Raw = Mapping[str, Any]


def route_of(sdd: Raw) -> tuple[str, str] | None:
    """Namespace and name of the user's own HTTPRoute that the spec names."""
    route = _traffic(sdd).get("route")
    if not isinstance(route, Mapping) or not isinstance(route.get("name"), str):
        return None
    return sdd["metadata"]["namespace"], route["name"]


def gateway_of(sdd: Raw) -> tuple[str, str] | None:
    """Namespace and name of the Gateway that the spec names."""
    gateway = _traffic(sdd).get("gateway")
    if not isinstance(gateway, Mapping) or not isinstance(gateway.get("name"), str):
        return None
    return str(gateway.get("namespace") or sdd["metadata"]["namespace"]), gateway["name"]


def clash(mine: Raw, theirs: Raw) -> bool:
    """The same rule of the same route, or a common hostname on the same listener of the same Gateway."""
    if route_of(mine) is not None:
        same_rule = agree(_part(mine, "route", "rule"), _part(theirs, "route", "rule"))
        return same_rule and route_of(mine) == route_of(theirs)
    if gateway_of(mine) is None or gateway_of(mine) != gateway_of(theirs):
        return False
    same_listener = agree(_part(mine, "gateway", "sectionName"), _part(theirs, "gateway", "sectionName"))
    ours, others = _hostnames(mine), _hostnames(theirs)
    return same_listener and ((not ours and not others) or bool(ours & others))


def older(one: Raw, other: Raw) -> bool:
    """Whether `one` was created before `other`; at the same second the lesser name counts as older."""
    return _age(one) < _age(other)


def _age(sdd: Raw) -> tuple[str, str, str]:
    meta = sdd["metadata"]
    return str(meta.get("creationTimestamp", "")), str(meta.get("namespace", "")), str(meta["name"])


def agree(mine: Any, theirs: Any) -> bool:
    """Equal, or one of them stands for all."""
    return mine is None or theirs is None or bool(mine == theirs)


def _part(sdd: Raw, field: str, key: str) -> Any:
    part = _traffic(sdd).get(field)
    return part.get(key) if isinstance(part, Mapping) else None


def _hostnames(sdd: Raw) -> set[str]:
    names = _traffic(sdd).get("hostnames")
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def _traffic(sdd: Raw) -> Raw:
    spec = sdd.get("spec")
    traffic = spec.get("traffic") if isinstance(spec, Mapping) else None
    return traffic if isinstance(traffic, Mapping) else {}
