"""How many pods of each arm carry a weight: the fewest moves within maxSurge and maxUnavailable. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """Pods wanted of the canary and of stable."""

    canary: int
    stable: int

    @property
    def total(self) -> int:
        """Pods of both."""
        return self.canary + self.stable

    @property
    def share(self) -> float:
        """The canary's share of all pods, 0..1."""
        return self.canary / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a rollout may use: `replicas` wanted, `surge` pods above it, `unavailable` below it."""

    replicas: int
    surge: int
    unavailable: int

    @property
    def most(self) -> int:
        """The most pods at any time."""
        return self.replicas + self.surge

    @property
    def fewest(self) -> int:
        """The fewest ready pods at any time."""
        return max(0, self.replicas - self.unavailable)


def shape_for(weight: int, bounds: Bounds, now: Shape) -> Shape | None:
    """The pods for a weight of 1..99 percent: the fewest moves from `now` with the canary's share at least the weight.

    Where the pods cannot make that share and leave stable one, the largest that they can. None where no split leaves
    each a pod, e.g. one replica and no surge.
    """

    def cost(shape: Shape) -> tuple[bool, float, float, int]:
        short = 100 * shape.canary < weight * (shape.canary + shape.stable)
        moves = abs(shape.canary - now.canary) + abs(shape.stable - now.stable)
        return short, -shape.share if short else moves, shape.share, -shape.stable

    totals = range(max(2, bounds.fewest), bounds.most + 1)
    return min((_nearest(weight, total, now) for total in totals), key=cost, default=None)


def _nearest(weight: int, total: int, now: Shape) -> Shape:
    """The split of `total` pods with the fewest moves that gives the weight, or all but one to the canary."""
    least = max(1, -(-weight * total // 100))
    canary = min(max(least, min(now.canary, total - now.stable)), total - 1)
    return Shape(canary, total - canary)


def planned(weights: Iterable[int], bounds: Bounds) -> list[Shape | None]:
    """The pods for these weights one after the other, from a stable fleet at rest; None as `shape_for` says."""
    shape: Shape | None = Shape(0, bounds.replicas)
    found: list[Shape | None] = []
    for weight in weights:
        if shape is not None and not (shape.canary and shape.share * 100 >= weight):
            shape = shape_for(weight, bounds, shape)
        found.append(shape)
    return found


def whole(bounds: Bounds, now: Shape) -> Shape:
    """The pods for 100 percent: every replica is the canary's; stable keeps what the surge leaves of it."""
    return Shape(bounds.replicas, min(now.stable, bounds.surge))


def limit(value: int | str | None, replicas: int, *, up: bool) -> int | None:
    """A Kubernetes int-or-percent of `replicas` as a number of pods, surge rounded up, unavailable down."""
    if value is None or isinstance(value, int):
        return value
    if not value.endswith("%"):
        return int(value)
    hundredths = int(value[:-1]) * replicas
    return -(-hundredths // 100) if up else hundredths // 100
