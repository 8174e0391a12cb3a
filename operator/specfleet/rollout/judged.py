"""What status says of a verdict, how much longer it takes, and how the judge did on stable's own pods. Pure."""

import math
from collections.abc import Mapping
from typing import Any

from specfleet.api.status import figure
from specfleet.judgement.ratios import RATIOS
from specfleet.judgement.selfcheck import SelfCheck
from specfleet.judgement.verdict import MetricVerdict, Outcome

MINUTE, HOUR = 60, 3600
BEYOND = "not within maxSeconds"
NEVER = "not by waiting: too few pods"  # what pods may differ by is in the way, and time does not take it away


def metric(item: MetricVerdict, left: str | None = None, resolvable: float | None = None) -> dict[str, Any]:
    """One metric as it is reported: numbers as text with one decimal, none where none is known. `left` is how much
    longer it takes, `resolvable` the smallest margin that the pods can prove."""
    numbers = {"estimate": item.estimate, "lower": item.lower, "upper": item.upper, "margin": item.margin}
    numbers["resolvable"] = resolvable
    return {
        "name": str(item.metric),
        "outcome": str(item.outcome),
        **{key: figure(value, 1) for key, value in numbers.items() if value is not None},
        "unit": item.unit,
        "blocks": item.blocks,
        **({"timeToDecision": left} if left else {}),
        "message": item.message,
    }


def time_to_decision(item: MetricVerdict, blocks: int, max_blocks: int, block_seconds: float) -> str | None:
    """About how much longer `item` takes, `blocks` having been seen of `max_blocks`; None where it is decided already,
    or nothing can be said. It holds while the estimate, its noise and the traffic stay what they are."""
    if item.more is None or item.outcome is not Outcome.INCONCLUSIVE:
        return None
    if math.isinf(item.more):
        return NEVER
    if blocks + item.more > max_blocks:
        return BEYOND
    return f"about {_rounded(item.more * block_seconds)}"


def self_check(seen: SelfCheck | None, old: Mapping[str, Any], begins: bool) -> Any:
    """What status says of the self-check: rewritten when a canary begins, which is written anyway, so that a fleet at
    rest writes nothing for it."""
    if seen is None or not begins:
        return old.get("selfCheck")
    spread = ", ".join(f"{name} {figure(value, 1)} {RATIOS[name].unit}" for name, value in seen.spread.items())
    return {"comparisons": seen.comparisons, "falseAlarms": seen.false_alarms, "podSpread": spread}


def _rounded(seconds: float) -> str:
    """Two figures at most: it is a guess."""
    if seconds < MINUTE:
        return "1m"
    if seconds < 2 * HOUR:
        minutes = seconds / MINUTE
        return f"{math.ceil(minutes) if minutes < 20 else 5 * math.ceil(minutes / 5)}m"
    return f"{math.ceil(seconds / HOUR)}h"
