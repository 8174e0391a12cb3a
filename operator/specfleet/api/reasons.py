"""Every reason that a condition or an event can carry, with what it means and what to do about it. Pure."""

from enum import StrEnum
from typing import Self


class Reason(StrEnum):
    """A CamelCase reason. `kind` is "state" (at rest or on the way), "wait" (holds until something changes), "abort"
    (ended a canary), "problem" (needs a person) or "event" (only in events and status.decisions)."""

    kind: str
    means: str
    todo: str

    def __new__(cls, value: str, kind: str, means: str, todo: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.kind, member.means, member.todo = kind, means, todo
        return member

    # At rest.
    STABLE = "Stable", "state", "One revision serves all traffic and nothing is under way.", "Nothing."
    SCALED_TO_ZERO = "ScaledToZero", "state", "spec.replicas is 0: no pod runs and none starts.", "Raise spec.replicas."

    # On the way.
    FIRST_ROLLOUT = (
        "FirstRollout", "state", "The first revision starts; it serves once its pods are ready, alive and correct.",
        "Wait for weights to load; see the pods' events if it takes longer than pod.startupSeconds.",
    )  # fmt: skip
    CANARY_STARTING = (
        "CanaryStarting", "state", "The canary's pods start; it has no traffic yet.", "Wait, or `abort`.",
    )  # fmt: skip
    CANARY_PROBING = (
        "CanaryProbing", "state", "The canary's pods are ready and answer the operator's probe prompts.", "Wait.",
    )  # fmt: skip
    CANARY_DWELLING = (
        "CanaryDwelling", "state", "The canary has reached a step and stays there for its minSeconds.",
        "Wait, or `promote`.",
    )  # fmt: skip
    CANARY_ANALYSING = (
        "CanaryAnalysing", "state", "The canary carries traffic and evidence is gathered for the next step.",
        "Wait, or `promote`; `kubectl specfleet status` shows each interval against its margin.",
    )  # fmt: skip
    CANARY_PROMOTING = (
        "CanaryPromoting", "state", "The canary has proved itself and takes all traffic.", "Wait.",
    )  # fmt: skip
    RETAINING_OLD = (
        "RetainingOld", "state", "Promoted; the old revision's remaining pods stay for rollout.retainSeconds.",
        "Nothing; going back to the earlier spec is quicker for as long as they stay.",
    )  # fmt: skip
    DRAINING = (
        "Draining", "state", "Pods without new requests finish the running ones before they go.",
        "Wait, at most pod.drainSeconds.",
    )  # fmt: skip

    # Waiting.
    WAITING_FOR_PODS = (
        "WaitingForPods", "wait", "Pods are scheduled but not ready yet.", "See the pods' events and logs.",
    )  # fmt: skip
    WAITING_FOR_GPUS = (
        "WaitingForGPUs", "wait",
        "Pods find no accelerator: all are in use, a quota refuses them, or a node has lost its device plugin.",
        "Free GPUs, add nodes, mend the node that is named, lower spec.replicas, or set rollout.maxUnavailable to "
        "borrow from stable.",
    )  # fmt: skip
    CANARY_PAUSED = (
        "CanaryPaused", "wait", "spec.paused holds the canary at its step; guards still act.",
        "`resume`, `promote` or `abort`.",
    )  # fmt: skip
    CANARY_INCONCLUSIVE = (
        "CanaryInconclusive", "wait",
        "rollout.analysis.maxSeconds of evidence neither proved nor disproved the canary; it goes on measuring.",
        "Widen the margin, add pods or traffic, `promote` or `abort`.",
    )  # fmt: skip
    MARGIN_NOT_RESOLVABLE = (
        "MarginNotResolvable", "wait",
        "A margin is smaller than the last step's pods can resolve: no amount of evidence proves the canary.",
        "Set the margin that the message names, add replicas, or `promote`.",
    )  # fmt: skip
    NO_TRAFFIC = (
        "NoTraffic", "wait", "An arm did nothing that a metric can be read from: no requests, or no such counters.",
        "Send traffic, or `promote`.",
    )  # fmt: skip
    INSUFFICIENT_OVERLAP = (
        "InsufficientOverlap", "wait", "The arms had loads, prompts or drafts too different to compare.",
        "Wait for a larger weight or steadier load, or `promote`.",
    )  # fmt: skip
    COUNTERS_INCONSISTENT = (
        "CountersInconsistent", "wait", "An arm's counters of tokens contradict each other by more than 5 %.",
        "Look for what rewrites the metrics page, or a vLLM that counts otherwise; `promote` needs no counters.",
    )  # fmt: skip
    METRICS_UNREACHABLE = (
        "MetricsUnreachable", "wait", "The metrics of an arm's pods cannot be read (time-out, refused, TLS, 401).",
        "Let the operator's namespace reach the pods' port 8000 (NetworkPolicy, service mesh).",
    )  # fmt: skip
    PROBE_UNKNOWN = (
        "ProbeUnknown", "wait", "Nobody can ask whether the canary answers correctly, for example for want of the key.",
        "Allow the operator to read engine.apiKeySecret (chart value apiKeySecrets.read), or switch probes off.",
    )  # fmt: skip
    ROUTE_NOT_ACCEPTED = (
        "RouteNotAccepted", "wait", "A gateway has not taken the route's newest state; no weight rises before.",
        "Read the message: no such Gateway, its controller stands still, or the listener does not admit the route.",
    )  # fmt: skip
    ROUTE_REFS_NOT_RESOLVED = (
        "RouteRefsNotResolved", "wait", "A gateway cannot use a backend of the route; the canary lost its weight.",
        "Read the message; check the Service and ReferenceGrants. It is tried again after a minute.",
    )  # fmt: skip
    ENDPOINTS_NOT_READY = (
        "EndpointsNotReady", "wait", "The Service of a revision has no ready endpoint yet, so no weight goes to it.",
        "Wait; if it lasts, look at the EndpointSlices of that Service.",
    )  # fmt: skip
    SPLIT_NOT_HONOURED = (
        "SplitNotHonoured", "wait", "The canary's pods get about none of the requests, or clearly more than asked.",
        "Look for session persistence on the route, for clients that bypass the gateway, or for a second route.",
    )  # fmt: skip
    API_ERROR = (
        "ApiError", "wait", "The API server refused a write; it is tried again.",
        "Read the message: a quota, an admission webhook or missing RBAC.",
    )  # fmt: skip

    # Ended a canary.
    CANARY_DEAD = (
        "CanaryDead", "abort", "The canary's pods died or stopped answering.",
        "Read the pods' logs, then edit the spec.",
    )  # fmt: skip
    CANARY_INCORRECT = (
        "CanaryIncorrect", "abort", "The canary's answers to the probe prompts are wrong, or not at all stable's.",
        "Check attention backend, quantisation, image and rollout.probes, then edit the spec; see docs/rollout.md.",
    )  # fmt: skip
    CANARY_DOES_NOT_FIT = (
        "CanaryDoesNotFit", "abort", "The KV cache of the canary's pods is smaller than its drafter explains.",
        "Take a smaller drafter, GPUs of one product, or state the cache in engine.args (--kv-cache-memory-bytes).",
    )  # fmt: skip
    CANARY_NOT_ACCEPTING = (
        "CanaryNotAccepting", "abort", "Almost no draft token is accepted, though stable's are.",
        "Check that the drafter fits the model's revision, and the drafter's attention backend.",
    )  # fmt: skip
    CANARY_ERRORING = (
        "CanaryErroring", "abort", "The canary fails requests that stable does not.", "Read the pods' logs.",
    )  # fmt: skip
    CANARY_STUCK = (
        "CanaryStuck", "abort", "The canary holds running requests but generates nothing.",
        "Read the pods' logs for a hung kernel or a lock left by a compiler.",
    )  # fmt: skip
    CANARY_REGRESSED = (
        "CanaryRegressed", "abort", "A metric is worse than its margin allows, with the whole interval below it.",
        "`kubectl specfleet status` shows it; choose another proposal length or drafter, or widen the margin.",
    )  # fmt: skip
    CANARY_INCONCLUSIVE_TOO_LONG = (
        "CanaryInconclusiveTooLong", "abort", "No proof within maxSeconds, and rollout.onInconclusive is Abort.",
        "Give it more traffic, pods or time, then edit the spec.",
    )  # fmt: skip
    PROGRESS_DEADLINE_EXCEEDED = (
        "ProgressDeadlineExceeded", "abort", "A pod was not ready within the start-up budget and ten minutes to pull.",
        "See the pods' events and logs; raise pod.startupSeconds if they were still loading.",
    )  # fmt: skip
    USER_ABORTED = "UserAborted", "abort", "Someone ended the canary.", "Edit the spec, or `retry`."

    # Needs a person.
    IMAGE_UNAVAILABLE = (
        "ImageUnavailable", "problem", "The image of the pods cannot be pulled.",
        "Check engine.image and pod.imagePullSecrets; `kubectl describe pod` has the registry's answer.",
    )  # fmt: skip
    PODS_CRASHING = (
        "PodsCrashing", "problem", "vLLM exits again and again.", "Read the pods' logs (`kubectl logs --previous`).",
    )  # fmt: skip
    CANARY_ABORTED = (
        "CanaryAborted", "problem", "A canary was ended and stays ended until the spec changes; stable serves.",
        "Read the message for the reason of the abort; then edit the spec, or `retry`.",
    )  # fmt: skip
    STABLE_UNAVAILABLE = (
        "StableUnavailable", "problem", "Stable has no ready pod.", "Read the pods' events and logs.",
    )  # fmt: skip
    CONFIG_INVALID = (
        "ConfigInvalid", "problem", "The spec cannot be used; the last valid one stays in force.",
        "Correct the field that the message names.",
    )  # fmt: skip
    NAME_TAKEN = (
        "NameTaken", "problem", "An object of a needed name exists and is not ours; it is left alone.",
        "Remove or rename that object, or rename the SpecDecodeDeployment.",
    )  # fmt: skip
    GATEWAY_NOT_FOUND = (
        "GatewayNotFound", "problem", "The Gateway of spec.traffic.gateway, or the Gateway API itself, is not there.",
        "Create the Gateway, correct its name and namespace, or install the Gateway API.",
    )  # fmt: skip
    ROUTE_NOT_FOUND = (
        "RouteNotFound", "problem", "The HTTPRoute of spec.traffic.route is not there.",
        "Create it with a backend that is the Service of this name.",
    )  # fmt: skip
    ROUTE_UNUSABLE = (
        "RouteUnusable", "problem", "The HTTPRoute has no rule or backend that the operator could set weights in.",
        "Read the message: name the rule, add the backend, or give it a weight that can be divided.",
    )  # fmt: skip
    ROUTE_CONFLICT = (
        "RouteConflict", "problem", "An older SpecDecodeDeployment has the same route, rule or hostname; it keeps it.",
        "Give this one another hostname, rule or listener.",
    )  # fmt: skip
    ROUTE_CONTESTED = (
        "RouteContested", "problem", "Someone else rewrites the route again and again; no weight rises meanwhile.",
        "Let the named manager leave spec.rules out (see docs/traffic.md).",
    )  # fmt: skip
    NOT_IMPLEMENTED = (
        "NotImplemented", "problem", "The spec sets a field that this version accepts but does not act on.",
        "Remove the field, or know that it has no effect yet.",
    )  # fmt: skip

    # Reasons of the lesser conditions.
    CONFIG_ACCEPTED = "ConfigAccepted", "state", "The spec is valid and in force.", "Nothing."
    FINDINGS = (
        "Findings", "state", "The spec is in force; what is listed may spoil a rollout, or cut streams.",
        "Do what each finding says; `kubectl specfleet lint` tells most of them before you apply.",
    )  # fmt: skip
    TEMPLATE_CHANGED = (
        "TemplateChanged", "state", "This operator would render the pods differently; running revisions are frozen.",
        "Set spec.restart to a new string when a rollout suits you.",
    )  # fmt: skip

    # Only in events and decisions.
    REVISION_CREATED = "RevisionCreated", "event", "The spec became a new revision.", "Nothing."
    CANARY_STARTED = "CanaryStarted", "event", "A canary began.", "Nothing."
    STEP_REACHED = "StepReached", "event", "The canary's weight was raised to its next step.", "Nothing."
    CANARY_PROVEN = "CanaryProven", "event", "The canary is proven to be no worse than stable.", "Nothing."
    WEIGHT_WITHDRAWN = (
        "WeightWithdrawn", "event", "The canary lost its traffic without a verdict, for example with its node.",
        "Nothing; it is given back when the canary is ready.",
    )  # fmt: skip
    PROMOTED = "Promoted", "event", "The canary became stable.", "Nothing."
    ABORTED = "Aborted", "event", "A canary was ended; the message holds the reason.", "See the reason."
    UNDONE = "Undone", "event", "The revision before became stable again.", "Edit the spec, or `retry`."
    CANARY_REPLACED = "CanaryReplaced", "event", "A newer spec replaced an unfinished canary.", "Nothing."
    CANARY_CLEARED = "CanaryCleared", "event", "The spec went back to stable; the canary is gone.", "Nothing."


_BY_NAME = {str(reason): reason for reason in Reason}


def named(text: str) -> Reason | None:
    """The reason that is written so; None if there is none."""
    return _BY_NAME.get(text)
