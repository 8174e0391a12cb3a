"""What the operator reports: every printed value is a string, rewritten only when it moves. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import ErrorDetails

from specfleet.api.base import Int, Part, atomic_list, map_list, set_list

MAX_TEXT, MAX_SHORT = 1024, 253  # characters
MAX_FINDINGS = 32
MAX_PLAIN = 1e9  # larger numbers are printed in powers of ten; no real figure of a fleet is


def _time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


Text = Annotated[str, Field(max_length=MAX_TEXT)]
Short = Annotated[str, Field(max_length=MAX_SHORT)]
Time = Annotated[str, Field(json_schema_extra={"format": "date-time", "maxLength": 32}), AfterValidator(_time)]


def shortened(text: str) -> str:
    """As much of a text as a field of type Text has room for."""
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def figure(value: float, decimals: int) -> str:
    """A measured number as text of a few characters: whatever a page claimed, it fits a field of type Short."""
    return f"{value:.{decimals}f}" if abs(value) < MAX_PLAIN else f"{value:.1e}"


class Condition(Part):
    """One aspect of the state, as in metav1.Condition."""

    type: Annotated[str, Field(max_length=316)]
    """Which aspect: Ready, Reconciling, Stalled, ConfigValid, ..."""
    status: Literal["True", "False", "Unknown"]
    """True, False or Unknown."""
    observed_generation: Int | None = None
    """metadata.generation that this was decided for."""
    last_transition_time: Time
    """When status last changed."""
    reason: Annotated[str, Field(max_length=1024)]
    """Why, in one CamelCase word."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """Why, in a sentence with the numbers."""


class RevisionStatus(Part):
    """One revision that has pods."""

    revision: Short
    """Full name of the revision, and of its Deployment, Service and ControllerRevision."""
    method: Short | None = None
    """Method of speculation, in vLLM's words."""
    num_speculative_tokens: Short | None = None
    """Proposal length; empty where vLLM chooses it."""
    replicas: Int | None = None
    """Pods that it should have."""
    ready: Int | None = None
    """Pods that serve."""
    time_per_output_token: Short | None = None
    """Mean time per output token after a request's first, against slo.timePerOutputTokenMs: 31 ms ≤ 40 ms."""


class PlannedStepStatus(Part):
    """One step of a rollout, and what it takes."""

    asked: Short
    """What the step asks for: a share of the requests, or a cohort; 100% is the promotion."""
    reachable: Short | None = None
    """What the pods make of that share, where it differs."""
    canary: Int
    """Pods of the canary at this step."""
    stable: Int
    """Pods of stable at this step."""
    accelerators: Int
    """Accelerators that are in use at once on the way to this step, at most."""
    lends: Int
    """Pods of spec.replicas that do not serve on the way to this step, at most: those that stable lends."""


class GuardStatus(Part):
    """What one guard says of the canary."""

    name: Short
    """alive, correct, fits, accepting, errors or progress."""
    state: Literal["passing", "failing", "unknown"]
    """passing, failing or unknown, which is no pass."""
    message: Text
    """What is known, with the numbers; worded anew only when they move."""


class CanaryStatus(RevisionStatus):
    """The revision that is on its way."""

    guards: Annotated[tuple[GuardStatus, ...], Field(max_length=16, json_schema_extra=map_list("name"))] = ()
    """Each guard of the canary, in the order in which they are asked."""
    plan: Annotated[tuple[PlannedStepStatus, ...], Field(max_length=17, json_schema_extra=atomic_list())] = ()
    """What each step takes, as replicas, steps, maxSurge and maxUnavailable say; known before the first pod starts."""


class StepStatus(Part):
    """Where the canary stands."""

    index: Int
    """Number of the step that the canary stands at or goes to, from 1."""
    of: Int
    """Steps in all, without the implied 100 percent."""
    asked_weight: Short | None = None
    """What the step asks for."""
    reachable: Short | None = None
    """What the number of pods allows, where that differs."""
    counted: Short | None = None
    """The canary's share of the requests that the pods counted at this step, whichever way those came."""
    since: Time | None = None
    """When this step was reached; absent on the way to it."""


class MetricStatus(Part):
    """One metric, canary against stable."""

    name: Short
    """speed, acceptance, errors or ttft."""
    outcome: Short
    """NonInferior, Regression, Inconclusive, or what holds it: InsufficientData, NoTraffic, ..."""
    estimate: Short | None = None
    """Difference, canary minus stable; negative is worse."""
    lower: Short | None = None
    """Lower end of the interval, valid at every look."""
    upper: Short | None = None
    """Upper end of the interval."""
    margin: Short | None = None
    """How far below stable it may be."""
    resolvable: Short | None = None
    """Smallest margin that the last step's pods can prove; it follows the fleet's own noise."""
    unit: Short | None = None
    """% of stable's value, or percentage points."""
    blocks: Int | None = None
    """Blocks of evidence that it was taken from."""
    time_to_decision: Short | None = None
    """How much longer it takes at this traffic, for example about 12m; absent where it is decided or nobody knows."""
    message: Text | None = None
    """The same in a sentence, or what is missing."""


