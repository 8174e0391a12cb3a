"""What judging costs: CPU time for a thousand deployments, bytes of their evidence."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from bench.judge_ours import MARGIN, blocks
from bench.judge_world import BLOCKS, Cell, make
from specfleet.judgement.judge import judge
from specfleet.telemetry.evidence import EMPTY, Evidence

DEPLOYMENTS = 1000
DISTINCT = 20
REPEATS = 5
PODS = 10


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one core to judge DEPLOYMENTS once: the median of REPEATS and the worst; bytes of the largest."""

    median: float
    worst: float
    evidence: int


def measured() -> Cost:
    """Of deployments with PODS pods that have gathered BLOCKS blocks."""
    fleet = [_gathered(seed) for seed in range(DISTINCT)]
    seconds = [_judged(fleet) for _ in range(REPEATS)]
    return Cost(statistics.median(seconds), max(seconds), max(len(each.to_json().encode()) for each in fleet))


def _gathered(seed: int) -> Evidence:
    evidence = EMPTY
    for block in blocks(make(Cell("", stable=PODS - 2, canary=2), 0, seed)):
        evidence = evidence.add(block)
    assert evidence.seen == BLOCKS
    return evidence


def _judged(fleet: list[Evidence]) -> float:
    start = time.process_time()
    for number in range(DEPLOYMENTS):
        judge(fleet[number % len(fleet)], True, MARGIN)
    return time.process_time() - start
