"""CPU time and memory of a process, from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one process, so far: CPU seconds; memory now and at its highest, in MB of 10⁶ bytes."""

    cpu: float
    rss: float
    peak: float

    @staticmethod
    def of(pid: int) -> Usage:
        """Read from /proc."""
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        rss, peak = (int(lines[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM"))
        return Usage((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), rss, peak)
