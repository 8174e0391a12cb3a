"""Whether the rollout of the current generation has settled, and how long to wait for it. Pure."""

import re
from dataclasses import dataclass

from specfleet.api.conditions import Type, find
from specfleet.cli.words import HOUR, MINUTE
from specfleet.rollout.world import Raw

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Settling:
    """`settled` is True for good, False where nothing moves until a person acts, None while it may still come."""

    settled: bool | None
    says: str


def settling(sdd: Raw) -> Settling:
    """Where the newest spec of `sdd` is on its way; what was reported of an earlier generation counts for nothing."""
    status, generation = sdd.get("status") or {}, sdd["metadata"].get("generation")
    seen = status.get("observedGeneration")
    if seen is None:
        return Settling(None, "no status yet: is the operator running?")
    if seen != generation:
        return Settling(None, f"the operator has not looked at generation {generation} yet (seen {seen})")
    conditions = status.get("conditions") or ()
    said = {type: (find(conditions, type) or {}).get("status", "Unknown") for type in Type}
    why = f"{status.get('reason', 'Unknown')}: {status.get('message', '')}"
    if said[Type.STALLED] == "True":
        stalled = find(conditions, Type.STALLED) or {}
        return Settling(False, f"{stalled.get('reason', 'Stalled')}: {stalled.get('message', '')}")
    done = (said[Type.READY], said[Type.RECONCILING], said[Type.STALLED]) == ("True", "False", "False")
    return Settling(True if done else None, why)


def duration(text: str) -> float:
    """Seconds of `90s`, `10m`, `1h30m`. Raises ValueError on anything else."""
    match = _DURATION.fullmatch(text)
    if not text or not match:
        raise ValueError(f"{text!r} is not a duration such as 90s, 10m or 1h30m")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(hours * HOUR + minutes * MINUTE + seconds)
