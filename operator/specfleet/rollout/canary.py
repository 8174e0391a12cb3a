"""One canary, one look: (where it is, what was seen, now) -> where it goes, and why it waits. Pure."""

from dataclasses import replace

from specfleet.api.reasons import Reason, named
from specfleet.judgement.verdict import Outcome
from specfleet.resources.workload import PULL_SECONDS
from specfleet.rollout.capacity import outage
from specfleet.rollout.memory import Rollout
from specfleet.rollout.note import Note
from specfleet.rollout.shape import Shape, planned, shape_for, whole
from specfleet.rollout.turn import Abort, Facts, Policy, Step, Turn, step_at
from specfleet.rollout.waiting import blocked, describe, dwelling, in_vain, opening, paused, shifting, short, unproven

BLOCKS_PER_STEP = 3  # the least evidence between two steps; proof is asked for once, before 100 percent
COHORT_DRAFTS = 200  # drafts by which a cohort shows that the canary accepts any

UNDECIDED = (Outcome.INCONCLUSIVE, Outcome.INSUFFICIENT_DATA)


def advance(rollout: Rollout, facts: Facts, policy: Policy, now: float) -> Turn:
    """The next turn of a canary. Raises nothing; every input gives a Turn."""
    turn = _turn(rollout, facts, policy, now)
    if useless := in_vain(facts, turn.shape):
        return replace(turn, shape=_as_is(facts), hold=useless)
    return turn


def _turn(rollout: Rollout, facts: Facts, policy: Policy, now: float) -> Turn:
    step = step_at(policy.steps, rollout)
    if abort := _abort(rollout, facts, policy, now):
        return Turn(rollout, _as_is(facts), facts.carrying, Note(abort.reason, abort.message), abort=abort)
    policy = replace(policy, paused=policy.paused and not rollout.ordered)
    if facts.promote_asked and not rollout.ordered:
        return _promoting(rollout, facts, policy, Note(Reason.CANARY_PROMOTING, "Promote was asked for"))
    shape = _shape(rollout, facts, policy, step)
    if shape is None:
        room = "no room for a canary beside the only pod of stable: allow a surge, or Promote: then"
        hold = Note(Reason.WAITING_FOR_PODS, f"{room} {outage(policy.startup_seconds)}")
        return Turn(rollout, _steady(rollout, facts, policy), False, hold)
    carry = _may_carry(facts, policy)
    stuck = blocked(rollout, facts, shape)
    if waiting := stuck or _unroutable(facts) or short(rollout, facts, shape):
        pods = _steady(rollout, facts, policy) if stuck else shape
        return Turn(rollout, pods, carry, paused() if policy.paused and not carry else waiting)
    if not _exposed(rollout, facts, step):
        starting = opening(rollout, facts, step, shape) if carry else paused()
        hold = facts.pending or facts.unroutable or starting
        return Turn(replace(rollout, reached=None), shape, carry, hold)
    if waiting := facts.pending or shifting(rollout, facts, step, shape):
        return Turn(rollout, shape, carry, waiting)
    if rollout.reached is None and not rollout.promoting:
        return _reached(rollout, facts, policy, step, shape, now)
    return _weigh(rollout, facts, policy, step, shape, now)


def _abort(rollout: Rollout, facts: Facts, policy: Policy, now: float) -> Abort | None:
    if facts.failure:
        return Abort(named(facts.failure.reason) or Reason.ABORTED, facts.failure.message, facts.failure.hard)
    if facts.abort_asked:
        return Abort(Reason.USER_ABORTED, "Abort was asked for", False)
    budget = policy.startup_seconds + PULL_SECONDS
    for pod in facts.canary.pods:
        if pod.scheduled is not None and not (pod.loaded or pod.going) and now - pod.scheduled > budget:
            return Abort(Reason.PROGRESS_DEADLINE_EXCEEDED, f"{pod.name} not ready after {budget:.0f} s", True)
    step = step_at(policy.steps, rollout)
    settled = rollout.ordered or rollout.promoting or step.cohort
    return None if settled else _disproved(facts, policy)


