"""What explains one SpecDecodeDeployment: its revisions, its record, the verdict, and what the next step asks. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from specfleet.api.reasons import Reason
from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec
from specfleet.api.validation import parse
from specfleet.cli.fleet import Fleet, fleet, known_revisions
from specfleet.cli.record import Record
from specfleet.cli.replay import PastLook, replay
from specfleet.cli.words import age, count
from specfleet.judgement.judge import Policy
from specfleet.judgement.verdict import MetricVerdict, Outcome, Verdict
from specfleet.rollout.canary import BLOCKS_PER_STEP, COHORT_DRAFTS
from specfleet.rollout.capacity import by_route, plan_rows, steps_of
from specfleet.rollout.comparison import left_out
from specfleet.rollout.judged import time_to_decision
from specfleet.rollout.likeness import DRAFTING, drafts_alike
from specfleet.rollout.margins import begun_with, max_blocks, policy
from specfleet.rollout.memory import Decision
from specfleet.rollout.revision import identity
from specfleet.rollout.turn import Step, step_at
from specfleet.rollout.world import Raw, Revision, stable_of, timestamp


class Stage(Enum):
    """What there is to explain."""

    FIRST = "nothing is stable yet"
    CANARY = "a canary is on its way"
    ABORTED = "the spec's revision was aborted"
    REST = "stable serves alone"


@dataclass(frozen=True, slots=True)
class Case:
    """One SDD. `spec` is the one in force, None if it is unknown; `target` is the revision on its way, or aborted.

    `differs` are the settings in which the arms differ, of those that must be equal for acceptance to be compared, each
    as `name: stable's, canary's`; None where it is not known.
    """

    fleet: Fleet
    spec: SpecDecodeDeploymentSpec | None
    record: Record
    stage: Stage
    stable: Revision | None
    target: Revision | None
    differs: tuple[str, ...] | None
    looks: tuple[PastLook, ...]

    @property
    def verdict(self) -> Verdict | None:
        """The verdict at the last look."""
        return self.looks[-1].verdict if self.looks else None

    @property
    def past(self) -> bool:
        """Whether the evidence is of a rollout that is over."""
        return self.record.past

    @property
    def policy(self) -> Policy | None:
        """By what the evidence is judged: of a rollout that is over as it was then, else by the spec in force."""
        if self.past and self.record.comparison:
            return self.record.comparison.policy
        return policy(self.spec, begun_with(self.record.memory.rollout)) if self.spec else None

    @property
    def comparable(self) -> bool:
        """Whether the arms' acceptance is compared."""
        if self.past and self.record.comparison:
            return self.record.comparison.comparable
        return self.differs == () and bool(
            self.stable and self.target and drafts_alike(self.stable.payload, self.target.payload)
        )

    @property
    def dropped(self) -> str:
        """What is in no block of the evidence, and why, in words; empty where nothing is, or nobody knows."""
        if self.record.comparison:
            return left_out(self.record.comparison.dropped)
        return str(self.fleet.status.get("dropped") or "")

    def left(self, item: MetricVerdict) -> str:
        """How much longer `item` takes; empty where it is decided, or nobody knows."""
        if self.past or self.spec is None:
            return ""
        pace = (self.record.evidence.seen, max_blocks(self.spec), self.spec.rollout.analysis.block_seconds)
        return time_to_decision(item, *pace) or ""

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The last ten, newest first: of the record, else of status."""
        if self.record.memory.decisions:
            return self.record.memory.decisions[::-1]
        return tuple(map(_decision, self.fleet.status.get("decisions") or ()))

    def last(self, revision: str, *reasons: str) -> Decision | None:
        """The newest decision about `revision`, for one of `reasons` if any are given."""
        about = (item for item in self.decisions if item.revision == revision)
        return next((item for item in about if not reasons or item.reason in reasons), None)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the spec in force."""
        return steps_of(self.spec) if self.spec else (Step(50),)

    @property
    def plan(self) -> Sequence[Raw]:
        """What each step takes, as in `status.canary.plan`: what the operator says, else what the spec says."""
        said: Sequence[Raw] = (self.fleet.status.get("canary") or {}).get("plan") or ()
        if said or self.spec is None or self.stage is Stage.FIRST:
            return said
        rollout = self.record.memory.rollout
        return plan_rows(self.spec, self.steps, bool(rollout and rollout.borrowed))

    @property
    def gateway(self) -> bool:
        """Whether a route gives the canary its share, not the number of its pods."""
        return self.spec is not None and by_route(self.spec)


def case(sdd: Raw, owned: Iterable[Raw], unread: str, record: Record) -> Case:
    """The case of `sdd` with its owned objects; `unread` says why not all of them could be read."""
    owned = list(owned)
    known = known_revisions(owned)
    spec, written = _in_force(sdd, record.memory.spec)
    stable = stable_of(known.values())
    target = _target(known, record, sdd.get("status") or {}, written)
    stage = _stage(stable, target, sdd.get("status") or {})
    differs = _differs(stable, target) if stage is Stage.CANARY else None
    judged = Case(fleet(sdd, owned, unread), spec, record, stage, stable, target, differs, ())
    if judged.policy is None:
        return judged
    return replace(judged, looks=replay(record.evidence, judged.comparable, judged.policy))


