"""What a rollout will take, from the spec alone: pods of each arm by step, accelerators, what stable lends. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec
from specfleet.rollout.shape import Bounds, Shape, limit, planned, whole
from specfleet.rollout.turn import Step
from specfleet.rollout.waiting import reachable_percent

TOLD = 6  # steps that one line tells of


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step, the pods that it takes, and on the way to it: the most pods at once, the fewest that serve."""

    step: Step
    shape: Shape
    most: int
    serving: int

    def reachable(self, gateway: bool) -> int | None:
        """Percent that the pods make of what is asked; None where that is just what is asked, and for a cohort."""
        if self.step.cohort or self.step.weight == 100:
            return None
        percent = reachable_percent(self.step.weight, self.shape, gateway)
        return None if percent == self.step.weight else percent


def steps_of(spec: SpecDecodeDeploymentSpec) -> tuple[Step, ...]:
    """The steps of a canary before the implied 100 percent; one of 50 where the user named no weight."""
    steps = tuple(Step(step.weight or 0, step.min_seconds, step.cohort or "") for step in spec.rollout.steps)
    return steps if any(step.weight for step in steps) else (*steps, Step(50))


def by_route(spec: SpecDecodeDeploymentSpec) -> bool:
    """Whether a route gives the canary its share, not the number of its pods."""
    return bool(spec.traffic.gateway or spec.traffic.route)


def may_borrow(spec: SpecDecodeDeploymentSpec) -> bool:
    """Whether a pod of stable may go first where no GPU is free: no surge was asked for, nor that every pod serves."""
    rollout = spec.rollout
    return rollout.max_surge is None and limit(rollout.max_unavailable, spec.replicas, up=False) != 0


def bounds_of(spec: SpecDecodeDeploymentSpec, borrowed: bool) -> Bounds:
    """How many pods a rollout may have. Unless the user says, it surges one pod, or borrows it from stable."""
    replicas, rollout = spec.replicas, spec.rollout
    surge = limit(rollout.max_surge, replicas, up=True)
    unavailable = limit(rollout.max_unavailable, replicas, up=False)
    if surge is None:
        surge = 0 if borrowed and may_borrow(spec) else 1
    if unavailable is None:
        unavailable = 0 if surge else 1
    # More than as many again is of no use to a rollout.
    return Bounds(replicas, min(surge, replicas), unavailable if surge or unavailable else 1)


def foreseen(steps: Sequence[Step], bounds: Bounds) -> tuple[PlannedStep, ...]:
    """Each step and the 100 percent after them, from stable at rest; only the 100 where a canary has no room."""
    return tuple(_foreseen(steps, bounds)) if bounds.replicas else ()


def _foreseen(steps: Sequence[Step], bounds: Bounds) -> Iterator[PlannedStep]:
    now = Shape(0, bounds.replicas)
    for step, shape in zip(steps, planned([step.weight for step in steps], bounds), strict=True):
        if shape is not None:
            yield _on_the_way(step, now, shape, bounds)
            now = shape
    yield _on_the_way(Step(100), now, whole(bounds, now), bounds)


def _on_the_way(step: Step, before: Shape, after: Shape, bounds: Bounds) -> PlannedStep:
    """Pods come before others go as far as the surge allows, and go before others come as far as availability does."""
    grown = max(before.canary, after.canary) + max(before.stable, after.stable)
    shrunk = min(before.canary, after.canary) + min(before.stable, after.stable)
    return PlannedStep(step, after, min(bounds.most, grown), min(bounds.replicas, max(bounds.fewest, shrunk)))


def plan_rows(spec: SpecDecodeDeploymentSpec, steps: Sequence[Step], borrowed: bool) -> list[dict[str, Any]]:
    """The plan of a rollout as `status.canary.plan` has it; `borrowed` says that no GPU is free to surge."""
    return [
        {
            "asked": str(item.step),
            **({} if (percent := item.reachable(by_route(spec))) is None else {"reachable": f"{percent}%"}),
            "canary": item.shape.canary,
            "stable": item.shape.stable,
            "accelerators": item.most * spec.accelerator.count,
            "lends": spec.replicas - item.serving,
        }
        for item in foreseen(steps, bounds_of(spec, borrowed))
    ]


def in_words(spec: SpecDecodeDeploymentSpec, steps: Sequence[Step]) -> str:
    """The plan of a rollout in one line."""
    bounds = bounds_of(spec, borrowed=False)
    plan, gateway = foreseen(steps, bounds), by_route(spec)
    told = [_told(item, gateway) for item in plan]
    if len(told) > TOLD:
        told = [*told[: TOLD - 2], "...", *told[-2:]]
    alone = ["no room for a canary beside stable: it waits for Promote"] if steps and len(plan) == 1 else []
    dark = [] if all(item.serving for item in plan) else [outage(spec.pod.startup_seconds)]
    return "; ".join((*alone, *told, _peak(spec, bounds, plan), *dark))


def _told(item: PlannedStep, gateway: bool) -> str:
    reachable = item.reachable(gateway)
    asked = str(item.step) if reachable is None else f"asked {item.step}, reachable {reachable}%"
    return f"{asked}: {item.shape.canary} canary + {item.shape.stable} stable"


def _peak(spec: SpecDecodeDeploymentSpec, bounds: Bounds, plan: Sequence[PlannedStep]) -> str:
    most, lends = max(item.most for item in plan), bounds.replicas - min(item.serving for item in plan)
    said = [f"surge {most - bounds.replicas}"] if most > bounds.replicas else ["no surge"]
    if lends:
        said.append(f"stable lends {lends}")
    elif may_borrow(spec) and bounds.replicas > 1:
        said.append("or stable lends 1 where none is free")
    return f"at most {most * spec.accelerator.count} {spec.accelerator.resource} ({', '.join(said)})"


def outage(startup_seconds: float) -> str:
    """What it means that no pod serves meanwhile."""
    return f"0 pods serve while the new one starts, which may take {startup_seconds:.0f} s"
