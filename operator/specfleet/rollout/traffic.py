"""Who is to get which part of the requests, and the writes that bring `Service <name>` and the route there. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from specfleet.resources.owned import is_ours
from specfleet.resources.route import API_VERSION, KIND, Backend, Cohort, http_route, patch
from specfleet.resources.service import stable_service
from specfleet.rollout.backends import announces, base_weight, following
from specfleet.rollout.capacity import steps_of
from specfleet.rollout.contest import answered, withholds
from specfleet.rollout.course import Course
from specfleet.rollout.lingering import lingering
from specfleet.rollout.preconditions import Verb, Write, applied, deleted
from specfleet.rollout.routing import is_our_service
from specfleet.rollout.scene import Scene
from specfleet.rollout.turn import Turn, step_at
from specfleet.rollout.world import Revision

REWRITE_SECONDS = 2.0  # between two writes over what somebody else wrote


@dataclass(frozen=True, slots=True)
class Shift:
    """Writes that lower the risk, which go first, and those that raise it, which go after the pods."""

    lowering: tuple[Write, ...] = ()
    raising: tuple[Write, ...] = ()
    share: int | None = None  # percent that they give the canary by the route
    parts: Mapping[str, int] = field(default_factory=dict)  # in percent by revision, where it is known what each gets


@dataclass(frozen=True, slots=True)
class Split:
    """Parts of the requests in percent by revision, the stable one first, and the cohort that goes to the canary."""

    parts: Mapping[str, int]
    cohort: str = ""


def shift(scene: Scene, course: Course) -> Shift:
    """The writes of this pass."""
    gone = tuple(_unused_route(scene))
    if not scene.routing.gateway:
        written = tuple(_service(scene, course.carrier, risky=course.carrier is None))
        parts = {course.carrier: 100} if course.carrier else {}
        return Shift(gone, written) if course.carrier is None else Shift((*gone, *written), parts=parts)
    split = wanted(scene, course)
    service = tuple(_pointed(scene, course))
    route = tuple(_route(scene, course, split))
    canary = scene.roles.canary
    share = split.parts.get(canary.name, 0) if canary and route else None
    if _rises(scene, split):
        return Shift((*gone, *service), route, share, split.parts)
    return Shift((*gone, *service, *route), (), share, split.parts)


def remaining(scene: Scene, requests: Shift) -> frozenset[str]:
    """Whose pods are capacity, when this pass drains any, for what others may spare.

    A Service that is narrowed is so by then. A route may be read later or sooner: there it is who carries before and
    after, and not whom only `Service <name>` selects, since what comes by the route does not reach them.
    """
    if not requests.parts:
        return scene.carriers
    return scene.routing.carriers & requests.parts.keys() if scene.routing.gateway else frozenset(requests.parts)


def _service(scene: Scene, revision: str | None, risky: bool) -> Iterator[Write]:
    """`Service <name>`. Selecting every revision raises risk; narrowing it to one never may be refused."""
    if revision == "":
        return
    desired = stable_service(scene.sdd, revision)
    live = scene.objects.services.get(scene.name)
    why = f"Service {scene.name} selects {revision or 'every revision'}" if scene.selected != revision else ""
    yield from applied(desired, live, why, risky)


def _pointed(scene: Scene, course: Course) -> Iterator[Write]:
    """With a gateway `Service <name>` follows stable, but only while no route sends requests by it. Where stable serves
    nobody it is whom the route gives everything: without that, callers inside the cluster would find nobody."""
    stable, sole = scene.roles.stable, scene.routing.sole
    home = stable or scene.roles.target
    if home is None:
        return
    if stable and sole and _empties(scene, course, stable) and (alone := scene.revisions.get(sole)) and alone.ready:
        home = alone
    free = stable is None or not scene.selected or not scene.routing.uses(scene.name)
    one = home.name if free or scene.selected == home.name else scene.selected
    yield from _service(scene, one, risky=False)


def _empties(scene: Scene, course: Course, stable: Revision) -> bool:
    """Stable has no pod that serves, or its last one goes in this pass."""
    return not stable.ready or not (course.wanted.get(stable.name, 0) or lingering(scene, stable))


def wanted(scene: Scene, course: Course) -> Split:
    """The split that this pass wants. A weight rises only where every pod has answered its probes, the route is in
    force and nobody contests it."""
    stable, canary, turn = scene.roles.stable, scene.roles.canary, course.turn
    if course.carrier is not None or stable is None:
        return Split({course.carrier: 100} if course.carrier else {})
    if canary is None or turn is None or turn.abort or (stable.ready and not turn.carry):
        return _leaving(scene, stable)  # of the canary before this one too, whose share is none of this one's
    return _held(scene, course, _split(scene, turn, stable, canary))


def _split(scene: Scene, turn: Turn, stable: Revision, canary: Revision) -> Split:
    """What the step asks for, but no more than the canary's part of the ready pods can carry."""
    step, ready = step_at(steps_of(scene.spec), turn.rollout), canary.ready + stable.ready
    share = 100 * canary.ready // ready if ready else 0
    bounds = scene.bounds(turn.rollout.borrowed)
    # Without a surge stable's last pod makes room for the canary's last, so its requests must have gone before it.
    enough = bounds.replicas if bounds.surge else max(1, bounds.fewest)
    whole = canary.ready >= enough and stable.wanted <= max(1, bounds.surge)
    if not stable.ready or (turn.rollout.promoting and whole):
        return Split({canary.name: 100})
    kept = _kept(scene, stable, scene.routing.percent(canary.name) or 0)
    if step.cohort and not turn.rollout.promoting:
        return _parts({stable.name: 100 - kept, canary.name: kept}, step.cohort)
    weight = max(kept, share if turn.rollout.promoting else min(step.weight, max(1, share)))
    return _parts({stable.name: 100 - weight, canary.name: weight})