class SelfCheckStatus(Part):
    """What comparing halves of stable's own pods at rest had shown when the last canary started."""

    comparisons: Int
    """Halves that were compared as if one were a canary, at a margin of 0."""
    false_alarms: Int
    """How many of them the judge called a regression; about 5 percent may be."""
    pod_spread: Text | None = None
    """Standard deviation between the pods over an hour, for example speed 1.2 %, acceptance 0.4 points."""


class Decision(Part):
    """One thing that the operator decided, with its reason."""

    time: Time
    """When."""
    reason: Short
    """What, in one CamelCase word, as in the event."""
    message: Text
    """Why, with the numbers."""
    revision: Short | None = None
    """The revision that it concerns."""


class ActionStatus(Part):
    """The last rollout.action that was looked at."""

    id: Short
    """Its id."""
    type: Short
    """Its type."""
    result: Text
    """Honoured, or why not."""


class SpecDecodeDeploymentStatus(Part):
    """What the fleet is. Nothing here is remembered only here."""

    observed_generation: Int | None = None
    """metadata.generation that this was written for."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16, json_schema_extra=map_list("type"))] = ()
    """Ready, Reconciling, Stalled and others, readable by kstatus."""
    reason: Short | None = None
    """Reason of the Ready condition."""
    message: Text | None = None
    """One line: what it is doing, or what it waits for."""
    collision_count: Int | None = None
    """Hash collisions of revision names so far."""
    replicas: Int | None = None
    """Pods of stable and canary, without surge; for /scale."""
    selector: Annotated[str, Field(max_length=1024)] | None = None
    """Label selector of the pods; for /scale."""
    stable: RevisionStatus | None = None
    canary: CanaryStatus | None = None
    weight: Short | None = None
    """Share of requests that the canary gets, for example 5%."""
    step: StepStatus | None = None
    proposal_length: Short | None = None
    """Draft tokens per step; 3→5 while a canary changes it."""
    acceptance: Short | None = None
    """Accepted draft tokens in percent of the proposed ones, for example 61%."""
    tokens_per_step: Short | None = None
    """Tokens emitted per engine step and request, at least 1."""
    step_time: Short | None = None
    """Mean time of an engine step, in milliseconds."""
    goodput: Short | None = None
    """Decode tokens per second of a request against a fleet without speculation."""
    gpu: Short | None = None
    """GPU model of the pods."""
    routing: Annotated[tuple[Text, ...], Field(max_length=8, json_schema_extra=atomic_list())] = ()
    """With a gateway: which rule of the route sends what where."""
    url: Text | None = None
    """Where the fleet answers."""
    model: Short | None = None
    """Name that clients send as `model`."""
    ready: Short | None = None
    """Ready pods of wanted pods, for example 4/4."""
    metrics: Annotated[tuple[MetricStatus, ...], Field(max_length=16, json_schema_extra=map_list("name"))] = ()
    """Each compared metric with its interval and margin."""
    dropped: Text | None = None
    """What was measured and is in no block of evidence, and why, for example 3 scrapes after one that failed."""
    self_check: SelfCheckStatus | None = None
    decisions: Annotated[tuple[Decision, ...], Field(max_length=10, json_schema_extra=atomic_list())] = ()
    """The last decisions, newest first."""
    last_handled_action: ActionStatus | None = None
    findings: Annotated[tuple[Text, ...], Field(max_length=MAX_FINDINGS, json_schema_extra=set_list())] = ()
    """Advice: what works but may hurt, such as unpinned weights."""


def readable(status: Any) -> dict[str, Any]:
    """A stored status without what has another type than today's: it may be another version's, or edited by hand.
    Every reader of one may then rely on types. Fields may be absent, texts longer and words others than are known."""
    if not isinstance(status, Mapping):
        return {}
    kept: dict[str, Any] = _without_empty(status)
    while wrong := {item["loc"] for item in _errors(kept) if not _forgiven(item)}:
        for place in sorted(wrong, key=_order, reverse=True):
            _drop(kept, place)
        kept = _without_empty(kept)
    return kept


def _without_empty(value: Any) -> Any:
    """A copy in which no two places share a list, and what means the same as an absent field is absent."""
    if isinstance(value, Mapping):
        return {key: _without_empty(item) for key, item in value.items() if item is not None and item not in ("", [])}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value


def _errors(status: Mapping[str, Any]) -> list[ErrorDetails]:
    try:
        SpecDecodeDeploymentStatus.model_validate(status)
    except ValidationError as error:
        return error.errors()
    return []


def _forgiven(error: ErrorDetails) -> bool:
    if error["type"] == "literal_error":
        return isinstance(error["input"], str)
    return error["type"] in ("missing", "string_too_long", "too_long")


def _order(place: tuple[int | str, ...]) -> list[tuple[bool, int | str]]:
    return [(isinstance(step, str), step) for step in place]


def _drop(document: Any, place: tuple[int | str, ...]) -> None:
    *way, last = place
    for step in way:
        document = document[step]
    del document[last]
