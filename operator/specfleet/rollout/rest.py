"""Why a fleet without a canary waits, in words: a reason of the documented list and a line with the numbers. Pure."""

from specfleet.api.reasons import Reason
from specfleet.rollout.note import Note
from specfleet.rollout.scene import Scene
from specfleet.rollout.world import Revision

PULLING = ("ImagePullBackOff", "ErrImagePull")


def rest(scene: Scene) -> Note:
    """What a fleet with a stable revision and no canary is waiting for, if for anything."""
    roles = scene.roles
    stable = roles.stable
    assert stable is not None
    if not stable.ready:
        return not_ready(stable, Reason.STABLE_UNAVAILABLE)
    if stable.aborted:
        return Note(Reason.CANARY_ABORTED, f"{stable.aborted}; no revision to return to passed its guards")
    if roles.latched and roles.target:
        return Note(Reason.CANARY_ABORTED, roles.target.aborted)
    if roles.leaving:
        return Note(Reason.DRAINING, ", ".join(f"{item.name}: {len(item.pods)} pods to go" for item in roles.leaving))
    if scene.routing.pending:
        return scene.routing.pending
    if len(scene.routing.backends) > 1:
        return Note(Reason.DRAINING, "the route still names a Service that gets nothing any more")
    if stable.ready < scene.spec.replicas or stable.wanted != scene.spec.replicas or stable.draining:
        return not_ready(stable, Reason.WAITING_FOR_PODS, scene.spec.replicas)
    if roles.retained:
        return Note(
            Reason.RETAINING_OLD, f"{roles.retained.name} keeps {roles.retained.wanted} pods for a quick return"
        )
    return Note(Reason.STABLE, f"{stable.name} serves with {stable.ready} pods")


def not_ready(revision: Revision, otherwise: Reason, wanted: int | None = None) -> Note:
    """What keeps pods of a revision from being ready, of those that it should have or of `wanted`; `otherwise` where it
    is nothing that is known."""
    ready = f"{revision.ready} of {revision.wanted if wanted is None else wanted} pods of {revision.name} ready"
    if revision.roomless:
        return Note(Reason.WAITING_FOR_GPUS, f"{ready}; {revision.roomless}")
    if revision.refused:
        return Note(Reason.API_ERROR, f"{ready}; {revision.refused}")
    for pod in revision.pods:
        if pod.trouble:
            reason = Reason.IMAGE_UNAVAILABLE if pod.trouble.startswith(PULLING) else Reason.PODS_CRASHING
            return Note(reason, f"{ready}; {pod.name}: {pod.trouble}")
    return Note(otherwise, ready)
