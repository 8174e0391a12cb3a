"""The measured figures in status: of the fleet, of each arm, and what its pods can resolve. Pure."""

import math
from collections.abc import Mapping
from typing import Any

from specfleet.api.status import figure
from specfleet.judgement.verdict import Metric, Outcome
from specfleet.rollout.course import Course
from specfleet.rollout.margins import begun_with, resolvable
from specfleet.rollout.scene import ArmSeen, Scene
from specfleet.rollout.world import Raw, Revision
from specfleet.telemetry.derived import acceptance_rate, step_time, time_per_output_token, tokens_per_step
from specfleet.telemetry.evidence import EMPTY

NOISE = 5.0  # standard errors by which a printed figure must move: 100 quiet fleets write it a few times an hour


def measured(scene: Scene, old: Mapping[str, Any]) -> dict[str, str | None]:
    """Acceptance, tokens per step and step time: the canary's once measured, else stable's; as before if unknown."""
    canary = scene.seen.canary.recent
    tally = canary if scene.roles.canary and canary.drafts else scene.seen.stable.recent
    share, tokens, seconds = acceptance_rate(tally), tokens_per_step(tally), step_time(tally)
    # Standard errors at most: a draft's accepted share lies in 0..1, its accepted tokens in 0..its length.
    per_draft = 0.5 / math.sqrt(tally.drafts) if tally.drafts else 0.0
    length = tally.draft_tokens / tally.drafts if tally.drafts else 0.0
    values = {
        "acceptance": (None if share is None else 100 * share, 0, "%", max(2.0, NOISE * 100 * per_draft)),
        "tokensPerStep": (tokens, 1, "", max(0.2, NOISE * length * per_draft)),
        "stepTime": (None if seconds is None else 1000 * seconds, 0, " ms", max(2.0, 100 * (seconds or 0.0))),
    }
    return {key: _steady(old.get(key), *value) for key, value in values.items()}


def _steady(before: str | None, value: float | None, decimals: int, unit: str, near: float) -> str | None:
    """As it was printed before unless it has moved by more than its noise: a fleet at rest writes nothing."""
    if value is None:
        return before
    printed = _number(before)
    return before if printed is not None and abs(value - printed) <= near else figure(value, decimals) + unit


def _number(text: str | None) -> float | None:
    """What is printed with its unit; None where that is no number."""
    try:
        number = float((text or "").rstrip("%ms "))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def per_token(scene: Scene, revision: Revision, seen: ArmSeen, old: Raw) -> str | None:
    """Mean time per output token of the arm's requests, against the limit where there is one; None while unknown."""
    seconds = time_per_output_token(seen.recent) if seen.revision == revision.name else None
    before = str(old.get("timePerOutputToken", "")) if old.get("revision") == revision.name else ""
    first = before.partition(" ")[0]
    kept = None if _number(first) is None else f"{first} ms"
    text = _steady(kept, None if seconds is None else 1000 * seconds, 1, " ms", max(1.0, 100 * (seconds or 0.0)))
    limit = scene.spec.slo.time_per_output_token_ms if scene.spec.slo else None
    if text is None or limit is None:
        return text
    return f"{text} {'≤' if float(text.split()[0]) <= limit else '>'} {limit} ms"


def resolved(scene: Scene, course: Course) -> Mapping[Metric, float]:
    """The smallest margins that the pods of the last step can prove, by what the rollout has measured so far; none
    where nothing is compared."""
    rollout = scene.memory.rollout
    if course.verdict is None:
        return {}
    evidence = scene.seen.evidence if rollout and scene.seen.evidence_of == rollout.uids else EMPTY
    compared = {item.metric for item in course.verdict.metrics if item.outcome is not Outcome.NOT_COMPARABLE}
    least = resolvable(scene.spec, evidence, begun_with(rollout))
    return {metric: margin for metric, margin in least.items() if metric in compared}
