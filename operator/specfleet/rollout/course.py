"""What this pass decides: the pods wanted, whom `Service <name>` selects, what is latched, why it waits. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from specfleet.api import names
from specfleet.api.reasons import Reason, named
from specfleet.judgement.guards import Guard, first_failure
from specfleet.judgement.verdict import Verdict
from specfleet.resources.devices import told
from specfleet.rollout import margins, orders
from specfleet.rollout.canary import advance
from specfleet.rollout.capacity import in_words, may_borrow, steps_of
from specfleet.rollout.contest import noticed, stalled
from specfleet.rollout.facts import arm_facts, canary_facts, cannot_lend, policy, probe_unknown, verdict
from specfleet.rollout.memory import Decision, Memory, Rollout
from specfleet.rollout.note import Note
from specfleet.rollout.orders import Mark
from specfleet.rollout.rest import not_ready, rest
from specfleet.rollout.roles import hard
from specfleet.rollout.scene import Scene
from specfleet.rollout.turn import Abort, Facts, Turn
from specfleet.rollout.world import Revision
from specfleet.telemetry.evidence import EMPTY

#: What full load may bring out, which the canary had not seen, and no prompt or client can be blamed for.
BY_ITSELF = (Guard.ALIVE, Guard.PROGRESS)
UNDO = "the revision before it returns"  # why a rollout goes to 100 percent without steps and proof


@dataclass(frozen=True, slots=True)
class Course:
    """The outcome of one pass. `carrier` is the revision that gets every request, None when several share them."""

    memory: Memory
    wanted: Mapping[str, int]
    carrier: str | None
    hold: Note
    verdict: Verdict | None = None
    turn: Turn | None = None
    marks: tuple[Mark, ...] = ()
    promote: Revision | None = None
    create: bool = False
    decided: tuple[Decision, ...] = field(default=())


def chart(scene: Scene) -> Course:
    """The course of this pass. Total: every scene has one."""
    memory = noticed(scene, _settled(scene))
    roles = scene.roles
    if scene.spec.replicas == 0:
        hold = Note(Reason.SCALED_TO_ZERO, "spec.replicas is 0: nothing starts")
        return _finish(scene, Course(memory, {}, roles.stable.name if roles.stable else "", hold))
    if roles.stable is None:
        return _finish(scene, _first(scene, memory))
    if roles.target is None:
        hold = Note(Reason.CANARY_STARTING, "a new revision is made")
        return _finish(scene, Course(memory, _resting(scene), _narrow(scene), hold, create=True))
    if roles.canary is not None:
        return _finish(scene, _canary(scene, memory, roles.stable, roles.canary))
    return _finish(scene, Course(memory, _resting(scene), _narrow(scene), rest(scene), marks=_reversal(scene)))


def _finish(scene: Scene, course: Course) -> Course:
    """Remember the spec in force, and list what is new among the decisions."""
    written = {key: value for key, value in scene.written.items() if key != "replicas"}
    known = set(scene.memory.decisions)
    fresh = tuple(decision for decision in course.memory.decisions if decision not in known)
    if course.hold.reason is not Reason.CANARY_ABORTED and (contest := stalled(scene, course.memory)):
        course = replace(course, hold=contest)
    if course.hold.reason is Reason.WAITING_FOR_GPUS and scene.seen.devices is not None:
        nodes = told(scene.seen.devices, scene.spec.accelerator.resource)
        course = replace(course, hold=Note(course.hold.reason, f"{course.hold.message}; {nodes}"))
    marks = course.marks
    if scene.spec.replicas and not course.create:
        marks = (*marks, *orders.unanswered(scene, marks))
    return replace(course, memory=replace(course.memory, spec=written), decided=fresh, marks=marks)


def _settled(scene: Scene) -> Memory:
    """The memory after what the cluster says has happened to the rollout that it knows: promoted, aborted, replaced."""
    memory, roles = scene.memory, scene.roles
    rollout = memory.rollout
    if rollout and (ended := _ending(scene, rollout)):
        decision = Decision(scene.now, ended.reason, ended.message, rollout.canary)
        memory = replace(memory.decided(decision), rollout=None)
    coming = roles.canary or (roles.target if roles.stable is None else None)
    if coming and memory.rollout is None and scene.spec.replicas:
        begun = _begun(roles.stable, coming)
        begun = replace(begun, promoting=UNDO, ordered=True) if roles.undoing else begun
        memory = replace(memory.decided(_started(scene, coming)), rollout=begun)
    return memory


def _begun(stable: Revision | None, coming: Revision) -> Rollout:
    return Rollout(coming.name, (stable.uid if stable else "", coming.uid))


def _started(scene: Scene, coming: Revision) -> Decision:
    stable = scene.roles.stable
    if stable is None:
        return Decision(scene.now, Reason.REVISION_CREATED, f"{coming.name} is the first revision", coming.name)
    rejected = f"{stable.name} is rejected ({stable.aborted})"
    undoing = scene.roles.undoing
    plan = in_words(scene.spec, () if undoing else steps_of(scene.spec))
    message = f"{coming.name} starts; {rejected if undoing else f'{stable.name} stays stable'}; {plan}"
    return Decision(scene.now, Reason.CANARY_STARTED, message, coming.name)


def _ending(scene: Scene, rollout: Rollout) -> Note | None:
    roles = scene.roles
    if roles.stable and roles.stable.name == rollout.canary and roles.stable.uid == rollout.uids[1]:
        reason = Reason.UNDONE if rollout.promoting == UNDO else Reason.PROMOTED
        return Note(reason, f"{rollout.canary} is stable: {rollout.promoting or 'its pods are ready'}")
    revision = scene.revisions.get(rollout.canary)
    if revision and revision.aborted and revision.uid == rollout.uids[1]:
        why, _, message = revision.aborted.partition(": ")
        return Note(named(why) or Reason.ABORTED, message)
    if roles.target and roles.target is roles.stable and not roles.undoing:
        return Note(Reason.CANARY_CLEARED, f"the spec is {roles.stable.name}'s again; {rollout.canary} goes")
    coming = roles.canary or (roles.target if roles.stable is None else None)
    current = _begun(roles.stable, coming).uids if coming else None
    if roles.target is not None and current != rollout.uids:
        return Note(Reason.CANARY_REPLACED, f"{roles.target.name} replaces {rollout.canary}")
    return None


def _resting(scene: Scene) -> dict[str, int]:
    """Stable whole, the retained revision as it is, everything else gone."""
    roles = scene.roles
    wanted = {roles.stable.name: scene.spec.replicas} if roles.stable else {}
    if roles.retained:
        wanted[roles.retained.name] = min(roles.retained.wanted, scene.bounds(scene.borrows).surge)
    return wanted


def _narrow(scene: Scene, abort: Abort | None = None) -> str | None:
    """Who carries when no canary may: stable, once it can take over what others still carry.

    After an abort its ready pods need only carry the load of late; after a hard one a single ready pod is enough: any
    answer of it is better than the canary's.
    """
    stable, target = scene.roles.stable, scene.roles.target
    if stable is None:
        return ""
    sole = scene.routing.sole
    leaves_at_once = abort.hard if abort else target is not None and hard(target.aborted)
    aborted = abort is not None or scene.roles.latched
    if sole is not None and not stable.ready:
        # Never to nobody: what carries may be a revision whose record someone has deleted.
        return sole or stable.name
    if sole in ("", stable.name) or (sole is not None and not scene.routing.gateway):
        return stable.name
    carried = any(revision.ready for revision in scene.revisions.values() if revision is not stable)
    enough = stable.ready >= max(1, scene.bounds(scene.borrows).fewest)
    able = leaves_at_once or enough or (aborted and not scene.overload(stable.ready))
    return stable.name if not carried or (stable.ready and able) else None


def _first(scene: Scene, memory: Memory) -> Course:
    """The first revision has no steps: it becomes stable when its pods are ready, alive and correct."""
    target = scene.roles.target
    if target is None:
        return Course(memory, {}, "", Note(Reason.FIRST_ROLLOUT, "the first revision is made"), create=True)
    course = Course(memory, {target.name: scene.spec.replicas}, target.name, not_ready(target, Reason.FIRST_ROLLOUT))
    failure = first_failure(arm_facts(scene, target, scene.seen.stable), None)
    if failure:
        return replace(course, hold=Note(Reason.PODS_CRASHING, f"{failure.reason}: {failure.message}"))
    if target.ready < scene.spec.replicas or not target.ready:
        return course
    if scene.probed(target.pods) < target.ready:
        unknown = probe_unknown(scene, target)
        waiting = f"{scene.probed(target.pods)} of {target.ready} pods have answered their probes"
        note = Note(Reason.PROBE_UNKNOWN, unknown) if unknown else Note(Reason.FIRST_ROLLOUT, waiting)
        return replace(course, hold=note)
    why = f"{target.ready} pods alive and correct"
    rollout = replace(memory.rollout or _begun(None, target), promoting=why)
    return replace(
        course, memory=replace(memory, rollout=rollout), promote=target, hold=Note(Reason.FIRST_ROLLOUT, why)
    )


def _canary(scene: Scene, memory: Memory, stable: Revision, canary: Revision) -> Course:
    rollout = memory.rollout or _begun(stable, canary)
    borrowed = rollout.borrowed or _must_borrow(scene, canary)
    rollout = replace(rollout, borrowed=borrowed, pods=rollout.pods or margins.last_pods(scene.spec))
    evidence = scene.seen.evidence if scene.seen.evidence_of == rollout.uids else EMPTY
    judged = verdict(scene, stable, canary, evidence, rollout)
    if (pending := scene.routing.pending) and pending.reason is Reason.ROUTE_REFS_NOT_RESOLVED and rollout.routed:
        rollout = replace(rollout, unresolved=scene.now)
    facts = canary_facts(scene, stable, canary, rollout, judged, evidence)
    turn = advance(rollout, facts, policy(scene, rollout), scene.now)
    memory = replace(memory, rollout=turn.rollout)
    if turn.decided:
        memory = memory.decided(Decision(scene.now, turn.decided.reason, turn.decided.message, canary.name))
    course = Course(memory, {}, None, turn.hold, verdict=judged, turn=turn, marks=_marks(scene, canary, turn))
    if turn.abort:
        return replace(course, wanted=_resting(scene), carrier=_narrow(scene, turn.abort))
    carrier = None if turn.carry or _must_carry_all(facts) else _narrow(scene)
    # A Service that still selects every revision would choose pods that have yet to prove themselves.
    exposed = scene.routing.sole is None and not canary.wanted and not turn.carry
    wanted = _resting(scene) if exposed else {stable.name: turn.shape.stable, canary.name: turn.shape.canary}
    if carrier == stable.name and canary.name in scene.routing.carriers and canary.deployment:
        withdrawn = Decision(scene.now, Reason.WEIGHT_WITHDRAWN, turn.hold.message, canary.name)
        course = replace(course, memory=memory.decided(withdrawn))
    return replace(course, wanted=wanted, carrier=carrier, promote=canary if turn.promote else None)


def _marks(scene: Scene, canary: Revision, turn: Turn) -> tuple[Mark, ...]:
    """The latch of an abort, and the action that this pass honours."""
    asked = orders.of_the_canary(scene, canary)
    if turn.abort is None:
        return asked
    line = f"{turn.abort.reason}: {turn.abort.message}"
    notes = {names.ABORTED: line, **(asked[0].notes if asked else {})}
    return (Mark(canary, notes, f"abort latches: {line}", urgent=True),)


def _reversal(scene: Scene) -> tuple[Mark, ...]:
    """At rest: what a person asks for, else the latch on a stable revision that a guard rejects."""
    if asked := orders.at_rest(scene):
        return asked
    stable = orders.undoable(scene)
    if stable is None or not scene.roles.retained:
        return ()
    failure = first_failure(arm_facts(scene, stable, scene.seen.stable), None)
    if failure is None or failure.guard not in BY_ITSELF:
        return ()
    line = f"{failure.reason}: {failure.message}"
    return (Mark(stable, {names.ABORTED: line}, f"{stable.name} is rejected: {line}", urgent=True),)


def _must_carry_all(facts: Facts) -> bool:
    """Stable has no ready pod and the canary is alive and correct: better it than nobody."""
    good = facts.failure is None or not facts.failure.hard
    return not facts.stable.ready and facts.canary.ready > 0 and facts.probed >= facts.canary.ready and good


def _must_borrow(scene: Scene, canary: Revision) -> bool:
    """No limit was set, no GPU is free to surge, and the rest of stable can hold the load of late."""
    return bool(canary.roomless) and may_borrow(scene.spec) and not cannot_lend(scene)
