"""How many more blocks decide a metric, if the estimate and its noise stay what they are. Pure."""

import math
from collections.abc import Callable

HORIZON = 14_400  # blocks: ten days of one-minute blocks; what takes longer is not decided by waiting

Reach = Callable[[float, int], float]  # (alpha, blocks) -> how far the interval reaches from the estimate


def blocks_until(estimate: float, margin: float, reach: Reach, alphas: tuple[float, float], now: int) -> float:
    """How many blocks beyond `now` put the interval on one side of −margin; inf where no number up to HORIZON does.

    `alphas` are those of the lower and of the upper end. An estimate above −margin can only end in NonInferior, one
    below it only in Regression. `reach` falls with blocks towards what the difference between pods leaves, which time
    does not take away.
    """
    distance = estimate + margin
    alpha = alphas[0] if distance > 0 else alphas[1]
    if not abs(distance) > reach(alpha, HORIZON):
        return math.inf
    low, high = now, HORIZON
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if abs(distance) > reach(alpha, middle) else (middle + 1, high)
    return float(low - now)
