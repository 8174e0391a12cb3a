"""Which pods stay though nobody wants them any more, because requests may still come to them. Pure."""

from specfleet.rollout.roles import hard
from specfleet.rollout.scene import Scene
from specfleet.rollout.world import Pod, Revision

QUIET_SECONDS = 10.0  # without a new request, after which a data plane has surely heard that a revision left the route


def lingering(scene: Scene, revision: Revision) -> int:
    """Pods that a revision keeps, whatever is wanted of it, because requests may still reach it by the route.

    While it is in the route as many as its share needs, but for the one that makes room for another. After that all,
    until requests have come no more for a while, or `drainSeconds` have passed since the route was written and every
    gateway has read it: a data plane can be far behind what its controller says.
    """
    routing = scene.routing
    if not routing.gateway or hard(revision.aborted) or not revision.ready:
        return 0
    if share := routing.percent(revision.name):
        fewest = scene.bounds(scene.borrows).fewest
        return max(1, -(-share * fewest // 100) - 1)
    return revision.wanted if any(_loud(scene, pod) for pod in revision.pods if pod.taking_traffic) else 0


def _loud(scene: Scene, pod: Pod) -> bool:
    """Requests may still come: it is not long ago that one came. Where none has come since the revision left the route,
    the data plane may not even have begun to send them."""
    routing, seen = scene.routing, scene.seen.requested.get(pod.uid, 0.0)
    written = scene.seen.since if routing.changed is None else routing.changed
    late = scene.now >= written + scene.spec.pod.drain_seconds
    if late or seen > written:
        return not (late and routing.pending is None) and scene.now < seen + QUIET_SECONDS
    return True
