"""Why a canary waits, in words: a reason of the documented list and a line with the numbers. Pure."""

from specfleet.api.reasons import Reason
from specfleet.judgement.verdict import Outcome, Verdict
from specfleet.rollout.memory import Rollout
from specfleet.rollout.note import Note
from specfleet.rollout.shape import Shape
from specfleet.rollout.turn import Facts, Step
from specfleet.rollout.world import rfc3339


def blocked(rollout: Rollout, facts: Facts, shape: Shape) -> Note | None:
    """What stops the pods as they are, until it has passed."""
    if shape.stable and not facts.stable.ready and not rollout.promoting:
        carries = f"{facts.canary.name} carries all" if facts.carrying and facts.canary.ready else "nobody serves"
        return Note(Reason.STABLE_UNAVAILABLE, f"no pod of {facts.stable.name} is ready; {carries}")
    if facts.third:
        return Note(Reason.DRAINING, "pods of an earlier revision still serve; the canary waits until they are gone")
    if facts.unreachable:
        return Note(Reason.METRICS_UNREACHABLE, facts.unreachable)
    ready = facts.canary.ready
    if facts.probed < ready:
        if facts.probe_unknown:
            return Note(Reason.PROBE_UNKNOWN, facts.probe_unknown)
        # Later pods are probed too, but a reason that flips with each of them would be noise.
        reason = _growing(rollout) if facts.carrying else Reason.CANARY_PROBING
        return Note(reason, f"{facts.probed} of {ready} canary pods have answered their probes")
    return None


def _growing(rollout: Rollout) -> Reason:
    return Reason.CANARY_PROMOTING if rollout.promoting else Reason.CANARY_STARTING


def opening(rollout: Rollout, facts: Facts, step: Step, shape: Shape) -> Note:
    """The canary is about to get its first requests, or to get them back."""
    if rollout.promoting:
        goes = f"requests go to the canary ({shape.canary} of {shape.canary + shape.stable} pods)"
        return Note(Reason.CANARY_PROMOTING, goes)
    whom = "" if step.cohort else " of the traffic"
    return Note(Reason.CANARY_STARTING, f"{describe(step, shape, facts.weight is not None)}{whom} goes to the canary")


def shifting(rollout: Rollout, facts: Facts, step: Step, shape: Shape) -> Note | None:
    """The route does not give the canary yet what the step asks for, or what its pods can carry of it."""
    if facts.weight is None or (step.cohort and not rollout.promoting):
        return None
    asked = 100 if rollout.promoting else min(step.weight, int(100 * shape.share))
    if facts.weight >= asked:
        return None
    return Note(_growing(rollout), f"the route goes from {facts.weight}% to {asked}%")


def in_vain(facts: Facts, shape: Shape) -> Note | None:
    """What stable would give up for the canary would be lost to both."""
    grows, shrinks = shape.canary > facts.canary.wanted, shape.stable < facts.stable.wanted
    return Note(Reason.WAITING_FOR_GPUS, facts.in_vain) if grows and shrinks and facts.in_vain else None


def short(rollout: Rollout, facts: Facts, shape: Shape) -> Note | None:
    """Pods that are still to come, or of stable still to go."""
    stable_left = facts.stable.wanted - len(facts.stable.draining)
    if facts.canary.ready < shape.canary or stable_left > shape.stable:
        return _starting(rollout, facts, shape)
    return None


def _starting(rollout: Rollout, facts: Facts, shape: Shape) -> Note:
    if facts.canary.roomless:
        lend = f"; stable cannot lend a pod: {facts.cannot_lend}" if facts.cannot_lend else ""
        return Note(Reason.WAITING_FOR_GPUS, f"{facts.canary.roomless}{lend}")
    if facts.canary.refused:
        return Note(Reason.API_ERROR, facts.canary.refused)
    trouble = next((f"; {pod.name}: {pod.trouble}" for pod in facts.canary.pods if pod.trouble), "")
    ready = f"{facts.canary.ready} of {shape.canary} canary pods ready"
    return Note(_growing(rollout), f"{ready}, {facts.stable.ready} of stable's serve and {shape.stable} will{trouble}")


def paused() -> Note:
    """The user's pause."""
    return Note(Reason.CANARY_PAUSED, "spec.paused is true; guards stay on")


def dwelling(step: Step, until: float) -> Note:
    """A time, not a countdown: a message that changed at every look would be written at every look."""
    return Note(Reason.CANARY_DWELLING, f"at {step} until {rfc3339(until)}")


def describe(step: Step, shape: Shape, gateway: bool) -> str:
    """A step in words; says so where the pods cannot make the weight that was asked for."""
    pods = f"{shape.canary} of {shape.canary + shape.stable} pods"
    reachable = reachable_percent(step.weight, shape, gateway)
    if step.cohort or reachable == step.weight:
        return f"{step} ({pods})"
    return f"asked {step}, reachable {reachable}% ({pods})"


def reachable_percent(weight: int, shape: Shape, gateway: bool) -> int:
    """What pods of this shape make of a weight: their own share, or with a gateway no more than that."""
    return min(weight, int(100 * shape.share)) if gateway else round(100 * shape.share)


def unproven(verdict: Verdict) -> Note:
    """What the verdict lacks."""
    reasons = {
        Outcome.NO_TRAFFIC: Reason.NO_TRAFFIC,
        Outcome.INSUFFICIENT_OVERLAP: Reason.INSUFFICIENT_OVERLAP,
        Outcome.INCONSISTENT: Reason.COUNTERS_INCONSISTENT,
    }
    for metric in verdict.metrics:
        if metric.outcome in reasons:
            return Note(reasons[metric.outcome], metric.message)
    return Note(Reason.CANARY_ANALYSING, verdict.holding)