def _parts(parts: Mapping[str, int], cohort: str = "") -> Split:
    return Split({revision: part for revision, part in parts.items() if part > 0}, cohort)


def _leaving(scene: Scene, stable: Revision) -> Split:
    """What should not carry leaves as fast as stable's ready pods can take over."""
    others = {name: scene.routing.percent(name) or 0 for name in scene.routing.weights if name != stable.name}
    total = sum(others.values())
    left = {name: _kept(scene, stable, total) * part // max(1, total) for name, part in others.items()}
    return _parts({stable.name: 100 - sum(left.values()), **left})


def _kept(scene: Scene, stable: Revision, live: int) -> int:
    """How much of what others have now, `live` percent, stable's ready pods cannot take over yet."""
    fewest = max(1, scene.bounds(scene.borrows).fewest)
    return min(live, 100 - min(100, 100 * stable.ready // fewest))


def _held(scene: Scene, course: Course, split: Split) -> Split:
    """Instead of a raise that may not be: the canary's share as it is."""
    canary, stable = scene.roles.canary, scene.roles.stable
    if canary is None or stable is None or not _rises(scene, split):
        return split
    unproven = scene.probed(canary.pods) < canary.ready
    if not stable.ready or not (unproven or scene.routing.pending or withholds(course.memory, scene.now)):
        return split
    live = scene.routing.percent(canary.name) or 0
    return _parts({stable.name: 100 - live, canary.name: live}, scene.routing.cohort if split.cohort else "")


def _rises(scene: Scene, split: Split) -> bool:
    """Some revision but stable gets more than it has, or a cohort that it had not."""
    stable, routing = scene.roles.stable, scene.routing
    home = stable.name if stable else ""
    more = any(part > (routing.percent(name) or 0) for name, part in split.parts.items() if name != home)
    return more or bool(split.cohort and split.cohort != routing.cohort)


def _route(scene: Scene, course: Course, split: Split) -> Iterator[Write]:
    routing, traffic = scene.routing, scene.spec.traffic
    if not split.parts or scene.seen.rival or not scene.objects.gateway_api or not _may_write(scene):
        return
    target, cohorts = {_backend(scene, name): part for name, part in split.parts.items()}, _cohorts(scene, split)
    backends = following(scene, course, {**target, **{item.backend: target.get(item.backend, 0) for item in cohorts}})
    cohorts = [cohort for cohort in cohorts if _entered(scene, cohort)]
    why = f"route: {', '.join(_said(scene, course, backends, cohorts))}"
    if traffic.route:
        silenced = not base_weight(scene, course) and not routing.weights  # by the user, who wants nobody here
        yield from () if silenced else _patched(scene, backends, _rises(scene, split), why)
        return
    desired = http_route(scene.sdd, traffic, backends, cohorts)
    if routing.route is not None and not is_ours(routing.route, scene.uid):
        return
    yield from applied(desired, routing.route, why, _rises(scene, split))


def _said(scene: Scene, course: Course, backends: list[Backend], cohorts: list[Cohort]) -> Iterator[str]:
    for cohort in cohorts:
        yield f"{cohort.header.name}: {cohort.header.value} to {cohort.backend}"
    total = sum(backend.weight for backend in backends) or 1
    for backend in backends:
        target = scene.roles.target.name if scene.roles.target else "nobody"
        behind = f" ({scene.selected or target})" if backend.name == scene.name else ""
        yield f"{round(100 * backend.weight / total)}% to {backend.name}{behind}"
    if announces(scene, course, backends):
        yield "which every gateway is to read before others get any"


def _may_write(scene: Scene) -> bool:
    """What somebody else wrote is overwritten at a bounded rate, whoever they are and however often they come. When we
    wrote last the route may not say any more: who overwrites all that we own takes our entry with it."""
    routing = scene.routing
    lately = routing.written is not None and scene.now < routing.written + REWRITE_SECONDS
    return not routing.writer or not (lately or answered(scene.memory, scene.now))


def _backend(scene: Scene, revision: str) -> str:
    """`Service <name>` where it leads to this revision and its endpoints are there; else the revision's own Service,
    which all but stable keep once it has their requests."""
    stable = scene.roles.stable
    if stable and stable.name != revision and scene.routing.uses(revision):
        return revision
    if scene.selected != revision and not (scene.roles.stable is None and not scene.selected):
        return revision
    known = scene.revisions.get(revision)
    if scene.routing.route is None or scene.routing.uses(scene.name) or known is None:
        return scene.name
    there = scene.routing.endpoints.get(scene.name, frozenset())
    mine = {pod.ip for pod in known.pods if pod.taking_traffic}
    return scene.name if there and mine <= there <= {pod.ip for pod in known.pods} else revision


def _cohorts(scene: Scene, split: Split) -> list[Cohort]:
    canary = scene.roles.canary
    found = [cohort for cohort in scene.spec.traffic.cohorts if cohort.name == split.cohort]
    return [Cohort(cohort.header, canary.name) for cohort in found] if canary else []


def _entered(scene: Scene, cohort: Cohort) -> bool:
    """Its Service is in the weighted rule, and every gateway knows."""
    there = any(backend.name == cohort.backend for backend in scene.routing.backends)
    return bool(scene.routing.cohort) or (there and scene.routing.pending is None)


def _patched(scene: Scene, backends: list[Backend], risky: bool, why: str) -> Iterator[Write]:
    """Our references in one rule of the user's own route; at rest as Git has it."""
    routing, live = scene.routing, scene.routing.route
    if live is None or routing.rule is None or not routing.backends:
        return
    if tuple(backends) == routing.backends:
        return
    ours = frozenset(backend.name for backend in routing.backends if is_our_service(scene.name, backend.name))
    operations = patch(live, routing.rule, ours, backends, risky)
    meta: dict[str, Any] = {"name": live["metadata"]["name"], "uid": live["metadata"]["uid"]}
    yield Write(Verb.JSON_PATCH, {"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "patch": operations}, why)


def _unused_route(scene: Scene) -> Iterator[Write]:
    """Our own route, when the spec names no gateway any more."""
    live = scene.objects.routes.get(scene.name)
    if scene.spec.traffic.gateway is None and live is not None and is_ours(live, scene.uid):
        yield deleted(live, "spec.traffic.gateway is not set any more")
