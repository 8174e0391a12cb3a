"""The heart: plan(sdd, objects, seen, now) -> Plan(writes, status, events, next look). Pure and total.

Read it from `plan` down: parse the spec, set the scene, chart the course, turn it into writes and a status.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specfleet.api.conditions import Type, find
from specfleet.api.reasons import Reason, named
from specfleet.api.status import readable
from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec
from specfleet.api.validation import parse
from specfleet.judgement.verdict import Metric
from specfleet.rollout.conditions import QUIET
from specfleet.rollout.course import Course, chart
from specfleet.rollout.memory import Decision
from specfleet.rollout.preconditions import Verb, Write
from specfleet.rollout.probing import Asking, askings
from specfleet.rollout.report import invalid, status
from specfleet.rollout.revision import identity
from specfleet.rollout.roles import Roles
from specfleet.rollout.scene import Scene, Seen, remembered, set_scene
from specfleet.rollout.world import Objects, Raw, rfc3339
from specfleet.rollout.writes import writes
from specfleet.tuning.lengths import tokens_per_step_by_length

__all__ = ["Event", "Objects", "Plan", "Seen", "Verb", "Write", "plan"]

SUSPICIOUS_SECONDS = 1.0  # a whole second of nothing but what a collapse has left
REST_SECONDS = 60.0  # between two looks at a fleet at rest


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes event on the SDD; a warning where a person should look."""

    reason: str
    message: str
    warning: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pass does. Writes go in order and stop at the first failure; `status` is None where nothing is reported.

    `devices` says that it depends on what the nodes have of the accelerators; `probe` are the pods to be asked probe
    prompts; `roles` tells the scraper which pods form which arm, `carrying` that the canary gets requests;
    `tokens_per_step` is stable's at proposal lengths 1, 2, ... up to its own; `spread` is by how much its pods were
    seen to differ at rest, in each metric's unit.
    """

    writes: tuple[Write, ...] = ()
    status: dict[str, Any] | None = None
    events: tuple[Event, ...] = ()
    next: float = REST_SECONDS
    devices: bool = False
    probe: tuple[Asking, ...] = ()
    roles: Roles | None = None
    carrying: bool = False
    tokens_per_step: tuple[float, ...] = ()
    spread: Mapping[Metric, float] = field(default_factory=dict)
    spec: SpecDecodeDeploymentSpec | None = None


def plan(sdd: Raw, objects: Objects, seen: Seen, now: float, terminating: bool = False) -> Plan:
    """The plan of one pass over one SDD, from what was observed in this pass and from nothing else.

    `now` is in seconds since the epoch; `terminating` says that the namespace is being deleted.
    """
    if terminating or "deletionTimestamp" in sdd["metadata"]:
        return Plan(next=REST_SECONDS)
    sdd = {**sdd, "status": readable(sdd.get("status"))}
    read = _in_force(sdd, objects)
    if isinstance(read, tuple):
        return Plan(status=invalid(sdd, read, rfc3339(now)), events=_rejected(sdd, read))
    spec, written, problems = read.spec, read.written, read.problems
    scene = set_scene(sdd, spec, written, identity(written), objects, seen, now)
    course = chart(scene)
    planned = () if seen.taken or seen.refused else tuple(writes(scene, course))
    return Plan(
        writes=planned,
        status=status(scene, course, problems, rfc3339(now)),
        events=(*_rejected(sdd, problems), *(_event(decision) for decision in course.decided)),
        next=_next(scene, course, planned),
        devices=_about_devices(scene, course),
        probe=askings(scene),
        roles=scene.roles,
        tokens_per_step=tokens_per_step_by_length(seen.stable.recent),
        spread=seen.check.spread if seen.check else {},
        carrying=scene.roles.canary is not None and scene.routing.sole is None,
        spec=spec,
    )


@dataclass(frozen=True, slots=True)
class _Read:
    spec: SpecDecodeDeploymentSpec
    written: Raw
    problems: tuple[str, ...] = ()


def _in_force(sdd: Raw, objects: Objects) -> _Read | tuple[str, ...]:
    """The spec to act on: the newest, or the last valid one with the newest number of replicas; else what is wrong."""
    parsed = parse(sdd)
    if isinstance(parsed, SpecDecodeDeploymentSpec):
        return _Read(parsed, sdd["spec"])
    problems = tuple(str(problem) for problem in parsed)
    last = remembered(objects).spec
    if not last:
        return problems
    written = {**last, **_replicas(sdd.get("spec"))}
    again = parse({**sdd, "spec": written})
    return _Read(again, written, problems) if isinstance(again, SpecDecodeDeploymentSpec) else problems


def _replicas(spec: Any) -> dict[str, int]:
    replicas = spec.get("replicas") if isinstance(spec, Mapping) else None
    return {"replicas": replicas} if isinstance(replicas, int) and not isinstance(replicas, bool) else {}


def _rejected(sdd: Raw, problems: tuple[str, ...]) -> tuple[Event, ...]:
    """A warning at the first look at a spec that cannot be used."""
    known = find((sdd.get("status") or {}).get("conditions") or (), Type.CONFIG_VALID) or {}
    told = known.get("status") == "False" and known.get("observedGeneration") == sdd["metadata"].get("generation")
    return (Event(str(Reason.CONFIG_INVALID), "; ".join(problems), warning=True),) if problems and not told else ()


def _event(decision: Decision) -> Event:
    reason = named(decision.reason)
    return Event(str(decision.reason), decision.message, warning=reason is not None and reason.kind == "abort")


def _next(scene: Scene, course: Course, planned: tuple[Write, ...]) -> float:
    """Seconds to the next look: at the scrape interval while anything moves, sooner where a canary may collapse."""
    draining = any(revision.draining for revision in scene.revisions.values())
    moving = planned or course.hold.reason not in QUIET or scene.roles.leaving or draining
    watched = scene.roles.retained is not None  # a guard that fails now returns to it
    watched = watched or len(scene.routing.backends) > 1  # of which one is about to leave the route
    interval = float(scene.spec.rollout.analysis.scrape_seconds)
    if scene.roles.canary and scene.seen.canary.fell:
        return min(SUSPICIOUS_SECONDS, interval)
    return interval if moving or watched else REST_SECONDS


def _about_devices(scene: Scene, course: Course) -> bool:
    """A pod waits for some, or one of stable is about to go so that one of the canary can come."""
    stable, canary, turn = scene.roles.stable, scene.roles.canary, course.turn
    if turn is None or stable is None or canary is None:
        return course.hold.reason is Reason.WAITING_FOR_GPUS
    makes_room = turn.shape.canary > canary.wanted and turn.shape.stable < stable.wanted
    return makes_room or course.hold.reason is Reason.WAITING_FOR_GPUS
