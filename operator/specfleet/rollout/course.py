"""What this pass decides: the pods wanted, whom `Service <name>` selects, what is latched, why it waits. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from specfleet.api.reasons import Reason, named
from specfleet.judgement.guards import ArmFacts, Failure, PodFacts, ProbeFacts, first_failure
from specfleet.judgement.judge import Policy as Margins
from specfleet.judgement.judge import judge
from specfleet.judgement.verdict import Verdict
from specfleet.rollout.canary import Abort, Facts, Note, Policy, Step, Turn, advance
from specfleet.rollout.memory import Decision, Memory, Rollout
from specfleet.rollout.roles import hard
from specfleet.rollout.scene import ArmSeen, Scene
from specfleet.rollout.world import Revision
from specfleet.telemetry.evidence import EMPTY, Evidence

NO_PROBES = ProbeFacts(0, 0, 0, "")
COMPARED = ("method", "numSpeculativeTokens", "schedule")  # equal in both arms, or acceptance is no comparison


@dataclass(frozen=True, slots=True)
class Course:
    """The outcome of one pass. `selector` is the revision for `Service <name>`, None for all of them."""

    memory: Memory
    wanted: Mapping[str, int]
    selector: str | None
    hold: Note
    verdict: Verdict | None = None
    turn: Turn | None = None
    latch: Abort | None = None
    promote: Revision | None = None
    create: bool = False
    handled: str = ""
    decided: tuple[Decision, ...] = field(default=())


def chart(scene: Scene) -> Course:
    """The course of this pass. Total: every scene has one."""
    memory = _settled(scene)
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
    return _finish(scene, Course(memory, _resting(scene), _narrow(scene), _rest(scene)))


def _finish(scene: Scene, course: Course) -> Course:
    """Remember the spec in force, and list what is new among the decisions."""
    written = {key: value for key, value in scene.written.items() if key != "replicas"}
    known = set(scene.memory.decisions)
    fresh = tuple(decision for decision in course.memory.decisions if decision not in known)
    return replace(course, memory=replace(course.memory, spec=written), decided=fresh)


def _settled(scene: Scene) -> Memory:
    """The memory after what the cluster says has happened to the rollout that it knows: promoted, aborted, replaced."""
    memory, roles = scene.memory, scene.roles
    rollout = memory.rollout
    if rollout and (ended := _ending(scene, rollout)):
        decision = Decision(scene.now, ended.reason, ended.message, rollout.canary)
        memory = replace(memory.decided(decision), rollout=None)
    coming = roles.canary or (roles.target if roles.stable is None else None)
    if coming and memory.rollout is None and scene.spec.replicas:
        memory = replace(memory.decided(_started(scene, coming)), rollout=_begun(roles.stable, coming))
    return memory


def _begun(stable: Revision | None, coming: Revision) -> Rollout:
    return Rollout(coming.name, (stable.uid if stable else "", coming.uid))


def _started(scene: Scene, coming: Revision) -> Decision:
    stable = scene.roles.stable
    if stable is None:
        return Decision(scene.now, Reason.REVISION_CREATED, f"{coming.name} is the first revision", coming.name)
    message = f"{coming.name} starts; {stable.name} stays stable"
    return Decision(scene.now, Reason.CANARY_STARTED, message, coming.name)


def _ending(scene: Scene, rollout: Rollout) -> Note | None:
    roles = scene.roles
    if roles.stable and roles.stable.name == rollout.canary and roles.stable.uid == rollout.uids[1]:
        return Note(Reason.PROMOTED, f"{rollout.canary} is stable: {rollout.promoting or 'its pods are ready'}")
    revision = scene.revisions.get(rollout.canary)
    if revision and revision.aborted and revision.uid == rollout.uids[1]:
        reason, _, message = revision.aborted.partition(": ")
        return Note(named(reason) or Reason.ABORTED, message)
    if roles.target and roles.target is roles.stable:
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


def _narrow(scene: Scene, at_once: bool = False) -> str | None:
    """Whom `Service <name>` selects when no canary may carry: stable, once it can take over what others still carry.

    After a hard abort (`at_once`) one ready pod of stable is enough: any answer of it is better than the canary's.
    """
    stable, target = scene.roles.stable, scene.roles.target
    if stable is None or scene.selected is not None:
        return stable.name if stable else ""
    at_once = (at_once or (target is not None and hard(target.aborted))) and stable.ready > 0
    carried = any(revision.ready for revision in scene.revisions.values() if revision is not stable)
    enough = stable.ready >= max(1, scene.bounds(scene.borrows).fewest)
    return stable.name if at_once or enough or not carried else None


def _rest(scene: Scene) -> Note:
    roles = scene.roles
    stable = roles.stable
    assert stable is not None
    if roles.latched and roles.target:
        return Note(Reason.CANARY_ABORTED, roles.target.aborted)
    if not stable.ready:
        return _not_ready(stable, Reason.STABLE_UNAVAILABLE)
    if roles.leaving:
        return Note(Reason.DRAINING, ", ".join(f"{item.name}: {len(item.pods)} pods to go" for item in roles.leaving))
    if stable.ready < scene.spec.replicas or stable.wanted != scene.spec.replicas or stable.draining:
        return _not_ready(stable, Reason.WAITING_FOR_PODS, scene.spec.replicas)
    if roles.retained:
        return Note(
            Reason.RETAINING_OLD, f"{roles.retained.name} keeps {roles.retained.wanted} pods for a quick return"
        )
    return Note(Reason.STABLE, f"{stable.name} serves with {stable.ready} pods")


def _not_ready(revision: Revision, otherwise: Reason, wanted: int | None = None) -> Note:
    ready = f"{revision.ready} of {revision.wanted if wanted is None else wanted} pods of {revision.name} ready"
    for pod in revision.pods:
        if pod.unschedulable:
            return Note(Reason.WAITING_FOR_GPUS, f"{ready}; {pod.name}: {pod.unschedulable}")
    for pod in revision.pods:
        if pod.trouble:
            return Note(Reason.PODS_CRASHING, f"{ready}; {pod.name}: {pod.trouble}")
    return Note(otherwise, ready)


def _first(scene: Scene, memory: Memory) -> Course:
    """The first revision has no steps: it becomes stable when its pods are ready, alive and correct."""
    target = scene.roles.target
    if target is None:
        return Course(memory, {}, "", Note(Reason.FIRST_ROLLOUT, "the first revision is made"), create=True)
    course = Course(memory, {target.name: scene.spec.replicas}, target.name, _not_ready(target, Reason.FIRST_ROLLOUT))
    failure = first_failure(_facts(scene, target, scene.seen.stable), None)
    if failure:
        return replace(course, hold=Note(Reason.PODS_CRASHING, f"{failure.reason}: {failure.message}"))
    if target.ready < scene.spec.replicas or not target.ready:
        return course
    if scene.probed(target.pods) < target.ready:
        unknown = _probe_unknown(scene, target)
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
    rollout = replace(rollout, borrowed=rollout.borrowed or _must_borrow(scene, canary))
    evidence = scene.seen.evidence if scene.seen.evidence_of == rollout.uids else EMPTY
    verdict = _verdict(scene, stable, canary, evidence)
    facts = _canary_facts(scene, stable, canary, verdict, len(evidence.blocks))
    turn = advance(rollout, facts, _policy(scene, rollout), scene.now)
    memory = replace(memory, rollout=turn.rollout)
    if turn.decided:
        memory = memory.decided(Decision(scene.now, turn.decided.reason, turn.decided.message, canary.name))
    course = Course(memory, {}, None, turn.hold, verdict=verdict, turn=turn, handled=_handled(scene, canary))
    if turn.abort:
        selector = _narrow(scene, turn.abort.hard)
        return replace(course, wanted=_resting(scene), selector=selector, latch=turn.abort)
    selector = None if turn.carry or _must_carry_all(facts) else _narrow(scene)
    exposed = (
        scene.selected is None and not canary.wanted and not turn.carry
    )  # a wide Service would choose unproven pods
    shape = {stable.name: turn.shape.stable, canary.name: turn.shape.canary}
    wanted = _resting(scene) if exposed else shape
    if selector is not None and canary.name in scene.carriers and canary.deployment:
        withdrawn = Decision(scene.now, Reason.WEIGHT_WITHDRAWN, turn.hold.message, canary.name)
        course = replace(course, memory=memory.decided(withdrawn))
    return replace(course, wanted=wanted, selector=selector, promote=canary if turn.promote else None)


def _must_carry_all(facts: Facts) -> bool:
    """Stable has no ready pod and the canary is alive and correct: better it than nobody."""
    good = facts.failure is None or not facts.failure.hard
    return not facts.stable.ready and facts.canary.ready > 0 and facts.probed >= facts.canary.ready and good


def _verdict(scene: Scene, stable: Revision, canary: Revision, evidence: Evidence) -> Verdict:
    analysis = scene.spec.rollout.analysis
    comparable = all(stable.payload.get(key) == canary.payload.get(key) for key in COMPARED)
    margins = Margins(
        speed_percent=analysis.margins.speed_percent,
        acceptance_points=analysis.margins.acceptance_points,
        error_points=analysis.margins.error_points,
        max_blocks=max(1, analysis.max_seconds // analysis.block_seconds),
    )
    return judge(evidence, comparable, margins)


def _policy(scene: Scene, rollout: Rollout) -> Policy:
    wanted, analysis = scene.spec.rollout, scene.spec.rollout.analysis
    weights = tuple(Step(step.weight, step.min_seconds) for step in wanted.steps if step.weight is not None)
    return Policy(
        steps=weights or (Step(50),),
        bounds=scene.bounds(rollout.borrowed),
        paused=scene.spec.paused,
        max_blocks=max(1, analysis.max_seconds // analysis.block_seconds),
        abort_inconclusive=wanted.on_inconclusive == "Abort",
        startup_seconds=scene.spec.pod.startup_seconds,
    )


def _canary_facts(scene: Scene, stable: Revision, canary: Revision, verdict: Verdict, blocks: int) -> Facts:
    failure: Failure | None = first_failure(
        _facts(scene, canary, scene.seen.canary), _facts(scene, stable, scene.seen.stable)
    )
    action = scene.spec.rollout.action
    meant = action.type if action and action.revision == canary.name and action.id != canary.handled_action else ""
    return Facts(
        canary=canary,
        stable=stable,
        failure=failure,
        verdict=verdict,
        blocks=blocks,
        probed=scene.probed(canary.pods),
        probe_unknown=_probe_unknown(scene, canary),
        carrying=scene.selected is None,
        third=any(revision.alive for revision in scene.roles.others),
        since=scene.seen.since,
        unreachable=scene.seen.canary.unreachable or scene.seen.stable.unreachable,
        dark=scene.seen.canary.unreachable_for > max(60.0, 4.0 * scene.spec.rollout.analysis.scrape_seconds),
        promote_asked=meant == "Promote",
        abort_asked=meant == "Abort",
    )


def _handled(scene: Scene, canary: Revision) -> str:
    """The id of an action that this pass honours, to be written on the revision."""
    action = scene.spec.rollout.action
    current = action is not None and action.revision == canary.name and action.id != canary.handled_action
    return action.id if action and current and action.type in ("Promote", "Abort") else ""


def _facts(scene: Scene, revision: Revision, seen: ArmSeen) -> ArmFacts:
    if seen.revision != revision.name:
        seen = ArmSeen()  # what was measured was another revision
    pods = tuple(PodFacts(pod.name, pod.ready, pod.restarts, pod.trouble) for pod in revision.pods if not pod.going)
    answers = [scene.seen.probes.get((pod.uid, pod.restarts), NO_PROBES) for pod in revision.pods if not pod.going]
    probe = ProbeFacts(
        passed=sum(item.passed for item in answers),
        failed=sum(item.failed for item in answers),
        unknown=sum(item.unknown for item in answers),
        message=next((item.message for item in answers if item.failed), ""),
    )
    return ArmFacts(pods, seen.recent, seen.last, seen.running, probe, seen.stalled)


def _probe_unknown(scene: Scene, revision: Revision) -> str:
    answers = [scene.seen.probes.get((pod.uid, pod.restarts)) for pod in revision.pods if pod.taking_traffic]
    return next((item.message for item in answers if item and item.unknown), "")


def _must_borrow(scene: Scene, canary: Revision) -> bool:
    """No limit was set, no GPU is free to surge, and stable can spare a pod."""
    stuck = any(pod.unschedulable for pod in canary.pods)
    return stuck and scene.spec.rollout.max_surge is None and scene.spec.replicas > 1 and scene.seen.stable.waiting == 0