def _disproved(facts: Facts, policy: Policy) -> Abort | None:
    """What evidence says; not asked where a person, or a failure of what is returned from, has ordered the move, nor
    once it was proven: what comes after is neither stored nor needed."""
    if regression := facts.verdict.regression:
        return Abort(Reason.CANARY_REGRESSED, regression.message, False)
    inconclusive = facts.blocks >= policy.max_blocks and not facts.verdict.proven
    if inconclusive and policy.abort_inconclusive:
        return Abort(Reason.CANARY_INCONCLUSIVE_TOO_LONG, facts.verdict.holding, False)
    return None


def _as_is(facts: Facts) -> Shape:
    return Shape(facts.canary.wanted, facts.stable.wanted)


def _shape(rollout: Rollout, facts: Facts, policy: Policy, step: Step) -> Shape | None:
    now, bounds = _as_is(facts), policy.bounds
    if policy.paused:
        return _steady(rollout, facts, policy)
    if rollout.promoting:
        return whole(bounds, now)
    if not _fits(now, policy):  # as if it had begun with so many, so that stable gets its part of them
        return _plan(policy)[min(rollout.step, len(policy.steps) - 1)]
    if now.stable and now.canary and now.share * 100 >= step.weight:
        return now
    return shape_for(step.weight, bounds, now)


def _plan(policy: Policy) -> list[Shape | None]:
    return planned([item.weight for item in policy.steps], policy.bounds)


def _fits(now: Shape, policy: Policy) -> bool:
    """Whether the plan may have so many pods; where not, `spec.replicas` has changed. How few may serve says nothing of
    that: most steps need no fewer than all."""
    least = min((policy.bounds.replicas, *(shape.total for shape in _plan(policy) if shape)))
    return least <= now.total <= policy.bounds.most


