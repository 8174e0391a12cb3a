"""What the pods of a revision held at their busiest of late, and whether fewer of them could hold it. Pure."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from specfleet.telemetry.page import Sample

WINDOW = 900.0  # seconds that a peak is remembered
KV_LIMIT = 0.85  # of the KV cache; vLLM preempts requests when it is full
RUNNING_LIMIT = 0.80  # of maxNumSeqs


@dataclass(frozen=True, slots=True)
class Load:
    """Sums over pods at one tick, or the peak of each sum within the window; `kv` counts a pod's whole cache as 1."""

    running: float
    waiting: float
    kv: float


class Peaks:
    """Feeds on what all ready pods answered at one tick. Mutable, no I/O."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Load]] = deque()

    def add(self, now: float, samples: Iterable[Sample]) -> None:
        """Take in one tick, if every pod tells all of it."""
        told = [(sample.running, sample.waiting, sample.kv_usage) for sample in samples]
        while self._seen and self._seen[0][0] < now - WINDOW:
            self._seen.popleft()
        if told and all(value is not None for values in told for value in values):
            running, waiting, kv = (sum(value or 0.0 for value in values) for values in zip(*told, strict=True))
            self._seen.append((now, Load(running, waiting, kv)))

    @property
    def load(self) -> Load | None:
        """The peak of each; None while nothing is known."""
        if not self._seen:
            return None
        loads = [load for _, load in self._seen]
        return Load(*(max(getattr(load, name) for load in loads) for name in ("running", "waiting", "kv")))


def overload(load: Load | None, pods: int, max_running: int | None) -> str:
    """Why so many pods could not hold that load; empty if they could. `max_running` is a pod's limit, if it has one."""
    if load is None:
        return "its load is not known yet"
    if pods < 1:
        return "no pod would be left"
    if load.waiting:
        return f"{load.waiting:.0f} requests waited"
    if load.kv > KV_LIMIT * pods:
        return f"the KV cache would be {100 * load.kv / pods:.0f}% full"
    if max_running and load.running > RUNNING_LIMIT * max_running * pods:
        return f"{load.running / pods:.0f} of {max_running} requests would run on each pod"
    return ""
