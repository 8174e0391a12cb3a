"""What each guard knows of the canary at a look, in words that stay the same while nothing has changed. Pure."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from specfleet.judgement.guards import MAX_UNPREDICTED, MIN_DRAFTS, ArmFacts, Guard, failures
from specfleet.telemetry.derived import error_share, position_acceptance

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
#: How far numbers of a guard may move before its message is worded anew; of 200 drafts the share has ± 3 points.
NEAR = {Guard.CORRECT: 5.0, Guard.ACCEPTING: 10.0, Guard.ERRORS: 0.5}


class State(StrEnum):
    """What a guard says. Unknown is no pass."""

    PASSING = "passing"
    FAILING = "failing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Said:
    """One guard's word."""

    guard: Guard
    state: State
    message: str


def guard_states(canary: ArmFacts, stable: ArmFacts | None, before: Mapping[str, str]) -> tuple[Said, ...]:
    """One entry per guard, in their order. `before` has the last messages by guard: each stays as long as
    its words are the same and its numbers near."""
    failing = failures(canary, stable)
    said = []
    for guard, knows in _KNOWN.items():
        state, message = (State.FAILING, failing[guard]) if guard in failing else knows(canary)
        said.append(Said(guard, state, _steady(before.get(guard, ""), message, NEAR.get(guard, 0.0))))
    return tuple(said)


def _steady(before: str, message: str, near: float) -> str:
    if _NUMBER.sub("#", before) != _NUMBER.sub("#", message):
        return message
    pairs = zip(_NUMBER.findall(before), _NUMBER.findall(message), strict=True)
    return before if all(abs(float(old) - float(new)) <= near for old, new in pairs) else message


def _alive(canary: ArmFacts) -> tuple[State, str]:
    if not any(pod.ready for pod in canary.pods):
        return State.UNKNOWN, "no pod is ready yet"
    restarts = sum(pod.restarts for pod in canary.pods)
    return State.PASSING, f"{restarts} restart{'' if restarts == 1 else 's'}"


def _correct(canary: ArmFacts) -> tuple[State, str]:
    probe, found = canary.probe, canary.agreement
    if probe.unknown:
        return State.UNKNOWN, probe.message
    if not probe.passed:
        return State.UNKNOWN, probe.message or "not asked yet"
    if canary.unasked:
        return State.UNKNOWN, f"{canary.unasked} pod{'' if canary.unasked == 1 else 's'} yet to answer"
    agrees = "agreement with stable unknown"
    if found:
        agrees = f"they agree with stable's by {100 * found.canary:.0f} %, stable's own by {100 * found.stable:.0f} %"
    return State.PASSING, f"answers are sane; {agrees}"


def _fits(canary: ArmFacts) -> tuple[State, str]:
    fit = canary.fit
    if fit is None or fit.lost is None:
        return State.UNKNOWN, "a pod does not say how many KV blocks it has, or none has answered"
    sizes = f"{fit.canary:.0f} tokens of KV cache a pod, {-fit.lost:+.0f} % against stable's {fit.stable:.0f}"
    if fit.predicted is None:
        return State.UNKNOWN, f"{sizes}; nothing is expected, since the engines differ"
    if fit.short:
        return State.UNKNOWN, f"{sizes}; asked before the first weight only"
    return State.PASSING, f"{sizes}; at least {-fit.predicted - MAX_UNPREDICTED:+.0f} % expected"


def _accepting(canary: ArmFacts) -> tuple[State, str]:
    share = position_acceptance(canary.recent, 0)
    if share is None:
        return State.UNKNOWN, "nothing drafted"
    if canary.recent.drafts < MIN_DRAFTS:
        return State.UNKNOWN, f"fewer than {MIN_DRAFTS} drafts"
    return State.PASSING, f"{100 * share:.0f} % of first drafted tokens accepted"


def _errors(canary: ArmFacts) -> tuple[State, str]:
    share = error_share(canary.recent)
    if share is None:
        return State.UNKNOWN, "no requests of late"
    return State.PASSING, f"{100 * share:.1f} % of late answered 5xx"


def _progress(canary: ArmFacts) -> tuple[State, str]:
    if canary.running is None:
        return State.UNKNOWN, "no metrics"
    return State.PASSING, "running requests move on"


_KNOWN: dict[Guard, Callable[[ArmFacts], tuple[State, str]]] = {
    Guard.ALIVE: _alive,
    Guard.CORRECT: _correct,
    Guard.FITS: _fits,
    Guard.ACCEPTING: _accepting,
    Guard.ERRORS: _errors,
    Guard.PROGRESS: _progress,
}
