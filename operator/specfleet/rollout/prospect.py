"""How long until a metric is decided, in words that promise no more than is known. Pure."""

import math

from specfleet.judgement.verdict import MetricVerdict, Outcome

MINUTE, HOUR = 60, 3600
BEYOND = "not within maxSeconds"
NEVER = "not by waiting: too few pods"  # what pods may differ by is in the way, and time does not take it away


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


def _rounded(seconds: float) -> str:
    """Two figures at most: it is a guess."""
    if seconds < MINUTE:
        return "1m"
    if seconds < 2 * HOUR:
        minutes = seconds / MINUTE
        return f"{math.ceil(minutes) if minutes < 20 else 5 * math.ceil(minutes / 5)}m"
    return f"{math.ceil(seconds / HOUR)}h"
