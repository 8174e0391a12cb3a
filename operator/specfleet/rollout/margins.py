"""How much worse a canary may be, and whether the last step's pods can tell: the judge's policy for a spec. Pure."""

import math
from collections.abc import Iterator

from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec
from specfleet.judgement.judge import Policy, resolvable_margin
from specfleet.judgement.verdict import Metric
from specfleet.rollout.capacity import bounds_of, outage
from specfleet.rollout.shape import Shape, planned

WIDENED = 3  # the most, in percent or points, by which a margin that the user did not set follows the pods
FIELDS = {Metric.SPEED: "speed_percent", Metric.ACCEPTANCE: "acceptance_points", Metric.ERRORS: "error_points"}


def last_shape(spec: SpecDecodeDeploymentSpec) -> Shape | None:
    """The pods at the last step, from a stable fleet at rest; None where no split leaves both arms a pod."""
    weights = [step.weight for step in spec.rollout.steps if step.weight is not None] or [50]
    return planned(weights, bounds_of(spec, borrowed=False))[-1]


def max_blocks(spec: SpecDecodeDeploymentSpec) -> int:
    """Blocks of evidence after which missing proof is inconclusive."""
    analysis = spec.rollout.analysis
    return max(1, analysis.max_seconds // analysis.block_seconds)


def policy(spec: SpecDecodeDeploymentSpec) -> Policy:
    """The judge's policy. A margin that the user did not set is widened to what the last step's pods can resolve."""
    shape = last_shape(spec)
    return Policy(
        speed_percent=_margin(spec, Metric.SPEED, shape),
        acceptance_points=_margin(spec, Metric.ACCEPTANCE, shape),
        error_points=_margin(spec, Metric.ERRORS, shape),
        max_blocks=max_blocks(spec),
    )


def remarks(spec: SpecDecodeDeploymentSpec) -> Iterator[str]:
    """What to know about the margins before a rollout: each that was widened, and each that cannot be resolved."""
    shape = last_shape(spec)
    if not spec.replicas:
        return
    if shape is None:
        alone = "spec.rollout.maxSurge leaves no room for a canary beside the only pod of stable: it waits for Promote"
        yield f"{alone}, and then {outage(spec.pod.startup_seconds)}; allow a surge or add replicas"
        return
    for metric, field in FIELDS.items():
        if metric is not Metric.ACCEPTANCE or spec.speculation.method != "none":
            yield from _remark(spec, metric, field, shape)


def _remark(spec: SpecDecodeDeploymentSpec, metric: Metric, field: str, shape: Shape) -> Iterator[str]:
    margins = spec.rollout.analysis.margins
    given, used = getattr(margins, field), _margin(spec, metric, shape)
    least = resolvable_margin(shape.canary, shape.stable, metric)
    name = f"spec.rollout.analysis.margins.{type(margins).model_fields[field].alias}"
    pods = f"{shape.canary} canary and {shape.stable} stable pods at the last step"
    if used < least:
        best = f"set {math.ceil(least)}, or add replicas"
        yield f"{name} is {used:g}, but {pods} resolve no less than {least:.1f}: no canary may ever be proven; {best}"
    elif used > given:
        yield f"{name} is widened from {given:g} to {used:g}: {pods} resolve no less than {least:.1f}"


def _margin(spec: SpecDecodeDeploymentSpec, metric: Metric, shape: Shape | None) -> float:
    margins, field = spec.rollout.analysis.margins, FIELDS[metric]
    given = int(getattr(margins, field))
    if field in margins.model_fields_set or shape is None or not shape.canary or not shape.stable:
        return given
    return max(given, min(given + WIDENED, math.ceil(resolvable_margin(shape.canary, shape.stable, metric))))
