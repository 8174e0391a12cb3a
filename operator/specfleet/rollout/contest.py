"""What the live route says, remembered: its weight at rest, the canary's share, and who else rewrites them. Pure.

A share that somebody else has changed is a contest: told once, and no weight rises against them.
"""

from dataclasses import replace

from specfleet.api.reasons import Reason
from specfleet.rollout.memory import Contest, Decision, Memory, Rollout
from specfleet.rollout.note import Note
from specfleet.rollout.scene import Scene

QUIET_SECONDS = 30.0  # after a rewrite, before a weight rises again
ONE_SECONDS = 2.0  # rewrites within so long count as one, and are answered once
FORGOTTEN_SECONDS = 600.0  # after the last rewrite
TOO_MANY = 3  # rewrites, after which a person must act


def noticed(scene: Scene, memory: Memory) -> Memory:
    """The memory with the share that the route gives now; a change of it that somebody else wrote is a contest."""
    routing = scene.routing
    if not routing.gateway or routing.route is None:
        return memory
    rollout, stable = memory.rollout, scene.roles.stable
    if rollout:
        share = routing.percent(rollout.canary) or 0
        changed = share != rollout.routed or _taken_back(scene, rollout, share)
        memory = replace(memory, rollout=replace(rollout, routed=share, sent=None))
    else:
        changed = stable is not None and routing.sole != stable.name and not _counted(scene, memory)
    before = memory.contest
    never = memory.rollout is None or not (memory.rollout.routed or memory.rollout.promoting)
    ours = routing.announced(memory.base_weight) and not routing.writer
    # Whoever else writes one reference to it says how much it weighs at rest, even in the middle of a rollout.
    if (never or routing.writer) and not ours and [backend.name for backend in routing.backends] == [scene.name]:
        memory = replace(memory, base_weight=routing.backends[0].weight)
        changed = changed and bool(memory.base_weight)  # who gives us 0 in a route of their own wants nobody here
    if before and scene.now - before.last > FORGOTTEN_SECONDS:
        memory = replace(memory, contest=None)
    return _more(scene, memory) if changed and routing.writer else memory


def _taken_back(scene: Scene, rollout: Rollout, share: int) -> bool:
    """Whoever takes a weight back at once leaves no other trace than that it is not what was sent. A crash before it
    was sent leaves that too, but rules that are older."""
    changed = scene.routing.changed
    return rollout.sent not in (None, share) and changed is not None and changed >= int(rollout.sent_at)


def _counted(scene: Scene, memory: Memory) -> bool:
    """Nobody has rewritten the route since: at rest every look meets what one of them left."""
    contest, changed = memory.contest, scene.routing.changed
    return contest is not None and changed is not None and changed <= contest.last


def answered(memory: Memory, now: float) -> bool:
    """Somebody's rewrite was noticed, and overwritten, only just."""
    return memory.contest is not None and now < memory.contest.last + ONE_SECONDS


def _more(scene: Scene, memory: Memory) -> Memory:
    before, writer = memory.contest, scene.routing.writer
    if answered(memory, scene.now):
        return memory
    memory = replace(memory, contest=Contest(writer, before.times + 1 if before else 1, scene.now))
    if before:
        return memory
    revision = memory.rollout.canary if memory.rollout else ""
    text = f"{writer} has changed the weights of HTTPRoute {_name(scene)}; none of them is raised against it"
    return memory.decided(Decision(scene.now, Reason.ROUTE_CONTESTED, text, revision))


def stalled(scene: Scene, memory: Memory) -> Note | None:
    """What a person must settle, once it has happened too often."""
    contest = memory.contest
    if contest is None or contest.times < TOO_MANY:
        return None
    text = f"{contest.manager} has rewritten HTTPRoute {_name(scene)} {contest.times} times; no weight rises"
    return Note(Reason.ROUTE_CONTESTED, text)


def withholds(memory: Memory, now: float) -> bool:
    """No weight may rise now."""
    contest = memory.contest
    return contest is not None and (contest.times >= TOO_MANY or now < contest.last + QUIET_SECONDS)


def _name(scene: Scene) -> str:
    return str(scene.routing.route["metadata"]["name"]) if scene.routing.route else scene.name
