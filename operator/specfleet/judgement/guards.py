"""The checks that need no statistics and hold in every phase: what makes a canary leave at once. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from specfleet.judgement.agreement import Agreement
from specfleet.judgement.questions import PROMPTS, Question
from specfleet.judgement.sanity import clip
from specfleet.telemetry.counters import Tally
from specfleet.telemetry.derived import error_share, position_acceptance

MAX_RESTARTS = 1  # one restart may be a node's fault
MIN_DRAFTS = 200
MIN_ACCEPTANCE = 0.10  # of the first drafted token: below that a drafter is broken, not merely poor
MAX_ERROR_SHARE = 0.05
MIN_ERRORS = 5
EXCUSE_ERRORS = 2  # on stable; a single one is chance
LIKE_ERRORS = 2  # times stable's share: what is no more than that is not the canary's own fault
MAX_UNPREDICTED = 5.0  # percent of stable's KV cache, beyond what was predicted
STUCK_SECONDS = 30.0  # without an engine step; a long prompt that is alone takes some, and has no output meanwhile


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What Kubernetes says of one pod; `trouble` such as "CrashLoopBackOff: exit code 1", or empty."""

    name: str
    ready: bool
    restarts: int
    trouble: str


@dataclass(frozen=True, slots=True)
class ProbeFacts:
    """How the arm answered the probe prompts; unknown = could not be asked. `message` tells of one that failed.

    Of one pod also when it had answered, in seconds since the epoch, and what it was asked; good news counts once it is
    `settled`: what was drafted for it is known.
    """

    passed: int
    failed: int
    unknown: int
    message: str
    at: float = 0.0
    asked: tuple[Question, ...] = ()
    settled: bool = True


@dataclass(frozen=True, slots=True)
class Fit:
    """Tokens in the smallest KV cache of each arm's pods, and by how many percent of stable's the canary's may be
    smaller, as predicted. None is unknown."""

    canary: float | None
    stable: float | None
    predicted: float | None

    @property
    def lost(self) -> float | None:
        """Percent of stable's cache that the canary's lacks; negative where it is larger."""
        return 100 - 100 * self.canary / self.stable if self.canary is not None and self.stable else None

    @property
    def short(self) -> bool:
        """More is missing than was predicted, as far as is known."""
        known = self.lost is not None and self.predicted is not None
        return known and (self.lost or 0.0) > (self.predicted or 0.0) + MAX_UNPREDICTED


@dataclass(frozen=True, slots=True)
class ArmFacts:
    """All that the guards know of one arm; `recent`, `last`, `running` and `stalled_seconds` are the Collector's.

    The rest is only a canary's: `fit`, which is no fault of one that is `serving` somebody already; `agreement` with
    stable's greedy answers, None where it is unknown or not to be expected; and how many ready pods are `unasked`,
    having yet to answer every probe.
    """

    pods: tuple[PodFacts, ...]
    recent: Tally
    last: Tally | None
    running: float | None
    probe: ProbeFacts
    stalled_seconds: float
    fit: Fit | None = None
    serving: bool = False
    agreement: Agreement | None = None
    unasked: int = 0


class Guard(StrEnum):
    """In the order in which they are asked."""

    ALIVE = "alive"
    CORRECT = "correct"
    FITS = "fits"
    ACCEPTING = "accepting"
    ERRORS = "errors"
    PROGRESS = "progress"


_REASONS = {
    Guard.ALIVE: "CanaryDead",
    Guard.CORRECT: "CanaryIncorrect",
    Guard.FITS: "CanaryDoesNotFit",
    Guard.ACCEPTING: "CanaryNotAccepting",
    Guard.ERRORS: "CanaryErroring",
    Guard.PROGRESS: "CanaryStuck",
}

_SOFT = (Guard.FITS, Guard.ACCEPTING)


@dataclass(frozen=True, slots=True)
class Failure:
    """A guard that failed. `hard`: users are hurt, the canary leaves at once; else as fast as stable can take over."""

    guard: Guard
    reason: str
    message: str
    hard: bool


def first_failure(canary: ArmFacts, stable: ArmFacts | None) -> Failure | None:
    """The first guard that the canary fails, or None. What is unknown fails nothing here (nor does it prove anything).

    `stable` excuses the canary from what stable suffers too, such as prompts that no drafter can guess.
    """
    for guard, message in failures(canary, stable).items():
        return Failure(guard, _REASONS[guard], message, hard=guard not in _SOFT)
    return None


