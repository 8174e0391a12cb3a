"""How much worse a canary may be, and whether the last step's pods can tell: the judge's policy for a spec. Pure."""

import math
from collections.abc import Iterator, Mapping

from specfleet.api.rollout import Margins
from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec
from specfleet.judgement.judge import Policy, resolvable_margin
from specfleet.judgement.verdict import Metric
from specfleet.rollout.capacity import bounds_of, outage, steps_of
from specfleet.rollout.likeness import hides
from specfleet.rollout.memory import Rollout
from specfleet.rollout.shape import Shape, planned
from specfleet.telemetry.evidence import EMPTY, Evidence

WIDENED = 3  # the most, in percent or points, by which a margin that the user did not set follows the pods
FIELDS = {
    Metric.SPEED: "speed_percent",
    Metric.ACCEPTANCE: "acceptance_points",
    Metric.ERRORS: "error_points",
    Metric.TTFT: "ttft_points",
}


def last_shape(spec: SpecDecodeDeploymentSpec) -> Shape | None:
    """The pods at the last step, from a stable fleet at rest; None where no split leaves both arms a pod."""
    weights = [step.weight for step in steps_of(spec) if step.weight]
    return planned(weights, bounds_of(spec, borrowed=False))[-1]


def max_blocks(spec: SpecDecodeDeploymentSpec) -> int:
    """Blocks of evidence after which missing proof is inconclusive."""
    analysis = spec.rollout.analysis
    return max(1, analysis.max_seconds // analysis.block_seconds)


def last_pods(spec: SpecDecodeDeploymentSpec) -> tuple[int, int] | None:
    """Canary's and stable's pods at the last step: what a rollout remembers when it begins."""
    shape = last_shape(spec)
    return (shape.canary, shape.stable) if shape else None


def begun_with(rollout: Rollout | None) -> Shape | None:
    """What `last_pods` was when it began; None where that is not known."""
    return Shape(*rollout.pods) if rollout and rollout.pods else None


def policy(spec: SpecDecodeDeploymentSpec, begun: Shape | None = None) -> Policy:
    """The judge's policy. A margin that the user did not set is widened to what the last step's pods can resolve: those
    of `begun`, the plan with which a rollout began, so that it stays as it is while replicas come and go."""
    shape, slo = begun or last_shape(spec), spec.slo
    return Policy(
        speed_percent=_margin(spec, Metric.SPEED, shape),
        acceptance_points=_margin(spec, Metric.ACCEPTANCE, shape),
        error_points=_margin(spec, Metric.ERRORS, shape),
        max_blocks=max_blocks(spec),
        ttft_points=_margin(spec, Metric.TTFT, shape),
        ttft_limit=slo.time_to_first_token if slo else None,
        scheduled=bool(spec.speculation.schedule),
        hidden=hides(spec.speculation.options),
    )


def resolvable(
    spec: SpecDecodeDeploymentSpec, evidence: Evidence = EMPTY, begun: Shape | None = None
) -> Mapping[Metric, float]:
    """The smallest margins that the last step's pods, as they are asked for now, can prove an equal canary at.

    They follow the fleet's own noise once there is enough evidence, and what is known of GPUs before. Empty without
    room for a canary.
    """
    shape = last_shape(spec)
    if shape is None or not shape.canary or not shape.stable:
        return {}
    judged = policy(spec, begun)
    known = evidence if len(evidence.blocks) >= judged.min_blocks else EMPTY
    metrics = [metric for metric in FIELDS if _judged(spec, metric)]
    return {metric: resolvable_margin(shape.canary, shape.stable, metric, known, judged) for metric in metrics}


def remarks(
    spec: SpecDecodeDeploymentSpec, measured: Mapping[Metric, float] | None = None, begun: Shape | None = None
) -> Iterator[str]:
    """What must be changed before a canary can be proven: each margin that the last step's pods cannot resolve.

    `measured` is what `resolvable` made of evidence.
    """
    shape = last_shape(spec)
    if not spec.replicas:
        return
    if shape is None:
        alone = "spec.rollout.maxSurge leaves no room for a canary beside the only pod of stable: it waits for Promote"
        yield f"{alone}, and then {outage(spec.pod.startup_seconds)}; allow a surge or add replicas"
        return
    yield from unresolvable(spec, measured, begun).values()


def unresolvable(
    spec: SpecDecodeDeploymentSpec, measured: Mapping[Metric, float] | None = None, begun: Shape | None = None
) -> Mapping[Metric, str]:
    """By metric why its margin proves no canary, and what to do; empty where there is room for none."""
    shape, found = last_shape(spec), {}
    if shape is None:
        return {}
    for metric, least in _least(spec, measured).items():
        used = _margin(spec, metric, begun or shape)
        if used < least:
            best = f"set {math.ceil(least)}, or add replicas"
            said = f"{_name(metric)} is {used:g}, but {_resolve(shape, least)}: no canary may ever be proven; {best}"
            found[metric] = said
    return found


def widened(
    spec: SpecDecodeDeploymentSpec, measured: Mapping[Metric, float] | None = None, begun: Shape | None = None
) -> Iterator[str]:
    """What to know, though nothing need be done: each margin that the user did not set and that follows the pods."""
    shape = last_shape(spec)
    if not spec.replicas or shape is None:
        return
    for metric, least in _least(spec, measured).items():
        plan, given = begun or shape, getattr(spec.rollout.analysis.margins, FIELDS[metric])
        used = _margin(spec, metric, plan)
        if given < used and least <= used:
            expected = resolvable_margin(plan.canary, plan.stable, metric)
            yield f"{_name(metric)} is widened from {given:g} to {used:g}: {_resolve(plan, expected)}"


def _least(spec: SpecDecodeDeploymentSpec, measured: Mapping[Metric, float] | None) -> Mapping[Metric, float]:
    """The smallest margins that can be resolved; measured ones, which move with every block, in whole numbers: these
    hardly do, and status is written when they do."""
    return {metric: math.ceil(least) for metric, least in measured.items()} if measured else resolvable(spec)


def _name(metric: Metric) -> str:
    return f"spec.rollout.analysis.margins.{Margins.model_fields[FIELDS[metric]].alias}"


def _judged(spec: SpecDecodeDeploymentSpec, metric: Metric) -> bool:
    if metric is Metric.TTFT:
        return bool(spec.slo and spec.slo.time_to_first_token)
    return metric is not Metric.ACCEPTANCE or spec.speculation.method != "none"


def _resolve(shape: Shape, least: float) -> str:
    return f"{shape.canary} canary and {shape.stable} stable pods at the last step resolve no less than {least:.1f}"


def _margin(spec: SpecDecodeDeploymentSpec, metric: Metric, shape: Shape | None) -> float:
    margins, field = spec.rollout.analysis.margins, FIELDS[metric]
    given = int(getattr(margins, field))
    if field in margins.model_fields_set or shape is None or not shape.canary or not shape.stable:
        return given
    return max(given, min(given + WIDENED, math.ceil(resolvable_margin(shape.canary, shape.stable, metric))))
