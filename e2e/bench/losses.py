"""What clients lost within one story: by kind, and what belongs to a pod that was killed apart from all else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from harness.crowd import Failure
from harness.loadreport import Second

ENDPOINT = 6.0  # seconds until no gateway chooses a pod that has died
UNANSWERED = ("http 503", "reset")  # how a gateway answers for a pod that is dead


@dataclass(frozen=True, slots=True)
class Killed:
    """A pod whose processes were ended, and when (Unix epoch)."""

    pod: str
    time: float

    def has(self, failure: Failure) -> bool:
        """It was in the pod's hands, or was sent to it while it was dead."""
        near = self.time - 1 <= failure.time <= self.time + ENDPOINT
        return near and (failure.pod == self.pod or (not failure.pod and failure.kind in UNANSWERED))


@dataclass(frozen=True, slots=True)
class Lost:
    """Of `sent` requests, those without a whole answer by kind; `killed`: those of the killed pod, not in `kinds`."""

    sent: int
    kinds: dict[str, int] = field(default_factory=dict)
    killed: dict[str, int] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """Without those of the killed pod."""
        return sum(self.kinds.values())


def counted(sent: int, failures: Iterable[Failure], begin: float, end: float, killed: Killed | None = None) -> Lost:
    """Failures that ended in [begin, end) (Unix epoch)."""
    kinds, own = Counter[str](), Counter[str]()
    for failure in failures:
        if begin <= failure.time < end:
            (own if killed and killed.has(failure) else kinds)[failure.kind] += 1
    return Lost(sent, dict(kinds), dict(own))


def ended(timeline: Sequence[Second], started: float, begin: float, end: float) -> int:
    """Requests that ended in [begin, end), well or not, by the seconds of a report that began at `started`."""
    seconds = (second for number, second in enumerate(timeline) if begin <= started + number < end)
    return sum(sum(second.pods.values()) + second.failures for second in seconds)
