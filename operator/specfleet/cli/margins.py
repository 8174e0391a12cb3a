"""Whether the pods of a rollout's last step can resolve its margins, before a single pod has started. Pure."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec
from specfleet.cli.replay import policy
from specfleet.cli.words import count
from specfleet.judgement.judge import resolvable_margin
from specfleet.judgement.verdict import Metric
from specfleet.rollout.revision import identity
from specfleet.rollout.scene import Seen, set_scene
from specfleet.rollout.shape import Bounds, Shape, shape_for
from specfleet.rollout.world import Objects

_FIELDS = {Metric.SPEED: "speedPercent", Metric.ACCEPTANCE: "acceptancePoints", Metric.ERRORS: "errorPoints"}


def unresolvable(sdd: Mapping[str, Any], spec: SpecDecodeDeploymentSpec) -> Iterator[str]:
    """One sentence per margin that even an equal canary would usually not be proven at, its field first."""
    if not spec.replicas:
        return
    last = last_shape(sdd, spec)
    if last is None:
        yield "spec.rollout.maxSurge leaves no room for a canary beside a pod of stable; allow a surge or add replicas"
        return
    for metric, field in _FIELDS.items():
        given, least = policy(spec).margin(metric), resolvable_margin(last.canary, last.stable, metric)
        if given < least and (metric is not Metric.ACCEPTANCE or spec.speculation.method != "none"):
            pods = f"{count(last.canary, 'canary pod')} and {last.stable} of stable"
            yield (
                f"spec.rollout.analysis.margins.{field} is {given:g}, but {pods} at the last step resolve no margin"
                f" below {least:.1f}, so an equal canary may never be proven; set {math.ceil(least)}, or add replicas"
            )


def last_shape(sdd: Mapping[str, Any], spec: SpecDecodeDeploymentSpec) -> Shape | None:
    """The pods at the last step, from a stable fleet at rest; None where no split leaves both arms a pod."""
    bounds = _bounds(sdd, spec)
    shape: Shape | None = Shape(0, spec.replicas)
    for weight in [step.weight for step in spec.rollout.steps if step.weight is not None] or [50]:
        if shape is not None and not (shape.canary and shape.share * 100 >= weight):
            shape = shape_for(weight, bounds, shape)
    return shape


def _bounds(sdd: Mapping[str, Any], spec: SpecDecodeDeploymentSpec) -> Bounds:
    """What the operator would allow where nothing runs yet."""
    written = sdd["spec"]
    return set_scene(sdd, spec, written, identity(written), Objects(), Seen(), 0.0).bounds(False)
