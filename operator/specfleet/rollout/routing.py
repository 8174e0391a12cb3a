"""How requests reach the revisions now, as Services, the route and the gateways' answers to it say. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specfleet.api import names
from specfleet.api.reasons import Reason
from specfleet.api.traffic import Traffic
from specfleet.resources.owned import is_ours
from specfleet.resources.route import Backend, rule_index, rules, weighted
from specfleet.rollout.acceptance import refused
from specfleet.rollout.note import Note
from specfleet.rollout.world import Objects, Raw, Revision, timestamp

HASH = 9  # "-" and the characters of a revision's hash


@dataclass(frozen=True, slots=True)
class Routing:
    """Who gets requests now. `weights` are by revision, of those with any; a Service that selects all has them equal.

    With a gateway: `route` is the live HTTPRoute, None while there is none, `rule` the place of its weighted rule and
    `backends` are our Services in it; `cohort` is the one whose requests go to a canary; `pending` says why what is
    written is not known to be in force; `writer` who else wrote the rules last, `written` when we did, and `changed`
    when anybody did.
    """

    weights: Mapping[str, int]
    gateway: bool = False
    route: Raw | None = None
    rule: int | None = None
    backends: tuple[Backend, ...] = ()
    foreign: int = 0
    cohort: str = ""
    pending: Note | None = None
    writer: str = ""
    written: float | None = None
    changed: float | None = None
    endpoints: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def carriers(self) -> frozenset[str]:
        """The revisions whose pods get requests."""
        return frozenset(self.weights)

    @property
    def sole(self) -> str | None:
        """The revision that gets every request: None when several share them, "" when nobody gets any."""
        return None if len(self.weights) > 1 else next(iter(self.weights), "")

    def percent(self, revision: str) -> int | None:
        """The share that the route gives a revision; None without a gateway, where the pods' number gives it."""
        if not self.gateway:
            return None
        return round(100 * self.weights.get(revision, 0) / max(1, sum(self.weights.values())))

    def uses(self, service: str) -> bool:
        """The weighted rule names this Service, with a weight."""
        return any(backend.name == service and backend.weight for backend in self.backends)

    @property
    def weight_at_rest(self) -> int:
        """What our only backend weighs at rest, as far as the rule itself tells: beside somebody else's backends our
        part keeps its sum while it is divided; alone it is a whole of its own."""
        return sum(backend.weight for backend in self.backends) if self.foreign and self.backends else 1

    def announced(self, base: int) -> bool:
        """What the route says is the announcement of another revision, where `base` is the weight at rest."""
        return [backend.weight for backend in self.backends] == [announcement(base)] and not self.foreign


def announcement(base: int) -> int:
    """Another weight of a rule's only backend, by which nothing is divided otherwise."""
    return 100 if base != 100 else 101


def selected(services: Mapping[str, Raw], name: str) -> str | None:
    """The revision that Service `name` selects: None when it selects every one, "" when there is no such Service."""
    service = services.get(name)
    return "" if service is None else (service["spec"].get("selector") or {}).get(names.REVISION)


def through_service(name: str, objects: Objects, revisions: Mapping[str, Revision]) -> Routing:
    """Without a gateway: `Service <name>` selects one revision, or all, whose pods then share the requests."""
    one = selected(objects.services, name)
    chosen = revisions if one is None else [one] if one else []
    return Routing(dict.fromkeys(chosen, 1))


def through_route(
    sdd: Raw, traffic: Traffic, objects: Objects, revisions: Mapping[str, Revision], rival: str
) -> Routing:
    """With a gateway: what the live route says. `rival` is an older SDD that has the route or its hostname."""
    name = str(sdd["metadata"]["name"])
    wanted = traffic.route.name if traffic.route else name
    route = objects.routes.get(wanted)
    if rival:
        return Routing(
            {}, gateway=True, pending=Note(Reason.ROUTE_CONFLICT, f"{rival} is older and has {_what(traffic)}")
        )
    if not objects.gateway_api:
        return Routing({}, gateway=True, pending=Note(Reason.GATEWAY_NOT_FOUND, "the Gateway API is not installed"))
    if route is None:
        reason = Reason.ROUTE_NOT_FOUND if traffic.route else Reason.ROUTE_NOT_ACCEPTED
        return Routing({}, gateway=True, pending=Note(reason, f"HTTPRoute {wanted} is not there"))
    if traffic.route is None and not is_ours(route, sdd["metadata"]["uid"]):
        return Routing({}, gateway=True, pending=Note(Reason.NAME_TAKEN, f"HTTPRoute {wanted} exists and is not ours"))
    index = rule_index(route, traffic) if traffic.route else len(rules(route)) - 1
    if index is None or index < 0:
        which = f"no rule {traffic.route.rule}" if traffic.route and traffic.route.rule else "not exactly one rule"
        problem = Note(Reason.ROUTE_UNUSABLE, f"HTTPRoute {wanted} has {which}; name one in spec.traffic.route.rule")
        return Routing({}, gateway=True, route=route, pending=problem)
    return _read(name, traffic, objects, revisions, route, index)


