"""What a controller's processes take between two moments: CPU seconds and peak resident memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.usage import Usage


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds, and the most resident memory in MB."""

    cpu: float
    peak: float


@dataclass(slots=True)
class Meter:
    """CPU time and peak memory of these processes from now on."""

    pids: Sequence[int]
    _begin: float = field(init=False)

    def __post_init__(self) -> None:
        for pid in self.pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak starts anew
        self._begin = self.read_cpu()

    def read(self) -> Cost:
        """Since the start."""
        return Cost(self.read_cpu() - self._begin, sum(Usage.of(pid).peak for pid in self.pids))

    def read_cpu(self) -> float:
        """CPU seconds of their whole lives."""
        return sum(Usage.of(pid).cpu for pid in self.pids)
