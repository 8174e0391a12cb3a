"""How the backends of a rule go from what they are to what is wanted, so that no request finds none. Pure.

A gateway tells its proxies of routes and of Services by different ways, in any order. So a Service comes into a rule
with weight 0, and gets its weight when every gateway has read that; and one that leaves stays with 0 until nobody can
miss it. Contour lost 55 of 4300 requests to Services that were swapped at once, and none to this.

Before a Service comes in, another weight of what is there alone is written, which divides nothing: a gateway that
stands still, unseen, would read the route before the Service when it goes on, and Envoy Gateway then fails every
request of the route for 15 s. It must first show that it reads.
"""

from collections.abc import Mapping

from specfleet.resources.route import Backend
from specfleet.rollout.course import Course
from specfleet.rollout.routing import announcement
from specfleet.rollout.scene import Scene

FORGET_SECONDS = 5.0  # after the last change of the rules, until a Service without weight may leave them
PARTS = 100  # the weights of a rule that is divided, where nobody else's backends are in it


def base_weight(scene: Scene, course: Course) -> int:
    """The weight of the only backend at rest."""
    return course.memory.base_weight if scene.spec.traffic.route else 1


def following(scene: Scene, course: Course, target: Mapping[str, int]) -> list[Backend]:
    """What the rule says next; `target` are parts of 100 by Service, with 0 for one that is to be there without any."""
    base, routing = base_weight(scene, course), scene.routing
    total = base if routing.foreign else PARTS
    live = {backend.name: backend.weight for backend in routing.backends}
    coming = [name for name in target if name not in live]
    if coming and live and not _urgent(scene):
        return _entering(scene, base, coming)
    parts = _scaled(target, total)
    weights = {name: parts.get(name, 0) for name in (*live, *coming)}
    gone = [name for name in weights if name not in target and _forgettable(scene, course, name)]
    kept = [Backend(name, part) for name, part in weights.items() if name not in gone]
    if len(kept) > 1:
        return kept
    alone = announcement(base) if routing.announced(base) and _on_its_way(course) else base
    return [Backend(backend.name, alone) for backend in kept]


def announces(scene: Scene, course: Course, backends: list[Backend]) -> bool:
    """These backends say nothing but that another one comes."""
    base = base_weight(scene, course)
    return not scene.routing.foreign and [backend.weight for backend in backends] == [announcement(base)]


def _entering(scene: Scene, base: int, coming: list[str]) -> list[Backend]:
    """What is there stays as it is; what comes gets nothing yet."""
    routing = scene.routing
    live = list(routing.backends)
    if len(live) == 1 and not routing.foreign and not routing.announced(base):
        return [Backend(live[0].name, announcement(base))]
    if routing.pending:
        return live
    if len(live) == 1 and not routing.foreign:
        live = [Backend(live[0].name, PARTS)]
    return [*live, *(Backend(name, 0) for name in coming)]


def _scaled(target: Mapping[str, int], total: int) -> dict[str, int]:
    """The parts as weights with this sum: of those with any, each but the first gets what is nearest, 1 at least."""
    home, *others = [name for name, part in target.items() if part] or [""]
    weights = {name: max(1, round(total * target[name] / PARTS)) for name in others}
    return {**dict.fromkeys(target, 0), home: total - sum(weights.values()), **weights}


def _forgettable(scene: Scene, course: Course, name: str) -> bool:
    """A Service without weight may leave the rule: whoever could still send requests to it has long heard of that."""
    routing = scene.routing
    given = any(backend.name == name and backend.weight for backend in routing.backends)
    soon = routing.changed is not None and scene.now < routing.changed + FORGET_SECONDS
    if name == scene.name or given or soon or routing.pending:
        return False
    canary, stable = scene.roles.canary, scene.roles.stable
    if canary is not None and canary.name == name and _on_its_way(course):
        return False
    revision = scene.revisions.get(name)
    return revision is None or revision is stable or not any(pod.taking_traffic for pod in revision.pods)


def _on_its_way(course: Course) -> bool:
    return course.turn is not None and not course.turn.abort


def _urgent(scene: Scene) -> bool:
    """Whom the route names now can answer nobody: what comes does so at once."""
    carriers = [scene.revisions[name] for name in scene.routing.weights if name in scene.revisions]
    return not any(revision.ready for revision in carriers)
