"""What a load generator has seen so far, as a value, as JSON and as a file that can be read at any moment."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Second:
    """What ended within one second of the run: whole answers by pod, and failures.

    `sent` are the whole answers, by pod, to what was sent within it: whom the split chose then, however late they came.
    """

    pods: dict[str, int] = field(default_factory=dict)
    failures: int = 0
    sent: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Report:
    """What came back so far.

    started: Unix epoch. sent = answered + failures + in_flight. pods: whole answers by pod (the header x-served-by).
    timeline[i]: second i of the run. failures by kind: "refused", "connect", "reset", "timeout", "http <status>",
    "cut" (a stream without its end) and "broken" (an answer that is no completion); the first of them in
    failure_examples. Times in seconds; ttft of streams only.
    """

    started: float
    seconds: float = 0.0
    sent: int = 0
    in_flight: int = 0
    answered: int = 0
    tokens: int = 0
    pods: dict[str, int] = field(default_factory=dict)
    workloads: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    failure_examples: list[dict[str, Any]] = field(default_factory=list)
    timeline: list[Second] = field(default_factory=list)
    ttft: list[float] = field(default_factory=list)
    e2e: list[float] = field(default_factory=list)
    done: bool = False

    @property
    def failed(self) -> int:
        """Failures of all kinds."""
        return sum(self.failures.values())

    def share(self, pods: set[str], since: int = 0, until: int | None = None) -> float | None:
        """Share of the answers of seconds [since, until) that came from `pods`, or None without answers."""
        counts: dict[str, int] = {}
        for second in self.timeline[since:until]:
            for pod, answers in second.pods.items():
                counts[pod] = counts.get(pod, 0) + answers
        total = sum(counts.values())
        return sum(count for pod, count in counts.items() if pod in pods) / total if total else None

    def to_json(self) -> dict[str, Any]:
        """The report with quantiles in place of single times."""
        data = asdict(self)
        return {**data, "failed": self.failed, "ttft": quantiles(self.ttft), "e2e": quantiles(self.e2e)}


def read(path: Path) -> Report:
    """A report as it was written, without the single times that it no longer holds."""
    data = json.loads(path.read_text())
    plain = ("started", "seconds", "sent", "in_flight", "answered", "tokens", "pods", "workloads", "failures", "done")
    return Report(
        **{name: data[name] for name in plain},
        failure_examples=data["failure_examples"],
        timeline=[Second(**second) for second in data["timeline"]],
    )


def quantiles(times: list[float]) -> dict[str, float | None]:
    """p50, p90 and p99 by nearest rank; None without values."""
    ordered = sorted(times)
    ranks = {"p50": 0.50, "p90": 0.90, "p99": 0.99}
    return {name: ordered[int(rank * (len(ordered) - 1) + 0.5)] if ordered else None for name, rank in ranks.items()}


def write(path: Path, data: dict[str, Any]) -> None:
    """Write JSON so that a reader sees the old or the new file, never half of one."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(data))
    draft.replace(path)
