"""How a change reaches all traffic: steps, capacity, what is proved, and one-off actions. Pure."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from specfleet.api.base import Int, IntOrPercent, Part, atomic_list, rule, rules

Seconds = Annotated[Int, Field(ge=0, le=604800)]


class Step(Part):
    """One step of a canary: a share of traffic, or a cohort."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "has(self.weight) != has(self.cohort)",
                "step: must hold exactly one of weight, cohort; remove one or add one",
            )
        )
    )

    weight: Annotated[Int, Field(ge=1, le=99)] | None = None
    """Share of requests for the canary, in percent. 100 is implied after the last step."""
    cohort: Annotated[str, Field(max_length=63)] | None = None
    """Name of a cohort in traffic.cohorts that gets the canary."""
    min_seconds: Seconds = 60
    """Least time at this step, in seconds. Default: 60."""


class Margins(Part):
    """How much worse a canary may be and still pass; one margin per metric."""

    speed_percent: Annotated[Int, Field(ge=1, le=50)] = 5
    """Decode tokens per second of a request, in percent of stable's. Default: 5."""
    acceptance_points: Annotated[Int, Field(ge=1, le=50)] = 5
    """Acceptance rate, in percentage points. Default: 5."""
    error_points: Annotated[Int, Field(ge=1, le=50)] = 1
    """Share of failed requests, in percentage points. Default: 1."""
    ttft_points: Annotated[Int, Field(ge=1, le=50)] = 2
    """Share of requests whose first token comes later than the limit, in percentage points. Default: 2."""


class Analysis(Part):
    """How evidence is gathered and when it is enough."""

    scrape_seconds: Annotated[Int, Field(ge=1, le=300)] = 15
    """Time between two readings of the pods' metrics while a canary moves, in seconds. Default: 15."""
    block_seconds: Annotated[Int, Field(ge=1, le=3600)] = 60
    """Length of a block of evidence, in seconds, at least scrapeSeconds. Default: 60."""
    max_seconds: Annotated[Int, Field(ge=1, le=604800)] = 7200
    """Observed time after which missing proof is Inconclusive, in seconds. Default: 7200."""
    margins: Margins = Margins()


class Probe(Part):
    """A prompt with a known answer, asked of every canary pod before it may serve and every five minutes after that."""

    prompt: Annotated[str, Field(min_length=1, max_length=2000)]
    """Prompt, answered greedily in at most 32 tokens; as a chat message where the model has a chat template."""
    expect: Annotated[str, Field(min_length=1, max_length=500)]
    """RE2 pattern that must be found somewhere in the answer, for example (?i)paris."""


class Action(Part):
    """A one-off order, honoured once, and only while its revision is the current one."""

    type: Literal["Promote", "Abort", "Retry", "Undo"]
    """Promote skips the remaining dwell and proof; Abort ends the canary; Retry lifts an abort; Undo returns to the
    revision before."""
    revision: Annotated[str, Field(min_length=1, max_length=63)]
    """Full name of the revision that is meant, as in status.canary.revision."""
    id: Annotated[str, Field(min_length=1, max_length=63)]
    """Any string that was not used before; a new id is a new order."""


class Rollout(Part):
    """How a new revision replaces the stable one."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.steps) || self.steps.filter(s, has(s.weight)).map(s, s.weight).isSorted()"
                " && self.steps.all(s, !has(s.weight)"
                " || self.steps.exists_one(t, has(t.weight) && t.weight == s.weight))",
                "weights must ascend; sort the steps and remove repeated weights",
                "steps",
            ),
            rule(
                "!has(self.steps) || self.steps.map(s, has(s.weight) ? 1 : 0).isSorted()",
                "cohorts come before weights, which reach everybody; move them up",
                "steps",
            ),
            rule(
                "!(has(self.maxSurge) && has(self.maxUnavailable) && (self.maxSurge == 0 || self.maxSurge == '0%')"
                " && (self.maxUnavailable == 0 || self.maxUnavailable == '0%'))",
                "maxSurge and maxUnavailable cannot both be 0, nothing could move; raise one",
                "maxSurge",
            ),
        )
    )

    steps: Annotated[tuple[Step, ...], Field(max_length=16, json_schema_extra=atomic_list())] = (
        Step(weight=5),
        Step(weight=25),
        Step(weight=50),
    )
    """Steps of a canary, in order: cohorts, then weights, which ascend. Default: 5, 25 and 50 percent."""
    max_surge: IntOrPercent | None = None
    """Pods above spec.replicas during a rollout, as a number or a percentage. Default: as many as fit; the rest is
    borrowed from stable while the remaining pods can carry the load."""
    max_unavailable: IntOrPercent | None = None
    """Pods below spec.replicas during a rollout, as a number or a percentage. Default: as maxSurge says.
    With 0 stable lends none."""
    retain_seconds: Seconds = 600
    """How long the old revision's remaining pods stay after promotion, for a quicker way back, in seconds.
    Default: 600."""
    on_inconclusive: Literal["Pause", "Abort"] = "Pause"
    """What follows when maxSeconds pass without proof. Pause keeps the canary at its weight and goes on measuring.
    Default: Pause."""
    analysis: Analysis = Analysis()
    probes: Annotated[tuple[Probe, ...], Field(max_length=16, json_schema_extra=atomic_list())] = ()
    """Further prompts with known answers, beside the built-in ones."""
    action: Action | None = None