def _in_force(sdd: Raw, last: Raw) -> tuple[SpecDecodeDeploymentSpec | None, Raw]:
    """The newest spec if it is valid, else the last valid one that the operator remembers, with what was written."""
    for written in (sdd.get("spec") or {}, {**last, "replicas": (sdd.get("spec") or {}).get("replicas")}):
        parsed = parse({**sdd, "spec": written})
        if isinstance(parsed, SpecDecodeDeploymentSpec):
            return parsed, written
    return None, {}


def _target(known: Mapping[str, Revision], record: Record, status: Raw, written: Raw) -> Revision | None:
    """The rollout's canary as the record says, else as status does, else the revision of the spec in force."""
    rollout = record.memory.rollout
    name = rollout.canary if rollout else (status.get("canary") or {}).get("revision", "")
    wanted = identity(written)
    return known.get(name) or next((item for item in known.values() if item.identity == wanted), None)


def _stage(stable: Revision | None, target: Revision | None, status: Raw) -> Stage:
    led = status.get("stable")
    if stable is None and not led:
        return Stage.FIRST
    if status.get("reason") == Reason.CANARY_ABORTED or (target and target.aborted and target is not stable):
        return Stage.ABORTED
    return Stage.CANARY if status.get("canary") or (target and target is not stable) else Stage.REST


def _differs(stable: Revision | None, canary: Revision | None) -> tuple[str, ...] | None:
    if stable is None or canary is None or not stable.payload or not canary.payload:
        return None
    pairs = ((key, stable.payload.get(key), canary.payload.get(key)) for key in DRAFTING)
    return tuple(
        f"{key}: {_plain(old)} on stable, {_plain(new)} on the canary" for key, old, new in pairs if old != new
    )


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return count(len(value), "range") if value else "none"
    return "unset" if value is None else str(value)


def _decision(item: Raw) -> Decision:
    text = {key: str(item.get(key, "")) for key in ("reason", "message", "revision")}
    return Decision(timestamp(item.get("time")) or 0.0, **text)


@dataclass(frozen=True, slots=True)
class Demand:
    """One thing that must be so before the canary goes on; `state` is how far it is."""

    met: bool
    what: str
    state: str


def demands(case: Case, now: float) -> Iterator[Demand]:
    """What the next step, or 100 percent, still asks for; nothing where the record does not say where the canary is."""
    rollout = case.record.memory.rollout
    if rollout is None or case.spec is None:
        return
    if case.spec.paused and not rollout.ordered:
        yield Demand(False, "not paused", "spec.paused is true")
    if rollout.promoting or rollout.reached is None:
        yield Demand(False, "pods", case.fleet.message)
        return
    step = step_at(case.steps, rollout)
    spent = max(0.0, now - rollout.reached)
    left = step.min_seconds - spent
    yield Demand(
        left <= 0, f"{age(step.min_seconds)} here", f"{age(left)} left" if left > 0 else f"{age(spent)} by now"
    )
    if step.cohort:
        yield from _cohort(case, left <= 0)
    else:
        if case.fleet.status.get("reason") == Reason.SPLIT_NOT_HONOURED:
            yield Demand(False, "the split", case.fleet.message)
        yield from _evidence(case, rollout.step >= len(case.steps) - 1, rollout.blocks_before)


def _cohort(case: Case, due: bool) -> Iterator[Demand]:
    """The arms serve different people: nothing is compared, but the drafter must show that it is accepted. How many
    drafts there were of late only the operator knows, and says while it waits for nothing else."""
    if case.target is None or case.target.payload.get("method", "none") != "none":
        state = case.fleet.message if due else "counted once the time is over"
        yield Demand(False, f"{COHORT_DRAFTS} drafts of the cohort", state)


def _evidence(case: Case, last: bool, before: int) -> Iterator[Demand]:
    blocks, verdict = case.record.evidence.seen, case.verdict
    if not last:
        seen = max(0, blocks - before)
        yield Demand(seen >= BLOCKS_PER_STEP, f"{BLOCKS_PER_STEP} blocks here", f"{seen} by now")
        idle = [item.message for item in verdict.metrics if item.outcome is Outcome.NO_TRAFFIC] if verdict else []
        yield Demand(
            bool(verdict) and not idle, "traffic on both", "; ".join(idle) or ("seen" if verdict else "unknown")
        )
    elif verdict is None:
        yield Demand(False, "proof", "no block of evidence yet")
    else:
        compared = (item for item in verdict.metrics if item.outcome is not Outcome.NOT_COMPARABLE)
        for item in compared:
            state = item.message if item.estimate is None else str(item.outcome)
            state += f", {left}" if (left := case.left(item)) else ""
            yield Demand(item.outcome is Outcome.NON_INFERIOR, f"proof of {item.metric}", state)
