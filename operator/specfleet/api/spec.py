"""The desired state of a SpecDecodeDeployment, as a user writes it. Pure."""

from typing import Annotated

from pydantic import ConfigDict, Field

from specfleet.api.base import Bool, Int, Part, rule, rules
from specfleet.api.engine import Accelerator, Engine, RequestLog
from specfleet.api.model import Model
from specfleet.api.pod import Pod
from specfleet.api.rollout import Rollout
from specfleet.api.speculation import Slo, Speculation
from specfleet.api.traffic import Traffic


class SpecDecodeDeploymentSpec(Part):
    """What the fleet should be."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.engine) || !has(self.engine.tensorParallelSize) || self.engine.tensorParallelSize"
                " <= (has(self.accelerator) && has(self.accelerator.count) ? self.accelerator.count : 1)",
                "must not exceed accelerator.count; raise accelerator.count",
                "engine.tensorParallelSize",
            ),
            rule(
                "!has(self.rollout) || !has(self.rollout.steps) || self.rollout.steps.all(s, !has(s.cohort)"
                " || (has(self.traffic) && has(self.traffic.gateway) && has(self.traffic.cohorts)"
                " && self.traffic.cohorts.exists(c, c.name == s.cohort)))",
                "a cohort step needs traffic.gateway and its cohort in traffic.cohorts; add them",
                "rollout.steps",
            ),
            rule(
                "!has(self.rollout) || !has(self.rollout.analysis) || (has(self.rollout.analysis.blockSeconds)"
                " ? self.rollout.analysis.blockSeconds : 60) >= (has(self.rollout.analysis.scrapeSeconds)"
                " ? self.rollout.analysis.scrapeSeconds : 15)",
                "must be at least scrapeSeconds; raise it",
                "rollout.analysis.blockSeconds",
            ),
        )
    )

    replicas: Annotated[Int, Field(ge=0, le=1000)] = 1
    """Pods that serve. A HorizontalPodAutoscaler or KEDA may own it through /scale; never aim one at a child. 0 stops
    the fleet. Default: 1."""
    paused: Bool = False
    """Stops a rollout from going on: no step rises while it is true. Guards still act. Default: false."""
    restart: Annotated[str, Field(max_length=63)] = ""
    """Any new string makes a new revision from the current templates, which takes the same road as every change."""
    revision_history_limit: Annotated[Int, Field(ge=1, le=20)] = 3
    """Old revisions that are kept for Undo. Default: 3."""
    model: Model
    speculation: Speculation
    slo: Slo | None = None
    engine: Engine = Engine()
    accelerator: Accelerator = Accelerator()
    pod: Pod = Pod()
    traffic: Traffic = Traffic()
    rollout: Rollout = Rollout()
    request_log: RequestLog = RequestLog()

    @property
    def tensor_parallel_size(self) -> int:
        """GPUs over which each layer is split: what the user wrote, else all of the replica's."""
        return self.engine.tensor_parallel_size or self.accelerator.count

    def written(self) -> dict[str, object]:
        """Only what the user wrote, as on the wire, without null, empty strings and empty lists."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)