def _read(
    name: str, traffic: Traffic, objects: Objects, revisions: Mapping[str, Revision], route: Raw, index: int
) -> Routing:
    found = weighted(rules(route)[index])
    ours = tuple(backend for backend in found if is_our_service(name, backend.name))
    home = selected(objects.services, name)
    by_revision: dict[str, int] = {}
    for backend in ours:
        for revision in _revisions_behind(name, backend.name, home, revisions):
            by_revision[revision] = by_revision.get(revision, 0) + backend.weight
    pending = refused(route)
    if objects.no_gateway:
        pending = Note(Reason.GATEWAY_NOT_FOUND, f"Gateway {objects.no_gateway} is not there")
    if not ours:
        text = f"rule {index + 1} of HTTPRoute {route['metadata']['name']} has no backend {name}; add it"
        pending = Note(Reason.ROUTE_UNUSABLE, text)
    elif traffic.route and not any(backend.weight for backend in ours):
        text = f"HTTPRoute {route['metadata']['name']} gives {name} the weight 0: nobody is sent here"
        pending = Note(Reason.ROUTE_UNUSABLE, text)
    return Routing(
        weights={revision: weight for revision, weight in by_revision.items() if weight},
        gateway=True,
        route=route,
        rule=index,
        backends=ours,
        foreign=sum(backend.weight for backend in found if backend not in ours),
        cohort=_cohort(traffic, route) if traffic.gateway else "",
        pending=pending,
        writer=_writer(route),
        written=_written(route),
        changed=_changed(route),
        endpoints=endpoints(objects),
    )


def is_our_service(name: str, service: str) -> bool:
    """`Service <name>` or that of one of its revisions."""
    return service == name or (service.startswith(f"{name}-") and len(service) == len(name) + HASH)


def _revisions_behind(name: str, service: str, home: str | None, revisions: Mapping[str, Revision]) -> list[str]:
    if service != name:
        return [service]
    return list(revisions) if home is None else [home] if home else []


def _what(traffic: Traffic) -> str:
    if traffic.route:
        return f"HTTPRoute {traffic.route.name}"
    return f"hostname {', '.join(traffic.hostnames)}" if traffic.hostnames else "this listener without a hostname"


def _cohort(traffic: Traffic, route: Raw) -> str:
    """The cohort that a header rule of our own route serves; empty where there is none."""
    headers = [header for rule in rules(route) for match in rule.get("matches") or () for header in _headers(match)]
    known = {(cohort.header.name.lower(), cohort.header.value): cohort.name for cohort in traffic.cohorts}
    return next((known[header] for header in headers if header in known), "unknown" if headers else "")


def _headers(match: Raw) -> list[tuple[str, str]]:
    return [(str(item.get("name")).lower(), str(item.get("value"))) for item in match.get("headers") or ()]


def _writer(route: Raw) -> str:
    """The manager, other than we, that owns the rules; empty where only we do, or nobody says."""
    others = (entry for entry in _owners(route) if entry.get("manager") != names.FIELD_MANAGER)
    return next((str(entry.get("manager", "")) for entry in others if not entry.get("subresource")), "")


def _written(route: Raw) -> float | None:
    return _latest(entry for entry in _entries(route) if entry.get("manager") == names.FIELD_MANAGER)


def _changed(route: Raw) -> float | None:
    return _latest(_owners(route))


def _entries(route: Raw) -> list[Raw]:
    return list(route["metadata"].get("managedFields") or ())


def _owners(route: Raw) -> list[Raw]:
    """Who owns the rules: what the API server remembers of each."""
    return [entry for entry in _entries(route) if "f:rules" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})]


def _latest(entries: Iterable[Raw]) -> float | None:
    times = [timestamp(entry.get("time")) for entry in entries]
    return max((time for time in times if time is not None), default=None)


def endpoints(objects: Objects) -> dict[str, frozenset[str]]:
    """The addresses of the ready endpoints of each Service."""
    found: dict[str, set[str]] = {}
    for part in objects.endpoint_slices:
        service = (part["metadata"].get("labels") or {}).get("kubernetes.io/service-name", "")
        found.setdefault(service, set()).update(_ready_addresses(part))
    return {service: frozenset(addresses) for service, addresses in found.items()}


def _ready_addresses(part: Raw) -> list[str]:
    items: list[Mapping[str, Any]] = list(part.get("endpoints") or ())
    ready = [item for item in items if (item.get("conditions") or {}).get("ready") is not False]
    return [str(address) for item in ready for address in item.get("addresses") or ()]