def _steady(rollout: Rollout, facts: Facts, policy: Policy) -> Shape:
    """The pods as they are. They follow `spec.replicas` where it has changed meanwhile: the canary's share rises by no
    more than the pod that it keeps, and stable is never left without one."""
    now, bounds = _as_is(facts), policy.bounds
    # On the way to 100 percent pods of stable go before others come, so fewer are no sign of a change.
    fits = bounds.fewest <= now.total <= bounds.most if rollout.promoting else now.stable and _fits(now, policy)
    if fits:
        return now
    fair = max(1, now.canary * bounds.replicas // max(1, now.total))
    canary = min(now.canary, fair, max(0, bounds.replicas - 1))
    return Shape(canary, bounds.replicas - canary)


def _may_carry(facts: Facts, policy: Policy) -> bool:
    """May requests go to the canary's pods? Before the first of them each pod must have answered its probes."""
    if facts.third or facts.dark or not facts.canary.ready:
        return False
    if facts.carrying or facts.cohort:
        return facts.unroutable is None
    known = facts.probed >= facts.canary.ready and not facts.unreachable
    return known and not policy.paused and facts.unroutable is None and facts.pending is None


def _unroutable(facts: Facts) -> Note | None:
    """Why pods that are ready get no weight, where the route itself is in force."""
    return facts.unroutable if facts.canary.ready and facts.pending is None else None


def _exposed(rollout: Rollout, facts: Facts, step: Step) -> bool:
    """Whom the step is for does reach the canary."""
    return facts.cohort == step.cohort if step.cohort and not rollout.promoting else facts.carrying


def _reached(rollout: Rollout, facts: Facts, policy: Policy, step: Step, shape: Shape, now: float) -> Turn:
    note = Note(Reason.STEP_REACHED, describe(step, shape, facts.weight is not None))
    hold = paused() if policy.paused else dwelling(step, now + step.min_seconds)
    reached = replace(rollout, reached=now, blocks_before=facts.blocks)
    return Turn(reached, shape, True, hold, decided=note)


def _weigh(rollout: Rollout, facts: Facts, policy: Policy, step: Step, shape: Shape, now: float) -> Turn:
    """The step's weight is on: is it time to go on?"""
    if policy.paused:
        return Turn(rollout, shape, True, paused())
    if rollout.promoting:
        hold = Note(Reason.CANARY_PROMOTING, f"all {shape.canary} pods are ready: the pointer flips")
        return Turn(rollout, shape, True, hold, promote=True)
    until = max(rollout.reached or now, facts.since) + step.min_seconds
    if now < until:
        return Turn(rollout, shape, True, dwelling(step, until))
    if facts.still:
        standing = "the canary has requests running, and made no engine step since the last scrape"
        return Turn(rollout, shape, True, Note(Reason.CANARY_ANALYSING, standing))
    if step.cohort:
        return _after_cohort(rollout, facts, policy, shape)
    if facts.split:
        return Turn(rollout, shape, True, facts.split)
    if rollout.step < len(policy.steps) - 1:
        return _between_steps(rollout, facts, policy, shape)
    return _at_the_last(rollout, facts, policy, shape)


def _at_the_last(rollout: Rollout, facts: Facts, policy: Policy, shape: Shape) -> Turn:
    """Only proof, or a person, leads on to 100 percent."""
    if facts.verdict.proven:
        proof = "; ".join(metric.message for metric in facts.verdict.metrics if metric.outcome is Outcome.NON_INFERIOR)
        return _promoting(rollout, facts, policy, Note(Reason.CANARY_PROVEN, proof))
    if hopeless := _hopeless(facts, policy):
        return Turn(rollout, shape, True, Note(Reason.MARGIN_NOT_RESOLVABLE, hopeless))
    if facts.blocks >= policy.max_blocks:
        return Turn(rollout, shape, True, Note(Reason.CANARY_INCONCLUSIVE, facts.verdict.holding))
    return Turn(rollout, shape, True, unproven(facts.verdict))


def _hopeless(facts: Facts, policy: Policy) -> str:
    """Why a metric that has yet to be proven never will be."""
    open_ = (item.metric for item in facts.verdict.metrics if item.outcome in UNDECIDED)
    return next((policy.unresolvable[metric] for metric in open_ if metric in policy.unresolvable), "")


def _between_steps(rollout: Rollout, facts: Facts, policy: Policy, shape: Shape) -> Turn:
    seen = facts.blocks - rollout.blocks_before
    if seen < BLOCKS_PER_STEP:
        note = Note(Reason.CANARY_ANALYSING, f"{seen} of {BLOCKS_PER_STEP} blocks of evidence at this step")
        return Turn(rollout, shape, True, note)
    if any(metric.outcome is Outcome.NO_TRAFFIC for metric in facts.verdict.metrics):
        return Turn(rollout, shape, True, unproven(facts.verdict))
    return _next_step(rollout, facts, policy, shape)


def _after_cohort(rollout: Rollout, facts: Facts, policy: Policy, shape: Shape) -> Turn:
    """Gated by guards, drafts and time, never by comparison: the arms serve different people."""
    speculates = facts.canary.payload.get("method", "none") != "none"
    if speculates and facts.drafts < COHORT_DRAFTS:
        seen = f"{facts.drafts:.0f} of {COHORT_DRAFTS} drafts from the cohort of late"
        return Turn(rollout, shape, True, Note(Reason.CANARY_ANALYSING if facts.drafts else Reason.NO_TRAFFIC, seen))
    return _next_step(rollout, facts, policy, shape)


def _next_step(rollout: Rollout, facts: Facts, policy: Policy, shape: Shape) -> Turn:
    later = replace(rollout, step=rollout.step + 1, reached=None)
    following = policy.steps[later.step]
    wanted = _shape(later, facts, policy, following) or shape
    return Turn(later, wanted, True, Note(Reason.CANARY_STARTING, f"on to {following}"))


def _promoting(rollout: Rollout, facts: Facts, policy: Policy, why: Note) -> Turn:
    later = replace(rollout, promoting=why.message, ordered=facts.promote_asked, reached=None)
    shape = whole(policy.bounds, _as_is(facts))
    hold = Note(Reason.CANARY_PROMOTING, why.message)
    return Turn(later, shape, _may_carry(facts, policy), hold, decided=why)