def failures(canary: ArmFacts, stable: ArmFacts | None) -> dict[Guard, str]:
    """Every guard that the canary fails with what it says, in their order."""
    found = {guard: check(canary, stable) for guard, check in _CHECKS.items()}
    return {guard: message for guard, message in found.items() if message}


def _dead(canary: ArmFacts, _: ArmFacts | None) -> str:
    for pod in canary.pods:
        if pod.restarts > MAX_RESTARTS or "CrashLoopBackOff" in pod.trouble:
            times = f"restarted {pod.restarts} time{'' if pod.restarts == 1 else 's'}"
            return f"pod {pod.name} {times}" + (f", {pod.trouble}" if pod.trouble else "")
    return ""


def _incorrect(canary: ArmFacts, _: ArmFacts | None) -> str:
    probe = canary.probe
    if not probe.failed:
        return _disagreement(canary.agreement) if canary.agreement and canary.agreement.broken else ""
    asked = probe.passed + probe.failed + probe.unknown
    return f"{probe.failed} of {asked} probes failed" + (f": {probe.message}" if probe.message else "")


def _disagreement(found: Agreement) -> str:
    """Both numbers, and the prompt that tells most."""
    numbers = f"{100 * found.canary:.0f} % with stable's, whose own agree by {100 * found.stable:.0f} %"
    answers = f"{clip(found.said)!r} where stable says {clip(found.stable_said)!r}"
    return f"greedy answers of {found.pod} agree by {numbers}; to {PROMPTS[found.prompt]!r}: {answers}"


def _not_fitting(canary: ArmFacts, _: ArmFacts | None) -> str:
    fit = canary.fit
    if fit is None or canary.serving or not fit.short:
        return ""
    sizes = f"{fit.canary:.0f} tokens of KV cache in a pod where stable has {fit.stable:.0f}"
    return f"{sizes}: {fit.lost:.1f} % less, where {fit.predicted:.0f} % were expected at most"


def _not_accepting(canary: ArmFacts, stable: ArmFacts | None) -> str:
    share = _low_acceptance(canary)
    if share is None or (stable is not None and _low_acceptance(stable) is not None):
        return ""
    return (
        f"first drafted token accepted in {100 * share:.1f} % of the last {canary.recent.drafts:.0f} drafts, "
        f"below {100 * MIN_ACCEPTANCE:.0f} %"
    )


def _low_acceptance(arm: ArmFacts) -> float | None:
    """Acceptance at position 0 if it is known well enough and too low; else None."""
    share = position_acceptance(arm.recent, 0)
    if share is None or arm.recent.drafts < MIN_DRAFTS:
        return None
    return share if share < MIN_ACCEPTANCE else None


def _erroring(canary: ArmFacts, stable: ArmFacts | None) -> str:
    share = _high_errors(canary)
    if share is None or canary.last is None or canary.last.http_errors < MIN_ERRORS:
        return ""
    if stable is not None and share <= LIKE_ERRORS * _shared_errors(stable):
        return ""
    counts = f"{canary.last.http_errors:.0f} of {canary.last.http_requests:.0f} requests"
    return f"{counts} in the last scrape answered 5xx: {100 * share:.1f} %, above {100 * MAX_ERROR_SHARE:.0f} %"


def _high_errors(arm: ArmFacts) -> float | None:
    """Share of errors in the last scrape if it is known and too high; else None."""
    share = None if arm.last is None else error_share(arm.last)
    return share if share is not None and share > MAX_ERROR_SHARE else None


def _shared_errors(stable: ArmFacts) -> float:
    """The share of errors of which stable is seen to suffer too; 0 where that may be chance."""
    share = _high_errors(stable)
    return share if share is not None and stable.last and stable.last.http_errors >= EXCUSE_ERRORS else 0.0


def _stuck(canary: ArmFacts, _: ArmFacts | None) -> str:
    if canary.stalled_seconds < STUCK_SECONDS:
        return ""
    running = "requests" if canary.running is None else f"{canary.running:.0f} requests"
    return f"no engine step for {canary.stalled_seconds:.0f} s with {running} running"


_CHECKS: dict[Guard, Callable[[ArmFacts, ArmFacts | None], str]] = {
    Guard.ALIVE: _dead,
    Guard.CORRECT: _incorrect,
    Guard.FITS: _not_fitting,
    Guard.ACCEPTING: _not_accepting,
    Guard.ERRORS: _erroring,
    Guard.PROGRESS: _stuck,
}
